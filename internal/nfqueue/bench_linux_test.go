package nfqueue

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// BenchmarkQueue measures a packet's way through the loop, in namespaces of its
// own; it needs what TestNetnsQueue needs. cpu-ns/verdict is the processor time
// of the loop's thread, and says more than ns/op on a machine with other work.
//
//   - drop: packets that wait already, dropped. The loop and the kernel's queue.
//   - mark: the same, marked and accepted: the kernel passes them on within the
//     call that carries the verdicts.
//   - live: packets come while the loop runs, as fast as one program sends.
//   - one at a time: a packet is sent when the one before has arrived; ns/op is
//     the time that it takes.
func BenchmarkQueue(b *testing.B) {
	netnstest.Require(b, "netns", "nfqueue")
	mark := func(p *Packet) Verdict { return Verdict{Accept: true, SetMark: true, Mark: p.Mark | 0x100} }
	b.Run("drop", func(b *testing.B) { benchWaiting(b, func(*Packet) Verdict { return Verdict{} }) })
	b.Run("mark", func(b *testing.B) { benchWaiting(b, mark) })
	b.Run("live", func(b *testing.B) { benchLive(b, mark) })
	b.Run("one at a time", func(b *testing.B) { benchOne(b, mark) })
}

// meter measures the thread that handles packets.
type meter struct {
	handle   func(*Packet) Verdict
	left     int
	cpu      time.Duration
	start    time.Duration
	finished chan struct{}
}

func (m *meter) expect(n int) { m.left, m.start, m.finished = n, 0, make(chan struct{}) }

func (m *meter) verdict(p *Packet) Verdict {
	if m.start == 0 {
		m.start = threadTime()
	}
	if m.left--; m.left == 0 {
		// The last batch's verdicts are not in it.
		m.cpu += threadTime() - m.start
		close(m.finished)
	}
	return m.handle(p)
}

func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

func (m *meter) report(b *testing.B, q *Queue) {
	b.ReportMetric(float64(m.cpu.Nanoseconds())/float64(b.N), "cpu-ns/verdict")
	if s := q.Stats(); s.Batches > 0 {
		b.ReportMetric(float64(s.Packets)/float64(s.Batches), "packets/batch")
	}
	b.ReportAllocs()
}

func benchWaiting(b *testing.B, handle func(*Packet) Verdict) {
	const chunk = 8192
	ns := netnstest.New(b)
	u := newUDP(b, ns, "127.0.0.1", 1)
	q := open(b, ns, Config{MaxLen: chunk})
	rule{ns: ns}.add(b)
	m := &meter{handle: handle}
	b.StopTimer()
	b.ResetTimer()
	for left := b.N; left > 0; left -= chunk {
		n := min(left, chunk)
		m.expect(n)
		for range n {
			u.write([]byte("x"))
		}
		b.StartTimer()
		ctx, cancel := context.WithCancel(b.Context())
		go func() { <-m.finished; cancel() }()
		defer time.AfterFunc(patience, cancel).Stop()
		if err := q.Run(ctx, Each(m.verdict), func() bool { return false }); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
	}
	m.report(b, q)
}

func benchLive(b *testing.B, handle func(*Packet) Verdict) {
	ns := netnstest.New(b)
	u := newUDP(b, ns, "127.0.0.1", 1)
	q := open(b, ns, Config{MaxLen: 1 << 16})
	rule{ns: ns}.add(b)
	// Some packets may not fit and never come.
	var cpu, first time.Duration
	stop := run(b, q, func(p *Packet) Verdict {
		cpu = threadTime()
		if first == 0 {
			first = cpu
		}
		return handle(p)
	})
	b.ResetTimer()
	for range b.N {
		u.write([]byte("x"))
	}
	b.StopTimer()
	stop()
	s := q.Stats()
	b.ReportMetric(float64((cpu-first).Nanoseconds())/float64(s.Packets), "cpu-ns/verdict")
	b.ReportMetric(float64(s.Packets)/float64(s.Batches), "packets/batch")
	b.ReportMetric(float64(s.Packets)/float64(b.N), "answered")
}

func benchOne(b *testing.B, handle func(*Packet) Verdict) {
	ns := netnstest.New(b)
	u := newUDP(b, ns, "127.0.0.1", 1)
	q := open(b, ns, Config{})
	rule{ns: ns}.add(b)
	m := &meter{handle: handle}
	m.expect(b.N)
	stop := run(b, q, m.verdict)
	buf := make([]byte, 16)
	b.ResetTimer()
	for range b.N {
		u.write([]byte("x"))
		if _, err := u.recv.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	stop()
	m.report(b, q)
}
