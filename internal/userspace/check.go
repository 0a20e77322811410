package userspace

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/lbd-project/lbd/ipvs"
)

// Supports says why the engine, or this host, cannot do what op asks for; nil if
// it can. Whether the table lets it is Apply's business.
func (e *Engine) Supports(op ipvs.Op) error {
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

func (e *Engine) supportsService(s *ipvs.Service) error {
	switch {
	case s.Persistence.Engine != "":
		// As the kernel answers for a persistence engine that it does not have.
		return fmt.Errorf("the userspace engine: no persistence engine %q: %w", s.Persistence.Engine, syscall.ENOENT)
	case s.FWMark&e.marks.mask != 0:
		return unsupported(fmt.Errorf("firewall mark %#x has bits of mark_mask %#08x, where real servers are written", s.FWMark, e.marks.mask))
	case onePacket(s):
		return unsupported(errors.New("no one-packet scheduling"))
	}
	return nil
}

func (e *Engine) supportsServer(d *ipvs.Destination) error {
	if d.Forward != ipvs.Masq {
		return unsupported(fmt.Errorf("no forwarding method %v", d.Forward))
	}
	return nil
}

func unsupported(reason error) error { return &unsupportedError{reason} }
