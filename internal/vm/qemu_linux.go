package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lbd-project/lbd/internal/vm/wire"
)

// commandLine is the kernel's. A panic restarts the machine, which ends QEMU.
// Watchdogs are off: on a busy host a guest stalls through no fault of its own.
// The time stamp counter is the host's, but the kernel mistrusts it on an
// emulated processor, and its next best clock leaves the guest at every reading.
const commandLine = "console=ttyS0 panic=-1 oops=panic reboot=t quiet mitigations=off nowatchdog " +
	"rcupdate.rcu_cpu_stall_suppress=1 tsc=reliable cryptomgr.notests"

// bootLimit is how long a guest may take until it says hello. An idle host
// needs 2 seconds.
const bootLimit = 150 * time.Second

// drainLimit is how long the stream of a killed guest is still read.
const drainLimit = 2 * time.Second

// qemuArgs returns the arguments of one boot. The frames go to the file
// descriptor 3: a chardev on standard output would stall the guest once
// standard input is at its end.
func (m *Machine) qemuArgs(initrd, console string) []string {
	accel := m.accel
	if accel == accelTCG {
		accel = "tcg,thread=multi"
	}
	return []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-machine", "q35", "-cpu", "max", "-accel", accel,
		"-smp", strconv.Itoa(m.opt.CPUs), "-m", strconv.Itoa(m.opt.MemoryMB),
		"-kernel", m.kernel.image, "-initrd", initrd, "-append", commandLine,
		"-chardev", "file,id=console,path=" + console,
		"-serial", "chardev:console",
		"-device", "virtio-rng-pci",
		"-device", "virtio-serial-pci",
		"-chardev", "file,id=stream,path=/dev/fd/3",
		"-device", "virtserialport,chardev=stream,name=" + wire.PortName,
	}
}

// boot runs one guest and feeds its frames to o. It returns an error that
// matches ErrNoResult when the guest ended, or was ended, without a result.
func (m *Machine) boot(ctx context.Context, dir, initrd string, limit time.Duration, o *outcome) error {
	console := filepath.Join(dir, "console")
	if err := os.WriteFile(console, nil, 0o600); err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, m.qemu, m.qemuArgs(initrd, console)...)
	cmd.ExtraFiles = []*os.File{w}
	cmd.Stderr = &stderr
	cmd.WaitDelay = 5 * time.Second
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// The guest ends with the runner, and does not get the terminal's signals
	// before the runner has decided what they mean.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	err = cmd.Start()
	w.Close()
	if err != nil {
		return fmt.Errorf("start qemu: %w", err)
	}
	timer := time.AfterFunc(bootLimit, func() {
		cancel(fmt.Errorf("the guest did not come up within %v", bootLimit))
	})
	defer func() { timer.Stop() }()
	o.hello = func() {
		timer.Stop()
		timer = time.AfterFunc(limit, func() { cancel(fmt.Errorf("the guest did not end within %v", limit)) })
	}
	// A reader must not wait for ever where something keeps the stream open
	// after QEMU was killed. What is in the pipe still counts.
	stop := context.AfterFunc(ctx, func() { r.SetReadDeadline(time.Now().Add(drainLimit)) })
	defer stop()
	readErr := o.read(r)
	if errors.Is(readErr, os.ErrDeadlineExceeded) {
		readErr = nil // the cause of ctx says why
	}
	if o.haveResult || readErr != nil && !errors.Is(readErr, io.ErrUnexpectedEOF) {
		// All is said, or nothing reads the stream any more: do not wait for
		// the guest to shut down.
		cancel(readErr)
	}
	r.Close()
	waitErr := cmd.Wait()
	if o.haveResult {
		return nil
	}
	return noResult(context.Cause(ctx), readErr, waitErr, stderr.String(), console)
}

// noResult makes the error of a guest that gave none.
func noResult(cause, readErr, waitErr error, stderr, console string) error {
	if errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	e := &NoResultError{Reason: "the guest ended without a result"}
	text, err := os.ReadFile(console)
	if err != nil {
		return err
	}
	e.Console = tail(cleanConsole(string(text)), consoleTail)
	e.Panic = strings.Contains(string(text), "Kernel panic")
	switch {
	case e.Panic:
		e.Reason = "the guest's kernel panicked"
	case cause != nil:
		e.Reason = cause.Error()
	case readErr != nil && !errors.Is(readErr, io.ErrUnexpectedEOF):
		e.Reason = readErr.Error()
	case waitErr != nil:
		e.Reason = fmt.Sprintf("qemu: %v: %s", waitErr, lastLine(stderr))
	}
	return e
}
