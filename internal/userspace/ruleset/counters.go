package ruleset

import (
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/ipvs"
)

// counters reads the counters in the elements of setClosing and setTraffic. It
// has a socket of its own, so that it waits for nobody, and what it needs is made
// once.
type counters struct {
	opts *Options
	fd   int
	seq  uint32
	// closing and traffic are dumps of the sets of both families, but for the
	// sequence number.
	closing, traffic [][]byte
	buf              []byte
	// dirty is set while an answer may wait that nobody read to its end.
	dirty bool
}

// countVisitor is called with an element's key, which holds until it returns, and
// with what its counter says.
type countVisitor func(key []byte, packets, bytes uint64)

// maxCountReads bounds the datagrams of one answer: the kernel puts some 300
// elements into each, and marks have at most 31 bits of which few are ever used.
const maxCountReads = 1 << 16

func openCounters(o *Options) (*counters, error) {
	fd, err := openSocket(o.NetNS)
	if err != nil {
		return nil, err
	}
	c := &counters{opts: o, fd: fd, buf: make([]byte, 64<<10)}
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
		family := uint8(versionOf(f).family)
		c.closing = append(c.closing, dumpRequest(family, o.Name, setClosing))
		c.traffic = append(c.traffic, dumpRequest(family, o.Name, setTraffic))
	}
	return c, nil
}

func (c *counters) close() error { return os.NewSyscallError("close", unix.Close(c.fd)) }

// dumpRequest asks for the elements of a set.
func dumpRequest(family uint8, table, set string) []byte {
	of := appendAttribute(nil, unix.NFTA_SET_ELEM_LIST_TABLE, append([]byte(table), 0))
	of = appendAttribute(of, unix.NFTA_SET_ELEM_LIST_SET, append([]byte(set), 0))
	return newRequest(unix.NFT_MSG_GETSETELEM, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, family, of)
}

// read answers the requests of one set, one after the other. What was visited
// before an error holds.
func (c *counters) read(requests [][]byte, visit countVisitor) error {
	if c.dirty {
		if err := c.discard(); err != nil {
			return err
		}
	}
	for _, request := range requests {
		c.dirty = true
		if err := c.dump(request, visit); err != nil {
			return err
		}
		c.dirty = false
	}
	return nil
}

func (c *counters) dump(request []byte, visit countVisitor) error {
	if err := c.send(request); err != nil {
		return err
	}
	for range maxCountReads {
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

func (c *counters) send(request []byte) error {
	c.seq++
	number(request, c.seq)
	_, err := unix.Write(c.fd, request)
	return os.NewSyscallError("write", err)
}

func (c *counters) receive() (int, error) {
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
func (c *counters) discard() error {
	for range maxCountReads {
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
func (c *counters) messages(b []byte, visit countVisitor) (done bool, err error) {
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
func (c *counters) elements(b []byte, visit countVisitor) error {
	list, err := attribute(b, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for len(list) > 0 && err == nil {
		var e []byte
		if _, e, list, err = nextAttribute(list); err != nil {
			break
		}
		err = c.element(e, visit)
	}
	return err
}

// element reads an element. One without key or counter is left out.
func (c *counters) element(e []byte, visit countVisitor) error {
	key, err := within(e, unix.NFTA_SET_ELEM_KEY, unix.NFTA_DATA_VALUE)
	if err != nil {
		return err
	}
	counter, err := within(e, unix.NFTA_SET_ELEM_EXPR, unix.NFTA_EXPR_DATA)
	if err != nil {
		return err
	}
	packets, err := attribute(counter, unix.NFTA_COUNTER_PACKETS)
	if err != nil {
		return err
	}
	bytes, err := attribute(counter, unix.NFTA_COUNTER_BYTES)
	if err != nil || key == nil || len(packets) != 8 || len(bytes) != 8 {
		return err
	}
	visit(key, binary.BigEndian.Uint64(packets), binary.BigEndian.Uint64(bytes))
	return nil
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
