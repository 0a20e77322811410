package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/lbd-project/lbd/internal/vm"
	"github.com/lbd-project/lbd/internal/vm/lo"
	"github.com/lbd-project/lbd/internal/vm/wire"
	"golang.org/x/sys/unix"
)

// host is this machine, each task in network and mount namespaces of its own:
// IPVS tables belong to a network namespace, so the host's table stays as it is.
type host struct{ log *slog.Logger }

func (host) release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

func (h host) run(ctx context.Context, w work) (*vm.Report, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r := &vm.Report{Release: h.release()}
	for i, t := range w.tasks {
		w.sink.Begin(i)
		x, err := h.one(ctx, self, t, w)
		if err != nil {
			return nil, err
		}
		x.Index = i
		r.Exits = append(r.Exits, x)
		w.sink.Exit(x)
	}
	return r, nil
}

func (h host) one(ctx context.Context, self string, t task, w work) (wire.Exit, error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, append([]string{inNetNSArg, t.file}, t.args...)...)
	cmd.Dir = t.dir
	cmd.Env = append(os.Environ(), w.env...)
	if w.out != "" {
		cmd.Env = append(cmd.Env, "LBD_OUT="+w.out)
	}
	cmd.Stdout, cmd.Stderr = output{w.sink, false}, output{w.sink, true}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS}
	// A stack dump first; WaitDelay kills the program when that takes long.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) }
	cmd.WaitDelay = 15 * time.Second
	begin := time.Now()
	err := cmd.Run()
	x := wire.Exit{Duration: time.Since(begin), TimedOut: errors.Is(ctx.Err(), context.DeadlineExceeded)}
	if cmd.ProcessState == nil {
		return x, fmt.Errorf("start %s: %w", t.file, err)
	}
	x.Status = cmd.ProcessState.ExitCode()
	if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		x.Status = 128 + int(s.Signal())
	}
	if !x.TimedOut && ctx.Err() != nil {
		return x, ctx.Err()
	}
	return x, nil
}

// output hands what is written to a sink.
type output struct {
	sink   vm.Sink
	stderr bool
}

func (o output) Write(p []byte) (int, error) {
	o.sink.Output(o.stderr, p)
	return len(p), nil
}

// inNetNSArg is the argument by which vmrun starts itself in new namespaces.
const inNetNSArg = "in-netns"

// inNetNS makes the new namespaces usable and becomes the program.
func inNetNS(args []string) error {
	if len(args) == 0 {
		return usageError(inNetNSArg + " needs a program")
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// The mounted one shows the links of the old network namespace.
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	if err := lo.Up(); err != nil {
		return err
	}
	return unix.Exec(args[0], args, os.Environ())
}
