package ruleset

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Wait returns once another program has changed rules since Intact last looked,
// whether lbd's or its own, or with the cause of ctx. Until Intact has looked it
// returns at once. It must have returned before Close.
func (r *Rules) Wait(ctx context.Context) error {
	err := r.heard.wait(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("wait for changes of nftables: %w", err)
	}
	return nil
}

func (l *listener) wait(ctx context.Context) error {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	woken := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		_, err := unix.Write(wake, binary.NativeEndian.AppendUint64(nil, 1))
		woken <- os.NewSyscallError("write", err)
	})
	fds := []unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}, {Fd: int32(wake), Events: unix.POLLIN}}
	for {
		if _, err = unix.Poll(fds, -1); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	err = os.NewSyscallError("poll", err)
	if !stop() {
		err = errors.Join(err, <-woken)
	}
	return errors.Join(err, unix.Close(wake))
}
