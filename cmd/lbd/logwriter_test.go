package main

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func tellLost(w io.Writer, lines int) { fmt.Fprintf(w, "%d lost\n", lines) }

// elapsed returns how long f takes.
func elapsed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// While the reader keeps up, a line is there when Write returns.
func TestLogWriterKeepsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		w := newLogWriter(&b, tellLost)
		want := ""
		for i := range 1000 {
			line := fmt.Sprintf("line %d\n", i)
			want += line
			io.WriteString(w, line)
			if b.String() != want {
				t.Fatalf("line %d is not written", i)
			}
		}
		if d := elapsed(func() { w.Close() }); d != 0 {
			t.Errorf("Close: want no wait, got %v", d)
		}
	})
}

// A reader that hangs costs its patience once, and lines beyond the queue. When
// it goes on, it gets what was queued, how much was lost, and what comes then.
func TestLogWriterStall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pr, pw := io.Pipe() // nobody reads
		w := newLogWriter(pw, tellLost)
		line := func(i int) string { return fmt.Sprintf("%1023d\n", i) }
		const lines = 3 * maxLogQueue / 1024
		if d := elapsed(func() { io.WriteString(w, line(0)) }); d != logPatience {
			t.Errorf("the first line: want to wait %v, got %v", logPatience, d)
		}
		if d := elapsed(func() {
			for i := 1; i < lines; i++ {
				io.WriteString(w, line(i))
			}
		}); d != 0 {
			t.Errorf("the next lines: want no wait, got %v", d)
		}

		in := bufio.NewReader(pr)
		expect := func(want string) {
			t.Helper()
			if got, err := in.ReadString('\n'); got != want {
				t.Errorf("want %q, got %q, %v", strings.TrimSpace(want), strings.TrimSpace(got), err)
			}
		}
		const kept = 1 + maxLogQueue/1024 // the one that is being written, and the queue
		for i := range kept {
			expect(line(i))
		}
		expect(fmt.Sprintf("%d lost\n", lines-kept))
		synctest.Wait()
		for i := range 10 {
			go expect(line(i))
			if d := elapsed(func() { io.WriteString(w, line(i)) }); d != 0 {
				t.Errorf("line %d after the stall: want no wait, got %v", i, d)
			}
			synctest.Wait()
		}
		w.Close()
	})
}

// The end waits for what a slow reader takes in time, and no longer.
func TestLogWriterClose(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		pause, want time.Duration
	}{
		{"slow", logFlush / 4, logFlush / 2},
		{"hangs", time.Hour, logFlush},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pr, pw := io.Pipe()
				w := newLogWriter(pw, tellLost)
				io.WriteString(w, "first\n")
				io.WriteString(w, "second\n")
				got := make(chan string)
				go func() {
					var text string
					for b := make([]byte, 100); ; {
						time.Sleep(tt.pause)
						n, err := pr.Read(b)
						text += string(b[:n])
						if err != nil {
							got <- text
							return
						}
					}
				}()
				if d := elapsed(func() { w.Close() }); d != tt.want {
					t.Errorf("want to wait %v, got %v", tt.want, d)
				}
				io.WriteString(w, "too late\n")
				<-w.ended // the reader goes on: nothing is left behind
				pw.Close()
				if text, want := <-got, "first\nsecond\n"; text != want {
					t.Errorf("want %q, got %q", want, text)
				}
			})
		})
	}
}

// lbd ends although nobody empties the pipe that it logs to.
func TestLogReaderHangs(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	fill(t, w)
	cmd := exec.CommandContext(t.Context(), self, "--clear", "--run-dir", t.TempDir())
	cmd.Args[0] = "lbd" // what TestMain goes by
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Far above the time that it takes: without an end the test fails all the same.
	timer := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Wait(); err != nil {
		t.Errorf("lbd --clear with nothing to clear: want success, got %v", err)
	}
}

// fill fills a pipe.
func fill(t *testing.T, w *os.File) {
	t.Helper()
	c, err := w.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	c.Write(func(fd uintptr) bool {
		for size := 1 << 12; size > 0; size /= 2 {
			for err = nil; err == nil; {
				_, err = syscall.Write(int(fd), make([]byte, size))
			}
		}
		return true
	})
	if err != syscall.EAGAIN {
		t.Fatalf("fill the pipe: %v", err)
	}
}

// What was lost is told in the log's own words, whatever its level.
func TestLogLines(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	log, w := openLog(&b, slog.LevelError, true)
	log.Error("first")
	w.tellLost(&b, 2)
	w.Close()
	if got, want := b.String(), "level=ERROR msg=first\nlevel=WARN msg=\"2 log lines were lost\"\n"; got != want {
		t.Errorf("want %q, got %q", want, got)
	}
}
