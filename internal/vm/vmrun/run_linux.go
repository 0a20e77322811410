package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/lbd-project/lbd/internal/vm"
	"github.com/lbd-project/lbd/internal/vm/wire"
)

// run is the command vmrun run.
func (a *app) run(ctx context.Context, args []string) (int, error) {
	fs := flag.NewFlagSet("vmrun run", flag.ContinueOnError)
	fs.SetOutput(a.stderr)
	var files, tools words
	flags := a.placeFlags(fs)
	fs.Var(&files, "file", "`host[:guest]` file or folder to ship; to /app, which is on PATH, unless told; may be repeated")
	fs.Var(&tools, "tool", "`name` of a program on this host to ship; may be repeated")
	out := fs.String("out", "", "`folder` that gets what the program leaves in /out ($LBD_OUT)")
	timeout := fs.Duration("timeout", 30*time.Minute, "limit of the program")
	if err := fs.Parse(args); err != nil {
		if err == flag.ErrHelp {
			return 0, err
		}
		return 0, usageError(err.Error())
	}
	if fs.NArg() == 0 {
		return 0, usageError("run needs a program")
	}
	if *timeout <= 0 {
		return 0, usageError("-timeout must be above 0")
	}
	w := work{image: new(vm.Image), env: programEnv(os.Environ()), sink: &copySink{a.stdout, a.stderr}}
	t, err := runTask(w.image, fs.Arg(0))
	if err != nil {
		return 0, err
	}
	t.args, t.timeout = fs.Args()[1:], *timeout
	w.tasks = []task{t}
	if *out != "" {
		if w.out, err = filepath.Abs(*out); err != nil {
			return 0, err
		}
		if err := os.MkdirAll(w.out, 0o755); err != nil {
			return 0, err
		}
	}
	for _, f := range files {
		host, guest, ok := strings.Cut(f, ":")
		if !ok {
			guest = path.Join("/app", filepath.Base(host))
		}
		if err := w.image.Add(host, guest); err != nil {
			return 0, err
		}
	}
	for _, tool := range tools {
		if _, err := w.image.AddTool(tool); err != nil {
			return 0, err
		}
	}
	return a.one(ctx, flags, w)
}

// runTask ships the program: one named with a slash to /app, another as a tool.
func runTask(m *vm.Image, program string) (task, error) {
	t := task{guestDir: "/app"}
	var err error
	if t.dir, err = os.Getwd(); err != nil {
		return t, err
	}
	if !strings.Contains(program, "/") {
		t.guestFile, err = m.AddTool(program)
		t.file = t.guestFile
		return t, err
	}
	if t.file, err = filepath.Abs(program); err != nil {
		return t, err
	}
	t.guestFile = path.Join("/app", filepath.Base(program))
	return t, m.Add(t.file, t.guestFile)
}

// one runs a single task and returns its exit status.
func (a *app) one(ctx context.Context, flags *placeFlags, w work) (int, error) {
	p, err := a.open(ctx, flags)
	if err != nil {
		return 0, err
	}
	r, err := p.run(ctx, w)
	if err != nil {
		return 0, err
	}
	x := r.Exits[0]
	if x.Err != "" {
		fmt.Fprintln(a.stderr, "vmrun:", x.Err)
	}
	alarms := printAlarms(a.stderr, r)
	switch {
	case x.TimedOut:
		fmt.Fprintln(a.stderr, "vmrun: the time was up")
		return statusTimeout, nil
	case x.Status == 0 && alarms:
		return statusFailed, nil
	}
	return x.Status, nil
}

// copySink passes output on.
type copySink struct{ stdout, stderr io.Writer }

// Begin implements vm.Sink.
func (s *copySink) Begin(int) {}

// Output implements vm.Sink.
func (s *copySink) Output(stderr bool, p []byte) {
	w := s.stdout
	if stderr {
		w = s.stderr
	}
	// The program goes on when nobody reads its output any more.
	_, _ = w.Write(p)
}

// Exit implements vm.Sink.
func (s *copySink) Exit(wire.Exit) {}
