package fleet

import (
	"cmp"
	"fmt"
	"time"

	"github.com/lbd-project/lbd/internal/config"
)

// weights is the part of a server's weight chain that depends on nothing but the
// server.
type weights struct {
	// admin and dynamic are steps; their Name is StepConfigured where there is
	// none.
	admin, dynamic Step
	// counted is the weight that operators leave, by which quorum and fail_open
	// go; weight the one before slow start and gate, most the greatest on the way
	// there.
	counted, weight, most uint32
	// drained says that an operator or the agent drains it, disabled that one of
	// them took it out of the table.
	drained, disabled bool
	// ramping says that an operator's weight is on its way.
	ramping bool
}

// weigh follows the weight chain to where it needs to know of other servers.
func (d *decider) weigh(rs *config.RealServer, o Override) weights {
	w := weights{weight: rs.Weight, most: rs.Weight}
	if !o.Zero() {
		d.override(&w, o)
	}
	w.counted = w.weight
	d.advise(&w, rs, o.Weight != nil && !o.Obsolete(rs.Weight))
	w.most = max(w.most, w.weight)
	return w
}

// override applies what an operator said.
func (d *decider) override(w *weights, o Override) {
	configured, by := w.weight, cmp.Or(o.By, "an operator")
	var reason string
	switch r := o.Weight; {
	case r == nil:
	case o.Obsolete(configured):
		reason = fmt.Sprintf("weight %d by %s dropped: the configured weight was %d then", r.To, by, o.Configured)
	default:
		w.weight = r.At(d.Now)
		// A ramp makes the others no smaller on its way.
		w.most = max(w.most, min(max(r.From, r.To), maxWeight))
		reason = fmt.Sprintf("weight %d by %s", r.To, by)
		if next := r.Next(d.Now); !next.IsZero() {
			reason += fmt.Sprintf(", from %d over %v", r.From, r.Over)
			w.ramping = true
			d.due(next)
		}
	}
	switch o.Mode {
	case ModeDrain:
		w.drained = true
		reason = join("drained by "+by, reason)
	case ModeDisable:
		w.disabled = true
		reason = join("disabled by "+by, reason)
	}
	if o.Mode != ModeNone {
		w.weight = 0
	}
	w.admin = Step{StepAdmin, w.weight, reason}
}

// due asks for the next decision at a time at the latest.
func (d *decider) due(at time.Time) {
	if d.fleet.Next.IsZero() || at.Before(d.fleet.Next) {
		d.fleet.Next = at
	}
}
