package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// outputWait is how long, after the end of the program, others may hold its
// output open.
const outputWait = 100 * time.Millisecond

// supported reports what this kernel lacks.
func supported() error {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return fmt.Errorf("open pidfd, which needs Linux 5.4: %w", err)
	}
	unix.Close(fd)
	return closeOnExec()
}

// closeOnExec marks the descriptors that this process was started with: those
// that it opens itself are marked already.
func closeOnExec() error {
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close_range, which needs Linux 5.11: %w", err)
	}
	return nil
}

// currentUmask returns the umask of this process, -1 if it cannot be read: the
// system call cannot read it without setting it. The main thread may have had
// one of its own, see fork.
func currentUmask() int {
	text, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return -1
	}
	_, rest, _ := strings.Cut(string(text), "\nUmask:")
	var mask int
	if _, err := fmt.Sscanf(rest, "%o", &mask); err != nil {
		return -1
	}
	return mask
}

func signalGroup(group int, signal syscall.Signal) error { return unix.Kill(-group, signal) }

// process is a program that has been started.
type process struct {
	cmd *exec.Cmd
	out *output
	// pidfd becomes readable when the program ends, so that waiting for many
	// takes no threads.
	pidfd *os.File
	// The rest is the Command's.
	kill            func(group int, signal syscall.Signal) error
	grace, killWait time.Duration
	// end is when SIGKILL comes at the latest, zero for grace after SIGTERM.
	end time.Time
}

// run starts the program, watches it and reaps it.
func (c *Command) run(ctx context.Context, env []string) (Result, error) {
	var end time.Time
	if deadline, ok := ctx.Deadline(); ok && c.spec.Whole {
		end = deadline
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-Reserve(time.Until(end))))
		defer cancel()
	}
	if err := c.reach(ctx); err != nil {
		return Result{}, err
	}
	p, err := c.start(env)
	if err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrStart, err)
	}
	p.end = end
	signal, ended := p.watch(ctx)
	if !ended {
		c.stuck.Add(1)
		go func() {
			p.await()
			p.reap()
			c.stuck.Add(-1)
		}()
		return Result{Output: p.out.kept()}, fmt.Errorf("%w, and %w", ctx.Err(), ErrStuck)
	}
	err = p.reap()
	r := Result{Output: p.out.kept()}
	switch status := p.cmd.ProcessState; {
	case signal != 0:
		return r, fmt.Errorf("ended by %s: %w", unix.SignalName(signal), ctx.Err())
	case err != nil:
		return r, err
	case !status.Exited():
		return r, fmt.Errorf("ended by a signal: %v", status)
	default:
		r.Code = status.ExitCode()
		return r, nil
	}
}

// start starts the program.
func (c *Command) start(env []string) (*process, error) {
	if err := closeOnExec(); err != nil {
		return nil, err
	}
	p := &process{out: new(output), kill: c.kill, grace: c.grace, killWait: c.killWait}
	fd := -1
	p.cmd = &exec.Cmd{
		Path: c.spec.Args[0],
		Args: c.spec.Args,
		Env:  env,
		Dir:  "/",
		// The same writer twice is one pipe, and keeps the order.
		Stdout:    p.out,
		Stderr:    p.out,
		WaitDelay: outputWait,
		// The leader of a session cannot leave its process group. Pdeathsig is
		// not for us: it follows the thread that forks, which ends at once.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, PidFD: &fd},
	}
	if a := c.account; a != nil {
		p.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: a.groups}
	}
	done := make(chan error, 1)
	go func() {
		if c.spec.Enter == nil {
			done <- c.fork(p.cmd)
			return
		}
		done <- c.spec.Enter(func() error { return c.fork(p.cmd) })
	}()
	err := <-done
	if p.cmd.Process == nil {
		if err == nil {
			err = errors.New("not started")
		}
		return nil, err
	}
	// From here on there is a child to reap, even if the way back out of the
	// namespace failed. The descriptor was made with the process.
	nerr := unix.SetNonblock(fd, true)
	p.pidfd = os.NewFile(uintptr(fd), "pidfd")
	if nerr == nil {
		// Fails if the runtime's poller did not take the file.
		nerr = p.pidfd.SetReadDeadline(time.Time{})
	}
	if err = cmp.Or(err, nerr); err != nil {
		p.kill(p.cmd.Process.Pid, unix.SIGKILL)
		// It may not have ended yet, and os.Process has a duplicate of this.
		unix.SetNonblock(fd, false)
		p.reap()
		return nil, err
	}
	return p, nil
}

// fork starts cmd with the right umask. It is called on a goroutine of its own.
func (c *Command) fork(cmd *exec.Cmd) error {
	if c.mask {
		// The thread gets a umask of its own. So it stays locked, and ends with
		// the goroutine.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return os.NewSyscallError("unshare", err)
		}
		unix.Umask(umask)
	}
	return cmd.Start()
}

// watch returns when the program has ended, or has not although it should have.
// signal is the last one that was sent because ctx was done.
func (p *process) watch(ctx context.Context) (signal unix.Signal, ended bool) {
	// A file takes no context, but a deadline in the past ends its wait. Those
	// below are set after the wait has ended, and so after this one.
	stop := context.AfterFunc(ctx, func() { p.pidfd.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if p.await() {
		return 0, true
	}
	grace := p.grace
	if !p.end.IsZero() {
		grace = min(grace, time.Until(p.end))
	}
	for _, step := range []struct {
		signal unix.Signal
		wait   time.Duration
	}{{unix.SIGTERM, grace}, {unix.SIGKILL, p.killWait}} {
		signal = step.signal
		// It may have ended by itself just now. Then it is a zombie that nobody
		// else reaps, and the number still is the group's.
		p.kill(p.cmd.Process.Pid, signal)
		p.pidfd.SetReadDeadline(time.Now().Add(step.wait))
		if p.await() {
			return signal, true
		}
	}
	p.pidfd.SetReadDeadline(time.Time{})
	return signal, false
}

// await reports whether the program ended before the read deadline of the pidfd.
// It leaves the zombie, which keeps the number of the process group taken.
func (p *process) await() bool {
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Read(func(fd uintptr) bool {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PIDFD, int(fd), &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		// A non-blocking pidfd gives EAGAIN for a program that runs. Another
		// error means that there is no such child any more.
		return err != nil && !errors.Is(err, unix.EAGAIN) || info.Signo != 0
	})
	return err == nil
}

// reap kills what is left of the group of a program that has ended, and waits
// for it and for its output.
func (p *process) reap() error {
	p.kill(p.cmd.Process.Pid, unix.SIGKILL)
	err := p.cmd.Wait()
	p.pidfd.Close()
	if _, ok := errors.AsType[*exec.ExitError](err); ok || errors.Is(err, exec.ErrWaitDelay) {
		return nil
	}
	return err
}
