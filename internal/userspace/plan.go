package userspace

import (
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// The errors of operations, with the kernel's errno.
var (
	errNoService         = fmt.Errorf("%w: %w", ipvs.ErrServiceNotFound, syscall.ESRCH)
	errServiceExists     = fmt.Errorf("%w: %w", ipvs.ErrServiceExists, syscall.EEXIST)
	errNoDestination     = fmt.Errorf("%w: %w", ipvs.ErrDestinationNotFound, syscall.ENOENT)
	errDestinationExists = fmt.Errorf("%w: %w", ipvs.ErrDestinationExists, syscall.EEXIST)
)

// plan is what the services will be after a batch. It leaves the model alone,
// and copies of it only what the batch changes.
type plan struct {
	engine *Engine
	drafts map[ipvs.ServiceKey]*draft
	// order is that of the first changes.
	order []*draft
	// changed says that something will differ.
	changed bool
	// numbers are those that new servers and services got.
	servers, services []uint32
}

// draft is a service as it will be.
type draft struct {
	ipvs.Service
	// was is the service as it is, nil where it is new.
	was *service
	// table is a new service's.
	table *sched.Table
	// exists is false for one that is deleted, or that was never there.
	exists bool
	// servers are in the order of adding. Those that were deleted stay, marked.
	servers []*serverDraft
	index   map[netip.AddrPort]*serverDraft
	// gone are the servers that were deleted.
	gone map[netip.AddrPort]*server
	id   uint32
}

// serverDraft is a real server as it will be.
type serverDraft struct {
	ipvs.Destination
	// was is the server as it is, nil where it is new or has come back.
	was *server
	// revived is the dead server that comes back, nil for none.
	revived *server
	// id is the number of a new server, once there is one.
	id      uint32
	deleted bool
}

func (e *Engine) newPlan() *plan {
	return &plan{engine: e, drafts: make(map[ipvs.ServiceKey]*draft)}
}

// draft returns the draft of a service, which it makes at the first use.
func (p *plan) draft(k ipvs.ServiceKey) *draft {
	if d := p.drafts[k]; d != nil {
		return d
	}
	s := p.engine.model.services[k]
	d := &draft{gone: make(map[netip.AddrPort]*server)}
	d.ServiceKey = k
	if s == nil {
		d.index = make(map[netip.AddrPort]*serverDraft)
	} else {
		d.was, d.exists, d.Service = s, true, s.Service
		d.servers = make([]*serverDraft, 0, len(s.servers)+1)
		d.index = make(map[netip.AddrPort]*serverDraft, len(s.servers)+1)
		for _, sv := range s.servers {
			sd := &serverDraft{Destination: sv.Destination, was: sv}
			d.servers = append(d.servers, sd)
			d.index[sv.Address] = sd
		}
	}
	p.drafts[k] = d
	p.order = append(p.order, d)
	return d
}

// exists says whether there will be a service, without drafting it.
func (p *plan) exists(k ipvs.ServiceKey) bool {
	if d := p.drafts[k]; d != nil {
		return d.exists
	}
	return p.engine.model.services[k] != nil
}

// execute does one operation, or says why the kernel's table or this engine
// would not.
func (p *plan) execute(op *ipvs.Op) error {
	if err := validate(op); err != nil {
		return err
	}
	if err := p.engine.Supports(*op); err != nil {
		return err
	}
	k := canonicalKey(op.Service.ServiceKey)
	switch exists := p.exists(k); {
	case op.Kind == ipvs.OpAddService && exists:
		return errServiceExists
	case op.Kind != ipvs.OpAddService && !exists:
		return errNoService
	}
	switch op.Kind {
	case ipvs.OpAddService:
		return p.addService(k, op.Service)
	case ipvs.OpUpdateService:
		return p.updateService(p.draft(k), op.Service)
	case ipvs.OpDeleteService:
		p.draft(k).drop()
		p.changed = true
		return nil
	case ipvs.OpAddDestination:
		return p.addServer(p.draft(k), op.Destination)
	case ipvs.OpUpdateDestination:
		return p.updateServer(p.draft(k), op.Destination)
	case ipvs.OpDeleteDestination:
		return p.deleteServer(p.draft(k), unmap(op.Destination.Address))
	}
	return syscall.EOPNOTSUPP
}

// validate is Op.Validate with names of schedulers that say how ties are broken,
// which may be longer than the kernel's.
func validate(op *ipvs.Op) error {
	checked := *op
	checked.Service.Scheduler = schedulerName(op.Service.Scheduler)
	return checked.Validate()
}

func (p *plan) addService(k ipvs.ServiceKey, s ipvs.Service) error {
	t, err := p.engine.newTable(&s)
	if err != nil {
		return err
	}
	d := p.draft(k)
	// A service that was deleted in this batch is another now, and so are its
	// real servers: those that come back do so as dead ones.
	d.was, d.table, d.exists = nil, t, true
	d.set(s)
	p.changed = true
	return nil
}

func (p *plan) updateService(d *draft, s ipvs.Service) error {
	if _, err := p.engine.newTable(&s); err != nil {
		return err
	}
	before := d.Service
	d.set(s)
	p.changed = p.changed || d.Service != before
	return nil
}

// set replaces every attribute by what the kernel would give back.
func (d *draft) set(s ipvs.Service) {
	s.ServiceKey = d.ServiceKey
	s.Persistence.Timeout = s.Persistence.Timeout.Truncate(time.Second)
	d.Service = s
}

// drop deletes the service with its real servers.
func (d *draft) drop() {
	d.exists = false
	for _, s := range d.servers {
		d.delete(s)
	}
}

// delete takes a server out, and remembers it in case it comes back.
func (d *draft) delete(s *serverDraft) {
	if s.deleted {
		return
	}
	s.deleted = true
	delete(d.index, s.Address)
	if s.was != nil {
		d.gone[s.Address] = s.was
	}
}

func (p *plan) addServer(d *draft, dst ipvs.Destination) error {
	dst.Address = unmap(dst.Address)
	if d.index[dst.Address] != nil {
		return errDestinationExists
	}
	if a := dst.Address.Addr(); a.Is6() && a.IsLinkLocalUnicast() {
		return fmt.Errorf("address %v is valid on one link only: %w", a, syscall.EINVAL)
	}
	s := &serverDraft{Destination: dst}
	// One that was deleted keeps its number and its flows.
	if s.revived = d.gone[dst.Address]; s.revived == nil {
		s.revived = p.engine.model.dead[ipvs.DestinationKey{Service: d.ServiceKey, Address: dst.Address}]
	}
	d.servers = append(d.servers, s)
	d.index[dst.Address] = s
	p.changed = true
	return nil
}

func (p *plan) updateServer(d *draft, dst ipvs.Destination) error {
	dst.Address = unmap(dst.Address)
	s := d.index[dst.Address]
	if s == nil {
		return errNoDestination
	}
	p.changed = p.changed || s.Destination != dst
	s.Destination = dst
	return nil
}

func (p *plan) deleteServer(d *draft, a netip.AddrPort) error {
	s := d.index[a]
	if s == nil {
		return errNoDestination
	}
	d.delete(s)
	p.changed = true
	return nil
}

// failure names the operation that failed.
func failure(index int, op *ipvs.Op, err error) ipvs.FailedOp {
	fail := &ipvs.Error{Op: op.Kind.String(), Service: op.Service.ServiceKey, Err: err}
	switch op.Kind {
	case ipvs.OpAddDestination, ipvs.OpUpdateDestination, ipvs.OpDeleteDestination:
		fail.Destination = op.Destination.Address
	}
	return ipvs.FailedOp{Index: index, Err: fail}
}

// canonicalKey drops what is not read of a key.
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

// unsupportedError says what this engine, or this host, cannot do.
type unsupportedError struct{ reason error }

func (e *unsupportedError) Error() string   { return "the userspace engine: " + e.reason.Error() }
func (e *unsupportedError) Unwrap() []error { return []error{e.reason, syscall.EOPNOTSUPP} }
