package reconcile

import "github.com/lbd-project/lbd/ipvs"

// Acknowledged returns whether the table is known to have a real server as it was
// wanted, be it there or not, whatever else went wrong. Of a pass that did not get
// through only what it wrote is known.
func (r Report) Acknowledged() func(ipvs.DestinationKey) bool {
	if r.complete {
		return func(k ipvs.DestinationKey) bool {
			k = canonicalDestinationKey(k)
			_, server := r.lacking[k]
			_, service := r.lacking[ipvs.DestinationKey{Service: k.Service}]
			return !server && !service
		}
	}
	written := make(map[ipvs.DestinationKey]struct{}, len(r.Changes))
	for i := range r.Changes {
		if c := &r.Changes[i]; c.Destination.Address.IsValid() {
			written[c.key()] = struct{}{}
		}
	}
	return func(k ipvs.DestinationKey) bool {
		_, ok := written[canonicalDestinationKey(k)]
		return ok
	}
}

// lack notes a change that was not made.
func (r *Report) lack(c *Change) {
	if c.Kind != ipvs.OpUpdateService { // which takes no real servers along
		r.lackKey(c.key())
	}
}

func (r *Report) lackKey(k ipvs.DestinationKey) {
	if r.lacking == nil {
		r.lacking = make(map[ipvs.DestinationKey]struct{})
	}
	r.lacking[k] = struct{}{}
}

// lackAll notes that services were left alone.
func (r *Report) lackAll(keys []ipvs.ServiceKey) {
	for _, k := range keys {
		r.lackKey(ipvs.DestinationKey{Service: k})
	}
}
