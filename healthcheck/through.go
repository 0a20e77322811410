package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Through says that the packets of a probe reach its target as those of clients
// reach a real server by direct routing or in a tunnel: with the address of the
// virtual service as their destination. A target that lacks the address fails, and
// so does one whose tunnel is broken. The zero value is for packets to the target's
// own address.
type Through struct {
	// Service is the address of the virtual service, of the target's family.
	Service netip.Addr
	// Tunnel is set where the packets go in a tunnel of IP in IP to the target.
	Tunnel bool
}

// Path is how a socket of a probe gets its packets to take a Through.
type Path struct {
	// Priority is the socket's SO_PRIORITY, by which rules know its packets.
	Priority uint32
	// MaxSegment is how many bytes a segment of TCP may have at most, with its
	// options; 0 for what the route says.
	MaxSegment int
}

// Paths are the ways to targets, which exist outside of this package. It is
// called concurrently.
type Paths interface {
	// Path returns the way to a target, or why there is none now.
	Path(t Through, target netip.Addr) (Path, error)
	// Kept returns nil if all ways have been there since a time; otherwise an
	// answer may have come from the target's own address.
	Kept(since time.Time) error
}

// Validate says why packets cannot take this way to a target.
func (t Through) Validate(target netip.Addr) error {
	service := t.Service.Unmap()
	switch {
	case !service.IsValid():
		return nil
	case !host(service) || service.Zone() != "":
		return fmt.Errorf("service %v is not the address of a host", service)
	case service.Is4() != target.Unmap().Is4():
		return fmt.Errorf("service %v is not of the target's address family", service)
	case service == target.Unmap():
		return fmt.Errorf("service %v is the target itself", service)
	}
	return nil
}

// appendKey appends the part of a Probe's key.
func (t Through) appendKey(b []byte) []byte {
	if !t.Service.IsValid() {
		return b
	}
	b = append(b, " service="...)
	b = t.Service.Unmap().AppendTo(b)
	if t.Tunnel {
		b = append(b, " tunnel"...)
	}
	return b
}

// path returns the way that a socket for target has to take; ok is false for that
// of any other packet.
func (e Env) path(v Via, target netip.Addr) (p Path, ok bool, err error) {
	switch {
	case !e.Through.Service.IsValid():
		return Path{}, false, nil
	case e.Paths == nil:
		err = errors.New("there are no paths to services here")
	case v.NetNS != "":
		err = errors.New("there are no paths to services in another namespace")
	default:
		p, err = e.Paths.Path(e.Through, target)
	}
	if err != nil {
		return Path{}, false, fmt.Errorf("path to %v: %w (%w)", e.Through.Service, err, ErrLocal)
	}
	return p, true, nil
}

// kept says why a success of a check that began at a time may not be one of its way.
func (e Env) kept(t Through, since time.Time) error {
	if !t.Service.IsValid() || e.Paths == nil {
		return nil
	}
	if err := e.Paths.Kept(since); err != nil {
		return fmt.Errorf("path to %v: %w (%w)", t.Service, err, ErrLocal)
	}
	return nil
}

// Name names the connection of a probe: "192.0.2.10:80 by 10.0.0.2", or the target
// where it is asked itself.
func (t Through) Name(target netip.AddrPort) string {
	if !t.Service.IsValid() {
		return target.String()
	}
	by := "by "
	if t.Tunnel {
		by = "in the tunnel to "
	}
	return netip.AddrPortFrom(t.Service.Unmap(), target.Port()).String() + " " + by + target.Addr().String()
}

// explain adds what silence may come of on the way to a service.
func (e Env) explain(err error) error {
	if !e.Through.Service.IsValid() || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrLocal) {
		return err
	}
	what := "has it the address?"
	if e.Through.Tunnel {
		what = "has it the address, and the tunnel?"
	}
	return fmt.Errorf("%w (%s)", err, what)
}
