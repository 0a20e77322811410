package fleet

import (
	"fmt"
	"slices"
	"time"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/ipvs"
)

// Drain is a server that left the configuration: it keeps weight 0 until its
// connections have ended or the deadline has come.
type Drain struct {
	// Name and Service are those of the service when the server left it.
	Name    string
	Service ipvs.Service
	// Destination is the server with the weight that it had in the
	// configuration.
	Destination ipvs.Destination
	// Deadline ends the drain whatever is connected.
	Deadline time.Time
}

// Key identifies the draining server.
func (d Drain) Key() ipvs.DestinationKey {
	return ipvs.DestinationKey{Service: d.Service.ServiceKey, Address: d.Destination.Address}
}

func (d Drain) server() Server {
	s := Server{
		Destination: d.Destination,
		Configured:  d.Destination.Weight,
		Gate:        GateDrained,
		Present:     true,
		State:       Draining,
		Reason:      "drained: left the configuration",
		Deadline:    d.Deadline,
	}
	s.Weight = s.Gate.apply(s.Configured)
	return s
}

// Drains are the draining servers in the order in which they left.
type Drains []Drain

// Leave returns the drains after a change of configuration: servers of old that
// next lacks begin to drain, servers that next has again stop. Servers that the
// table does not hold, such as those that it refused, have nothing to drain.
func (ds Drains) Leave(old *Fleet, next *config.Config, held func(ipvs.DestinationKey) bool, now time.Time) Drains {
	wanted := destinations(next)
	var out Drains
	known := make(map[ipvs.DestinationKey]bool)
	for _, d := range ds {
		if known[d.Key()] = true; !wanted[d.Key()] {
			out = append(out, d)
		}
	}
	for i := range old.Services {
		s := &old.Services[i]
		for j := range s.Servers {
			rs := &s.Servers[j]
			key := ipvs.DestinationKey{Service: s.ServiceKey, Address: rs.Address}
			if wanted[key] || known[key] || !rs.Present || !held(key) {
				continue
			}
			d := Drain{Name: s.Name, Service: s.Service, Destination: rs.Destination, Deadline: now.Add(rs.DrainTimeout)}
			d.Destination.Weight = rs.Configured
			out = append(out, d)
		}
	}
	return out
}

// Due returns the drains with deadlines that have come by now.
func (ds Drains) Due(now time.Time) Drains {
	out := slices.Clone(ds)
	for i := range out {
		if out[i].Deadline.After(now) {
			out[i].Deadline = now
		}
	}
	return out
}

// Adopt returns the drains of an lbd that ran before, but for those of servers
// that the configuration has again, and adds those of which only the table tells:
// servers in services of ours that the configuration lacks. They left while lbd
// was not running, or somebody else put them there before the service was lbd's.
// The drain timeout is that of their service, or of the configuration if it
// lacks that, too.
//
// What somebody made that lbd cannot write, such as a forwarding method that
// cannot be set, never gets weight 0: it is not drained, so that it is deleted
// at once, and there is an error for each.
func (ds Drains) Adopt(table []ipvs.TableEntry, ours map[ipvs.ServiceKey]struct{}, c *config.Config, now time.Time) (Drains, []error) {
	if len(ds)+len(table) == 0 {
		return nil, nil
	}
	wanted := destinations(c)
	services := make(map[ipvs.ServiceKey]*config.VirtualService, len(c.VirtualServices))
	for i := range c.VirtualServices {
		services[c.VirtualServices[i].ServiceKey] = &c.VirtualServices[i]
	}
	known := make(map[ipvs.DestinationKey]bool, len(ds))
	for _, d := range ds {
		known[d.Key()] = true
	}
	out := slices.DeleteFunc(slices.Clone(ds), func(d Drain) bool { return wanted[d.Key()] })
	var refused []error
	for i := range table {
		e := &table[i]
		if _, ok := ours[e.ServiceKey]; !ok {
			continue
		}
		name, service, timeout := e.ServiceKey.String(), e.Service, c.DrainTimeout
		if vs, ok := services[e.ServiceKey]; ok {
			// The table may say otherwise until the pass has edited it.
			name, service, timeout = vs.Name, vs.Service, vs.DrainTimeout
		}
		for _, dst := range e.Destinations {
			key := ipvs.DestinationKey{Service: e.ServiceKey, Address: dst.Address}
			if wanted[key] || known[key] {
				continue
			}
			d := dst.Destination
			if d.Forward != ipvs.Tunnel {
				d.Tunnel = ipvs.TunnelOptions{} // kept by the kernel, and without effect
			}
			if err := d.Validate(e.ServiceKey); err != nil {
				refused = append(refused, fmt.Errorf("real server %v: %w", key, err))
				continue
			}
			out = append(out, Drain{
				Name:        name,
				Service:     service,
				Destination: d,
				Deadline:    now.Add(timeout),
			})
		}
	}
	return out, refused
}

// Finish returns the drains that go on. A drain has ended when its deadline has
// come or when counts, taken after it began, say that nothing is connected.
// counts returns false for a server of which nothing is known: counts can miss
// one, and what is really gone is put back and counted then.
func (ds Drains) Finish(counts func(ipvs.DestinationKey) (ipvs.Conns, bool), now time.Time) Drains {
	return slices.DeleteFunc(slices.Clone(ds), func(d Drain) bool {
		if !now.Before(d.Deadline) {
			return true
		}
		conns, known := counts(d.Key())
		return known && d.idle(conns)
	})
}

// Quiet reports whether a drain of a service waits until all connections were quiet
// for their time-out: IPVS counts UDP flows as inactive only, and a firewall mark
// may be on some.
func Quiet(k ipvs.ServiceKey) bool { return k.Protocol == ipvs.UDP || k.FWMark != 0 }

// idle reports whether nothing is connected.
func (d Drain) idle(c ipvs.Conns) bool {
	if Quiet(d.Service.ServiceKey) {
		return c.Active == 0 && c.Inactive == 0
	}
	return c.Active == 0
}

// destinations returns the real servers of a configuration.
func destinations(c *config.Config) map[ipvs.DestinationKey]bool {
	n := 0
	for i := range c.VirtualServices {
		n += len(c.VirtualServices[i].RealServers) + len(c.VirtualServices[i].Backup)
	}
	m := make(map[ipvs.DestinationKey]bool, n)
	for i := range c.VirtualServices {
		vs := &c.VirtualServices[i]
		for rs := range vs.Servers() {
			m[ipvs.DestinationKey{Service: vs.ServiceKey, Address: rs.Address}] = true
		}
	}
	return m
}
