package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// The exit statuses.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// exitStatuses is for the help and the man page.
const exitStatuses = "0 done, 1 the operation failed, 2 usage or configuration error"

// usageError is an error with the exit status 2: the command line or a
// configuration file is wrong.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// run is main without the process around it.
func run(args []string, in io.Reader, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return newApp(in, out, errOut).run(ctx, args)
}

func newApp(in io.Reader, out, errOut io.Writer) *app {
	return &app{in: in, out: &stickyWriter{w: out}, err: errOut, colour: wantsColour(out), openKernel: openKernel}
}

// run executes a command line and returns the exit status.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	if err == nil && a.out.err != nil {
		err = fmt.Errorf("write the output: %w", a.out.err)
	}
	if err == nil {
		return exitDone
	}
	a.complain(err.Error())
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	return exitFailed
}

// complain prints to standard error, with the name of the program on each line.
func (a *app) complain(text string) {
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		fmt.Fprintln(a.err, "ipvsctl: "+printable(line))
	}
}

// stickyWriter remembers its first error, so that a full disk is noticed once
// and not at each line.
type stickyWriter struct {
	w   io.Writer
	err error
}

func (s *stickyWriter) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.w.Write(p)
	s.err = err
	return n, err
}
