package nfqueue

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
)

var nativeEndian = binary.NativeEndian

// TestNetnsQueue uses the xt target, which kernels without nft's own queue
// expression have.
func TestNetnsQueue(t *testing.T) {
	netnstest.Require(t, "netns", "nfqueue")
	live(t, false)
}

// TestKernelNFQueue does the same with nft's expression.
func TestKernelNFQueue(t *testing.T) {
	netnstest.Require(t, "ipvs", "nfqueue") // the kernel tier's machine
	live(t, true)
}

func live(t *testing.T, native bool) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, *netnstest.NS, rule)
	}{
		{"IPv4", func(t *testing.T, ns *netnstest.NS, r rule) { testEveryPacket(t, ns, r, "127.0.0.1", 28) }},
		{"IPv6", func(t *testing.T, ns *netnstest.NS, r rule) {
			r.family = nftables.TableFamilyIPv6
			testEveryPacket(t, ns, r, "::1", 48)
		}},
		{"output", func(t *testing.T, ns *netnstest.NS, r rule) {
			r.hook = nftables.ChainHookOutput
			testEveryPacket(t, ns, r, "127.0.0.1", 28)
		}},
		{"in use", testInUse},
		{"batch", testBatch},
		{"panic", testPanic},
		{"panic of a batch", testBatchPanic},
		{"unknown", testUnknown},
		{"full", testFull},
		{"fail open", testFailOpen},
		{"owner killed", testOwnerKilled},
		{"owner stopped", testOwnerStopped},
		{"balance", testBalance},
		{"fragments", testFragments},
		{"GSO", testGSO},
	} {
		t.Run(test.name, func(t *testing.T) {
			ns := netnstest.New(t)
			test.run(t, ns, rule{ns: ns, native: native})
		})
	}
}

// testEveryPacket sees each packet answered once, with marks that keep foreign
// bits and without. Its number is behind the headers.
func testEveryPacket(t *testing.T, ns *netnstest.NS, r rule, addr string, headers int) {
	const packets, foreign = 1000, 0x80000001
	u := newUDP(t, ns, addr, foreign)
	q := open(t, ns, Config{})
	r.add(t)
	var hook atomic.Uint32
	run(t, q, func(p *Packet) Verdict {
		hook.Store(uint32(p.Hook))
		if p.Length != headers+4 {
			t.Errorf("length %d", p.Length)
		}
		n := binary.BigEndian.Uint32(p.Payload[headers:])
		switch n % 3 {
		case 0:
			return Verdict{Accept: true, SetMark: true, Mark: p.Mark | n<<8}
		case 1:
			return Verdict{Accept: true}
		}
		return Verdict{}
	})
	for i := range uint32(packets) {
		u.write(binary.BigEndian.AppendUint32(nil, i))
		if i%3 == 2 {
			continue // dropped
		}
		b, mark := u.read()
		want := uint32(foreign)
		if i%3 == 0 {
			want |= i << 8
		}
		if got := binary.BigEndian.Uint32(b); got != i || mark != want {
			t.Fatalf("packet %d with mark %#x: got %d with %#x", i, want, got, mark)
		}
	}
	eventually(t, "last verdict", func() bool { return q.Stats().Verdicts == packets })
	got := q.Stats()
	got.Batches = 0
	if want := (Stats{Packets: packets, Verdicts: packets}); got != want {
		t.Errorf("want %+v, got %+v", want, got)
	}
	if want := uint32(*cmp.Or(r.hook, nftables.ChainHookPrerouting)); hook.Load() != want {
		t.Errorf("want hook %d, got %d", want, hook.Load())
	}
	if waiting := kernelQueue(t, ns).Waiting; waiting != 0 {
		t.Errorf("%d packets wait", waiting)
	}
}

