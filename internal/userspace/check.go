package userspace

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/lbd-project/lbd/ipvs"
)

// errMixed is the reason for what one batch alone may do: to change all real
// servers of a service together.
var errMixed = unsupported(errors.New("a service cannot have real servers by masquerading and by direct routing"))

// Supports says why the engine, or this host, cannot do what op asks for; nil if
// it can. Whether the table lets it is Apply's business.
func (e *Engine) Supports(op ipvs.Op) error {
	if err := e.supports(&op); err != nil {
		return err
	}
	if op.Kind != ipvs.OpAddDestination && op.Kind != ipvs.OpUpdateDestination {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.model.services[canonicalKey(op.Service.ServiceKey)]
	if s == nil {
		return nil
	}
	for _, sv := range s.servers {
		if sv.Address != unmap(op.Destination.Address) && routed(&sv.Destination) != routed(&op.Destination) {
			return errMixed
		}
	}
	return nil
}

// supports is Supports for what does not depend on other operations.
func (e *Engine) supports(op *ipvs.Op) error {
	switch op.Kind {
	case ipvs.OpAddService, ipvs.OpUpdateService:
		return e.supportsService(&op.Service)
	case ipvs.OpAddDestination, ipvs.OpUpdateDestination:
		return e.supportsServer(&op.Destination)
	}
	return nil
}

// Check returns what the engine or this host cannot do of services and their
// real servers, each with its place; nil if it can do all.
func (e *Engine) Check(services []ipvs.TableEntry) []error {
	var errs []error
	for i := range services {
		s := &services[i]
		if mixed(s.Destinations) {
			errs = append(errs, fmt.Errorf("service %v: %w", s.ServiceKey, errMixed))
		}
		if err := e.supportsService(&s.Service); err != nil {
			errs = append(errs, fmt.Errorf("service %v: %w", s.ServiceKey, err))
		}
		for j := range s.Destinations {
			d := &s.Destinations[j].Destination
			if err := e.supportsServer(d); err != nil {
				errs = append(errs, fmt.Errorf("real server %v of %v: %w", d.Address, s.ServiceKey, err))
			}
		}
	}
	return errs
}

func mixed(list []ipvs.DestinationStatus) bool {
	for i := range list {
		if routed(&list[i].Destination) != routed(&list[0].Destination) {
			return true
		}
	}
	return false
}

func (e *Engine) supportsService(s *ipvs.Service) error {
	able := e.rules.Abilities()
	switch {
	case s.Persistence.Engine != "":
		// As the kernel answers for a persistence engine that it does not have.
		return fmt.Errorf("the userspace engine: no persistence engine %q: %w", s.Persistence.Engine, syscall.ENOENT)
	case s.FWMark&e.marks.mask != 0:
		return unsupported(fmt.Errorf("firewall mark %#x has bits of mark_mask %#08x, where real servers are written", s.FWMark, e.marks.mask))
	case onePacket(s) && (s.FWMark != 0 || s.Address.Port() == 0):
		return unsupported(errors.New("one-packet scheduling needs an address and a port"))
	case onePacket(s) && able.OnePacket != nil:
		return unsupported(able.OnePacket)
	}
	return nil
}

func (e *Engine) supportsServer(d *ipvs.Destination) error {
	switch d.Forward {
	case ipvs.Masq:
		return nil
	case ipvs.Route:
		if reason := e.rules.Abilities().Route; reason != nil {
			return unsupported(reason)
		}
		return nil
	}
	return unsupported(fmt.Errorf("no forwarding method %v", d.Forward))
}

func unsupported(reason error) error { return &unsupportedError{reason} }

// Ability is something that depends on the host.
type Ability struct {
	Name string
	// Err says why the host cannot do it; nil if it can.
	Err error
}

// Abilities returns what the engine needs, or could use, of this host.
func (e *Engine) Abilities() []Ability {
	a := e.rules.Abilities()
	return []Ability{
		{"direct routing", a.Route},
		{"one-packet scheduling", a.OnePacket},
		{"refusing clients at once", a.Reject},
		{"IPVS's timeouts", a.CTTimeout},
	}
}
