package ruleset

import (
	"cmp"
	"slices"

	"github.com/lbd-project/lbd/internal/userspace/tunnel"
	"github.com/lbd-project/lbd/ipvs"
)

// tunnelEnds are the ends of the tunnels of a Spec. What goes through one is of
// its service's family.
func (s *Spec) tunnelEnds() []tunnel.End {
	var ends []tunnel.End
	var families map[uint32]ipvs.Family
	for i := range s.Servers {
		v := &s.Servers[i]
		if v.Forward != ipvs.Tunnel {
			continue
		}
		if families == nil {
			families = make(map[uint32]ipvs.Family, len(s.Services))
			for i := range s.Services {
				families[s.Services[i].ID] = s.Services[i].Key.Family
			}
		}
		family := cmp.Or(families[v.Service], ipvs.FamilyOf(v.Address.Addr()))
		ends = append(ends, tunnel.End{Mark: v.Mark, Address: v.Address.Addr().Unmap(), Inner6: family == ipvs.IPv6})
	}
	return ends
}

// setTunnels makes the ends those of list. One that cannot be reached now is
// tried again by keepTunnels.
func (r *Rules) setTunnels(list []tunnel.End) error {
	r.wanted = list
	if slices.Equal(list, r.ends) {
		return nil
	}
	if r.tunnels == nil {
		t, err := tunnel.Flows.Open(r.opts.NetNS, r.opts.Mask)
		if err != nil {
			return err
		}
		r.tunnels = t
	}
	r.ends = nil
	unreachable, err := r.tunnels.Set(list)
	if err != nil {
		return err
	}
	before := r.lost
	r.lost = nil
	for _, u := range unreachable {
		r.lost = append(r.lost, u.End)
		if !slices.Contains(before, u.End) {
			r.opts.Logger.Warn("a tunnel has no route to its end", "real_server", u.End.Address, "err", u.Err)
		}
	}
	if len(unreachable) == 0 {
		r.ends = list
	}
	return nil
}

// keepTunnels sets again what the kernel forgot with a device, and what could not
// be reached before.
func (r *Rules) keepTunnels() error {
	if len(r.wanted) == 0 {
		return nil
	}
	if r.tunnels != nil {
		intact, err := r.tunnels.Intact()
		if err != nil {
			return err
		}
		if !intact {
			r.opts.Logger.Warn("a route into tunnels was deleted: it is set again")
			r.ends = nil
		}
	}
	return r.setTunnels(r.wanted)
}

// without returns the elements of list that are not in other.
func without(list, other []tunnel.End) []tunnel.End {
	have := make(map[tunnel.End]bool, len(other))
	for _, e := range other {
		have[e] = true
	}
	return slices.DeleteFunc(slices.Clone(list), func(e tunnel.End) bool { return have[e] })
}
