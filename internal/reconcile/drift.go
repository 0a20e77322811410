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
type belief map[ipvs.ServiceKey]believed

type believed struct {
	ipvs.Service
	destinations map[netip.AddrPort]ipvs.Destination
}

// readBelief returns the belief after a read.
func readBelief(actual []ipvs.TableEntry) belief {
	b := make(belief, len(actual))
	for _, e := range actual {
		s := believed{canonicalService(e.Service), make(map[netip.AddrPort]ipvs.Destination, len(e.Destinations))}
		for _, d := range e.Destinations {
			s.destinations[unmap(d.Address)] = canonicalDestination(d.Destination)
		}
		b[s.ServiceKey] = s
	}
	return b
}

// applied notes an operation that was acknowledged.
func (b belief) applied(op ipvs.Op) {
	k := canonicalKey(op.Service.ServiceKey)
	s, ok := b[k]
	if !ok && op.Kind != ipvs.OpAddService {
		return
	}
	a := unmap(op.Destination.Address)
	switch op.Kind {
	case ipvs.OpAddService:
		b[k] = believed{canonicalService(op.Service), make(map[netip.AddrPort]ipvs.Destination)}
	case ipvs.OpUpdateService:
		s.Service = canonicalService(op.Service)
		b[k] = s
	case ipvs.OpDeleteService:
		delete(b, k)
	case ipvs.OpAddDestination, ipvs.OpUpdateDestination:
		s.destinations[a] = canonicalDestination(op.Destination)
	case ipvs.OpDeleteDestination:
		delete(s.destinations, a)
	}
}

// unknown forgets the services of operations whose outcome is not known.
func (b belief) unknown(ops []ipvs.Op) {
	for _, op := range ops {
		delete(b, canonicalKey(op.Service.ServiceKey))
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
		if what := wanted(serviceAttributes(is.Service, was.Service)); what != "" {
			list = append(list, Drift{Name: s.Name, Service: k, What: what})
		}
		list = append(list, destinationDrift(s.Name, was, is)...)
	}
	return list
}

func destinationDrift(name string, was, is believed) []Drift {
	var list []Drift
	add := func(a netip.AddrPort, what string) {
		list = append(list, Drift{Name: name, Service: was.ServiceKey, Destination: a, What: what})
	}
	for a, d := range was.destinations {
		switch now, ok := is.destinations[a]; {
		case !ok:
			add(a, "deleted")
		case now != d:
			add(a, wanted(destinationAttributes(now, d)))
		}
	}
	for a := range is.destinations {
		if _, ok := was.destinations[a]; !ok {
			add(a, "added")
		}
	}
	slices.SortFunc(list, func(x, y Drift) int { return x.Destination.Compare(y.Destination) })
	return list
}

// wanted prints attributes as "weight 7, wanted 3".
func wanted(attributes []attribute) string {
	var parts []string
	for _, a := range attributes {
		parts = append(parts, fmt.Sprintf("%s %s, wanted %s", a.name, a.before, a.after))
	}
	return strings.Join(parts, "; ")
}
