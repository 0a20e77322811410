package userspace

import (
	"context"
	"fmt"
	"math"
	"slices"
	"syscall"
	"time"

	"github.com/lbd-project/lbd/ipvs"
)

// Table returns everything that the engine balances, services by key, real
// servers in list order, which is the newest first; nil if there is nothing.
func (e *Engine) Table(ctx context.Context) ([]ipvs.TableEntry, error) {
	if ctx.Err() != nil {
		return nil, &ipvs.Error{Op: "read table", Err: context.Cause(ctx)}
	}
	var entries []ipvs.TableEntry
	e.each(e.readCounters, func(s *service) {
		entries = append(entries, ipvs.TableEntry{ServiceStatus: s.status(), Destinations: s.destinations()})
	})
	return entries, nil
}

// readCounters reads all that the rules count. mu is held.
func (e *Engine) readCounters() {
	e.readClosed()
	e.readTraffic()
}

// each calls visit for each service, by key, after read, which reads the counters
// that visit wants: packets wait for it. mu is held for one service at a time, so
// that packets do not wait for all: a batch that is installed meanwhile is seen in
// part.
func (e *Engine) each(read func(), visit func(*service)) {
	e.mu.Lock()
	read()
	keys := e.model.keys()
	e.mu.Unlock()
	for _, k := range keys {
		e.mu.Lock()
		if s := e.model.services[k]; s != nil {
			visit(s)
		}
		e.mu.Unlock()
	}
}

// Services returns the virtual services by key; nil if there are none.
func (e *Engine) Services(ctx context.Context) ([]ipvs.ServiceStatus, error) {
	if ctx.Err() != nil {
		return nil, &ipvs.Error{Op: "list services", Err: context.Cause(ctx)}
	}
	var services []ipvs.ServiceStatus
	e.each(e.readCounters, func(s *service) { services = append(services, s.status()) })
	return services, nil
}

// Destinations returns the real servers of a service in list order. As in the
// kernel, a service that does not exist has none, which is no error.
func (e *Engine) Destinations(ctx context.Context, k ipvs.ServiceKey) ([]ipvs.DestinationStatus, error) {
	if ctx.Err() != nil {
		return nil, &ipvs.Error{Op: "list destinations", Err: context.Cause(ctx)}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.model.services[canonicalKey(k)]
	if s == nil {
		return nil, nil
	}
	e.readCounters()
	return s.destinations(), nil
}

// Counts returns the weight and the connections of every real server, those of a
// service together and in list order; nil if there are none. Persistent is 0, as
// in ipvs.Client. Of a real server of weight 0 one connection counts as active until
// it is sure that none is.
func (e *Engine) Counts(ctx context.Context) ([]ipvs.DestinationCounts, error) {
	if ctx.Err() != nil {
		return nil, &ipvs.Error{Op: "read counts", Err: context.Cause(ctx)}
	}
	var counts []ipvs.DestinationCounts
	e.each(e.readClosed, func(svc *service) {
		for _, s := range slices.Backward(svc.servers) {
			if s.unsure() {
				e.resyncNow()
			}
			c := ipvs.DestinationCounts{DestinationKey: s.key(), Weight: s.Weight, Conns: s.conns()}
			c.Conns.Persistent = 0
			counts = append(counts, c)
		}
	})
	return counts, nil
}

func (s *service) status() ipvs.ServiceStatus {
	return ipvs.ServiceStatus{Service: s.Service, Stats: s.traffic.stats()}
}

func (s *service) destinations() []ipvs.DestinationStatus {
	if len(s.servers) == 0 {
		return nil
	}
	list := make([]ipvs.DestinationStatus, 0, len(s.servers))
	for _, sv := range slices.Backward(s.servers) {
		list = append(list, ipvs.DestinationStatus{Destination: sv.Destination, Conns: sv.conns(), Stats: sv.traffic.stats()})
	}
	return list
}

// Zero sets the counters and rates of a service and of its real servers to zero.
// The connection counts stay. It fails with ipvs.ErrServiceNotFound.
func (e *Engine) Zero(ctx context.Context, k ipvs.ServiceKey) error {
	err := context.Cause(ctx)
	if err == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		if s := e.model.services[canonicalKey(k)]; s != nil {
			e.readTraffic()
			s.zero()
			return nil
		}
		err = errNoService
	}
	return &ipvs.Error{Op: "zero service", Service: k, Err: err}
}

// ZeroAll does what Zero does for every service.
func (e *Engine) ZeroAll(ctx context.Context) error {
	if ctx.Err() != nil {
		return &ipvs.Error{Op: "zero all", Err: context.Cause(ctx)}
	}
	e.each(e.readTraffic, (*service).zero)
	return nil
}

func (s *service) zero() {
	s.traffic = traffic{}
	for _, sv := range s.servers {
		sv.traffic = traffic{}
	}
}

// Info returns the version of IPVS whose rules the engine follows. There is no
// connection hash table of a fixed size.
func (e *Engine) Info(ctx context.Context) (ipvs.Info, error) {
	if ctx.Err() != nil {
		return ipvs.Info{}, &ipvs.Error{Op: "get info", Err: context.Cause(ctx)}
	}
	return ipvs.Info{Version: "1.2.1"}, nil
}

// maxTimeout is the longest timeout: that of every kernel's IPVS.
const maxTimeout = math.MaxInt32 / 1000 * time.Second

// Timeouts returns the timeouts of connections.
func (e *Engine) Timeouts(ctx context.Context) (ipvs.Timeouts, error) {
	if ctx.Err() != nil {
		return ipvs.Timeouts{}, &ipvs.Error{Op: "get timeouts", Err: context.Cause(ctx)}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.timeouts, nil
}

// SetTimeouts changes the timeouts that are not zero. They hold for connections
// that begin, and for those that there are as soon as packets of them come.
func (e *Engine) SetTimeouts(ctx context.Context, t ipvs.Timeouts) error {
	err := t.Validate()
	if err == nil && max(t.TCP, t.TCPFin, t.UDP) > maxTimeout {
		err = fmt.Errorf("a timeout is longer than %v: %w", maxTimeout, syscall.EINVAL)
	}
	if err == nil {
		err = e.setTimeouts(ctx, t)
	}
	if err != nil {
		return &ipvs.Error{Op: "set timeouts", Err: err}
	}
	return nil
}

func (e *Engine) setTimeouts(ctx context.Context, t ipvs.Timeouts) error {
	if err := e.lockWrites(ctx); err != nil {
		return err
	}
	defer e.unlockWrites()
	before := e.timeouts
	next := withTimeouts(before, t)
	if next == before {
		return nil
	}
	set := func(t ipvs.Timeouts) {
		e.mu.Lock()
		e.timeouts = t
		e.mu.Unlock()
	}
	set(next)
	err := e.program(ctx, e.current())
	if err != nil {
		set(before)
		e.stale = true
	}
	return err
}

// withTimeouts returns t with those of more that are not zero.
func withTimeouts(t, more ipvs.Timeouts) ipvs.Timeouts {
	set := func(to *time.Duration, d time.Duration) {
		if d != 0 {
			*to = d
		}
	}
	set(&t.TCP, more.TCP)
	set(&t.TCPFin, more.TCPFin)
	set(&t.UDP, more.UDP)
	return t
}
