package reconcile

import (
	"net/netip"

	"github.com/lbd-project/lbd/ipvs"
)

// Change is an operation with what it would change.
type Change struct {
	ipvs.Op
	// Name is the service's, for messages; it may be empty.
	Name string
	// ServiceBefore is the service as it is; the zero value for an add and for
	// changes of real servers.
	ServiceBefore ipvs.Service
	// DestinationBefore is the real server as it is; the zero value for an add
	// and for changes of services.
	DestinationBefore ipvs.Destination
	// Conns are the live connections of the real server, or of all real servers
	// of the service.
	Conns ipvs.Conns
}

// key is that of the real server, with the zero address for a change of a service.
func (c *Change) key() ipvs.DestinationKey {
	return canonicalDestinationKey(ipvs.DestinationKey{Service: c.Op.Service.ServiceKey, Address: c.Destination.Address})
}

// Diff returns the operations that turn actual into desired; none if it is right
// already. It depends on nothing but its arguments.
//
// Services come in the order of the file. Of each, the service is written first,
// then the new real servers from the last to the first, since the newest wins
// ties, in the order of the file or in that which is remembered; then the edits, those that set a weight of 0 last, then the deletes. A
// service that has a server before and after has one at every step. Services
// that are not wanted any more are deleted in the end.
func Diff(desired Desired, actual []ipvs.TableEntry) []ipvs.Op {
	changes := Plan(desired, actual)
	if len(changes) == 0 {
		return nil
	}
	ops := make([]ipvs.Op, len(changes))
	for i, c := range changes {
		ops[i] = c.Op
	}
	return ops
}

// Plan returns the operations of Diff with what they would change.
func Plan(desired Desired, actual []ipvs.TableEntry) []Change {
	// A dump that the table changed under may hold an entry twice: the first counts.
	have := make(map[ipvs.ServiceKey]*ipvs.TableEntry, len(actual))
	for i := range actual {
		if k := canonicalKey(actual[i].ServiceKey); have[k] == nil {
			have[k] = &actual[i]
		}
	}
	// A first programming adds everything; growing to that step by step costs more
	// than all the rest.
	p := planner{changes: make([]Change, 0, max(0, desired.size()-size(actual)))}
	for i := range desired.Services {
		s := &desired.Services[i]
		k := canonicalKey(s.ServiceKey)
		p.service(s, have[k])
		delete(have, k)
	}
	for i := range actual {
		k := canonicalKey(actual[i].ServiceKey)
		if have[k] != &actual[i] {
			continue // wanted, or a repetition
		}
		if _, ok := desired.Owned[k]; ok || desired.Exclusive {
			p.changes = append(p.changes, Change{
				Op:            ipvs.Op{Kind: ipvs.OpDeleteService, Service: actual[i].Service},
				ServiceBefore: actual[i].Service,
				Conns:         sumConns(actual[i].Destinations),
			})
		}
	}
	return p.changes
}

// planner collects changes.
type planner struct {
	changes []Change
	// The rest is of one service, and reused from service to service.
	have            map[netip.AddrPort]*ipvs.DestinationStatus
	edits, quiesces []Change
}

// service plans one wanted service; have is nil if the engine has none.
func (p *planner) service(s *DesiredService, have *ipvs.TableEntry) {
	want := canonicalService(s.Service)
	if have == nil {
		p.changes = append(p.changes, Change{Name: s.Name,
			Op: ipvs.Op{Kind: ipvs.OpAddService, Service: want}})
		p.destinations(s, want, nil)
		return
	}
	if is := canonicalService(have.Service); is != want {
		p.changes = append(p.changes, Change{Name: s.Name, ServiceBefore: is,
			Op:    ipvs.Op{Kind: ipvs.OpUpdateService, Service: want},
			Conns: sumConns(have.Destinations)})
	}
	p.destinations(s, want, have.Destinations)
}

// destinations plans the real servers of a service, whose canonical form is s.
func (p *planner) destinations(ds *DesiredService, s ipvs.Service, have []ipvs.DestinationStatus) {
	name, want := ds.Name, ds.Destinations
	if same(want, have) {
		return
	}
	p.index(have)
	p.edits, p.quiesces = p.edits[:0], p.quiesces[:0]
	adds := len(p.changes)
	for i := len(want) - 1; i >= 0; i-- {
		d := canonicalDestination(want[i])
		is := p.have[d.Address]
		if is == nil {
			p.changes = append(p.changes, Change{Name: name,
				Op: ipvs.Op{Kind: ipvs.OpAddDestination, Service: s, Destination: d}})
			continue
		}
		delete(p.have, d.Address)
		before := canonicalDestination(is.Destination)
		if before == d {
			continue
		}
		c := Change{Name: name, DestinationBefore: before, Conns: is.Conns,
			Op: ipvs.Op{Kind: ipvs.OpUpdateDestination, Service: s, Destination: d}}
		if d.Weight == 0 {
			p.quiesces = append(p.quiesces, c)
		} else {
			p.edits = append(p.edits, c)
		}
	}
	sortAdds(p.changes[adds:], ds.Order)
	p.changes = append(append(p.changes, p.edits...), p.quiesces...)
	for i := range have {
		a := unmap(have[i].Address)
		if p.have[a] != &have[i] {
			continue // wanted, or a repetition
		}
		p.changes = append(p.changes, Change{Name: name,
			Op:                ipvs.Op{Kind: ipvs.OpDeleteDestination, Service: s, Destination: have[i].Destination},
			DestinationBefore: canonicalDestination(have[i].Destination),
			Conns:             have[i].Conns})
	}
}

// same says whether a list is as wanted and in the order of the file, which is
// what it is nearly always. It may say no of one that is as wanted.
func same(want []ipvs.Destination, have []ipvs.DestinationStatus) bool {
	if len(want) != len(have) {
		return false
	}
	for i := range want {
		if want[i] != have[i].Destination && canonicalDestination(want[i]) != canonicalDestination(have[i].Destination) {
			return false
		}
	}
	return true
}

// index fills p.have with the real servers of one service by address.
func (p *planner) index(have []ipvs.DestinationStatus) {
	if p.have == nil {
		p.have = make(map[netip.AddrPort]*ipvs.DestinationStatus, len(have))
	}
	clear(p.have)
	for i := range have {
		if a := unmap(have[i].Address); p.have[a] == nil {
			p.have[a] = &have[i]
		}
	}
}

// size counts services and real servers.
func size(table []ipvs.TableEntry) int {
	n := len(table)
	for i := range table {
		n += len(table[i].Destinations)
	}
	return n
}

func sumConns(list []ipvs.DestinationStatus) ipvs.Conns {
	var sum ipvs.Conns
	for _, d := range list {
		sum.Active += d.Conns.Active
		sum.Inactive += d.Conns.Inactive
		sum.Persistent += d.Conns.Persistent
	}
	return sum
}
