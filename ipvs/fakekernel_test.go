package ipvs

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// fakeFamily is the number of the IPVS family of a fakeKernel.
const fakeFamily = 0x21

// fakeKernel is the other end of a client's socket. Its script answers each
// send with datagrams, or with an error of the receive.
type fakeKernel struct {
	t *testing.T
	// answer is called with what was sent.
	answer func(k *fakeKernel, sent []byte)
	// resolve is called for the family's number.
	resolve func() (uint16, error)
	maxOps  int
	// received is called when a datagram was read, interrupt before a deadline in
	// the past is set; nil for nothing.
	received, interrupt func()
	// reader is what Counts asks. It says that there are no services unless it is
	// given another answer.
	reader *fakeKernel

	mu       sync.Mutex
	wake     chan struct{}
	deadline time.Time
	queue    []any    // []byte or error
	sent     [][]byte // everything that was sent
	dials    int
	closes   int
}

func newFakeKernel(t *testing.T, answer func(k *fakeKernel, sent []byte)) (*fakeKernel, *Client) {
	k := newFakeSocket(t, answer)
	k.reader = newFakeSocket(t, dumpKeys())
	c := newClient(k.dial, fakeProc{})
	c.reader.dial = k.reader.dial
	t.Cleanup(func() { c.Close() })
	return k, c
}

func newFakeSocket(t *testing.T, answer func(k *fakeKernel, sent []byte)) *fakeKernel {
	return &fakeKernel{t: t, answer: answer, wake: make(chan struct{}, 1), maxOps: 1000,
		resolve: func() (uint16, error) { return fakeFamily, nil }}
}

func (k *fakeKernel) dial() (*link, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dials++
	k.queue = nil
	// A number that wraps around in the tests.
	return &link{conn: fakeConn{k}, seq: ^uint32(0) - 3, maxOps: k.maxOps, maxBytes: 160 << 10}, nil
}

// dumpKeys answers a dump of services with those of the keys.
func dumpKeys(keys ...ServiceKey) func(k *fakeKernel, sent []byte) {
	return func(k *fakeKernel, sent []byte) { k.dumpServices(requests(k.t, sent)[0].seq, keys) }
}

func (k *fakeKernel) dumpServices(seq uint32, keys []ServiceKey) {
	for _, key := range keys {
		s := ServiceStatus{Service: Service{ServiceKey: key, Scheduler: "wlc"}}
		k.reply(bodyMessage(seq, flagMulti, cmdNewService, appendServiceStatus(nil, s)))
	}
	k.reply(doneMessage(seq, 0))
}

func (k *fakeKernel) reply(datagram ...[]byte) {
	var all []byte
	for _, m := range datagram {
		all = append(all, m...)
	}
	k.push(all)
}

func (k *fakeKernel) fail(err error) { k.push(err) }

func (k *fakeKernel) push(v any) {
	k.mu.Lock()
	k.queue = append(k.queue, v)
	k.mu.Unlock()
	k.poke()
}

func (k *fakeKernel) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

type fakeConn struct{ k *fakeKernel }

func (c fakeConn) send(b []byte) error {
	c.k.mu.Lock()
	sent := append([]byte(nil), b...)
	c.k.sent = append(c.k.sent, sent)
	c.k.mu.Unlock()
	if c.k.answer != nil {
		c.k.answer(c.k, sent)
	}
	return nil
}

func (c fakeConn) receive(b []byte) (int, error) {
	for {
		c.k.mu.Lock()
		past := !c.k.deadline.IsZero() && !c.k.deadline.After(time.Now())
		var v any
		if len(c.k.queue) > 0 && !past {
			v = c.k.queue[0]
			c.k.queue = c.k.queue[1:]
		}
		deadline := c.k.deadline
		c.k.mu.Unlock()
		switch v := v.(type) {
		case []byte:
			if c.k.received != nil {
				c.k.received()
			}
			return copy(b, v), nil
		case error:
			return 0, v
		}
		if past {
			return 0, os.ErrDeadlineExceeded
		}
		select {
		case <-c.k.wake:
		case <-time.After(time.Until(deadline)):
		}
	}
}

func (c fakeConn) resolve() (uint16, error) { return c.k.resolve() }

func (c fakeConn) setReadDeadline(t time.Time) error {
	if c.k.interrupt != nil && t.Before(time.Now()) {
		c.k.interrupt()
	}
	c.k.mu.Lock()
	c.k.deadline = t
	c.k.mu.Unlock()
	c.k.poke()
	return nil
}

