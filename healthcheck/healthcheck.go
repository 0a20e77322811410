package healthcheck

import (
	"context"
	"net/netip"
	"strconv"
	"time"
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
}

// Env is what a checker needs of its host.
type Env struct {
	// Enter runs create, which makes sockets, in the network namespace of the
	// probes, and returns its error; nil means that lbd's own namespace is it.
	Enter func(create func() error) error
	// gate bounds how many sockets are made at once in another namespace, as
	// each takes a thread; nil does not.
	gate chan struct{}
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
	// Monitor takes up to a tenth off at random.
	Interval time.Duration
	// Timeout is the deadline of one probe, greater than 0, at most Interval.
	Timeout time.Duration
	// Rise and Fall are how many results in a row change the state, at least 1.
	Rise, Fall int
}

// Probe is one probe on a schedule.
type Probe struct {
	Method Method
	Target netip.AddrPort
	Timing
}

// Key identifies the probe by its content; probes with equal keys are shared.
func (p Probe) Key() string {
	// By hand, because a pass over a large table asks for every key.
	b := make([]byte, 0, 128)
	b = append(b, p.Method.Key()...)
	b = append(b, ' ')
	b = p.Target.AppendTo(b)
	b = append(b, " interval="...)
	b = append(b, p.Interval.String()...)
	b = append(b, " timeout="...)
	b = append(b, p.Timeout.String()...)
	b = append(b, " rise="...)
	b = strconv.AppendInt(b, int64(p.Rise), 10)
	b = append(b, " fall="...)
	b = strconv.AppendInt(b, int64(p.Fall), 10)
	return string(b)
}

// State is what a Monitor holds of a probe.
type State uint8

// The states. A probe is Pending until its first result, which decides alone;
// later results change the state by rise and fall.
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
	// when it came; zero LastTime before the first.
	Last     Result
	LastErr  error
	LastTime time.Time
	// Streak counts results in a row that agree with the last.
	Streak int
	// Checks and Failures count results since the probe was added.
	Checks, Failures uint64
	// Generation numbers the Monitor.Set that added the probe, from 1. A Change
	// of another generation than the Monitor's Status of its key is stale.
	Generation uint64
}

// Change is a state change of a probe.
type Change struct {
	// Key is the probe's.
	Key string
	Status
}
