package sched

import (
	"math"
	"net/netip"
	"time"
)

// Server is a real server of one virtual service, with what is counted of it.
// Its Table changes it; its methods read.
type Server struct {
	// next and prev are the neighbours in the table's list. They keep pointing
	// into it while a removed server is told to the scheduler.
	next, prev *Server
	// table is where the server is listed; nil: nowhere.
	table *Table

	weight uint32
	// lastWeight is weight, or the last one above 0 since s was inserted, as the
	// kernel's last_weight: mh goes by it.
	lastWeight       uint32
	active, inactive uint32
	overloaded       bool

	persistent uint32
	busy       uint32
	latency    latency

	id     uint32
	addr   netip.AddrPort
	config Config

	// slot is the scheduler's: where in its own structure the server is.
	slot int
	// current is the scheduler's: the credit of smooth weighted round robin.
	current int64
	// picked is the scheduler's: the number of the pick that last chose it.
	picked uint64
	// group is the scheduler's: with which servers it shares a structure.
	group *group
	// order is the place in the list: less is nearer to the head.
	order int64
}

// NewServer returns a server that is in no table and has no connections. The id
// is the owner's and means nothing here; addr is what mh hashes.
func NewServer(id uint32, addr netip.AddrPort, c Config) *Server {
	s := &Server{id: id, addr: addr}
	s.configure(c)
	return s
}

func (s *Server) configure(c Config) {
	s.config = c
	s.weight = min(c.Weight, math.MaxInt32)
}

// ID returns the number that the server was made with.
func (s *Server) ID() uint32 { return s.id }

// Address returns the address that the server was made with.
func (s *Server) Address() netip.AddrPort { return s.addr }

// Config returns what was last set.
func (s *Server) Config() Config { return s.config }

// Active returns the number of active connections.
func (s *Server) Active() uint32 { return s.active }

// Inactive returns the number of inactive connections.
func (s *Server) Inactive() uint32 { return s.inactive }

// Persistent returns the number of persistence templates.
func (s *Server) Persistent() uint32 { return s.persistent }

// Busy returns the number of outstanding requests.
func (s *Server) Busy() uint32 { return s.busy }

// Overloaded reports that the server reached its upper threshold and has not
// fallen below the lower one since.
func (s *Server) Overloaded() bool { return s.overloaded }

// Latency returns the average of the observed response times as it was at the
// last observation; 0 before the first.
func (s *Server) Latency() time.Duration { return s.latency.average() }

// before reports that s is nearer to the head of the list than o.
func (s *Server) before(o *Server) bool { return s.order < o.order }

// available reports that the server may get new connections. It has no meaning
// for one that is in no table.
func (s *Server) available() bool { return s.weight > 0 && !s.overloaded }

// connections returns active and inactive connections.
func (s *Server) connections() uint64 { return uint64(s.active) + uint64(s.inactive) }
