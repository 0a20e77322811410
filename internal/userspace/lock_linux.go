package userspace

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// ErrRunning is returned by Open where another engine has the rules of the
// network namespace.
var ErrRunning = errors.New("another userspace engine runs in this network namespace")

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
		l, err := net.ListenUnix("unix", address)
		if err == nil {
			e.lock = l
			return nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return fmt.Errorf("lock the rules: %w", err)
		}
		owner, err := socketOwner(address)
		if err == nil && (owner.Uid == 0 || int(owner.Uid) == os.Geteuid()) {
			return fmt.Errorf("%w: process %d has the rules", ErrRunning, owner.Pid)
		}
		e.log.Warn("the rules of the userspace engine are not locked: somebody else has the socket", "socket", address.Name, "err", err)
		return nil
	})
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
