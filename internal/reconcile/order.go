package reconcile

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/lbd-project/lbd/ipvs"
)

// Orders returns the list orders of the real servers, the newest first, of those
// wanted services whose order is not that of the file, as the last pass left the
// table: who wins ties would change if such a service were lost and made again
// in the order of the file. A service that is lost or lacks a real server keeps
// the order that it has in last, which is not changed.
func (r *Reconciler) Orders(desired Desired, last map[ipvs.ServiceKey][]netip.AddrPort) map[ipvs.ServiceKey][]netip.AddrPort {
	orders := make(map[ipvs.ServiceKey][]netip.AddrPort, len(last))
	for i := range desired.Services {
		s := &desired.Services[i]
		k := canonicalKey(s.ServiceKey)
		is := r.belief[k]
		switch {
		case is == nil, len(is.destinations) != len(s.Destinations):
			if order, ok := last[k]; ok {
				orders[k] = order
			}
		case !is.inOrderOf(s.Destinations):
			orders[k] = is.order()
		}
	}
	return orders
}

// inOrderOf says whether the list is in the order of the file.
func (s *believed) inOrderOf(file []ipvs.Destination) bool {
	for i := range file {
		if s.destinations[len(file)-1-i].Address != unmap(file[i].Address) {
			return false
		}
	}
	return true
}

// order returns the addresses of the list, the newest first.
func (s *believed) order() []netip.AddrPort {
	list := make([]netip.AddrPort, 0, len(s.destinations))
	for _, d := range slices.Backward(s.destinations) {
		list = append(list, d.Address)
	}
	return list
}

// sortAdds puts adds into an order that makes the list as it was: the last of
// order is added first, and what is not in order last.
func sortAdds(adds []Change, order []netip.AddrPort) {
	if len(adds) < 2 || len(order) == 0 {
		return
	}
	place := make(map[netip.AddrPort]int, len(order))
	for i, a := range order {
		place[unmap(a)] = -1 - i
	}
	slices.SortStableFunc(adds, func(a, b Change) int {
		return cmp.Compare(place[a.Destination.Address], place[b.Destination.Address])
	})
}
