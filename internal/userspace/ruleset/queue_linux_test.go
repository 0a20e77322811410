package ruleset

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/internal/nfqueue"
	"github.com/lbd-project/lbd/internal/packet"
)

// daemon answers the queue of a lab as lbd would.
type daemon struct {
	mu   sync.Mutex
	seen []packet.Info
	stop func()
}

func (d *daemon) packets() []packet.Info {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]packet.Info(nil), d.seen...)
}

// first is packets without what a client sent again, as it does where a busy host
// takes long to answer.
func (d *daemon) first() map[packet.Info]bool {
	seen := make(map[packet.Info]bool)
	for _, p := range d.packets() {
		seen[p] = true
	}
	return seen
}

// serve reads the queue until the test or stop ends it. pick returns the mark of
// a packet, zero for none.
func (l *lab) serve(pick func(packet.Info) uint32) *daemon {
	l.t.Helper()
	return l.serveQueue(l.rules.opts.Queue, pick)
}

func (l *lab) serveQueue(number uint16, pick func(packet.Info) uint32) *daemon {
	l.t.Helper()
	d := &daemon{}
	q, err := nfqueue.Open(nfqueue.Config{Number: number, NetNS: l.lb.FD(), FailOpen: true})
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	var p packet.Parser
	go func() {
		done <- q.Run(ctx, nfqueue.Each(func(in *nfqueue.Packet) nfqueue.Verdict {
			var info packet.Info
			if err := p.Parse(in.Payload, &info); err != nil {
				return nfqueue.Verdict{}
			}
			d.mu.Lock()
			d.seen = append(d.seen, info)
			d.mu.Unlock()
			mark := pick(info)
			if mark == 0 {
				return nfqueue.Verdict{Accept: true}
			}
			return nfqueue.Verdict{Accept: true, SetMark: true, Mark: in.Mark | mark}
		}), func() bool { return false })
	}()
	d.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && ctx.Err() == nil {
			l.t.Errorf("queue: %v", err)
		}
		q.Close()
	})
	l.t.Cleanup(d.stop)
	return d
}

// to gives every packet to the i-th server of its IP version.
func to(i uint32) func(packet.Info) uint32 {
	return func(in packet.Info) uint32 {
		if in.Is4() {
			return mark1 + i<<8
		}
		return mark3 + i<<8
	}
}

func TestNetnsQueue(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	l.apply(bothVersions())
	d := l.serve(to(1))
	for _, ns := range []struct {
		name string
		from *netnstest.NS
	}{
		{"remote", l.client},
		{"local", l.lb},
	} {
		for _, network := range []string{"tcp", "udp"} {
			for _, addr := range []string{"192.0.2.1:80", "[2001:db8::1]:80"} {
				t.Run(ns.name+" "+network+" "+addr, func(t *testing.T) {
					before := len(d.first())
					for range 10 {
						ctx, cancel := context.WithTimeout(t.Context(), waitTime)
						defer cancel()
						c, err := ns.from.DialContext(ctx, network, addr)
						if err != nil {
							t.Fatal(err)
						}
						// Until all are there: a port that comes back is the same flow.
						defer c.Close()
						if name, err := answerTo(c, network); name != "1" || err != nil {
							t.Fatalf("want server 1, got %q, %v", name, err)
						}
					}
					if got := len(d.first()) - before; got != 10 {
						t.Errorf("want 10 packets in the queue, got %d", got)
					}
				})
			}
		}
	}
}

// TestNetnsFanout sends flows from each processor: with Fanout they come to its
// queue, without it to any. On a busy host the kernel may hand a packet to another
// processor before it gets there, which happens to few.
func TestNetnsFanout(t *testing.T) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	for _, fanout := range []bool{true, false} {
		l := newLab(t, Options{FailOpen: true, Queues: 2, Fanout: fanout})
		l.apply(bothVersions())
		daemons := []*daemon{l.serveQueue(7, to(0)), l.serveQueue(8, to(0))}
		astray, sent := 0, 0
		for cpu := range 2 {
			if !allowed.IsSet(cpu) {
				continue
			}
			before := len(daemons[cpu].packets())
			const flows = 24
			for range flows {
				c, err := l.client.DialContext(t.Context(), "udp", addresses[0])
				if err != nil {
					t.Fatal(err)
				}
				// Until all are there: a port that comes back is the same flow.
				defer c.Close()
				c.SetDeadline(time.Now().Add(waitTime))
				if err := onProcessor(cpu, func() error { _, err := c.Write([]byte("?")); return err }); err != nil {
					t.Fatal(err)
				}
				if _, err := c.Read(make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
			}
			sent += flows
			astray += flows - (len(daemons[cpu].packets()) - before)
		}
		if (astray < sent/6) != fanout {
			t.Errorf("fanout %v: %d of %d flows in the other processor's queue", fanout, astray, sent)
		}
	}
}

// onProcessor runs fn on one processor.
func onProcessor(cpu int, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends
		var one unix.CPUSet
		one.Set(cpu)
		err := unix.SchedSetaffinity(0, &one)
		if err == nil {
			err = fn()
		}
		done <- err
	}()
	return <-done
}
