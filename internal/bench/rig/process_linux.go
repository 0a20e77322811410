package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// stopTimeout bounds the end of a process after SIGTERM.
const stopTimeout = 10 * time.Second

// Process is a program that runs in a namespace, in a process group of its own,
// until Stop or the end of the rig.
type Process struct {
	cmd   *exec.Cmd
	out   netnstest.Output
	ended chan struct{}
	err   error
}

// StartProcess starts a program in a namespace.
func StartProcess(t netnstest.TB, ns *netnstest.NS, name string, args ...string) (*Process, error) {
	return start(t, ns, exec.Command(name, args...))
}

func start(t netnstest.TB, ns *netnstest.NS, cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.out, &p.out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Programs that it leaves behind may hold its output open.
	cmd.WaitDelay = time.Second
	if err := ns.Start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(p.kill)
	return p, nil
}

// PID returns the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal to all of the process group.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.alive(); err != nil {
		return err
	}
	return syscall.Kill(-p.cmd.Process.Pid, s)
}

// Stop ends the process with SIGTERM, and all of its group with SIGKILL when it
// takes long.
func (p *Process) Stop() error {
	if err := p.alive(); err != nil {
		return err
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopTimeout):
		p.kill()
		return fmt.Errorf("%s did not end %v after SIGTERM", p.cmd.Path, stopTimeout)
	}
}

// Await calls ready until it returns nil, and gives up when the process ends or
// the context does.
func (p *Process) Await(ctx context.Context, ready func() error) error {
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-p.ended:
			return fmt.Errorf("%s ended: %v\n%s", p.cmd.Path, p.err, p.Output())
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w\n%s", p.cmd.Path, errors.Join(ctx.Err(), err), p.Output())
		}
	}
}

// Output returns what the process has written so far.
func (p *Process) Output() string { return p.out.String() }

// alive says how the process has ended by itself.
func (p *Process) alive() error {
	if p.running() {
		return nil
	}
	return fmt.Errorf("%s ended by itself: %v\n%s", p.cmd.Path, p.err, p.Output())
}

func (p *Process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *Process) kill() {
	if p.running() {
		syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.ended
	}
}

// lifeline returns the read end of a pipe whose write end nobody else has: it
// ends with this process, or with the rig.
func lifeline(t netnstest.TB) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { w.Close(); r.Close() })
	return r, nil
}
