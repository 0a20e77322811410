package ipvstest

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/lbd-project/lbd/ipvs"
)

// Fake is an in-memory IPVS table with the kernel's semantics. It is safe for
// concurrent use. Make one with New.
type Fake struct {
	mu         sync.Mutex
	services   map[ipvs.ServiceKey]*service
	trash      map[ipvs.DestinationKey]ipvs.Conns
	schedulers map[ipvs.Scheduler]bool
	engines    map[string]bool
	timeouts   ipvs.Timeouts
	gone       bool
	faults     Faults
	hooks      Hooks
	requests   Requests
}

// service is a virtual service with its real servers, newest first.
type service struct {
	ipvs.Service
	stats        ipvs.Stats
	destinations []*destination
}

type destination struct {
	ipvs.Destination
	conns ipvs.Conns
}

// Requests counts what a Fake was asked through its table methods. What Do and
// Clear did is not counted.
type Requests struct {
	// Reads counts calls that read, failed ones too.
	Reads int
	// Batches counts calls of Apply with at least one operation.
	Batches int
	// Writes counts operations given to Apply and calls of SetTimeouts and
	// Flush, failed ones too.
	Writes int
	// Ops counts the operations given to Apply by kind.
	Ops map[ipvs.OpKind]int
}

// New returns an empty table with the kernel's default timeouts, all of its
// schedulers and the sip persistence engine.
func New() *Fake {
	f := &Fake{
		services:   make(map[ipvs.ServiceKey]*service),
		trash:      make(map[ipvs.DestinationKey]ipvs.Conns),
		schedulers: make(map[ipvs.Scheduler]bool),
		engines:    map[string]bool{"sip": true},
		timeouts:   ipvs.Timeouts{TCP: 15 * time.Minute, TCPFin: 2 * time.Minute, UDP: 5 * time.Minute},
	}
	f.SetSchedulers("rr", "wrr", "lc", "wlc", "lblc", "lblcr", "dh", "sh", "mh",
		"sed", "nq", "fo", "ovf", "twos")
	return f
}

// SetSchedulers replaces the schedulers that the table knows. Services keep
// theirs.
func (f *Fake) SetSchedulers(names ...ipvs.Scheduler) {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.schedulers)
	for _, n := range names {
		f.schedulers[n] = true
	}
}

// SetConns sets the connection counts of a real server, deleted ones included,
// and reports whether there is such a server.
func (f *Fake) SetConns(k ipvs.DestinationKey, c ipvs.Conns) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	k.Service, k.Address = canonicalKey(k.Service), unmap(k.Address)
	if s := f.services[k.Service]; s != nil {
		if i := s.find(k.Address); i >= 0 {
			s.destinations[i].conns = c
			return true
		}
	}
	if _, ok := f.trash[k]; ok {
		f.trash[k] = c
		return true
	}
	return false
}

// SetAvailable takes the IPVS family away, with everything in the table as when
// the module is unloaded, or brings it back empty.
func (f *Fake) SetAvailable(available bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone = !available
	if f.gone {
		clear(f.services)
		clear(f.trash)
	}
}

// Clear empties the table as somebody's ipvsadm -C would. Connection counts of
// the real servers are kept for those that come back.
func (f *Fake) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k := range f.services {
		f.deleteService(k)
	}
}

// Do executes ops as somebody else would: no faults, no hooks, not counted. It
// stops at the first operation that fails and returns its error.
func (f *Fake) Do(ops ...ipvs.Op) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, op := range ops {
		// What ipvs.Client refuses, others may do.
		if err := f.execute(op); err != nil {
			return opError(op, err)
		}
	}
	return nil
}

// Requests returns what was counted since New or ResetRequests.
func (f *Fake) Requests() Requests {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.requests
	r.Ops = maps.Clone(r.Ops)
	return r
}

// ResetRequests sets all counts of Requests to 0.
func (f *Fake) ResetRequests() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = Requests{}
}

// Table returns everything that the table holds, services by key, real servers
// in list order; nil if it is empty.
func (f *Fake) Table(ctx context.Context) ([]ipvs.TableEntry, error) {
	hooks := f.getHooks()
	if hooks.BeforeRead != nil {
		hooks.BeforeRead()
	}
	t, err := f.table(ctx)
	if err == nil && hooks.AlterTable != nil {
		t = hooks.AlterTable(t)
	}
	return t, err
}

func (f *Fake) table(ctx context.Context) ([]ipvs.TableEntry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.read(ctx, "read table"); err != nil {
		return nil, err
	}
	var entries []ipvs.TableEntry
	for _, k := range f.keys() {
		s := f.services[k]
		entries = append(entries, ipvs.TableEntry{ServiceStatus: s.status(), Destinations: s.list()})
	}
	return entries, nil
}

// Services returns the virtual services by key; nil if there are none.
func (f *Fake) Services(ctx context.Context) ([]ipvs.ServiceStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.read(ctx, "list services"); err != nil {
		return nil, err
	}
	var services []ipvs.ServiceStatus
	for _, k := range f.keys() {
		services = append(services, f.services[k].status())
	}
	return services, nil
}

// Destinations returns the real servers of a service in list order. As in the
// kernel, a service that does not exist has none, which is no error.
func (f *Fake) Destinations(ctx context.Context, k ipvs.ServiceKey) ([]ipvs.DestinationStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.read(ctx, "list destinations"); err != nil {
		return nil, err
	}
	s := f.services[canonicalKey(k)]
	if s == nil {
		return nil, nil
	}
	return s.list(), nil
}

// keys returns the keys of the services, sorted.
func (f *Fake) keys() []ipvs.ServiceKey {
	return slices.SortedFunc(maps.Keys(f.services), ipvs.ServiceKey.Compare)
}

// read counts a read and says whether it fails.
func (f *Fake) read(ctx context.Context, op string) error {
	f.requests.Reads++
	if err := f.usable(ctx, op); err != nil {
		return err
	}
	if err := f.faults.failRead(); err != nil {
		return &ipvs.Error{Op: op, Err: err}
	}
	return nil
}

// usable says why nothing can be asked of the table at all.
func (f *Fake) usable(ctx context.Context, op string) error {
	if err := ctx.Err(); err != nil {
		return &ipvs.Error{Op: op, Err: err}
	}
	if f.gone {
		return &ipvs.Error{Op: op, Err: errGone}
	}
	return nil
}

func (s *service) status() ipvs.ServiceStatus {
	return ipvs.ServiceStatus{Service: s.Service, Stats: s.stats}
}

func (s *service) list() []ipvs.DestinationStatus {
	var list []ipvs.DestinationStatus
	for _, d := range s.destinations {
		list = append(list, ipvs.DestinationStatus{Destination: d.Destination, Conns: d.conns})
	}
	return list
}

// find returns the place of a real server in the list, -1 for none.
func (s *service) find(a netip.AddrPort) int {
	return slices.IndexFunc(s.destinations, func(d *destination) bool { return d.Address == a })
}
