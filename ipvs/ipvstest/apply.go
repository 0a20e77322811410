package ipvstest

import (
	"context"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/lbd-project/lbd/ipvs"
)

// Limits of the kernel.
const (
	// maxSchedulerName is IP_VS_SCHEDNAME_MAXLEN less the final zero byte.
	maxSchedulerName = 15
	// maxTimeout is INT_MAX / HZ seconds at HZ 250.
	maxTimeout = math.MaxInt32 / 250 * time.Second
)

// Apply executes ops in order. A *ipvs.BatchError names those that failed; all
// others took effect. After any other error the outcome is unknown. As with
// ipvs.Client, what Op.Validate refuses fails without being tried.
func (f *Fake) Apply(ctx context.Context, ops []ipvs.Op) error {
	if len(ops) == 0 {
		return nil
	}
	f.mu.Lock()
	hooks := f.hooks
	f.requests.Batches++
	f.requests.Writes += len(ops)
	if f.requests.Ops == nil {
		f.requests.Ops = make(map[ipvs.OpKind]int)
	}
	for _, op := range ops {
		f.requests.Ops[op.Kind]++
	}
	err := f.usable(ctx, "apply")
	lost := f.faults.lose(len(ops))
	f.mu.Unlock()
	if err != nil {
		return err
	}

	var failed []ipvs.FailedOp
	for i, op := range ops {
		if i == lost {
			return &ipvs.Error{Op: "apply", Err: errLost}
		}
		if hooks.BeforeOp != nil {
			hooks.BeforeOp(op)
		}
		if err := f.apply(op); err != nil {
			failed = append(failed, ipvs.FailedOp{Index: i, Err: opError(op, err)})
		}
	}
	if lost == len(ops) {
		return &ipvs.Error{Op: "apply", Err: errLost}
	}
	if len(failed) > 0 {
		return &ipvs.BatchError{Failed: failed}
	}
	return nil
}

// apply executes one operation of a batch, unless a fault does not let it.
func (f *Fake) apply(op ipvs.Op) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := op.Validate(); err != nil {
		return err
	}
	if f.gone {
		return errGone
	}
	if err := f.faults.fail(); err != nil {
		return err
	}
	return f.execute(op)
}

// execute is the kernel's ip_vs_genl_set_cmd: the checks come in its order, so
// that an operation with two faults fails as it does there.
func (f *Fake) execute(op ipvs.Op) error {
	key := canonicalKey(op.Service.ServiceKey)
	if key.Family != ipvs.IPv4 && key.Family != ipvs.IPv6 {
		return errFamily
	}
	if key.FWMark == 0 && ipvs.FamilyOf(key.Address.Addr()) != key.Family {
		return errInvalid
	}
	full := op.Kind == ipvs.OpAddService || op.Kind == ipvs.OpUpdateService
	if full && len(op.Service.Scheduler) > maxSchedulerName {
		return errInvalid
	}
	s := f.services[key]
	if s == nil && op.Kind != ipvs.OpAddService {
		return errNoService
	}
	d := op.Destination
	d.Address = unmap(d.Address)
	switch op.Kind {
	case ipvs.OpAddService:
		if s != nil {
			return errServiceExists
		}
		return f.addService(key, op.Service)
	case ipvs.OpUpdateService:
		return f.updateService(s, op.Service)
	case ipvs.OpDeleteService:
		f.deleteService(key)
		return nil
	case ipvs.OpAddDestination:
		return f.addDestination(s, d)
	case ipvs.OpUpdateDestination:
		return f.updateDestination(s, d)
	case ipvs.OpDeleteDestination:
		return f.deleteDestination(s, d.Address)
	default:
		return errCommand
	}
}

func (f *Fake) addService(k ipvs.ServiceKey, sv ipvs.Service) error {
	if err := f.checkService(sv); err != nil {
		return err
	}
	sv.ServiceKey = k
	f.services[k] = &service{Service: asDumped(sv)}
	return nil
}

func (f *Fake) updateService(s *service, sv ipvs.Service) error {
	if err := f.checkService(sv); err != nil {
		return err
	}
	sv.ServiceKey = s.ServiceKey
	s.Service = asDumped(sv)
	return nil
}

