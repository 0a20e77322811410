// Command vmrun runs tests and programs as root on a real Debian kernel with
// IPVS, in a virtual machine (package vm) or, where the host's own kernel has
// IPVS, in a fresh network namespace of the host.
//
//	vmrun test [flags] PACKAGE...    one boot runs the packages' kernel tests
//	vmrun exec TESTBINARY ARG...     for go test -exec "vmrun exec"
//	vmrun run [flags] PROGRAM ARG... any program, its output live
//
// The exit status is 0 when all passed, 1 when something failed, 2 for wrong
// usage, 124 when the time was up, and 125 when there is no result, because the
// guest's kernel panicked or hung. exec and run pass the program's own on.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/lbd-project/lbd/internal/vm"
)

// Exit statuses.
const (
	statusFailed   = 1
	statusUsage    = 2
	statusTimeout  = 124
	statusNoResult = 125
)

const usage = `usage: vmrun test [flags] PACKAGE...
       vmrun exec TESTBINARY [ARG...]
       vmrun run [flags] PROGRAM [ARG...]
Flags of each: vmrun test -h. Environment:
  LBD_VM=vm|host|auto     where to run; the default is the virtual machine
  LBD_VM_KERNEL=cloud|PACKAGE|FILE.deb   which kernel; -kernel overrides it
  LBD_VM_ACCEL=auto|tcg|kvm              how QEMU runs the guest
  LBD_VM_CACHE=DIR        where kernels are kept
`

// app is one run of the program.
type app struct {
	stdout, stderr io.Writer
	getenv         func(string) string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	a := &app{stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv}
	status := a.main(ctx, os.Args[1:])
	stop()
	os.Exit(status)
}

func (a *app) main(ctx context.Context, args []string) int {
	if len(args) == 0 {
		fmt.Fprint(a.stderr, usage)
		return statusUsage
	}
	var status int
	var err error
	switch cmd, rest := args[0], args[1:]; cmd {
	case "test":
		status, err = a.test(ctx, rest)
	case "exec":
		status, err = a.exec(ctx, rest)
	case "run":
		status, err = a.run(ctx, rest)
	case inNetNSArg:
		err = inNetNS(rest)
	case "help", "-h", "-help", "--help":
		fmt.Fprint(a.stdout, usage)
		return 0
	default:
		err = usageError(fmt.Sprintf("unknown command %q", cmd))
	}
	return a.report(ctx, status, err)
}

// usageError is an error in how vmrun was called.
type usageError string

func (e usageError) Error() string { return string(e) }

// report prints err and returns the exit status.
func (a *app) report(ctx context.Context, status int, err error) int {
	var u usageError
	switch {
	case err == nil:
		return status
	case errors.Is(err, flag.ErrHelp):
		return 0
	case ctx.Err() != nil:
		fmt.Fprintln(a.stderr, "vmrun: interrupted")
		return 130
	}
	fmt.Fprintln(a.stderr, "vmrun:", err)
	switch {
	case errors.As(err, &u):
		fmt.Fprint(a.stderr, usage)
		return statusUsage
	case errors.Is(err, vm.ErrNoResult):
		return statusNoResult
	}
	return statusFailed
}

// logger returns the log of the rig; verbose shows how long its steps take.
func (a *app) logger(verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(_ []string, at slog.Attr) slog.Attr {
			if at.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return at
		},
	}))
}
