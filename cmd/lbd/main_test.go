package main

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/pflag"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"lbd": main})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// exits runs "exits STATUS PROGRAM [ARG…]" and fails unless the exit status is
// STATUS. Its output is there for stdout and stderr, as after exec.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS PROGRAM [ARG…]")
	}
	want, err := strconv.Atoi(args[0])
	if err != nil {
		ts.Fatalf("exits: %v", err)
	}
	got := 0
	var exit *exec.ExitError
	switch err := ts.Exec(args[1], args[2:]...); {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("exits: %v", err)
	}
	if got != want {
		ts.Fatalf("%s: want exit status %d, got %d", strings.Join(args[1:], " "), want, got)
	}
}

// lbd goes on when nobody reads its log any more.
func TestLogReaderEnds(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	cmd := exec.Command(self, "--clear", "--run-dir", t.TempDir())
	cmd.Args[0] = "lbd" // what TestMain goes by
	cmd.Stderr = w
	if err := cmd.Run(); err != nil {
		t.Errorf("lbd --clear with nothing to clear: want success, got %v", err)
	}
}

// The journal has its own timestamps; a terminal has not.
func TestLoggerTime(t *testing.T) {
	t.Parallel()
	for _, journal := range []bool{false, true} {
		var b bytes.Buffer
		newLogger(&b, slog.LevelInfo, journal).Info("hello", "time", "noon")
		if got := strings.HasPrefix(b.String(), "time="); got == journal {
			t.Errorf("journal %v: line %q", journal, b.String())
		}
		if !strings.Contains(b.String(), "level=INFO msg=hello") {
			t.Errorf("journal %v: line %q", journal, b.String())
		}
	}
}

// The help and the man page have every option with its default.
func TestHelp(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../packaging/man/lbd.8")
	if err != nil {
		t.Fatal(err)
	}
	man := strings.NewReplacer(`\-`, "-", `\fI`, "", `\fR`, "").Replace(string(page))
	var f flags
	f.define().VisitAll(func(o *pflag.Flag) {
		for name, text := range map[string]string{"help": usage, "lbd.8": man} {
			if !strings.Contains(text, "--"+o.Name) {
				t.Errorf("%s does not have --%s", name, o.Name)
			}
			if o.DefValue != "false" && !strings.Contains(text, strings.ToLower(o.DefValue)) {
				t.Errorf("%s does not have the default %s of --%s", name, o.DefValue, o.Name)
			}
		}
	})
	if n := strings.Count(usage, "\n"); n > 40 {
		t.Errorf("help: want at most 40 lines, got %d", n)
	}
}
