package ruleset

import (
	"context"
	"sync"
	"testing"

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

// serve reads the queue until the test or stop ends it. pick returns the mark of
// a packet, zero for none.
func (l *lab) serve(pick func(packet.Info) uint32) *daemon {
	l.t.Helper()
	d := &daemon{}
	q, err := nfqueue.Open(nfqueue.Config{Number: l.rules.opts.Queue, NetNS: l.lb.FD(), FailOpen: true})
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	var p packet.Parser
	go func() {
		done <- q.Run(ctx, func(in *nfqueue.Packet) nfqueue.Verdict {
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
		}, func() {})
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
		from func(network, addr string) (string, error)
	}{
		{"remote", func(n, a string) (string, error) { return l.ask(l.client, n, a) }},
		{"local", func(n, a string) (string, error) { return l.ask(l.lb, n, a) }},
	} {
		for _, network := range []string{"tcp", "udp"} {
			for _, addr := range []string{"192.0.2.1:80", "[2001:db8::1]:80"} {
				t.Run(ns.name+" "+network+" "+addr, func(t *testing.T) {
					before := len(d.packets())
					for range 10 {
						if name, err := ns.from(network, addr); name != "1" || err != nil {
							t.Fatalf("want server 1, got %q, %v", name, err)
						}
					}
					if got := len(d.packets()) - before; got != 10 {
						t.Errorf("want 10 packets in the queue, got %d", got)
					}
				})
			}
		}
	}
}
