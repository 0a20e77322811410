package healthcheck

import (
	"errors"
	"fmt"
	"net/netip"
)

// ErrLocal is in the chain of the error of a check that failed on this host
// before anything could be asked of the target: no descriptor, no free port, no
// route, a firewall rule. It is a failed check like any other.
var ErrLocal = errors.New("fault of this host")

// TCP is healthy when the target's kernel accepts a connection. Nothing is sent
// over it.
//
// The probe answers the target's SYN-ACK with a RST and not with an ACK: the
// target's application never sees the connection, so it has nothing to log, and
// neither side is left with a socket in TIME_WAIT, whose 60 s would eat up the
// local ports. Connection tracking, if it looks at the probe, forgets it after
// 10 s (a closed connection would take 120 s) and may forget it at once when its
// table is full, because the connection was never assured. A target that drops
// the SYN because its accept queue is full fails the check.
type TCP struct {
	Via Via
}

// Key returns "tcp" and the Key of Via.
func (t TCP) Key() string { return "tcp" + t.Via.Key() }

// NewChecker returns a checker of target, which needs a port and an address that
// Via accepts. It returns an error on systems other than Linux.
func (t TCP) NewChecker(target netip.AddrPort, env Env) (Checker, error) {
	addr := target.Addr().Unmap()
	if !addr.IsValid() {
		return nil, errors.New("tcp check without an address")
	}
	if err := t.Via.Validate(addr); err != nil {
		return nil, fmt.Errorf("tcp check of %v: %w", addr, err)
	}
	if target.Port() == 0 {
		return nil, fmt.Errorf("tcp check of %v: no port", addr)
	}
	return newTCPChecker(t.Via, netip.AddrPortFrom(addr, target.Port()), env)
}
