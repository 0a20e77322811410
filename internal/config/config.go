package config

import (
	"iter"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// Engine is where scheduling happens.
type Engine string

// The engines. Auto is the kernel's where it has IPVS, else the userspace one.
const (
	EngineAuto      Engine = "auto"
	EngineKernel    Engine = "kernel"
	EngineUserspace Engine = "userspace"
)

// OnExit is what happens to the table when lbd stops.
type OnExit string

// The exit policies.
const (
	OnExitKeep  OnExit = "keep"
	OnExitClear OnExit = "clear"
)

// OnFailure is what happens to a real server that fails its checks.
type OnFailure string

// The failure policies. Auto never appears in a parsed Config: Parse resolves it.
const (
	OnFailureAuto    OnFailure = "auto"
	OnFailureQuiesce OnFailure = "quiesce"
	OnFailureRemove  OnFailure = "remove"
)

// Config is a validated configuration. It is immutable: whoever gets one must not
// write to it.
type Config struct {
	Engine Engine
	// NetNS is the name or path of the network namespace of the engine, the VIPs
	// and the probes; empty for lbd's own.
	NetNS string
	// SocketPath and SocketGroup are the control socket's; an empty group means
	// the socket belongs to root's group alone.
	SocketPath, SocketGroup string
	// StateFile is the absolute path of what operators said of real servers; empty
	// keeps it nowhere. StateMaxAge is how long lbd may have been away for it to
	// count at a start; 0 is any time.
	StateFile   string
	StateMaxAge time.Duration
	OnExit      OnExit
	// VIPInterface gets the services' addresses; empty for none.
	VIPInterface string
	// Exclusive removes services that lbd does not own.
	Exclusive         bool
	ReconcileInterval time.Duration
	MirrorInterval    time.Duration
	// Timeouts are the kernel's; zero fields are left alone.
	Timeouts ipvs.Timeouts
	// Sysctls are the net.ipv4.vs.* settings that lbd owns, by their last word,
	// the default and those that follow from the services included.
	Sysctls map[string]int
	// Userspace is for the userspace engine alone.
	Userspace Userspace
	// DrainTimeout bounds the drain of real servers in virtual services of which
	// the file says nothing any more.
	DrainTimeout time.Duration
	// Hooks are who is told of events.
	Hooks []Hook
	// VirtualServices are in file order.
	VirtualServices []VirtualService
	// Refused says what an engine cannot do of the file, for each engine that
	// Engine leaves open: the file is no good on a host where that one runs.
	Refused map[Engine]Errors
	// Warnings are what the file says that is legal and likely wrong, each with
	// its position.
	Warnings []string
}

// Userspace is what the userspace engine needs to know besides the services.
type Userspace struct {
	// Queues is the number of NFQUEUEs, 1 to 64; their numbers begin at QueueBase.
	// 0 is one for each processor, at most 4: see QueueCount.
	Queues    int
	QueueBase uint16
	// QueueLength is how many packets of new connections wait in a queue before
	// FailOpen decides what becomes of the next.
	QueueLength uint32
	// FailOpen schedules new connections without lbd, by weight alone, where a
	// queue is full or lbd is dead. Otherwise their packets are dropped.
	FailOpen bool
	// MarkMask are the bits of packet and conntrack marks that name the real
	// server, CTStateMask those of conntrack marks that tell its state. Each is
	// contiguous, and no bit is in both.
	MarkMask, CTStateMask uint32
	// Overhead is how lc, wlc and those after them count a real server's
	// connections.
	Overhead sched.Overhead
}

// VirtualService is one virtual service of a Config.
type VirtualService struct {
	// Name is unique in the Config.
	Name string
	// Line is where the file defines it.
	Line int
	// Service is as the engine takes it: a scheduler that breaks ties in a way
	// of its own has that in its name, such as "wlc:random".
	ipvs.Service
	// DrainTimeout bounds the drain of real servers of which the file says
	// nothing any more.
	DrainTimeout time.Duration
	// SlowStart is how long a real server that came back takes to its full
	// weight; 0 for none.
	SlowStart time.Duration
	// FailOpenBelow is the percentage, 0 to 100, of the weight that has to be
	// healthy: below it health is ignored. 0 is never.
	FailOpenBelow int
	Quorum        Quorum
	// Passive takes out real servers that connections of clients fail to reach.
	Passive Passive
	// RealServers are in file order; the first wins ties.
	RealServers []RealServer
	// Backup are the real servers, in file order, that replace RealServers while
	// the quorum is lost.
	Backup []RealServer
}

// Servers yields RealServers and then Backup. They share one table, so that no
// two have the same address.
func (s *VirtualService) Servers() iter.Seq[*RealServer] {
	return func(yield func(*RealServer) bool) {
		for _, list := range [][]RealServer{s.RealServers, s.Backup} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// Quorum says how much weight a virtual service needs, and what to run when it
// has it or loses it. The zero value is that of any weight, with nothing to run.
type Quorum struct {
	// Up is the sum of weights of the real servers that take connections from
	// which the quorum is held; 0 is 1.
	Up uint32
	// Hysteresis is how much more it takes to gain the quorum, and how much less
	// to lose it. A sum of 0 always loses it.
	Hysteresis uint32
	// OnUp and OnDown are commands as argument lists; empty for none.
	OnUp, OnDown []string
}

// Passive says when a real server is taken out because connections of clients fail
// to reach it. The zero value is never.
type Passive struct {
	// Window is the time in which failures count.
	Window time.Duration
	// Failures is how many there must be at least, Ratio the percentage of all
	// connections that they must be, 1 to 100.
	Failures uint32
	Ratio    int
	// Hold is for how long a real server is taken out the first time; each time in a
	// row it is twice as long, up to MaxHold.
	Hold, MaxHold time.Duration
	// MaxEjected is the percentage, 1 to 100, of the real servers in rotation that
	// may be out: always one, if there are two, and never all.
	MaxEjected int
}

// On reports whether there is such a time.
func (p Passive) On() bool { return p.Window > 0 }

// RealServer is one real server of a VirtualService. Its Weight is the
// configured weight.
type RealServer struct {
	ipvs.Destination
	// Probes are the checks, and the Advisory ones, which say something of the
	// weight but nothing of health. Without a check the server is always up.
	Probes []healthcheck.Probe
	// Rule says which checks must pass, by their index in Probes; nil for all.
	Rule *healthcheck.Rule
	// OnFailure is quiesce or remove, OnFailureReason says in words why: what auto
	// found, or that the file says so.
	OnFailure       OnFailure
	OnFailureReason string
	// DrainTimeout bounds the drain when the server leaves the config.
	DrainTimeout time.Duration
}
