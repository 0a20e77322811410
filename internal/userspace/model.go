package userspace

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// model is what the engine balances. Who holds the write lock and mu may change
// it; holding either is enough to read it. Counts, statistics and the order
// within schedulers change under mu alone.
type model struct {
	services map[ipvs.ServiceKey]*service
	// marked and anyPort say that there are services by mark, and with port 0:
	// look-ups that most packets can do without.
	marked, anyPort bool
	// signals says that there are services whose scheduler wants them.
	signals bool
	// routed says that there are real servers, dead ones included, that get
	// packets as they are.
	routed bool
	// servers are all real servers by their numbers, dead ones included; nil where
	// there is none.
	servers []*server
	// dead are the real servers that were deleted and may still have flows.
	dead map[ipvs.DestinationKey]*server
	// ids are the numbers of servers, serviceIDs those of services.
	ids        allocator
	serviceIDs allocator
}

// service is a virtual service.
type service struct {
	ipvs.Service
	// id names the service in the rules. It outlives the service where deleted
	// real servers do.
	id    uint32
	table *sched.Table
	// signals says that its scheduler needs requests and response times.
	signals bool
	// servers are in the order in which they were added: the scheduler's list is
	// the other way round.
	servers []*server
	index   map[netip.AddrPort]*server
	traffic traffic
}

// server is a real server of a service.
type server struct {
	ipvs.Destination
	// service is the one that it is or was a real server of.
	service *service
	sched   *sched.Server
	id      uint32
	// dead says that it was deleted; since when, in ticks.
	dead bool
	died uint32
	// forgotten says that the rules have no template of it any more.
	forgotten bool
	// flows are the flows of it in the table, however they are counted, templates
	// the persistence templates.
	flows, templates int
	traffic          traffic
	// there and back are the rules' counters of traffic to the real server, and from
	// it.
	there, back counted
	closing     closing
	ends        ends
	// repeated counts first segments that repeat: see repeats.
	repeated uint64
}

func (s *server) key() ipvs.DestinationKey {
	return ipvs.DestinationKey{Service: s.service.ServiceKey, Address: s.Address}
}

// conns returns the connections. Who waits for the last one of a real server must
// not hear too soon that it is gone: of those without new connections one counts as
// active while that is unsure.
func (s *server) conns() ipvs.Conns {
	c := ipvs.Conns{Active: s.sched.Active(), Inactive: s.sched.Inactive(), Persistent: s.sched.Persistent()}
	if s.unsure() {
		c.Active, c.Inactive = 1, c.Inactive-1
	}
	return c
}

func schedConfig(d *ipvs.Destination) sched.Config {
	return sched.Config{Weight: d.Weight, Upper: d.UpperThreshold, Lower: d.LowerThreshold}
}

func (s *service) persistent() bool { return s.Flags&ipvs.FlagPersistent != 0 }

func newModel(m marks) model {
	return model{
		services:   make(map[ipvs.ServiceKey]*service),
		dead:       make(map[ipvs.DestinationKey]*server),
		ids:        allocator{last: m.last, used: make(map[uint32]bool)},
		serviceIDs: allocator{last: 1<<31 - 1, used: make(map[uint32]bool)},
	}
}

// server returns the server of a number, or nil.
func (m *model) server(id uint32) *server {
	if id >= uint32(len(m.servers)) {
		return nil
	}
	return m.servers[id]
}

func (m *model) setServer(id uint32, s *server) {
	for uint32(len(m.servers)) <= id {
		m.servers = append(m.servers, nil)
	}
	m.servers[id] = s
}

// noteKinds brings marked and what follows it up to date.
func (m *model) noteKinds() {
	m.marked, m.anyPort, m.signals, m.routed = false, false, false, false
	for k, s := range m.services {
		m.signals = m.signals || s.signals
		m.marked = m.marked || k.FWMark != 0
		m.anyPort = m.anyPort || k.FWMark == 0 && k.Address.Port() == 0
	}
	for _, s := range m.servers {
		m.routed = m.routed || s != nil && routed(&s.Destination)
	}
}

// keys returns the keys of the services, sorted.
func (m *model) keys() []ipvs.ServiceKey {
	return slices.SortedFunc(maps.Keys(m.services), ipvs.ServiceKey.Compare)
}

// retire forgets a dead server whose flows are gone, and its service's number
// with the last of them.
func (m *model) retire(s *server) {
	m.servers[s.id] = nil
	m.ids.give(s.id)
	delete(m.dead, s.key())
	m.releaseService(s.service)
}

// releaseService gives back the number of a deleted service that no dead server
// needs any more.
func (m *model) releaseService(svc *service) {
	if live := m.services[svc.ServiceKey]; live != nil && live.id == svc.id {
		return
	}
	for _, s := range m.dead {
		if s.service.id == svc.id {
			return
		}
	}
	m.serviceIDs.give(svc.id)
}
