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
type TCP struct{}

// Key returns "tcp".
func (TCP) Key() string { return "tcp" }

// NewChecker returns a checker of target, which needs a unicast address without
// a zone, and a port. It returns an error on systems other than Linux.
func (TCP) NewChecker(target netip.AddrPort, env Env) (Checker, error) {
	addr := target.Addr().Unmap()
	switch {
	case !addr.IsValid():
		return nil, errors.New("tcp check without an address")
	case addr.IsUnspecified() || addr.IsMulticast() || addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		// Linux takes the unspecified address for the host itself.
		return nil, fmt.Errorf("tcp check of %v: not the address of a host", addr)
	case addr.Zone() != "":
		return nil, fmt.Errorf("tcp check of %v: an address with a zone is not supported", addr)
	case target.Port() == 0:
		return nil, fmt.Errorf("tcp check of %v: no port", addr)
	}
	return newTCPChecker(netip.AddrPortFrom(addr, target.Port()), env)
}
