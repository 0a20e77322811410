package api

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"time"

	"github.com/lbd-project/lbd/ipvs"
)

// Owners says which virtual services connections are of. The zero value knows
// none. It must not change any more once Select was called.
type Owners struct {
	// services has each service alone in its list.
	services map[ipvs.ServiceKey][]owner
	// marked are the firewall mark services of each of their real servers.
	marked map[netip.AddrPort][]owner
}

type owner struct {
	key  ipvs.ServiceKey
	name string
}

// Add adds a service with its real servers; name is empty for one that has none.
func (o *Owners) Add(k ipvs.ServiceKey, name string, servers iter.Seq[netip.AddrPort]) {
	if o.services == nil {
		o.services, o.marked = make(map[ipvs.ServiceKey][]owner), make(map[netip.AddrPort][]owner)
	}
	if name == "" {
		name = k.String()
	}
	w := owner{k, name}
	o.services[k] = []owner{w}
	if k.FWMark == 0 {
		return
	}
	for s := range servers {
		o.marked[s] = append(o.marked[s], w)
	}
}

// AddEntry adds a service of a table, which has no name.
func (o *Owners) AddEntry(e ipvs.TableEntry) {
	o.Add(e.ServiceKey, "", func(yield func(netip.AddrPort) bool) {
		for i := range e.Destinations {
			if !yield(e.Destinations[i].Address) {
				return
			}
		}
	})
}

// key finds a service by its name or key.
func (o *Owners) key(name string) (ipvs.ServiceKey, error) {
	for k, w := range o.services {
		if w[0].name == name || k.String() == name {
			return k, nil
		}
	}
	return ipvs.ServiceKey{}, fmt.Errorf("virtual service %q: %w", name, ErrNotFound)
}

// of returns the services that a connection may be of.
func (o *Owners) of(c *ipvs.Connection) []owner {
	if c.Protocol == 0 {
		return o.services[markOf(c)]
	}
	k := ipvs.AddrService(c.Protocol, c.Virtual)
	if w := o.services[k]; w != nil {
		return w
	}
	k.Address = netip.AddrPortFrom(k.Address.Addr(), 0)
	if w := o.services[k]; w != nil {
		return w
	}
	if len(o.marked) == 0 {
		return nil
	}
	exact, any := o.marked[c.Server], o.marked[netip.AddrPortFrom(c.Server.Addr(), 0)]
	if len(exact) == 0 || c.Server.Port() == 0 {
		return any
	}
	return slices.Concat(exact, any)
}

// markOf returns the service of a template that has a mark for an address.
func markOf(c *ipvs.Connection) ipvs.ServiceKey {
	b := c.Virtual.Addr().AsSlice() // the mark is in the first four bytes
	return ipvs.MarkService(ipvs.FamilyOf(c.Virtual.Addr()), uint32(b[0])<<24|uint32(b[1])<<16|uint32(b[2])<<8|uint32(b[3]))
}

// Select returns those of a table's connections that a query wants. The error
// matches ErrNotFound if there is no such service.
func (o *Owners) Select(conns iter.Seq2[ipvs.Connection, error], q ConnectionQuery) (iter.Seq2[Connection, error], error) {
	var key ipvs.ServiceKey
	if q.Service != "" {
		var err error
		if key, err = o.key(q.Service); err != nil {
			return nil, err
		}
	}
	wanted := func(c *ipvs.Connection, owners []owner) bool {
		return (q.State == "" || string(q.State) == c.State) && q.Client.match(c.Client) && q.Server.match(c.Server) &&
			(q.Service == "" || slices.ContainsFunc(owners, func(w owner) bool { return w.key == key }))
	}
	return func(yield func(Connection, error) bool) {
		for c, err := range conns {
			if err != nil {
				yield(Connection{}, err)
				return
			}
			owners := o.of(&c)
			if wanted(&c, owners) && !yield(tableConnection(&c, owners), nil) {
				return
			}
		}
	}, nil
}

func tableConnection(c *ipvs.Connection, owners []owner) Connection {
	out := Connection{
		Protocol: c.Protocol.String(), Client: c.Client.String(), Virtual: c.Virtual.String(), RealServer: c.Server.String(),
		State: c.State, ExpiresSeconds: int(c.Expires / time.Second),
		// Only templates have these states without a client's port.
		Template:          c.Client.Port() == 0 && (c.State == "NONE" || c.State == "ASSURED"),
		PersistenceEngine: c.Engine, PersistenceData: c.EngineData,
	}
	if c.Protocol == 0 {
		out.Protocol, out.Virtual = "IP", markOf(c).String()
	}
	if len(owners) == 1 {
		out.Service = owners[0].name
	}
	return out
}
