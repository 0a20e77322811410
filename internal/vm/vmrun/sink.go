package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/lbd-project/lbd/internal/vm"
	"github.com/lbd-project/lbd/internal/vm/wire"
)

// testSink counts the tests of each package, and prints their output: at once
// where it streams, otherwise only that of a package that is not well.
type testSink struct {
	out      io.Writer
	packages []pkg
	streams  bool

	current int
	active  bool
	tally   tally
	held    bytes.Buffer

	passed, failed, skipped, bad int
}

// Begin implements vm.Sink.
func (s *testSink) Begin(index int) {
	if index == 0 {
		// The first boot, or another one after it was lost.
		s.passed, s.failed, s.skipped, s.bad = 0, 0, 0, 0
	}
	s.current, s.active = index, true
	s.tally = tally{}
	s.held.Reset()
}

// Output implements vm.Sink.
func (s *testSink) Output(stderr bool, p []byte) {
	if !stderr {
		s.tally.Write(p)
	}
	clean := bytes.ReplaceAll(p, []byte{marker}, nil)
	if s.streams {
		s.out.Write(clean)
		return
	}
	s.held.Write(clean)
}

// Exit implements vm.Sink.
func (s *testSink) Exit(x wire.Exit) {
	s.active = false
	s.tally.finish()
	t := &s.tally
	var why []string
	switch {
	case x.TimedOut:
		why = append(why, "time was up")
	case x.Err != "":
		why = append(why, x.Err)
	case x.Status != 0:
		why = append(why, fmt.Sprintf("exit status %d", x.Status))
	}
	if len(t.running) > 0 {
		why = append(why, "did not end: "+strings.Join(t.running, " "))
	}
	if t.passed+t.failed == 0 {
		why = append(why, "ran no tests")
	}
	if len(t.skipped) > 0 {
		why = append(why, "skipped "+strings.Join(t.skipped, " "))
	}
	s.passed += t.passed
	s.failed += t.failed
	s.skipped += len(t.skipped)
	word := "ok"
	if len(why) > 0 || t.failed > 0 {
		word = "FAIL"
		s.bad++
	} else {
		s.held.Reset()
	}
	fmt.Fprintf(&s.held, "vm: %s %s %d passed %d failed %d skipped %.1fs", word, s.packages[x.Index].short(),
		t.passed, t.failed, len(t.skipped), x.Duration.Seconds())
	if len(why) > 0 {
		fmt.Fprintf(&s.held, " (%s)", strings.Join(why, "; "))
	}
	s.held.WriteByte('\n')
	s.flush() // one Write, as other guests write, too
}

// flush prints what was held back.
func (s *testSink) flush() {
	s.out.Write(s.held.Bytes())
	s.held.Reset()
}

// abort prints what the package had written when the guest was lost.
func (s *testSink) abort() {
	if s.active {
		fmt.Fprintf(&s.held, "\nvm: FAIL %s (the guest was lost)\n", s.packages[s.current].short())
		s.flush()
	}
}

// total prints the last lines of all guests and returns the exit status.
func total(w io.Writer, sinks []*testSink, reports []*vm.Report) int {
	status := 0
	var passed, failed, skipped int
	for i, s := range sinks {
		passed, failed, skipped = passed+s.passed, failed+s.failed, skipped+s.skipped
		if status == 0 && s.bad > 0 {
			status = statusFailed
		}
		for _, x := range reports[i].Exits {
			if x.TimedOut {
				status = statusTimeout
			}
		}
		if printAlarms(w, reports[i]) && status == 0 {
			status = statusFailed
		}
	}
	fmt.Fprintf(w, "vm: kernel %s: %d passed, %d failed, %d skipped\n", reports[0].Release, passed, failed, skipped)
	return status
}

// lines lets several guests write, each Write whole.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// printAlarms prints the kernel's alarms with the log around the first, and
// says whether there are any.
func printAlarms(w io.Writer, r *vm.Report) bool {
	if len(r.Alarms) == 0 {
		return false
	}
	if _, after, ok := strings.Cut(string(r.KernelLog), r.Alarms[0]); ok {
		lines := strings.SplitN(r.Alarms[0]+after, "\n", 61)
		fmt.Fprintf(w, "%s\n", strings.Join(lines[:min(60, len(lines))], "\n"))
	}
	for _, a := range r.Alarms {
		fmt.Fprintln(w, "vm: FAIL kernel alarm:", a)
	}
	return true
}