func testInUse(t *testing.T, ns *netnstest.NS, r rule) {
	q := open(t, ns, Config{})
	_, err := Open(Config{Number: testQueue, NetNS: ns.FD()})
	if !errors.Is(err, ErrInUse) {
		t.Errorf("second bind: want ErrInUse, got %v", err)
	}
	// As in a child that does not execute its program yet.
	copied, err := unix.FcntlInt(uintptr(q.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(copied)
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	open(t, ns, Config{})
}

// testPanic has a handler that panics for every third packet: those go on
// without a mark, the others as if nothing were.
func testPanic(t *testing.T, ns *netnstest.NS, r rule) {
	const packets = 30
	u := newUDP(t, ns, "127.0.0.1", 0x1000)
	var log bytes.Buffer
	q := open(t, ns, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	r.add(t)
	stop := run(t, q, func(p *Packet) Verdict {
		if p.Payload[28]%3 == 0 {
			var none []byte
			_ = none[p.ID]
		}
		return Verdict{Accept: true, SetMark: true, Mark: p.Mark | 7}
	})
	for i := range byte(packets) {
		u.write([]byte{i})
	}
	for range packets {
		b, mark := u.read()
		want := uint32(0x1007)
		if b[0]%3 == 0 {
			want = 0x1000
		}
		if mark != want {
			t.Errorf("packet %d: want mark %#x, got %#x", b[0], want, mark)
		}
	}
	stop()
	if s := q.Stats(); s.Panics != packets/3 || s.Verdicts != packets {
		t.Errorf("stats %+v", s)
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 || !strings.Contains(log.String(), "index out of range") {
		t.Errorf("want one line with the reason, got %d:\n%s", n, &log)
	}
}

// recorder is a Handler that marks packets with their first byte, and notes what it
// was asked. Its Batch panics for batches with the packet that begins with 1.
type recorder struct {
	t       *testing.T
	packets []Packet
	asked   int
	sizes   []int
	panics  bool
}

func (r *recorder) Batch(packets []Packet) {
	if len(r.packets) != r.asked {
		r.t.Errorf("a batch after %d answers to %d packets", r.asked, len(r.packets))
	}
	r.packets, r.asked = nil, 0
	r.sizes = append(r.sizes, len(packets))
	if r.panics && slices.ContainsFunc(packets, func(p Packet) bool { return p.Payload[28] == 1 }) {
		panic("batch")
	}
	r.packets = packets
}

func (r *recorder) Answer(i int) Verdict {
	if i != r.asked {
		r.t.Errorf("answer %d asked for after %d", i, r.asked)
	}
	r.asked++
	p := &r.packets[i]
	return Verdict{Accept: true, SetMark: true, Mark: p.Mark | uint32(p.Payload[28])<<8}
}

// runRecorder lets packets pile up before a recorder has the queue, and reads them.
func runRecorder(t *testing.T, ns *netnstest.NS, r rule, h *recorder, packets byte, want func(n byte) uint32) Stats {
	u := newUDP(t, ns, "127.0.0.1", 0x1)
	q := open(t, ns, Config{})
	r.add(t)
	for i := range packets {
		u.write([]byte{i})
	}
	eventually(t, "all queued", func() bool { return kernelQueue(t, ns).Waiting == uint64(packets) })
	stop := runHandler(t, q, h, func() bool { return false })
	for range packets {
		if b, mark := u.read(); mark != want(b[0]) {
			t.Errorf("packet %d: want mark %#x, got %#x", b[0], want(b[0]), mark)
		}
	}
	stop()
	return q.Stats()
}

// testBatch has a handler see all that was received together before it answers any
// of that.
func testBatch(t *testing.T, ns *netnstest.NS, r rule) {
	h := &recorder{t: t}
	s := runRecorder(t, ns, r, h, 10, func(n byte) uint32 { return 1 | uint32(n)<<8 })
	if want := []int{10}; !slices.Equal(want, h.sizes) || h.asked != 10 || s.Batches != 1 {
		t.Errorf("want batches of %d and as many answers, got %d, %d; %+v", want, h.sizes, h.asked, s)
	}
}

// testBatchPanic has a handler that panics when it is told of a batch with a certain
// packet: that one goes on without a mark, the others are answered.
func testBatchPanic(t *testing.T, ns *netnstest.NS, r rule) {
	h := &recorder{t: t, panics: true}
	s := runRecorder(t, ns, r, h, 4, func(n byte) uint32 {
		if n == 1 {
			return 1
		}
		return 1 | uint32(n)<<8
	})
	if want := []int{4, 1, 1, 1, 1}; !slices.Equal(want, h.sizes) || s.Panics != 2 || s.Verdicts != 4 {
		t.Errorf("want batches of %d, got %d; %+v", want, h.sizes, s)
	}
}

// testUnknown takes the rule away while a packet waits: the kernel drops it, and
// says so between packets when its verdict comes.
func testUnknown(t *testing.T, ns *netnstest.NS, r rule) {
	// Kernel 6.1 warns in nf_reinject when it drops packets of a hook without any
	// other chain: keep one.
	r.keep(t)
	u := newUDP(t, ns, "127.0.0.1", 1)
	q := open(t, ns, Config{})
	remove := r.add(t)
	seen, answer := make(chan struct{}), make(chan struct{})
	run(t, q, func(p *Packet) Verdict {
		if p.Payload[28] == 1 {
			close(seen)
			<-answer
		}
		return Verdict{Accept: true, SetMark: true, Mark: 2}
	})
	u.write([]byte{1})
	<-seen
	remove()
	close(answer)
	eventually(t, "unknown verdict", func() bool { return q.Stats().Unknown == 1 })
	r.add(t)
	u.write([]byte{2})
	if b, mark := u.read(); b[0] != 2 || mark != 2 {
		t.Errorf("want packet 2 with mark 2, got %d with %d", b[0], mark)
	}
}

func kernelQueue(t *testing.T, ns *netnstest.NS) KernelQueue {
	t.Helper()
	queues, err := Kernel(ns.FD())
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range queues {
		if q.Number == testQueue {
			return q
		}
	}
	t.Fatalf("queue %d is not among %v", testQueue, queues)
	return KernelQueue{}
}
