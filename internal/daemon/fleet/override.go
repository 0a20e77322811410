package fleet

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/lbd-project/lbd/ipvs"
)

// maxWeight is the greatest weight that lbd programs.
const maxWeight = 65535

// Mode is whether an operator lets a real server take connections.
type Mode uint8

// The modes.
const (
	// ModeNone leaves it to the rest of the weight chain.
	ModeNone Mode = iota
	// ModeDrain is weight 0: no new connections, old ones live.
	ModeDrain
	// ModeDisable takes the server out of the table. Its checks go on.
	ModeDisable
)

var modeNames = [...]string{"none", "drain", "disable"}

// String returns the word of the control API: "none", "drain" or "disable".
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// MarshalText returns the word of String; an error for a Mode that has none.
func (m Mode) MarshalText() ([]byte, error) {
	if int(m) >= len(modeNames) {
		return nil, fmt.Errorf("no mode %d", uint8(m))
	}
	return []byte(modeNames[m]), nil
}

// UnmarshalText reads the word of String; the empty text is ModeNone.
func (m *Mode) UnmarshalText(text []byte) error {
	for i, name := range modeNames {
		if string(text) == name || i == 0 && len(text) == 0 {
			*m = Mode(i)
			return nil
		}
	}
	return fmt.Errorf("mode %.20q: want none, drain or disable", text)
}

// Override is what an operator said of a real server. The zero value says
// nothing. Whoever gets one must not write to what Weight points to.
type Override struct {
	Mode Mode
	// Weight takes the place of the configured weight; nil for none.
	Weight *WeightOverride
	// By and At say who said it last, and when, for people.
	By string
	At time.Time
	// Configured is the weight in the configuration when Weight was set. A
	// configuration that says another one is newer, and drops Weight.
	Configured uint32
	// Deadline is when an operator who drains wants to be done, zero for never.
	// It changes no decision: a drain holds until it is taken back.
	Deadline time.Time
}

// Overrides are what operators said, by real server. Whoever gets one must not
// write to it.
type Overrides map[ipvs.DestinationKey]Override

// Zero reports whether the override says nothing.
func (o Override) Zero() bool { return o.Mode == ModeNone && o.Weight == nil }

// Obsolete reports whether the configuration has dropped Weight by saying another
// weight than when it was set.
func (o Override) Obsolete(configured uint32) bool {
	return o.Weight != nil && o.Configured != configured
}

// WeightOverride is a weight, or a linear way to it.
type WeightOverride struct {
	// From is the weight at Begun, To the one Over later, 0 to 65535.
	From, To uint32
	Begun    time.Time
	// Over is how long the way takes; 0 means To at once.
	Over time.Duration
}

// At returns the weight at a time. It changes at most once a second and in at
// most a hundred steps, so that whoever asks in between gets the same.
func (w WeightOverride) At(now time.Time) uint32 {
	from, to := uint64(min(w.From, maxWeight)), uint64(min(w.To, maxWeight))
	elapsed := stepped(now.Sub(w.Begun), w.Over)
	if elapsed >= w.Over {
		return uint32(to)
	}
	if to >= from {
		return uint32(from + share(to-from, elapsed, w.Over))
	}
	return uint32(from - share(from-to, elapsed, w.Over))
}

// Next returns when At changes next; zero for never.
func (w WeightOverride) Next(now time.Time) time.Time { return nextStep(now, w.Begun, w.Over) }

// step is the time between two steps of a ramp: a hundredth, but at least a
// second.
func step(over time.Duration) time.Duration { return max(over/100, time.Second) }

// stepped rounds the time since a ramp began down to a step. It is over at the
// end, and 0 before the beginning, where only a clock that jumped can be.
func stepped(elapsed, over time.Duration) time.Duration {
	if elapsed >= over {
		return over
	}
	return max(elapsed, 0) / step(over) * step(over)
}

// nextStep returns when a ramp has its next step, which is its end for the last;
// zero when it has ended.
func nextStep(now, begun time.Time, over time.Duration) time.Time {
	elapsed := now.Sub(begun)
	if over <= 0 || elapsed >= over {
		return time.Time{}
	}
	return begun.Add(min(stepped(elapsed, over)+step(over), over))
}

// share returns n * part / whole, rounded down. part is at most whole, which is
// not 0.
func share(n uint64, part, whole time.Duration) uint64 {
	hi, lo := bits.Mul64(n, uint64(part))
	q, _ := bits.Div64(hi, lo, uint64(whole))
	return q
}
