package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lbd-project/lbd/internal/command"
)

// enterAtOnce is how many sockets are made at once in another namespace: each
// takes a thread for that long, and more than a processor each make none faster.
const enterAtOnce = 4

// Options are what a Monitor is made of. The zero value is usable.
type Options struct {
	// Env is handed to every checker.
	Env Env
	// Logger gets changes at Debug (whoever knows the services logs them
	// better) and broken checkers at Error; nil discards.
	Logger *slog.Logger
	// Notify is told of changes of a probe's State, Advice or Warning, and of its
	// first result, one call at a time, in order for each probe. It may block without delaying any probe, but must return once the
	// context of Run is done. When it falls behind, it gets the newest status of
	// a probe and not each one in between. A call that had begun when Set
	// removed its probe goes on; none begins later. So compare
	// Change.Generation with Monitor.Status, or only take the call as a reason
	// to look there. Nil means nobody is told.
	Notify func(Change)
	// Parallel bounds how many probes run at once; the others wait in line. A
	// run that ignores its deadline gives its place away. 0 means no bound but
	// that of one run for each probe.
	Parallel int
}

// Monitor runs probes on their schedule. All methods are safe for concurrent
// use.
type Monitor struct {
	opts Options
	log  *slog.Logger
	// seed makes two Monitors that start together probe out of step.
	seed maphash.Seed
	// random returns a number in [0, 1).
	random func() float64
	// wake makes the scheduler look at the queue again, changed the deliverer
	// at dirty. Both hold one token.
	wake, changed chan struct{}
	// workers are the goroutines of Run that run checkers.
	workers sync.WaitGroup
	// setting admits one Set at a time.
	setting sync.Mutex

	// mu guards everything below, and the fields of every *probe.
	mu         sync.Mutex
	started    bool
	generation uint64
	probes     map[string]*probe
	// queue holds every probe once Run has started.
	queue queue
	// ready are the probes that wait for one of the Parallel places.
	ready []*probe
	// dirty are the probes that Notify or the log has to hear of.
	dirty []*probe
	stats counters
}

// probe is a Probe with its state and its place in the schedule.
type probe struct {
	Probe
	key     string
	checker Checker
	status  Status
	// removed probes are in no list but perhaps dirty, and in queue while their
	// run goes on; their results count for nothing.
	removed bool

	// due is the next start, or when to look at a late run; index is its place
	// in the queue.
	due   time.Time
	index int
	// interval is the one that due was set by.
	interval time.Duration
	// firstStep is the time between the first two starts, which brings the
	// probe from the crowded first moments to its own phase.
	firstStep time.Duration
	// scheduled is the due time of the run that waits or is under way.
	scheduled time.Time
	// first is until the first start, waiting while in ready, busy while the
	// checker runs, late when it still ran at the time of the next start, and
	// overran once the run is overdue.
	first, waiting, busy, late, overran bool
	// begun and cancel belong to the run under way.
	begun  time.Time
	cancel context.CancelFunc

	// queued is while in dirty; told is what Notify heard of last. complaint is
	// until the log says that the checker ignores its deadline.
	queued, complaint bool
	told              news
}

