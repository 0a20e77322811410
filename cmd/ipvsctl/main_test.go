package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lbd-project/lbd/internal/api"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"ipvsctl": main})
}

// TestScripts runs testdata/*.txtar. In them, "lbd start" runs a server on
// lbd.sock that answers from the files lbd/*.json, "lbd stop" ends it, and
// "exits N command..." runs a command that must exit with N.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("TERM", "xterm")
			// A program with the race detector sleeps a second when it ends.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			env.Values[daemonKey{}] = &daemon{}
			return installFixture(filepath.Join(env.WorkDir, "lbd"))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"lbd":   scriptDaemon,
			"exits": scriptExits,
		},
	})
}

// installFixture copies testdata/lbd to dir, except what the script brings
// itself.
func installFixture(dir string) error {
	files, err := filepath.Glob("testdata/lbd/*.json")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		to := filepath.Join(dir, filepath.Base(f))
		if _, err := os.Stat(to); err == nil {
			continue
		}
		data, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if err := os.WriteFile(to, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// daemon is the lbd of a script; stop is nil before its first start.
type daemon struct{ stop func() }

// daemonKey is where a script keeps its daemon.
type daemonKey struct{}

func scriptDaemon(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: lbd start|stop")
	}
	d := ts.Value(daemonKey{}).(*daemon)
	if args[0] == "stop" {
		if d.stop == nil {
			ts.Fatalf("lbd does not run")
		}
		d.stop()
		return
	}
	l, err := api.Listen(ts.MkAbs("lbd.sock"), -1)
	ts.Check(err)
	d.stop = serve(l, scriptBackend{dir: ts.MkAbs("lbd")})
	ts.Defer(d.stop)
}

// scriptExits runs a command and compares its exit status, which "! exec" does
// not look at.
func scriptExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits N command...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var ee *exec.ExitError
	switch {
	case errors.As(err, &ee):
		got = ee.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("%v: want exit status %d, got %d", args[1:], want, got)
	}
}
