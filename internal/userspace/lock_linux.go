package userspace

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrRunning is returned by Open where another engine has the rules of the
// network namespace.
var ErrRunning = errors.New("another userspace engine runs in this network namespace")

// lastOne bounds how long an engine waits for a lock whose owner has given it back.
const lastOne = 2 * time.Second

// lockRules makes the engine the only one of its network namespace, until Close
// or the end of the process. Two would write their rules over each other's; the
// queues' numbers do not keep them apart where they differ.
//
// The lock is an abstract socket, which a namespace has for itself, and which
// goes with its process. Any user can take the name, so that only another
// engine's user, or root, counts as one.
func (e *Engine) lockRules() error {
	name := e.opt.RulesName
	if name == "" {
		name = "lbd"
	}
	address := &net.UnixAddr{Net: "unix", Name: "@lbd.rules." + name}
	return e.opt.Enter(func() error {
		for deadline := time.Now().Add(lastOne); ; time.Sleep(5 * time.Millisecond) {
			l, err := net.ListenUnix("unix", address)
			if err == nil {
				e.lock = rulesLock{l}
				return nil
			}
			if !errors.Is(err, unix.EADDRINUSE) {
				return fmt.Errorf("lock the rules: %w", err)
			}
			owner, err := socketOwner(address)
			switch {
			case err == nil && (owner.Uid == 0 || int(owner.Uid) == os.Geteuid()):
				return fmt.Errorf("%w: process %d has the rules", ErrRunning, owner.Pid)
			case errors.Is(err, unix.ECONNREFUSED) && time.Now().Before(deadline):
				continue // it is closed: see rulesLock.Close
			}
			e.log.Warn("the rules of the userspace engine are not locked: somebody else has the socket", "socket", address.Name, "err", err)
			return nil
		}
	})
}

// rulesLock is the socket that locks the rules.
type rulesLock struct{ *net.UnixListener }

// Close lets the next engine know that nobody has the rules, which the name alone
// does not say: a process that is being started has a copy of the socket until it
// executes its program.
func (l rulesLock) Close() error {
	raw, err := l.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	}
	return errors.Join(err, l.UnixListener.Close())
}

// socketOwner returns who listens.
func socketOwner(address *net.UnixAddr) (*unix.Ucred, error) {
	// The net package would wait where the backlog is full.
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: address.Name}); err != nil {
		return nil, os.NewSyscallError("connect", err)
	}
	owner, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	return owner, os.NewSyscallError("getsockopt", err)
}