// checkService is what ip_vs_add_service and ip_vs_edit_service refuse.
func (f *Fake) checkService(sv ipvs.Service) error {
	if !f.schedulers[sv.Scheduler] {
		return errNoScheduler
	}
	if e := sv.Persistence.Engine; e != "" && !f.engines[e] {
		return errNoEngine
	}
	if sv.Family == ipvs.IPv6 {
		// The prefix length is checked whether the service is persistent or not.
		if n := sv.Persistence.Netmask.V6(); n < 1 || n > 128 {
			return errInvalid
		}
	}
	return nil
}

// asDumped returns what the kernel gives back for a service that was written.
func asDumped(sv ipvs.Service) ipvs.Service {
	sv.Flags &^= flagHashed
	sv.Persistence.Timeout = sv.Persistence.Timeout.Truncate(time.Second)
	return sv
}

// flagHashed is IP_VS_SVC_F_HASHED, which the kernel keeps to itself.
const flagHashed = 0x2

func (f *Fake) deleteService(k ipvs.ServiceKey) {
	s := f.services[k]
	for _, d := range s.destinations {
		f.discard(s, d)
	}
	delete(f.services, k)
}

// addDestination puts a new real server at the head of the list, with the
// connections that it had when it was deleted.
func (f *Fake) addDestination(s *service, d ipvs.Destination) error {
	if err := checkDestination(s, d); err != nil {
		return err
	}
	if s.find(d.Address) >= 0 {
		return errDestinationExists
	}
	k := ipvs.DestinationKey{Service: s.ServiceKey, Address: d.Address}
	conns, known := f.trash[k]
	// ip_vs_new_dest looks at the address; one from the trash has passed.
	if !known && !usableAddress(d.Address.Addr()) {
		return errInvalid
	}
	delete(f.trash, k)
	s.destinations = slices.Insert(s.destinations, 0, &destination{Destination: d, conns: conns})
	return nil
}

// updateDestination replaces every attribute in place.
func (f *Fake) updateDestination(s *service, d ipvs.Destination) error {
	if err := checkDestination(s, d); err != nil {
		return err
	}
	i := s.find(d.Address)
	if i < 0 {
		return errNoDestination
	}
	s.destinations[i].Destination = d
	return nil
}

func (f *Fake) deleteDestination(s *service, a netip.AddrPort) error {
	if !a.IsValid() {
		return errInvalid
	}
	i := s.find(a)
	if i < 0 {
		return errNoDestination
	}
	f.discard(s, s.destinations[i])
	s.destinations = slices.Delete(s.destinations, i, i+1)
	return nil
}

// discard moves a real server to the trash, where its connections find it.
func (f *Fake) discard(s *service, d *destination) {
	f.trash[ipvs.DestinationKey{Service: s.ServiceKey, Address: d.Address}] = d.conns
}

// checkDestination is what is refused before the real server is looked up.
func checkDestination(s *service, d ipvs.Destination) error {
	const intMax = math.MaxInt32
	switch {
	case !d.Address.IsValid():
		return errInvalid
	case d.UpperThreshold > intMax, d.LowerThreshold > intMax:
		return errInvalid
	case ipvs.FamilyOf(d.Address.Addr()) != s.Family && d.Forward != ipvs.Tunnel:
		return errInvalid
	case d.Weight > intMax, d.LowerThreshold > d.UpperThreshold:
		return errRange
	case d.Tunnel.Type == ipvs.TunnelGUE && d.Tunnel.Port == 0:
		return errInvalid
	}
	return nil
}

// usableAddress says whether ip_vs_new_dest takes an address on a host where it
// is not a local one.
func usableAddress(a netip.Addr) bool {
	switch {
	case a.IsUnspecified(), a.IsMulticast(), a.IsLinkLocalUnicast() && a.Is6():
		return false
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return false
	}
	return true
}

// canonicalKey drops what the kernel does not read of a key.
func canonicalKey(k ipvs.ServiceKey) ipvs.ServiceKey {
	if k.FWMark != 0 {
		return ipvs.MarkService(k.Family, k.FWMark)
	}
	k.Address = unmap(k.Address)
	return k
}

func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
