package fleet

import (
	"strings"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/config"
)

// advise applies what the probes say of the weight of a server, all of them: the
// least of absolute weights takes the place of the configured weight, unless an
// operator's has done so already (decided), what they add and take away changes
// that, down to 0, and each percentage applies to what that gives. A weight of 0
// stays so: what the file or an operator quiesced, no probe brings back.
// d.statuses are those of rs.
func (d *decider) advise(w *weights, rs *config.RealServer, decided bool) {
	var reasons []string
	var absolute, percents uint64
	var more int64
	hasAbsolute := false
	weight := uint64(w.weight)
	for i := range d.statuses {
		p, st := &rs.Probes[i], &d.statuses[i]
		if st.Advice == (healthcheck.Advice{}) {
			continue
		}
		var words []string
		switch st.Advice.Admin {
		case healthcheck.SaysDrain:
			w.drained = true
			words = append(words, "drain")
		case healthcheck.SaysMaint:
			w.disabled = true
			words = append(words, "maint")
		}
		switch a := st.Advice.Weight; a.Kind {
		case healthcheck.WeightAbsolute:
			words = append(words, "weight "+a.String())
			if decided {
				words = append(words, "which the operator's weight beats")
				break
			}
			if !hasAbsolute || uint64(a.Value) < absolute {
				hasAbsolute, absolute = true, uint64(a.Value)
			}
		case healthcheck.WeightPercent:
			words = append(words, a.String())
			percents++
		case healthcheck.WeightMore:
			words = append(words, a.String())
			more += int64(a.Value)
		case healthcheck.WeightLess:
			words = append(words, a.String())
			more -= int64(a.Value)
		}
		if len(words) > 0 {
			reasons = append(reasons, says(p, st, strings.Join(words, ", ")))
		}
	}
	if len(reasons) == 0 {
		return
	}
	if hasAbsolute && weight > 0 {
		weight = absolute
	}
	if weight > 0 {
		weight = uint64(max(int64(weight)+more, 0))
	}
	if percents > 0 {
		weight = d.percent(weight)
	}
	if w.drained || w.disabled {
		weight = 0
	}
	w.weight = uint32(min(weight, maxWeight))
	w.dynamic = Step{StepDynamic, w.weight, strings.Join(reasons, "; ")}
}

// percent applies all percentages to a weight. It rounds up: a little of 1 is not
// nothing.
func (d *decider) percent(weight uint64) uint64 {
	// So great that no further percentage brings it below the greatest weight
	// but one, and so small that nothing overflows.
	const enough = 1 << 40
	for i := range d.statuses {
		if a := d.statuses[i].Advice.Weight; a.Kind == healthcheck.WeightPercent {
			weight = min((weight*uint64(min(a.Value, healthcheck.MaxWeight))+99)/100, enough)
		}
	}
	return weight
}
