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
	ne := binary.NativeEndian
	b := make([]byte, headerLen, 128)
	ne.PutUint16(b[4:], unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETSETELEM)
	ne.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	b = append(b, family, unix.NFNETLINK_V0, 0, 0)
	b = appendAttribute(b, unix.NFTA_SET_ELEM_LIST_TABLE, append([]byte(table), 0))
	b = appendAttribute(b, unix.NFTA_SET_ELEM_LIST_SET, append([]byte(set), 0))
	ne.PutUint32(b, uint32(len(b)))
	return b
}

func appendAttribute(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(attrLen+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	return padded(append(b, value...))
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
	binary.NativeEndian.PutUint32(request[8:], c.seq)
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
	ne := binary.NativeEndian
	for len(b) > 0 {
		if len(b) < headerLen {
			return false, errTruncated
		}
		size := int(ne.Uint32(b))
		if size < headerLen || size > len(b) {
			return false, errTruncated
		}
		kind, seq, body := ne.Uint16(b[4:]), ne.Uint32(b[8:]), b[headerLen:size]
		b = b[min((size+3)&^3, len(b)):]
		if seq != c.seq {
			continue
		}
		switch kind {
		case unix.NLMSG_DONE:
			return true, nil
		case unix.NLMSG_ERROR:
			if len(body) < 4 {
				return false, errTruncated
			}
			switch code := unix.Errno(-int32(ne.Uint32(body))); code {
			case 0:
			case unix.ENOENT:
				return true, nil // neither table nor set
			default:
				return false, code
			}
		case unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWSETELEM:
			if len(body) < genmsgLen {
				return false, errTruncated
			}
			if err := c.elements(body[genmsgLen:], visit); err != nil {
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

var errTruncated = errors.New("truncated netlink message")

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

// nextAttribute splits the first attribute off.
func nextAttribute(b []byte) (kind uint16, value, rest []byte, err error) {
	if len(b) < attrLen {
		return 0, nil, nil, errTruncated
	}
	size := int(binary.NativeEndian.Uint16(b))
	if size < attrLen || size > len(b) {
		return 0, nil, nil, errTruncated
	}
	kind = binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
	return kind, b[attrLen:size], b[min((size+3)&^3, len(b)):], nil
}
