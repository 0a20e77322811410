package ruleset

import (
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// listener hears of every change of the ruleset, so that another program's
// transaction about its own tables need not make lbd read all of its own.
type listener struct {
	fd int
	// last is the generation of the newest transaction that was told of to its
	// end.
	last uint32
}

// listenBuffer takes what others change between two calls of Intact; more than
// that is noticed, and answered by reading everything.
const listenBuffer = 1 << 20

func openListener(netns int) (*listener, error) {
	fd, err := openSocket(netns)
	if err != nil {
		return nil, err
	}
	l := &listener{fd: fd}
	// Without the right to force it the usual size does.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, listenBuffer)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, errors.Join(os.NewSyscallError("bind", err), l.close())
	}
	return l, nil
}

func (l *listener) close() error { return os.NewSyscallError("close", unix.Close(l.fd)) }

// join and leave say whether the kernel tells. It has to be asked for each
// transaction of ours: telling of 100,000 elements is work.
func (l *listener) join() error  { return l.membership(unix.NETLINK_ADD_MEMBERSHIP) }
func (l *listener) leave() error { return l.membership(unix.NETLINK_DROP_MEMBERSHIP) }

func (l *listener) membership(option int) error {
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(l.fd, unix.SOL_NETLINK, option, unix.NFNLGRP_NFTABLES))
}

// drain reads what was told since the last time and says whether it was about a
// table of that name, or may have been.
func (l *listener) drain(table string) (touched bool, err error) {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := unix.Recvfrom(l.fd, buf, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return touched, nil
		case errors.Is(err, unix.ENOBUFS):
			touched = true
			continue
		case err != nil:
			return true, os.NewSyscallError("recvfrom", err)
		}
		if a, ok := from.(*unix.SockaddrNetlink); !ok || a.Pid != 0 {
			continue // not from the kernel
		}
		if n > len(buf) || l.read(buf[:n], table) {
			touched = true
		}
	}
}

// read looks through a datagram. All messages but one have the table's name as
// the attribute 1, whatever they are about.
func (l *listener) read(b []byte, table string) (touched bool) {
	for len(b) >= headerLen {
		m, rest, err := nextMessage(b)
		if err != nil {
			return true
		}
		list, err := m.attributes()
		if err != nil {
			return true
		}
		b = rest
		a, err := parse(list)
		switch {
		case err != nil:
			touched = true
		case m.kind == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN:
			if v := a[unix.NFTA_GEN_ID]; len(v) == 4 {
				l.last = binary.BigEndian.Uint32(v)
			}
		case a.text(unix.NFTA_TABLE_NAME) == table:
			touched = true
		}
	}
	return touched
}