func (c fakeConn) close() error {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	c.k.closes++
	return nil
}

// fakeProc has files by name.
type fakeProc map[string]string

func (p fakeProc) open(name string) (procFile, error) {
	text, ok := p[name]
	if !ok {
		return nil, fmt.Errorf("open %s: %w", name, os.ErrNotExist)
	}
	return struct {
		io.ReaderAt
		io.Closer
	}{strings.NewReader(text), io.NopCloser(nil)}, nil
}

func (p fakeProc) close() error { return nil }

// request is a message of a client, cut up.
type sentRequest struct {
	flags   uint16
	seq     uint32
	cmd     uint8
	payload []byte
}

// requests cuts up what was sent and checks its headers.
func requests(t *testing.T, sent []byte) (list []sentRequest) {
	t.Helper()
	for len(sent) > 0 {
		var m message
		rest, err := m.parse(sent)
		if err != nil {
			t.Fatalf("request of %d bytes: %v", len(sent), err)
		}
		if m.typ != fakeFamily || len(m.payload) < genlHeaderLen || m.payload[1] != familyVersion {
			t.Fatalf("request has type %#x and payload % x", m.typ, m.payload)
		}
		list = append(list, sentRequest{m.flags, m.seq, m.payload[0], m.payload[genlHeaderLen:]})
		sent = rest
	}
	return list
}

// errorMessage makes an NLMSG_ERROR that answers seq; errno 0 is an ACK.
func errorMessage(seq uint32, errno syscall.Errno) []byte {
	b := netlinkHeader(nlmsgError, flagCapped, seq)
	b = binary.NativeEndian.AppendUint32(b, uint32(-int32(errno)))
	b = append(b, netlinkHeader(fakeFamily, flagRequest, seq)...)
	endMessage(b, 0)
	return b
}

func doneMessage(seq uint32, errno syscall.Errno) []byte {
	b := netlinkHeader(nlmsgDone, flagMulti, seq)
	b = binary.NativeEndian.AppendUint32(b, uint32(-int32(errno)))
	endMessage(b, 0)
	return b
}

func netlinkHeader(typ, flags uint16, seq uint32) []byte {
	return beginMessage(nil, typ, flags, seq, 0)[:nlmsgHeaderLen]
}

// bodyMessage makes a message of the family.
func bodyMessage(seq uint32, flags uint16, cmd uint8, attrs []byte) []byte {
	b := append(beginMessage(nil, fakeFamily, flags, seq, cmd), attrs...)
	endMessage(b, 0)
	return b
}

// appendServiceStatus encodes a service as the kernel dumps it.
func appendServiceStatus(b []byte, s ServiceStatus) []byte {
	start := len(b)
	b = appendService(b, &s.Service)
	b = appendStats(b, svcStats, s.Stats, false)
	b = appendStats(b, svcStats64, s.Stats, true)
	endNested(b, start)
	return b
}

// appendDestStatus encodes a real server as the kernel dumps it.
func appendDestStatus(b []byte, d DestinationStatus) []byte {
	start := len(b)
	b = appendDest(b, &d.Destination)
	b = appendU32(b, destActiveConns, d.Conns.Active)
	b = appendU32(b, destInactConns, d.Conns.Inactive)
	b = appendU32(b, destPersistConns, d.Conns.Persistent)
	b = appendStats(b, destStats, d.Stats, false)
	b = appendStats(b, destStats64, d.Stats, true)
	endNested(b, start)
	return b
}

func appendStats(b []byte, typ uint16, s Stats, wide bool) []byte {
	start := len(b)
	b = beginNested(b, typ)
	for i, v := range []uint64{s.Connections, s.PacketsIn, s.PacketsOut, s.BytesIn, s.BytesOut,
		s.ConnectionRate, s.PacketRateIn, s.PacketRateOut, s.ByteRateIn, s.ByteRateOut} {
		attr := uint16(i + 1)
		if wide || attr == statsInBytes || attr == statsOutBytes {
			// The kernel aligns 64-bit values with an empty attribute.
			b = appendHeader(b, statsPad, 0)
			b = binary.NativeEndian.AppendUint64(appendHeader(b, attr, 8), v)
		} else {
			b = appendU32(b, attr, uint32(v))
		}
	}
	endNested(b, start)
	return b
}

func setErrno(b []byte, n int32) { binary.NativeEndian.PutUint32(b, uint32(n)) }
