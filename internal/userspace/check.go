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
	switch {
	case d.Forward != ipvs.Masq && d.Forward != ipvs.Route && d.Forward != ipvs.Tunnel:
		return unsupported(fmt.Errorf("no forwarding method %v", d.Forward))
	case d.Forward == ipvs.Tunnel && d.Tunnel.Type != ipvs.TunnelIPIP:
		return unsupported(fmt.Errorf("no tunnels of type %v", d.Tunnel.Type))
	}
	able := e.rules.Abilities()
	if reason := able.CheckServer(d.Forward, d.Tunnel); reason != nil {
		return unsupported(reason)
	}
	return nil
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
		{"tunnels", a.Tunnel},
		{"one-packet scheduling", a.OnePacket},
		{"refusing clients at once", a.Reject},
		{"IPVS's timeouts", a.CTTimeout},
	}
}
