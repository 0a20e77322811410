package overhead

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/lbd-project/lbd/internal/netns"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// timeout bounds a probe whose context does not. It takes milliseconds.
const timeout = 10 * time.Second

// The service that is probed, and its real servers. All are addresses of the
// namespace's own loopback device.
var (
	virtual = netip.MustParseAddrPort("127.0.0.2:80")
	heavy   = netip.MustParseAddrPort("127.0.0.3:80")
	light   = netip.MustParseAddrPort("127.0.0.4:80")
)

// Probe returns the overhead by which the kernel chooses. It fails with an error
// that matches ipvs.ErrNotAvailable where the kernel has no IPVS.
//
// The real server with weight 256 gets one active connection, the one with
// weight 1 one inactive connection. Their loads for the weight are then equal
// by 256*active + inactive, and the first in the list wins, which is the heavy
// one. By 256*active + total the heavy one has 257 to 256.
func Probe(ctx context.Context) (sched.Overhead, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var o sched.Overhead
	err := netns.Fresh(func() (err error) {
		o, err = probe(ctx)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("probe the kernel's overhead: %w", err)
	}
	return o, nil
}

// probe works in the namespace of its thread.
func probe(ctx context.Context) (o sched.Overhead, err error) {
	c, err := ipvs.Open()
	if err != nil {
		return 0, err
	}
	defer func() {
		// A table that is left would hold the scheduler's module until the
		// namespace is gone. The context may be done.
		err = errors.Join(err, c.Flush(context.WithoutCancel(ctx)), c.Close())
	}()
	p := prober{ctx: ctx, table: c, key: ipvs.AddrService(ipvs.TCP, virtual)}
	defer p.close()
	return p.run()
}

// prober is one probe.
type prober struct {
	ctx   context.Context
	table *ipvs.Client
	key   ipvs.ServiceKey
	open  []interface{ Close() error }
}

func (p *prober) close() {
	for _, c := range p.open {
		c.Close()
	}
}

func (p *prober) run() (sched.Overhead, error) {
	if err := p.table.AddService(p.ctx, ipvs.Service{ServiceKey: p.key, Scheduler: "wlc"}); err != nil {
		return 0, err
	}
	if err := p.add(light, 1); err != nil {
		return 0, err
	}
	conn, err := p.connect()
	if err != nil {
		return 0, err
	}
	if err := conn.Close(); err != nil {
		return 0, err
	}
	if _, err := p.counts(ipvs.Conns{}, ipvs.Conns{Inactive: 1}); err != nil {
		return 0, err
	}
	// The newest is the first in the list.
	if err := p.add(heavy, 256); err != nil {
		return 0, err
	}
	if _, err := p.connect(); err != nil {
		return 0, err
	}
	if _, err := p.counts(ipvs.Conns{Active: 1}, ipvs.Conns{Inactive: 1}); err != nil {
		return 0, err
	}
	if _, err := p.connect(); err != nil {
		return 0, err
	}
	which, err := p.counts(
		ipvs.Conns{Active: 2}, ipvs.Conns{Inactive: 1},
		ipvs.Conns{Active: 1}, ipvs.Conns{Active: 1, Inactive: 1},
	)
	if err != nil {
		return 0, err
	}
	return []sched.Overhead{sched.OverheadInactive, sched.OverheadTotal}[which], nil
}

// add adds a real server that listens.
func (p *prober) add(a netip.AddrPort, weight uint32) error {
	ln, err := (&net.ListenConfig{}).Listen(p.ctx, "tcp4", a.String())
	if err != nil {
		return err
	}
	p.open = append(p.open, ln)
	return p.table.AddDestination(p.ctx, p.key, ipvs.Destination{Address: a, Weight: weight})
}

// connect opens a connection through the service. Nobody accepts it, the kernel
// does.
func (p *prober) connect() (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(p.ctx, "tcp4", virtual.String())
	if err == nil {
		p.open = append(p.open, conn)
	}
	return conn, err
}

// counts waits until the counts of the heavy and of the light server are one of
// the given pairs, and returns which.
func (p *prober) counts(pairs ...ipvs.Conns) (int, error) {
	for {
		list, err := p.table.Destinations(p.ctx, p.key)
		if err != nil {
			return 0, err
		}
		got := map[netip.AddrPort]ipvs.Conns{}
		for _, d := range list {
			got[d.Address] = d.Conns
		}
		for i := 0; i < len(pairs); i += 2 {
			if got[heavy] == pairs[i] && got[light] == pairs[i+1] {
				return i / 2, nil
			}
		}
		select {
		case <-p.ctx.Done():
			return 0, fmt.Errorf("connections %+v and %+v, want one of %+v: %w", got[heavy], got[light], pairs, p.ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}
