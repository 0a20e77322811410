package reconcile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/lbd-project/lbd/ipvs"
)

// Drift is a change that somebody else made to a table that lbd keeps.
type Drift struct {
	// Name is the service's; it may be empty.
	Name    string
	Service ipvs.ServiceKey
	// Destination is the real server changed; the zero AddrPort when it was the
	// service.
	Destination netip.AddrPort
	// What says what was done: "deleted", "added", "weight 7, wanted 3".
	What string
}

// String prints "virtual service web (TCP 192.0.2.10:80): deleted" or "real
// server 10.0.0.2:80 of web (TCP 192.0.2.10:80): weight 7, wanted 3".
func (d Drift) String() string {
	l := label(d.Name, d.Service)
	if d.Destination.IsValid() {
		return fmt.Sprintf("real server %v of %s: %s", d.Destination, l, d.What)
	}
	return fmt.Sprintf("virtual service %s: %s", l, d.What)
}

// belief is what a Reconciler knows to be in the table: what it read, with the
// operations that were acknowledged since. Services whose state is unknown are
// not in it.
type belief map[ipvs.ServiceKey]*believed

// believed is a service with its real servers, the oldest first, in canonical
// forms. The order makes an add an append, and two readings of the same list
// equal.
type believed struct {
	ipvs.Service
	destinations []ipvs.Destination
}

// readBelief returns the belief after a read.
func readBelief(actual []ipvs.TableEntry) belief {
	b := make(belief, len(actual))
	for i := range actual {
		e := &actual[i]
		s := &believed{Service: canonicalService(e.Service)}
		if n := len(e.Destinations); n > 0 {
			s.destinations = make([]ipvs.Destination, n)
			for j := range e.Destinations {
				s.destinations[n-1-j] = canonicalDestination(e.Destinations[j].Destination)
			}
		}
		b[s.ServiceKey] = s
	}
	return b
}

// unlike returns the services that are not wanted as they are believed to be, as they
// are wanted and in the form of a reading without counts. Of a health transition they
// are few.
func (b belief) unlike(d Desired) (Desired, []ipvs.TableEntry) {
	all := d.Services
	d.Services = nil
	var table []ipvs.TableEntry
	known := 0
	for i := range all {
		s := &all[i]
		is := b[canonicalKey(s.ServiceKey)]
		if is != nil {
			known++
			if is.as(s) {
				continue
			}
			table = append(table, is.entry())
		}
		d.Services = append(d.Services, *s)
	}
	if known == len(b) {
		return d, table
	}
	wanted := make(map[ipvs.ServiceKey]struct{}, len(all))
	for i := range all {
		wanted[canonicalKey(all[i].ServiceKey)] = struct{}{}
	}
	for k, is := range b {
		if _, ok := wanted[k]; !ok {
			table = append(table, is.entry())
		}
	}
	return d, table
}

// as reports whether the service is as it is wanted, in the order of the file.
func (s *believed) as(want *DesiredService) bool {
	n := len(s.destinations)
	if len(want.Destinations) != n || s.Service != canonicalService(want.Service) {
		return false
	}
	for i := range want.Destinations {
		if s.destinations[n-1-i] != canonicalDestination(want.Destinations[i]) {
			return false
		}
	}
	return true
}

// entry returns the service in the form of a reading.
func (s *believed) entry() ipvs.TableEntry {
	e := ipvs.TableEntry{ServiceStatus: ipvs.ServiceStatus{Service: s.Service}}
	if n := len(s.destinations); n > 0 {
		e.Destinations = make([]ipvs.DestinationStatus, n)
		for i, d := range s.destinations {
			e.Destinations[n-1-i].Destination = d
		}
	}
	return e
}

// find returns the place of a real server, -1 for none.
func (s *believed) find(a netip.AddrPort) int {
	return slices.IndexFunc(s.destinations, func(d ipvs.Destination) bool { return d.Address == a })
}

// byAddress returns the real servers by address.
func (s *believed) byAddress() map[netip.AddrPort]ipvs.Destination {
	m := make(map[netip.AddrPort]ipvs.Destination, len(s.destinations))
	for _, d := range s.destinations {
		m[d.Address] = d
	}
	return m
}

// applied notes an operation that was acknowledged.
func (b belief) applied(op *ipvs.Op) {
	k := canonicalKey(op.Service.ServiceKey)
	s := b[k]
	if s == nil && op.Kind != ipvs.OpAddService {
		return
	}
	switch op.Kind {
	case ipvs.OpAddService:
		b[k] = &believed{Service: canonicalService(op.Service)}
	case ipvs.OpUpdateService:
		s.Service = canonicalService(op.Service)
	case ipvs.OpDeleteService:
		delete(b, k)
	case ipvs.OpAddDestination:
		s.destinations = append(s.destinations, canonicalDestination(op.Destination))
	case ipvs.OpUpdateDestination, ipvs.OpDeleteDestination:
		i := s.find(unmap(op.Destination.Address))
		switch {
		case i < 0:
		case op.Kind == ipvs.OpUpdateDestination:
			s.destinations[i] = canonicalDestination(op.Destination)
		default:
			s.destinations = slices.Delete(s.destinations, i, i+1)
		}
	}
}

// unknown forgets the services of operations whose outcome is not known.
func (b belief) unknown(ops []ipvs.Op) {
	for i := range ops {
		delete(b, canonicalKey(ops[i].Service.ServiceKey))
	}
}

// drift compares what was believed with what was read, for the services that are
// wanted. With nothing believed of a service there is no drift of it.
func (b belief) drift(desired Desired, now belief) []Drift {
	var list []Drift
	for _, s := range desired.Services {
		k := canonicalKey(s.ServiceKey)
		was, ok := b[k]
		if !ok {
			continue
		}
		is, ok := now[k]
		if !ok {
			list = append(list, Drift{Name: s.Name, Service: k, What: "deleted"})
			continue
		}
		if is.Service != was.Service {
			list = append(list, Drift{Name: s.Name, Service: k, What: wanted(serviceAttributes(is.Service, was.Service))})
		}
		list = append(list, destinationDrift(s.Name, was, is)...)
	}
	return list
}

func destinationDrift(name string, was, is *believed) []Drift {
	if slices.Equal(was.destinations, is.destinations) {
		return nil
	}
	var list []Drift
	add := func(a netip.AddrPort, what string) {
		list = append(list, Drift{Name: name, Service: was.ServiceKey, Destination: a, What: what})
	}
	before, now := was.byAddress(), is.byAddress()
	for a, d := range before {
		switch n, ok := now[a]; {
		case !ok:
			add(a, "deleted")
		case n != d:
			add(a, wanted(destinationAttributes(n, d)))
		}
	}
	for a := range now {
		if _, ok := before[a]; !ok {
			add(a, "added")
		}
	}
	slices.SortFunc(list, func(x, y Drift) int { return x.Destination.Compare(y.Destination) })
	return list
}

// missing says whether now lacks a real server of was.
func missing(was, now *believed) bool {
	if slices.Equal(was.destinations, now.destinations) {
		return false
	}
	there := now.byAddress()
	return slices.ContainsFunc(was.destinations, func(d ipvs.Destination) bool {
		_, ok := there[d.Address]
		return !ok
	})
}

// wanted prints attributes as "weight 7, wanted 3".
func wanted(attributes []attribute) string {
	var parts []string
	for _, a := range attributes {
		parts = append(parts, fmt.Sprintf("%s %s, wanted %s", a.name, a.before, a.after))
	}
	return strings.Join(parts, "; ")
}
