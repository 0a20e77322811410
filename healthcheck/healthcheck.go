package healthcheck

import (
	"context"
	"net/netip"
	"strconv"
	"time"

	"github.com/lbd-project/lbd/internal/command"
)

// Checker makes one probe of one target. Check returns a nil error for a healthy
// target. The context carries the one deadline of the whole probe; Check returns
// soon after it ends and leaves no goroutine or descriptor behind. Check may be
// called again but never concurrently.
type Checker interface {
	Check(ctx context.Context) (Result, error)
}

// Result is what a probe learned besides healthy or not.
type Result struct {
	// Latency is how long the probe took.
	Latency time.Duration
	// Detail is a short text for people, such as "connected".
	Detail string
	// Advice is what the target says of itself.
	Advice Advice
	// Warning is about something that is going to fail, such as "certificate
	// expires in 5 days"; empty for nothing.
	Warning string
}

// Env is what a checker needs of its host.
type Env struct {
	// Enter runs create, which makes sockets, in the network namespace of the
	// probes, and returns its error; nil means that lbd's own namespace is it.
	Enter func(create func() error) error
	// Through is the way of the probe's packets, set by a Monitor from its Probe,
	// and Paths knows those ways. What is not connected ignores it.
	Through Through
	Paths   Paths
	// Programs are the reads of programs that checkers are about to start; nil means
	// that a Monitor has its own.
	Programs *command.Reads
	// gate bounds how many sockets are made at once in another namespace, as
	// each takes a thread; nil does not.
	gate chan struct{}
	// reading bounds how many files are read at once; nil does not.
	reading chan struct{}
}

// Method is a kind of probe with its options, such as TCP{}.
type Method interface {
	// NewChecker returns a Checker for a target.
	NewChecker(target netip.AddrPort, env Env) (Checker, error)
	// Key is a canonical text of the kind and every option ("tcp"): two methods
	// with equal keys probe in the same way.
	Key() string
}

// Timing is the schedule of a probe.
type Timing struct {
	// Interval is the time between the starts of two probes, at least 1 ms. A
	// Monitor takes up to a tenth off, at random and to start some together.
	Interval time.Duration
	// Fast takes the place of Interval while the last result disagrees with the
	// state: on the way down or up. At least 1 ms, at most Interval, 0 for
	// Interval.
	Fast time.Duration
	// Down takes the place of Interval while the probe is Down and fails. At
	// least 1 ms, 0 for Interval.
	Down time.Duration
	// Timeout is the deadline of one probe, greater than 0, at most the shortest
	// of Interval, Fast and Down.
	Timeout time.Duration
	// Rise and Fall are how many results in a row change the state, at least 1.
	Rise, Fall int
	// Start is the state before the first result. Pending, the zero value,
	// counts as up and is decided by the first result alone; Up and Down hold
	// until Fall failures or Rise successes. A state that was found before, see
	// Monitor.Set, beats it.
	Start State
}

// Probe is one probe on a schedule.
type Probe struct {
	Method Method
	Target netip.AddrPort
	// Advisory probes are of an agent that speaks for the target: their failures
	// say nothing of it. Such a probe is never Down but Up from its first
	// answer on, keeps the last words of each kind, and knows no Fast and Down
	// interval.
	Advisory bool
	// Through is the way that its packets take. Methods that do not connect by
	// Via.Dial, or as TCP does, know nothing of it.
	Through Through
	Timing
}

// Key identifies the probe by its content; probes with equal keys are shared.
func (p Probe) Key() string {
	// By hand, because a pass over a large table asks for every key.
	b := make([]byte, 0, 128)
	b = append(b, p.Method.Key()...)
	b = append(b, ' ')
	b = p.Target.AppendTo(b)
	b = p.Through.appendKey(b)
	b = append(b, " interval="...)
	b = append(b, p.Interval.String()...)
	b = append(b, " timeout="...)
	b = append(b, p.Timeout.String()...)
	b = append(b, " rise="...)
	b = strconv.AppendInt(b, int64(p.Rise), 10)
	b = append(b, " fall="...)
	b = strconv.AppendInt(b, int64(p.Fall), 10)
	if p.Fast != 0 {
		b = append(b, " fast="...)
		b = append(b, p.Fast.String()...)
	}
	if p.Timing.Down != 0 {
		b = append(b, " down="...)
		b = append(b, p.Timing.Down.String()...)
	}
	if p.Start != Pending {
		b = append(b, " start="...)
		b = append(b, p.Start.String()...)
	}
	if p.Advisory {
		b = append(b, " advisory"...)
	}
	return string(b)
}

// Subject is what the probe looks at and how: its Key without the timing.
func (p Probe) Subject() string {
	b := append([]byte(p.Method.Key()), ' ')
	b = p.Target.AppendTo(b)
	b = p.Through.appendKey(b)
	if p.Advisory {
		b = append(b, " advisory"...)
	}
	return string(b)
}

// checker returns the checker of the probe.
func (p Probe) checker(env Env) (Checker, error) {
	if err := p.Through.Validate(p.Target.Addr()); err != nil {
		return nil, err
	}
	env.Through = p.Through
	return p.Method.NewChecker(p.Target, env)
}

// State is what a Monitor holds of a probe.
type State uint8

// The states. A probe that starts Pending is so until its first result, which
// decides alone; later results change the state by rise and fall.
const (
	Pending State = iota
	Up
	Down
)

// Status is the state of a probe with its history.
type Status struct {
	State State
	// Since is when State was entered; for Pending, when the probe was added.
	// It has a monotonic reading: compare it with time.Since, store the age.
	Since time.Time
	// Last is the last result, LastErr its error (nil for healthy) and LastTime
	// when it came; zero LastTime before the first. LastErr has the text of the
	// checker's error, and of its chain ErrLocal and context.DeadlineExceeded.
	Last     Result
	LastErr  error
	LastTime time.Time
	// Advice is what the target says of itself: of an Advisory probe, the last
	// word of each kind; of others, what the last result brought, nothing after a
	// failure.
	Advice Advice
	// Warning is that of the last result which was healthy or had one.
	Warning string
	// Streak counts results in a row that agree with the last.
	Streak int
	// Checks and Failures count results since the probe was added. While Checks
	// is 0, State is only what the probe starts with.
	Checks, Failures uint64
	// Generation numbers the Monitor.Set that added the probe, from 1. A Change
	// of another generation than the Monitor's Status of its key is stale.
	Generation uint64
}

// Change is a change of the State, Advice or Warning of a probe.
type Change struct {
	// Key is the probe's.
	Key string
	Status
}
