package userspace

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// load makes the engine what the store says. An error leaves an unknown part of
// it in the engine.
func (e *Engine) load(s *stored) error {
	// First, since these are to be given back whatever becomes of the rest.
	if err := e.loadHost(s); err != nil {
		return err
	}
	if s.MarkMask != e.marks.mask {
		return fmt.Errorf("%w %#08x", errOtherMask, s.MarkMask)
	}
	t := ipvs.Timeouts{TCP: seconds(s.Timeouts.TCP), TCPFin: seconds(s.Timeouts.TCPFin), UDP: seconds(s.Timeouts.UDP)}
	if err := t.Validate(); err != nil {
		return err
	}
	e.timeouts = withTimeouts(e.timeouts, t)
	for name, v := range s.Sysctls {
		if v < 0 || v > 0xffff || !e.sysctls.set(name, v) {
			return fmt.Errorf("setting %s = %d", name, v)
		}
	}
	for i := range s.Services {
		if err := e.loadService(&s.Services[i]); err != nil {
			return fmt.Errorf("service %d: %w", i, err)
		}
	}
	gone := make(map[ipvs.ServiceKey]*service)
	for i := range s.Dead {
		if err := e.loadDead(&s.Dead[i], gone); err != nil {
			return fmt.Errorf("deleted real server %d: %w", i, err)
		}
	}
	e.model.noteKinds()
	return nil
}

// loadHost takes in what settings of the host were before lbd.
func (e *Engine) loadHost(s *stored) error {
	for name, saved := range s.HostSysctls {
		for _, v := range []string{saved.Before, saved.Set} {
			if _, err := strconv.ParseUint(v, 10, 8); err != nil {
				return fmt.Errorf("host setting %s: %w", name, err)
			}
		}
		e.hostSysctls[name] = savedSysctl(saved)
	}
	return nil
}

// seconds turns whole seconds into a duration; far too many into one that every
// check refuses.
func seconds(n int64) time.Duration {
	if n < 0 || n > int64(maxTimeout/time.Second) {
		return -1
	}
	return time.Duration(n) * time.Second
}

func (k storedKey) key() (ipvs.ServiceKey, error) {
	key := ipvs.ServiceKey{Family: k.Family, Protocol: k.Protocol, Address: k.Address, FWMark: k.FWMark}
	if err := key.Validate(); err != nil {
		return ipvs.ServiceKey{}, err
	}
	if key != canonicalKey(key) {
		return ipvs.ServiceKey{}, fmt.Errorf("key %v is not canonical", key)
	}
	return key, nil
}

func (e *Engine) loadService(in *storedService) error {
	k, err := in.key()
	if err != nil {
		return err
	}
	s := &service{id: in.ID, index: make(map[netip.AddrPort]*server)}
	s.ServiceKey, s.Scheduler, s.Flags = k, in.Scheduler, in.Flags
	s.Persistence.Timeout = seconds(in.Timeout)
	if s.Persistence.Netmask, err = parseNetmask(k.Family, in.Netmask); err != nil {
		return err
	}
	checked := ipvs.Op{Kind: ipvs.OpAddService, Service: s.Service}
	if err := validate(&checked); err != nil {
		return err
	}
	if s.table, err = e.newTable(&s.Service); err != nil {
		return err
	}
	s.signals = readsSignals(s.Scheduler)
	if e.model.services[k] != nil {
		return errServiceExists
	}
	if !e.model.serviceIDs.reserve(s.id) {
		return fmt.Errorf("number %d is no number, or another's", s.id)
	}
	e.model.services[k] = s
	for i := range in.Servers {
		sv, err := e.loadServer(&in.Servers[i], s)
		if err != nil {
			return fmt.Errorf("real server %d: %w", i, err)
		}
		if s.index[sv.Address] != nil {
			return errDestinationExists
		}
		s.index[sv.Address] = sv
		s.servers = append(s.servers, sv)
		s.table.Insert(sv.sched)
	}
	return nil
}

func (e *Engine) loadServer(in *storedServer, svc *service) (*server, error) {
	s := &server{service: svc, id: in.ID, Destination: ipvs.Destination{
		Address: in.Address, Weight: in.Weight, Forward: in.Forward,
		Tunnel:         ipvs.TunnelOptions{Type: in.TunnelType, Port: in.TunnelPort, Checksum: in.TunnelChecksum},
		UpperThreshold: in.Upper, LowerThreshold: in.Lower,
	}}
	if err := s.Destination.Validate(svc.ServiceKey); err != nil {
		return nil, err
	}
	if !e.model.ids.reserve(s.id) {
		return nil, fmt.Errorf("number %d is no number, or another's", s.id)
	}
	s.sched = sched.NewServer(s.id, s.Address, schedConfig(&s.Destination))
	e.model.setServer(s.id, s)
	return s, nil
}

// loadDead loads a deleted real server. gone are the services that were deleted
// with such servers.
func (e *Engine) loadDead(in *storedDead, gone map[ipvs.ServiceKey]*service) error {
	k, err := in.Service.key()
	if err != nil {
		return err
	}
	svc, err := e.serviceOfDead(k, in.ServiceID, gone)
	if err != nil {
		return err
	}
	s, err := e.loadServer(&in.storedServer, svc)
	if err != nil {
		return err
	}
	if e.model.dead[s.key()] != nil || svc.index[s.Address] != nil {
		return errDestinationExists
	}
	s.dead = true
	e.model.dead[s.key()] = s
	return nil
}

// serviceOfDead returns the service that a deleted real server was of, which may
// be deleted as well.
func (e *Engine) serviceOfDead(k ipvs.ServiceKey, id uint32, gone map[ipvs.ServiceKey]*service) (*service, error) {
	known := e.model.services[k]
	if known == nil {
		known = gone[k]
	}
	if known != nil {
		if known.id != id {
			return nil, fmt.Errorf("service %v has number %d, not %d", k, known.id, id)
		}
		return known, nil
	}
	if !e.model.serviceIDs.reserve(id) {
		return nil, fmt.Errorf("number %d is no number, or another's", id)
	}
	s := &service{id: id}
	s.ServiceKey, s.Scheduler = k, "wlc"
	var err error
	s.table, err = e.newTable(&s.Service)
	gone[k] = s
	return s, err
}

// parseNetmask reads the text of ipvs.Netmask; empty is the whole address.
func parseNetmask(f ipvs.Family, text string) (ipvs.Netmask, error) {
	if text == "" {
		return ipvs.Netmask{}, nil
	}
	if f == ipvs.IPv6 {
		n, err := strconv.ParseUint(text, 10, 8)
		return ipvs.NetmaskV6(uint8(n)), err
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return ipvs.Netmask{}, err
	}
	if !a.Is4() || strings.Contains(text, ":") {
		return ipvs.Netmask{}, errors.New("netmask is not IPv4")
	}
	return ipvs.NetmaskV4(a), nil
}
