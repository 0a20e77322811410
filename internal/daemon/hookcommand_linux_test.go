package daemon

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/command"
	"github.com/lbd-project/lbd/internal/filetest"
)

// fakeCommand is a command that ends with err.
type fakeCommand struct{ err error }

func (c *fakeCommand) Succeed(context.Context, ...string) (command.Result, error) {
	return command.Result{Output: []byte("said\n")}, c.err
}

// A command whose program could not be ended or read is asked again, as it knows
// whether that is still so; any other is made anew, and nothing is kept of it.
func TestHookCommandsKept(t *testing.T) {
	made := make(map[string]int)
	commands := make(map[string]*fakeCommand)
	h := &hookCommands{stuck: make(map[string]succeeder), make: func(args []string) (succeeder, error) {
		name := strings.Join(args, " ")
		made[name]++
		commands[name] = new(fakeCommand)
		switch args[1] {
		case "stuck":
			commands[name].err = command.ErrStuck
		case "unread":
			commands[name].err = command.ErrUnread
		case "fails":
			commands[name].err = errors.New("exit status 1")
		}
		return commands[name], nil
	}}
	run := func(word string) error {
		output, err := h.run(t.Context(), []string{"/announce", word}, nil)
		if output != "said" {
			t.Errorf("%s: want what it said, got %q", word, output)
		}
		return err
	}
	for range 3 {
		for word, want := range map[string]error{"stuck": command.ErrStuck, "unread": command.ErrUnread, "well": nil} {
			if err := run(word); !errors.Is(err, want) {
				t.Errorf("%s: want %v, got %v", word, want, err)
			}
		}
		run("fails")
	}
	want := map[string]int{"/announce stuck": 1, "/announce unread": 1, "/announce well": 3, "/announce fails": 3}
	if d := cmp.Diff(want, made); d != "" {
		t.Errorf("made (-want +got):\n%s", d)
	}
	for _, word := range []string{"stuck", "unread"} {
		commands["/announce "+word].err = nil
		if err := run(word); err != nil {
			t.Errorf("%s, and it has ended: %v", word, err)
		}
	}
	if len(h.stuck) > 0 {
		t.Errorf("want nothing kept, got %v", h.stuck)
	}
}

// While the file of commands does not come, all of them take one thread.
func TestHookCommandsUnread(t *testing.T) {
	program := t.TempDir() + "/announce"
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho $1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	give := filetest.Withhold(t, program)
	h := commandsIn(nil, command.NewReads())
	before := filetest.Threads(t)
	const n = 40
	for i := range n {
		err := filetest.Unread(t, command.ErrStart, func(ctx context.Context) error {
			_, err := h.run(ctx, []string{program, strings.Repeat("x", i%20)}, nil)
			return err
		})
		if !errors.Is(err, command.ErrUnread) {
			t.Errorf("want %v, got %v", command.ErrUnread, err)
		}
	}
	if got := filetest.Threads(t); got > before+n/4 {
		t.Errorf("%d threads before, %d after %d commands", before, got, n)
	}
	give()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		output, err := h.run(ctx, []string{program, "x"}, nil)
		if err == nil && output == "x" {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("after the file has come: %q, %v", output, err)
		}
		time.Sleep(time.Millisecond)
	}
}