// New returns a Monitor without probes. It does nothing before Run.
func New(o Options) *Monitor {
	m := &Monitor{
		opts:    o,
		log:     o.Logger,
		seed:    maphash.MakeSeed(),
		random:  rand.Float64,
		wake:    make(chan struct{}, 1),
		changed: make(chan struct{}, 1),
		probes:  make(map[string]*probe),
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	m.opts.Env.gate = make(chan struct{}, enterAtOnce)
	m.opts.Env.reading = make(chan struct{}, maxReads)
	if m.opts.Env.Programs == nil {
		m.opts.Env.Programs = command.NewReads()
	}
	m.stats.overdue.left = make(map[string]int)
	return m
}

// Set makes probes the ones that run. Probes with a key that is there already go
// on undisturbed, with their state and history; new ones start soon, spread over
// time; all others stop, and results of theirs that come later count for
// nothing. Repeated keys are one probe. A new probe that differs from an old one
// in its timing alone takes over the state and counts of the old one, and Notify
// is told of that state under the new key.
//
// When a probe is wrong, Set changes nothing and returns every error.
func (m *Monitor) Set(probes []Probe) error {
	m.setting.Lock()
	defer m.setting.Unlock()
	wanted, fresh, err := m.prepare(probes)
	if err != nil {
		return err
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	m.generation++
	if len(fresh) > 0 {
		m.inherit(fresh)
	}
	now := time.Now()
	for key, p := range m.probes {
		if !wanted[key] {
			m.remove(p, now)
		}
	}
	for _, p := range fresh {
		m.probes[p.key] = p
		p.status.Generation = m.generation
		if p.status.Checks == 0 {
			p.status.Since = now
		}
		m.tell(p)
		if m.started {
			m.enqueue(p, now, len(fresh))
		}
	}
	signal(m.wake)
	return nil
}

// prepare returns the keys of probes and a probe for each new key. It makes the
// checkers without holding mu: what a method does there may take a while.
func (m *Monitor) prepare(probes []Probe) (wanted map[string]bool, fresh []*probe, err error) {
	wanted = make(map[string]bool, len(probes))
	var errs []error
	for _, pr := range probes {
		if pr.Method == nil {
			errs = append(errs, fmt.Errorf("probe of %v: no method", pr.Target))
			continue
		}
		key := pr.Key()
		if wanted[key] {
			continue
		}
		wanted[key] = true
		if err := pr.check(); err != nil {
			errs = append(errs, fmt.Errorf("probe %s: %w", key, err))
			continue
		}
		if _, ok := m.Status(key); ok {
			continue
		}
		c, err := pr.checker(m.opts.Env)
		if err != nil {
			errs = append(errs, fmt.Errorf("probe %s: %w", key, err))
			continue
		}
		p := newProbe(pr, key)
		p.checker = c
		fresh = append(fresh, p)
	}
	return wanted, fresh, errors.Join(errs...)
}

// newProbe returns a probe that has its start state, and no checker.
func newProbe(pr Probe, key string) *probe {
	p := &probe{Probe: pr, key: key, index: -1, first: true}
	p.status.State = pr.Start
	p.told = p.status.news()
	return p
}

// Foresee returns what Status would say of each probe, by key, right after they were
// Set. It changes nothing, and does not tell what is wrong with a probe.
func (m *Monitor) Foresee(probes []Probe) map[string]Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[string]Status, len(probes))
	var fresh []*probe
	for _, pr := range probes {
		key := pr.Key()
		if p, ok := m.probes[key]; ok {
			all[key] = p.status
			continue
		}
		fresh = append(fresh, newProbe(pr, key))
	}
	if len(fresh) > 0 {
		m.inherit(fresh)
	}
	for _, p := range fresh {
		all[p.key] = p.status
	}
	return all
}

// inherit gives new probes the state of old ones that look at the same target in
// the same way: another interval is no reason to forget that a server is down.
func (m *Monitor) inherit(fresh []*probe) {
	latest := make(map[string]*probe, len(m.probes))
	for _, p := range m.probes {
		s := p.Subject()
		if old := latest[s]; old == nil || old.status.LastTime.Before(p.status.LastTime) {
			latest[s] = p
		}
	}
	for _, p := range fresh {
		switch old := latest[p.Subject()]; {
		case old == nil:
		case old.status.Checks == 0:
			p.status.Advice = old.status.Advice
		default:
			p.status = old.status
			p.status.Streak = 0
		}
	}
}

// Recall has the probes that are Set begin with what their targets said of themselves
// to another Monitor. It holds until a result says otherwise. Call it before Run.
func (m *Monitor) Recall(said func(p *Probe) Advice) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.probes {
		p.status.Advice = said(&p.Probe).clean()
		p.told = p.status.news()
	}
}

// remove takes p out and stops its run. The caller holds mu.
func (m *Monitor) remove(p *probe, now time.Time) {
	p.removed = true
	delete(m.probes, p.key)
	if p.busy {
		m.part(p, now)
		return
	}
	m.unqueue(p)
	if p.waiting {
		m.ready = slices.DeleteFunc(m.ready, func(q *probe) bool { return q == p })
	}
}

// Status returns what is known of the probe with the key, and whether there is
// such a probe.
func (m *Monitor) Status(key string) (Status, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.probes[key]
	if !ok {
		return Status{}, false
	}
	return p.status, true
}

// Snapshot returns what is known of every probe, by key, at one moment.
func (m *Monitor) Snapshot() map[string]Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[string]Status, len(m.probes))
	for key, p := range m.probes {
		all[key] = p.status
	}
	return all
}

// signal puts the token into c if it is not there.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
