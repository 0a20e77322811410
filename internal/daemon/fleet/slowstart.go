package fleet

import (
	"fmt"

	"github.com/lbd-project/lbd/internal/config"
)

// fullScale is what a slow start multiplies weights by, so that it has as many
// steps for a weight of 1.
const fullScale = 100

// scale returns what all weights of a service are multiplied by: one number for
// all, so that shares stay as they are, and such that no weight gets too great.
// It is 1 without a slow start, and does not depend on who is ramping.
func (d *decider) scale(vs *config.VirtualService) uint32 {
	if vs.SlowStart <= 0 {
		return 1
	}
	most := uint32(1)
	for i := range d.servers {
		most = max(most, d.servers[i].most)
	}
	return max(1, min(fullScale, maxWeight/most))
}

// slowStart scales the weight of a server and lets it grow from almost nothing
// after the server came back. It notes for the next decision whether the server
// is out, and since when it is in.
func (d *decider) slowStart(vs *config.VirtualService, c *candidate, scale uint32) Step {
	m := ServerMemory{Up: c.was.Up}
	switch {
	case c.gate == GateDisabled, c.gate == GateFailed, c.ejected:
		// Who has never been in does not come back: a first start is no reason to
		// ramp.
		m = ServerMemory{Out: c.was.Out || !c.unproven}
	case c.was.Out && c.down():
		// Health is ignored: all hands are needed.
	case c.was.Out:
		m.Up = d.Now
	}
	if m.Up.IsZero() || d.Now.Sub(m.Up) >= vs.SlowStart || c.gate == GateOpen && d.onlySurvivor(c) {
		m = ServerMemory{Out: m.Out}
	}
	if m != (ServerMemory{}) {
		d.fleet.Memory.Servers[c.key] = m
	}
	if vs.SlowStart <= 0 {
		return Step{}
	}
	weight := min(uint64(c.weight)*uint64(scale), maxWeight)
	if m.Up.IsZero() || weight == 0 || c.gate != GateOpen {
		return Step{Name: StepSlowStart, Weight: uint32(weight)}
	}
	d.due(nextStep(d.Now, m.Up, vs.SlowStart))
	elapsed := stepped(d.Now.Sub(m.Up), vs.SlowStart)
	return Step{
		StepSlowStart, uint32(max(1, share(weight, elapsed, vs.SlowStart))),
		fmt.Sprintf("slow start: %d %% after %v of %v", share(100, elapsed, vs.SlowStart), elapsed, vs.SlowStart),
	}
}

// onlySurvivor reports whether no other server of the service takes connections.
func (d *decider) onlySurvivor(c *candidate) bool {
	for i := range d.servers {
		if o := &d.servers[i]; o != c && o.gate == GateOpen && !o.ejected && o.weight > 0 {
			return false
		}
	}
	return true
}
