package userspace

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/internal/flow"
	"github.com/lbd-project/lbd/internal/nfqueue"
	"github.com/lbd-project/lbd/internal/userspace/flowtable"
	"github.com/lbd-project/lbd/internal/userspace/ruleset"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// Options say how an Engine works. All but Store have defaults.
type Options struct {
	// NetNS is a descriptor of the network namespace, kept open by the caller for
	// the life of the Engine; 0 or less is the namespace of the process.
	NetNS int
	// Enter calls a function with its thread in that namespace; nil calls it where
	// it is.
	Enter func(func() error) error
	// MarkMask are the bits of marks that name a real server, StateMask those of
	// connection marks that tell its state; zero for 0x0fffff00 and 0xf0000000.
	MarkMask, StateMask uint32
	// QueueBase is the number of the first NFQUEUE, Queues how many there are;
	// zero for one.
	QueueBase uint16
	Queues    int
	// QueueLength is how many packets may wait in a queue; zero for 8192.
	QueueLength uint32
	// FailOpen balances new connections by weight alone where the queue is full
	// or nobody answers; otherwise their packets are dropped.
	FailOpen bool
	// Overhead is the kernel whose idea of load to follow.
	Overhead sched.Overhead
	// Store keeps what the next Engine must know; it must not be nil.
	Store Store
	// Logger takes what a person should know; nil discards.
	Logger *slog.Logger
	// RulesName is the name of the nftables tables; empty for "lbd".
	RulesName string

	// eventBuffer is the size of the socket for events, 0 for the usual.
	eventBuffer int
}

// Store keeps the engine's state over restarts of the program, within one boot.
// Load returns nothing before the first Save.
type Store interface {
	Load() ([]byte, error)
	Save([]byte) error
}

// rules are the nftables rules.
type rules interface {
	Abilities() ruleset.Abilities
	Renews(s *ruleset.Spec) bool
	Apply(ctx context.Context, s ruleset.Spec) error
	Intact(ctx context.Context) (bool, error)
	Wait(ctx context.Context) error
	Templates(ctx context.Context) ([]ruleset.Template, error)
	DeleteTemplates(ctx context.Context, service uint32, marks ...uint32) error
	Closed(visit func(mark uint32, n uint64, quiet bool)) error
	Traffic(visit func(mark uint32, back bool, packets, bytes uint64)) error
	Handshakes(visit func(mark uint32, kind ruleset.Handshake, n uint64)) error
	Flows(ctx context.Context, visit func(*ruleset.Flow)) error
	DeleteFlows(ctx context.Context, marks ...uint32) error
	Remove(ctx context.Context) error
	Close() error
}

// queue is an NFQUEUE.
type queue interface {
	Run(ctx context.Context, h nfqueue.Handler, tick func() (busy bool)) error
	Stats() nfqueue.Stats
	Close() error
}

// eventSource is the socket of conntrack's events.
type eventSource interface {
	Drain(handle func(*conntrack.Event)) (int, error)
	Close() error
}

// flowTable is conntrack's table.
type flowTable interface {
	Dump(ctx context.Context, f conntrack.Filter, handle func(*conntrack.Event)) error
	Delete(ctx context.Context, f conntrack.Filter) error
	Stats(ctx context.Context) (conntrack.Stats, error)
	Close() error
}

