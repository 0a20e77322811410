package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lbd-project/lbd/internal/config"
)

// Handshakes are how connections to a real server began of late: within the window
// of its service, and since it last came back.
type Handshakes struct {
	// Good got an answer. The others failed by the real server, each once.
	Good, Unanswered, Reset, Unreachable uint64
	// LateGood and LateBad are those of the last few seconds.
	LateGood, LateBad uint64
}

// Bad returns how many failed.
func (h Handshakes) Bad() uint64 { return h.Unanswered + h.Reset + h.Unreachable }

// Failing reports whether so many failed that the real server is at fault, as far
// as it alone tells.
func (h Handshakes) Failing(p *config.Passive) bool {
	return h.Bad() >= uint64(p.Failures) && atLeast(h.Bad(), h.Good, p.Ratio)
}

// Well reports whether the real server shows that its service can be reached right
// now: connections to it succeed.
func (h Handshakes) Well(p *config.Passive) bool {
	return h.LateGood > 0 && !atLeast(h.LateBad, h.LateGood, p.Ratio) && !h.Failing(p)
}

// atLeast reports whether the bad are a percentage of all or more.
func atLeast(bad, good uint64, percent int) bool {
	return bad > 0 && bad*100 >= (bad+good)*uint64(percent)
}

// String says it in words: "5 of 6 connections failed, 3 unanswered, 2 reset".
func (h Handshakes) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d connections failed", h.Bad(), h.Bad()+h.Good)
	for _, part := range []struct {
		n    uint64
		what string
	}{{h.Unanswered, "unanswered"}, {h.Reset, "reset"}, {h.Unreachable, "unreachable"}} {
		if part.n > 0 {
			fmt.Fprintf(&b, ", %d %s", part.n, part.what)
		}
	}
	return b.String()
}

// Ejection is what is remembered of a real server that connections failed to reach.
type Ejection struct {
	// Until is when it gets connections again; zero once it does.
	Until time.Time
	// Back is when it got them again. What was before counts no more.
	Back time.Time
	// Hold is for how long it was taken out the last time, Times how often in a row.
	Hold  time.Duration
	Times int
	// Reason says in words why.
	Reason string
}

// out reports whether it is taken out.
func (e Ejection) out() bool { return !e.Until.IsZero() }

// forgiven reports whether it has been back for so long that the next time is the
// first again.
func (e Ejection) forgiven(p *config.Passive, now time.Time) bool {
	return !e.out() && now.Sub(e.Back) >= max(2*e.Hold, p.Window)
}

// passive decides which real servers are taken out for their connections. The
// service must show that it can be reached otherwise, so that nothing is done where
// all fail alike, and one is always left.
func (d *decider) passive(vs *config.VirtualService, p policies) {
	if !vs.Passive.On() || d.Handshakes == nil {
		return
	}
	rotation := make([]*candidate, 0, len(d.servers))
	for i := range d.servers {
		c := &d.servers[i]
		c.ejection = d.Memory.Ejections[c.key]
		if c.ejection.out() && !d.Now.Before(c.ejection.Until) {
			c.ejection.release(d.Now)
		}
		if c.gate != GateOpen || c.weight == 0 || p.failOpen {
			continue
		}
		rotation = append(rotation, c)
	}
	room := limit(len(rotation), vs.Passive.MaxEjected)
	d.keepOut(rotation, room)
	well := false
	for _, c := range rotation {
		if c.ejected {
			room--
			continue
		}
		c.handshakes = d.Handshakes(c.key, c.ejection.Back)
		well = well || c.handshakes.Well(&vs.Passive)
	}
	d.takeOut(vs, rotation, room, well)
	for i := range d.servers {
		c := &d.servers[i]
		if c.ejection != (Ejection{}) && !c.ejection.forgiven(&vs.Passive, d.Now) {
			d.fleet.Memory.Ejections[c.key] = c.ejection
		}
	}
}

// release ends an ejection.
func (e *Ejection) release(now time.Time) { e.Until, e.Back, e.Reason = time.Time{}, now, "" }

// limit is how many of n real servers may be out: a percentage of them, but one at
// least and never all.
func limit(n, percent int) int { return min(max(1, n*percent/100), n-1) }

// keepOut leaves those out whose time is not over, the ones that come back last
// first, as long as there is room; the others come back. Who is kept out by
// something else stays out of this one, too.
func (d *decider) keepOut(rotation []*candidate, room int) {
	out := slices.DeleteFunc(slices.Clone(rotation), func(c *candidate) bool { return !c.ejection.out() })
	slices.SortStableFunc(out, func(a, b *candidate) int { return b.ejection.Until.Compare(a.ejection.Until) })
	for i, c := range out {
		if i >= room {
			c.ejection.release(d.Now)
			continue
		}
		d.eject(c)
	}
}

// eject takes a candidate out for what its ejection says.
func (d *decider) eject(c *candidate) {
	c.ejected = true
	c.passiveReason = fmt.Sprintf("taken out for %v: %s", c.ejection.Hold, c.ejection.Reason)
	d.due(c.ejection.Until)
}

// takeOut takes out those that fail, the worst first, as long as there is room.
func (d *decider) takeOut(vs *config.VirtualService, rotation []*candidate, room int, well bool) {
	p := &vs.Passive
	failing := slices.DeleteFunc(slices.Clone(rotation), func(c *candidate) bool {
		return c.ejected || !c.handshakes.Failing(p)
	})
	slices.SortStableFunc(failing, func(a, b *candidate) int {
		return cmp.Compare(b.handshakes.Bad(), a.handshakes.Bad())
	})
	for i, c := range failing {
		switch {
		case !well:
			c.passiveReason = fmt.Sprintf("stays in, no other real server is reached any better: %v", c.handshakes)
			continue
		case i >= room:
			c.passiveReason = fmt.Sprintf("stays in, %d %% are out already: %v", p.MaxEjected, c.handshakes)
			continue
		}
		e := &c.ejection
		if e.forgiven(p, d.Now) {
			e.Times = 0
		}
		e.Hold = p.MaxHold
		if e.Times < 16 {
			e.Hold = min(p.Hold<<e.Times, p.MaxHold)
		}
		e.Times++
		e.Until, e.Reason = d.Now.Add(e.Hold), c.handshakes.String()
		d.eject(c)
	}
}

// passiveStep is the step of the chain, without a name where there is nothing to
// say.
func (c *candidate) passiveStep(weight uint32) Step {
	if c.passiveReason == "" {
		return Step{}
	}
	if c.ejected {
		weight = 0
	}
	return Step{StepPassive, weight, c.passiveReason}
}

// before is the weight of the chain up to the slow start.
func (c *candidate) before(ramp Step) uint32 {
	if ramp.Name == StepSlowStart {
		return ramp.Weight
	}
	return c.weight
}
