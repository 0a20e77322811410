package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/lbd-project/lbd/internal/vm/wire"
)

const (
	// dumpGrace is how long a Go program may take to print its stacks after
	// SIGQUIT; emulation is slow.
	dumpGrace = 15 * time.Second
	// pipeGrace is how long a command's children may keep its output open
	// after it ended.
	pipeGrace = 2 * time.Second
)

// run runs c to its end or its time-out.
func run(c wire.Command, stdout, stderr io.Writer) wire.Exit {
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Dir, cmd.Env = c.Dir, c.Env
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.WaitDelay = pipeGrace
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	begin := time.Now()
	if err := startIn(cmd); err != nil {
		return wire.Exit{Status: 127, Err: err.Error()}
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	err, timedOut := await(cmd, done, c.Timeout)
	x := wire.Exit{TimedOut: timedOut, Duration: time.Since(begin)}
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	x.Status = status(cmd.ProcessState)
	if err != nil && x.Status == 0 {
		// The program ended well, but its output did not get through.
		x.Status, x.Err = 127, err.Error()
	}
	return x
}

func startIn(cmd *exec.Cmd) error {
	// A Go test may write beside its sources; the folder is there only when
	// something was shipped in it.
	if err := os.MkdirAll(cmd.Dir, 0o755); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Clean(wire.OutDir), 0o755); err != nil {
		return err
	}
	return cmd.Start()
}

// await waits for the end of cmd. After timeout it asks for a stack dump, and
// at last kills the whole process group.
func await(cmd *exec.Cmd, done <-chan error, timeout time.Duration) (error, bool) {
	var limit <-chan time.Time
	if timeout > 0 {
		limit = time.After(timeout)
	}
	select {
	case err := <-done:
		return err, false
	case <-limit:
	}
	_ = cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case err := <-done:
		return err, true
	case <-time.After(dumpGrace):
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	return <-done, true
}

func status(p *os.ProcessState) int {
	w, ok := p.Sys().(syscall.WaitStatus)
	if ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return p.ExitCode()
}
