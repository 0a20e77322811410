package command

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/filetest"
)

// A program whose file does not come holds up nothing but itself, whether it is
// the program or the interpreter of a script, and works again when the file comes.
func TestRunUnread(t *testing.T) {
	for _, which := range []string{"program", "interpreter"} {
		t.Run(which, func(t *testing.T) {
			dir := t.TempDir()
			held, program := dir+"/program", dir+"/program"
			script := "#!/bin/sh\nexit 7\n"
			if which == "interpreter" {
				held = dir + "/interpreter"
				if err := os.WriteFile(held, []byte(script), 0o755); err != nil {
					t.Fatal(err)
				}
				script = "#! " + held + " -x\n"
			}
			if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			c, err := New(Spec{Args: []string{program}})
			if err != nil {
				t.Fatal(err)
			}
			end := filetest.Withhold(t, held)

			begun := time.Now()
			err = filetest.Unread(t, ErrStart, func(ctx context.Context) error {
				_, err := c.Run(ctx)
				return err
			})
			want := "run " + program + ": cannot start: its file cannot be read: context deadline exceeded"
			if err == nil || err.Error() != want || !errors.Is(err, ErrStart) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("want %q, got %v", want, err)
			}
			_, err = c.Run(within(t, 30*time.Second))
			want = "run " + program + ": cannot start: its file cannot be read"
			if err == nil || err.Error() != want || !errors.Is(err, ErrStart) {
				t.Errorf("again: want %q, got %v", want, err)
			}
			runtime.GC()
			if r, err := shell(t, "exit 3").Run(within(t, 30*time.Second)); err != nil || r.Code != 3 {
				t.Errorf("another program meanwhile: got %+v, %v", r, err)
			}
			if took := time.Since(begun); took > 40*time.Second {
				t.Errorf("all that took %v", took)
			}

			end()
			select {
			case <-c.unread.Load().done:
			case <-time.After(20 * time.Second):
				t.Error("still read after its file has come")
			}
			if r, err := c.Run(within(t, 30*time.Second)); err != nil || r.Code != 7 {
				t.Errorf("afterwards: want status 7, got %+v, %v", r, err)
			}
			noChildren(t)
		})
	}
}

// What is no file that can be read is not waited for, and fails as it does by
// itself.
func TestRunNoFile(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(dir+"/fifo", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"/itself": "#!" + dir + "/itself", "/empty": "", "/bare": "#!", "/gone": "#!/nonexistent/sh"} {
		if err := os.WriteFile(dir+name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"/fifo", "/itself", "/empty", "/bare", "/gone", "/absent", ""} {
		c, err := New(Spec{Args: []string{dir + name}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Run(within(t, 30*time.Second)); !errors.Is(err, ErrStart) || errors.Is(err, ErrUnread) {
			t.Errorf("%q: want that it cannot start, got %v", name, err)
		}
	}
}