// Engine balances the virtual services of one network namespace. Make one with
// Open, then call Run. Its methods are safe for concurrent use.
type Engine struct {
	opt   Options
	log   *slog.Logger
	marks marks
	// inactive and busy are the bits of connection marks that say so; reuse flips
	// with each connection that an entry of conntrack carries after its first.
	inactive, busy, reuse uint32
	rand                  rand.Source
	// clock is monotonic, since the engine was opened.
	clock func() time.Duration

	rules  rules
	events eventSource
	table  flowTable
	queues []queue
	// lock is held while the engine is open; nil where there is none.
	lock io.Closer
	// onEvent is event, onClosed closed and onTraffic counted, made once.
	onEvent   func(*conntrack.Event)
	onClosed  func(mark uint32, n uint64, quiet bool)
	onTraffic func(mark uint32, back bool, packets, bytes uint64)

	// writes is the write lock: who has it may call the kernel to change rules,
	// and no one else changes the model. It is taken before mu.
	writes chan struct{}
	// stale says that the rules may not be what the model wants. It belongs to
	// the write lock, and so do the settings of the host.
	stale       bool
	hostSysctls map[string]savedSysctl
	// saved is what the store has, nil where that is not known; unkept is why it
	// could not be written last.
	saved  []byte
	unkept error
	// hostDone are the settings of the host that are as they must be.
	hostDone map[string]string
	// hostChanged are those of them that somebody has changed since.
	hostChanged map[string]bool
	host        host

	// others says that somebody else listens to events, by the last look. allEvents
	// belongs to the write lock: whether rules and host were made for that.
	others    atomic.Bool
	allEvents bool
	// watch belongs to the goroutine that looks after things, which stores
	// warnings.
	watch watch
	// hostChanges counts changes of settings by others; it is watch's, too.
	hostChanges  uint64
	warnings     atomic.Pointer[[]string]
	kernelQueues queueLister
	// listeners counts the sockets of others that listen to events.
	listeners func() (int, error)

	// passive is of services that count how connections begin.
	passive passive

	// mu guards all that follows. It is never held over a call that may wait.
	mu        sync.Mutex
	model     model
	flows     *flowtable.Table
	templates templates
	// requests are those that wait for their answers, by flow.
	requests map[flow.Tuple]request
	// aborted are flows that ended and whose SYN may come again.
	aborted  map[flow.Tuple]aborted
	timeouts ipvs.Timeouts
	sysctls  sysctls
	// now and tick are the time, as of the last tick of a queue.
	now  time.Duration
	tick uint32
	// generation is that of the last dump that began.
	generation uint8
	resyncing  bool
	// overtaken are the flows that had events during a dump.
	overtaken map[entryName]bool
	// starting says that flows are taken in that began before this Engine.
	starting bool
	// synced is when the last good dump began, if there was one.
	synced     uint32
	everSynced bool
	// census is of the last good dump.
	census     census
	eventError error
	// closedAt is when the rules' counters of closed connections were read last,
	// closedNext when to read them again, and closedDue that the next decision ought
	// to.
	closedAt, closedNext time.Duration
	closedDue            bool
	closedError          error
	closedErrors         uint64
	// doubts counts closings since the last dump that may be taken for others'.
	doubts int
	// timeWait is how long conntrack keeps a connection that has closed. endsNext is
	// when to look next which have ended by that.
	timeWait, endsNext time.Duration
	// resyncAbove is how many flows make a resync urgent.
	resyncAbove int
	// trafficError is of the last reading of their counters of traffic.
	trafficError error
	// heard counts events.
	heard uint64
	// What went wrong, in numbers.
	overruns, underflows uint64
	// unasked are the connections that the rules balanced while the engine runs.
	unasked uint64
	// maxFlows and maxTemplates bound the tables, see limits.go. unscheduled are
	// the connections that were not scheduled for want of room, forgotten those
	// that got no template.
	maxFlows, maxTemplates int
	unscheduled, forgotten uint64

	unparsed atomic.Uint64
	repairs  atomic.Uint64
	// urgent asks for a resync at once.
	urgent chan struct{}
}

// defaultTimeouts are the kernel's (ip_vs_proto_tcp.c, ip_vs_proto_udp.c).
var defaultTimeouts = ipvs.Timeouts{TCP: 15 * time.Minute, TCPFin: 2 * time.Minute, UDP: 5 * time.Minute}

// newEngine returns an engine without its connections to the kernel.
func newEngine(o Options, random rand.Source) (*Engine, error) {
	if o.MarkMask == 0 {
		o.MarkMask = ruleset.DefaultMask
	}
	if o.StateMask == 0 {
		o.StateMask = ruleset.DefaultStateMask
	}
	if o.Queues <= 0 {
		o.Queues = 1
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Enter == nil {
		o.Enter = func(f func() error) error { return f() }
	}
	if o.Store == nil {
		return nil, errors.New("no store")
	}
	m, err := newMarks(o.MarkMask)
	if err != nil {
		return nil, err
	}
	bits := ruleset.Options{StateMask: o.StateMask}
	start := time.Now()
	e := &Engine{
		opt: o, log: o.Logger, marks: m,
		inactive:    bits.Inactive(),
		busy:        bits.Busy(),
		reuse:       bits.Reuse(),
		rand:        random,
		clock:       func() time.Duration { return time.Since(start) },
		writes:      make(chan struct{}, 1),
		hostSysctls: make(map[string]savedSysctl),
		hostDone:    make(map[string]string),
		hostChanged: make(map[string]bool),
		host:        procSys{o.Enter},
		model:       newModel(m),
		flows:       flowtable.New(random.Uint64()),
		maxFlows:    minMaxFlows, maxTemplates: maxTemplates, resyncAbove: freeFlows,
		templates: newTemplates(),
		requests:  make(map[flow.Tuple]request),
		aborted:   make(map[flow.Tuple]aborted),
		timeouts:  defaultTimeouts,
		timeWait:  ruleset.TimeWait,
		sysctls:   defaultSysctls,
		urgent:    make(chan struct{}, 1),
	}
	e.onEvent, e.onClosed, e.onTraffic = e.event, e.closed, e.counted
	return e, nil
}

// resyncNow asks for a resync without waiting for it.
func (e *Engine) resyncNow() {
	select {
	case e.urgent <- struct{}{}:
	default:
	}
}

// setTime notes the time. mu is held.
func (e *Engine) setTime() {
	e.now = e.clock()
	e.tick = uint32(e.now * ticksASecond / time.Second)
}
