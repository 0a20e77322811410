package userspace

import (
	"context"
	"net/netip"

	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// Explanation is how the real servers of a service stand at one moment.
type Explanation struct {
	// Standings are in list order.
	Standings []sched.Standing
	// Next gets the next connection; the zero AddrPort for none. It means nothing
	// unless Certain: the client may decide, or chance.
	Next    netip.AddrPort
	Certain bool
}

// Explain returns how the real servers of a service stand. The error matches
// ipvs.ErrServiceNotFound if there is no such service.
func (e *Engine) Explain(ctx context.Context, k ipvs.ServiceKey) (Explanation, error) {
	if ctx.Err() != nil {
		return Explanation{}, &ipvs.Error{Op: "explain", Service: k, Err: context.Cause(ctx)}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.model.services[canonicalKey(k)]
	if s == nil {
		return Explanation{}, &ipvs.Error{Op: "explain", Service: k, Err: ipvs.ErrServiceNotFound}
	}
	e.readClosed()
	x := Explanation{Standings: s.table.Standings()}
	next, certain := s.table.Next()
	if next != nil {
		x.Next = next.Address()
	}
	x.Certain = certain
	return x, nil
}
