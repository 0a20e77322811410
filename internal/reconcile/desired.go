package reconcile

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/lbd-project/lbd/ipvs"
)

// Desired is what an engine should hold. The zero value wants nothing and owns
// nothing, so it changes nothing.
type Desired struct {
	// Services are wanted, in the order of the file. They are lbd's by being
	// here, whoever created them.
	Services []DesiredService
	// Owned are the services that lbd has called its own so far. Those that are
	// not in Services are deleted.
	Owned map[ipvs.ServiceKey]struct{}
	// Exclusive deletes every other service too.
	Exclusive bool
}

// DesiredService is a wanted virtual service.
type DesiredService struct {
	// Name is for messages; it may be empty.
	Name string
	ipvs.Service
	// Destinations are all of its real servers in the order of the file, with
	// the weights to program. The first wins ties.
	Destinations []ipvs.Destination
	// Order is the list order that the real servers had before, the newest first,
	// for those that must be added again; see Orders. Those that are not in it come
	// before the others, as what is new in a list does. Nil for the order of the
	// file.
	Order []netip.AddrPort
}

// check finds what the caller must not ask for.
func (d Desired) check() error {
	seen := make(map[ipvs.ServiceKey]struct{}, len(d.Services))
	servers := make(map[netip.AddrPort]struct{})
	for i := range d.Services {
		s := &d.Services[i]
		k := canonicalKey(s.ServiceKey)
		if _, ok := seen[k]; ok {
			return fmt.Errorf("virtual service %v is wanted twice", k)
		}
		seen[k] = struct{}{}
		clear(servers)
		for _, dest := range s.Destinations {
			a := unmap(dest.Address)
			if _, ok := servers[a]; ok {
				return fmt.Errorf("real server %v of virtual service %v is wanted twice", a, k)
			}
			servers[a] = struct{}{}
		}
	}
	return nil
}

// size counts services and real servers.
func (d Desired) size() int {
	n := len(d.Services)
	for i := range d.Services {
		n += len(d.Services[i].Destinations)
	}
	return n
}

// unclaimed returns the keys of the services that are wanted and not yet owned.
func (d Desired) unclaimed() []ipvs.ServiceKey {
	var keys []ipvs.ServiceKey
	for _, s := range d.Services {
		k := canonicalKey(s.ServiceKey)
		if _, ok := d.Owned[k]; !ok {
			keys = append(keys, k)
		}
	}
	return keys
}

// claimed returns d without the services that are not yet owned, and without
// Exclusive, which would take them for foreign ones.
func (d Desired) claimed() Desired {
	all := d.Services
	d.Services, d.Exclusive = nil, false
	for _, s := range all {
		if _, ok := d.Owned[canonicalKey(s.ServiceKey)]; ok {
			d.Services = append(d.Services, s)
		}
	}
	return d
}

// canonicalKey returns the one form of a key that tables are indexed by.
func canonicalKey(k ipvs.ServiceKey) ipvs.ServiceKey {
	if k.FWMark != 0 {
		return ipvs.MarkService(k.Family, k.FWMark)
	}
	k.Address = unmap(k.Address)
	return k
}

// canonicalDestinationKey does the same for that of a real server.
func canonicalDestinationKey(k ipvs.DestinationKey) ipvs.DestinationKey {
	return ipvs.DestinationKey{Service: canonicalKey(k.Service), Address: unmap(k.Address)}
}

// canonicalService returns the form of a service in which two that an engine
// cannot tell apart are equal.
func canonicalService(s ipvs.Service) ipvs.Service {
	s.ServiceKey = canonicalKey(s.ServiceKey)
	s.Persistence.Timeout = s.Persistence.Timeout.Truncate(time.Second)
	return s.Canonical()
}

// canonicalDestination does the same for a real server. Engines keep and return
// tunnel options that the forwarding method does not use.
func canonicalDestination(d ipvs.Destination) ipvs.Destination {
	d.Address = unmap(d.Address)
	switch {
	case d.Forward != ipvs.Tunnel, d.Tunnel.Type == ipvs.TunnelIPIP:
		d.Tunnel = ipvs.TunnelOptions{}
	case d.Tunnel.Type == ipvs.TunnelGRE:
		d.Tunnel.Port = 0
	}
	return d
}

func unmap(a netip.AddrPort) netip.AddrPort {
	if a.Addr().Is4In6() {
		return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
	}
	return a
}
