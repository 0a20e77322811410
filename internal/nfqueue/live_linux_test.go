package nfqueue

import (
	"encoding/binary"
	"errors"
	"testing"

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
		{"every packet", testEveryPacket},
		{"in use", testInUse},
	} {
		t.Run(test.name, func(t *testing.T) {
			ns := netnstest.New(t)
			test.run(t, ns, rule{ns: ns, native: native})
		})
	}
}

// testEveryPacket sees each packet answered once, with marks that keep foreign
// bits and without.
func testEveryPacket(t *testing.T, ns *netnstest.NS, r rule) {
	const packets, foreign = 1000, 0x80000001
	u := newUDP(t, ns, "127.0.0.1", foreign)
	q := open(t, ns, Config{})
	r.add(t)
	run(t, q, func(p *Packet) Verdict {
		n := binary.BigEndian.Uint32(p.Payload[28:])
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
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	open(t, ns, Config{})
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
