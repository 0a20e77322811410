package ruleset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netns"
)

// watch reads what the nftables library has no call for: the generation of the
// whole ruleset, and what is in and about each chain. The kernel counts the
// generation up with each transaction that changes anything, whoever's it is.
type watch struct {
	fd  int
	seq uint32
	// torn says that the ruleset changed during the present dump.
	torn bool
}

// receiveTimeout ends a read that the kernel does not answer, which it always
// does.
const receiveTimeout = 5 * time.Second

func openWatch(netns int) (*watch, error) {
	fd, err := openSocket(netns)
	if err != nil {
		return nil, err
	}
	w := &watch{fd: fd}
	tv := unix.NsecToTimeval(receiveTimeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		return nil, errors.Join(os.NewSyscallError("setsockopt", err), w.close())
	}
	return w, nil
}

// openSocket opens a netlink socket in the namespace of a descriptor, or in the
// thread's where that is 0 or less.
func openSocket(ns int) (fd int, err error) {
	if ns <= 0 {
		ns = -1
	}
	fd = -1
	err = netns.In(ns, func() error {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		return os.NewSyscallError("socket", err)
	})
	return fd, err
}

func (w *watch) close() error { return os.NewSyscallError("close", unix.Close(w.fd)) }

// Generation returns that of the whole ruleset of a network namespace: what is read
// while it stays the same is of one ruleset. netns is a descriptor; 0 or less is the
// thread's own.
func Generation(netns int) (uint32, error) {
	w, err := openWatch(netns)
	if err != nil {
		return 0, err
	}
	id, err := w.generation()
	return id, errors.Join(err, w.close())
}

// generation returns the ruleset's generation.
func (w *watch) generation() (uint32, error) {
	var id uint32
	found := false
	err := w.request(unix.NFT_MSG_GETGEN, unix.NLM_F_REQUEST, unix.NFPROTO_UNSPEC, nil, func(a attributes) {
		if v, ok := a[unix.NFTA_GEN_ID]; ok && len(v) == 4 {
			id, found = binary.BigEndian.Uint32(v), true
		}
	})
	if err == nil && !found {
		err = errors.New("the answer has no generation")
	}
	if err != nil {
		return 0, fmt.Errorf("read nftables generation: %w", err)
	}
	return id, nil
}

// dormant says whether somebody has put a table to sleep: nothing in it works
// then.
func (w *watch) dormant(family uint8, table string) (bool, error) {
	var flags uint32
	err := w.request(unix.NFT_MSG_GETTABLE, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, family, nil, func(a attributes) {
		if v := a[unix.NFTA_TABLE_FLAGS]; a.text(unix.NFTA_TABLE_NAME) == table && len(v) == 4 {
			flags = binary.BigEndian.Uint32(v)
		}
	})
	if err != nil {
		return false, fmt.Errorf("list tables: %w", err)
	}
	return flags&unix.NFT_TABLE_F_DORMANT != 0, nil
}

// request sends one request, with attributes or without, and passes on each
// answer. A dump is read to its end also where it was interrupted: until then the
// kernel refuses the next one (EBUSY).
func (w *watch) request(kind, flags uint16, family uint8, what []byte, each func(attributes)) error {
	w.seq++
	w.torn = false
	b := newRequest(kind, flags, family, what)
	number(b, w.seq)
	if err := unix.Sendto(w.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sendto", err)
	}
	buf := make([]byte, 64<<10)
	for {
		n, from, err := unix.Recvfrom(w.fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("recvfrom", err)
		}
		if a, ok := from.(*unix.SockaddrNetlink); !ok || a.Pid != 0 {
			continue // not from the kernel
		}
		done, err := w.messages(buf[:n], flags&unix.NLM_F_DUMP != 0, each)
		if err == nil && done && w.torn {
			return errInterrupted
		}
		if done || err != nil {
			return err
		}
	}
}

// messages passes on the answers in a datagram and says whether the last came.
func (w *watch) messages(b []byte, dump bool, each func(attributes)) (done bool, err error) {
	for len(b) >= headerLen {
		var m netlinkMessage
		if m, b, err = nextMessage(b); err != nil {
			return false, err
		}
		if m.seq != w.seq {
			continue // of an earlier request that was given up
		}
		w.torn = w.torn || m.flags&unix.NLM_F_DUMP_INTR != 0
		switch {
		case m.kind == unix.NLMSG_DONE:
			return true, nil
		case m.kind == unix.NLMSG_ERROR:
			if err := m.failure(); err != nil {
				return false, err
			}
		default:
			list, err := m.attributes()
			if err != nil {
				return false, err
			}
			a, err := parse(list)
			if err != nil {
				return false, err
			}
			each(a)
			if !dump {
				return true, nil
			}
		}
	}
	return false, nil
}

// errInterrupted is a dump during which the ruleset changed.
var errInterrupted = errors.New("the ruleset changed while it was read")
