package ruleset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/ipvs"
)

// closeCounts reads how many flows of each real server closed: the counters in
// the elements of setClosing. It has a socket of its own, so that it waits for
// nobody, and what it needs is made once.
type closeCounts struct {
	opts *Options
	fd   int
	seq  uint32
	// requests are dumps of the sets of both families, but for the sequence
	// number.
	requests [][]byte
	buf      []byte
	// dirty is set while an answer may wait that nobody read to its end.
	dirty bool
}

// maxCloseReads bounds the datagrams of one answer: the kernel puts some 300
// elements into each, and marks have at most 31 bits of which few are ever used.
const maxCloseReads = 1 << 16

func openCloseCounts(o *Options) (*closeCounts, error) {
	fd, err := openSocket(o.NetNS)
	if err != nil {
		return nil, err
	}
	c := &closeCounts{opts: o, fd: fd, buf: make([]byte, 64<<10)}
	// A connected socket takes messages from its peer alone, the kernel; which
	// answers within send and receive, so that nothing has to be waited for.
	err = errors.Join(
		os.NewSyscallError("connect", unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})),
		os.NewSyscallError("fcntl", unix.SetNonblock(fd, true)),
	)
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	for _, f := range []ipvs.Family{ipvs.IPv4, ipvs.IPv6} {
		c.requests = append(c.requests, dumpRequest(uint8(versionOf(f).family), o.Name, setClosing))
	}
	return c, nil
}

func (c *closeCounts) close() error { return os.NewSyscallError("close", unix.Close(c.fd)) }

// dumpRequest asks for the elements of a set.
func dumpRequest(family uint8, table, set string) []byte {
	of := appendAttribute(nil, unix.NFTA_SET_ELEM_LIST_TABLE, append([]byte(table), 0))
	of = appendAttribute(of, unix.NFTA_SET_ELEM_LIST_SET, append([]byte(set), 0))
	return newRequest(unix.NFT_MSG_GETSETELEM, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, family, of)
}

// Closed calls visit with the mark of each real server by masquerading, and how
// many of its TCP connections closed since it came into the rules: the first FIN
// or RST of either side that counts. It never waits for Apply and allocates
// nothing, but is not for two callers at once.
//
// The counts only grow, but may begin again at 0 when everything is written
// afresh. While rules change, by whomever, some real servers may be left out or
// come twice; the next call makes up for it. Without tables there are none. Two
// packets of both sides that close at the same instant on two processors may
// count twice. What was visited before an error holds.
func (r *Rules) Closed(visit func(mark uint32, n uint64)) error {
	if err := r.closed.read(visit); err != nil {
		return fmt.Errorf("read nftables counters: %w", err)
	}
	return nil
}

func (c *closeCounts) read(visit func(mark uint32, n uint64)) error {
	if c.dirty {
		if err := c.discard(); err != nil {
			return err
		}
	}
	for _, request := range c.requests {
		c.dirty = true
		if err := c.dump(request, visit); err != nil {
			return err
		}
		c.dirty = false
	}
	return nil
}

func (c *closeCounts) dump(request []byte, visit func(mark uint32, n uint64)) error {
	if err := c.send(request); err != nil {
		return err
	}
	for range maxCloseReads {
		n, err := c.receive()
		if err != nil {
			return err
		}
		if done, err := c.messages(c.buf[:n], visit); done || err != nil {
			return err
		}
	}
	return errors.New("an answer without an end")
}

func (c *closeCounts) send(request []byte) error {
	c.seq++
	number(request, c.seq)
	_, err := unix.Write(c.fd, request)
	return os.NewSyscallError("write", err)
}

func (c *closeCounts) receive() (int, error) {
	for {
		n, err := unix.Read(c.fd, c.buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return n, os.NewSyscallError("read", err)
	}
}

// discard reads what is left of an answer that was given up: the kernel refuses
// to begin another before.
func (c *closeCounts) discard() error {
	for range maxCloseReads {
		_, err := c.receive()
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return errors.New("an answer without an end")
}

// messages reads a datagram, and says whether the answer's last message was in
// it.
func (c *closeCounts) messages(b []byte, visit func(mark uint32, n uint64)) (done bool, err error) {
	for len(b) > 0 {
		var m netlinkMessage
		if m, b, err = nextMessage(b); err != nil {
			return false, err
		}
		if m.seq != c.seq {
			continue
		}
		switch m.kind {
		case unix.NLMSG_DONE:
			return true, nil
		case unix.NLMSG_ERROR:
			switch err := m.failure(); err {
			case nil:
			case unix.ENOENT:
				return true, nil // neither table nor set
			default:
				return false, err
			}
		case unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWSETELEM:
			list, err := m.attributes()
			if err == nil {
				err = c.elements(list, visit)
			}
			if err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// elements reads the attributes of one message.
func (c *closeCounts) elements(b []byte, visit func(mark uint32, n uint64)) error {
	list, err := attribute(b, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for len(list) > 0 && err == nil {
		var e []byte
		if _, e, list, err = nextAttribute(list); err != nil {
			break
		}
		var mark uint32
		var n uint64
		if mark, n, err = closeCount(e); err == nil && c.opts.isServer(mark) {
			visit(mark, n)
		}
	}
	return err
}

// closeCount reads an element: its key and the packets of its counter. The mark
// is 0 where it has not both.
func closeCount(e []byte) (mark uint32, n uint64, err error) {
	key, err := within(e, unix.NFTA_SET_ELEM_KEY, unix.NFTA_DATA_VALUE)
	if err != nil {
		return 0, 0, err
	}
	packets, err := within(e, unix.NFTA_SET_ELEM_EXPR, unix.NFTA_EXPR_DATA, unix.NFTA_COUNTER_PACKETS)
	if err != nil || len(key) != 4 || len(packets) != 8 {
		return 0, 0, err
	}
	return binary.NativeEndian.Uint32(key), binary.BigEndian.Uint64(packets), nil
}

// within goes down nested attributes; nil where one is absent.
func within(b []byte, path ...uint16) (_ []byte, err error) {
	for _, kind := range path {
		if b, err = attribute(b, kind); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// attribute is the first attribute of a kind; nil where there is none.
func attribute(b []byte, kind uint16) ([]byte, error) {
	for len(b) > 0 {
		k, v, rest, err := nextAttribute(b)
		if err != nil || k == kind {
			return v, err
		}
		b = rest
	}
	return nil, nil
}
