package daemon

import (
	"context"
	"iter"
	"net/netip"

	"github.com/lbd-project/lbd/internal/api"
)

// Connections implements api.Backend. Whose the connections are follows from what
// the owner wants and what the mirror last saw: nothing is read for it.
func (d *Daemon) Connections(ctx context.Context, q api.ConnectionQuery) (iter.Seq2[api.Connection, error], error) {
	v := d.owner.view.Load()
	var owners api.Owners
	for _, e := range d.foreign(v) {
		owners.AddEntry(e)
	}
	if v.fleet != nil {
		for i := range v.fleet.Services {
			s := &v.fleet.Services[i]
			owners.Add(s.ServiceKey, s.Name, func(yield func(netip.AddrPort) bool) {
				for j := range s.Servers {
					if !yield(s.Servers[j].Address) {
						return
					}
				}
			})
		}
	}
	return owners.Select(d.watched.Connections(ctx), q)
}
