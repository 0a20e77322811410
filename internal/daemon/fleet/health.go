package fleet

import (
	"fmt"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/config"
)

// health is what the checks say of a server.
type health struct {
	state  State
	reason string
	// unproven is down without a failure: the checks start so.
	unproven bool
}

func (h health) down() bool { return h.state == Down }

// judge turns the states of all probes of a server into its own. A pending probe
// counts as what the server was before.
func (d *decider) judge(rs *config.RealServer, wasDown bool) health {
	if len(rs.Probes) == 0 {
		return health{state: Unchecked, reason: "no check"}
	}
	pending := false
	for i := range rs.Probes {
		p := &rs.Probes[i]
		st := d.Probe(p)
		switch st.State {
		case healthcheck.Down:
			if st.LastErr == nil {
				return health{
					state:    Down,
					reason:   fmt.Sprintf("failed: %s: recovering, passed %d of %d", Label(*p), st.Streak, p.Rise),
					unproven: st.Failures == 0,
				}
			}
			return health{state: Down, reason: fmt.Sprintf("failed: %s: %v", Label(*p), st.LastErr)}
		case healthcheck.Pending:
			pending = true
		}
	}
	switch {
	case pending && wasDown:
		return health{state: Down, reason: "failed before; no result of a check yet"}
	case pending:
		return health{state: Pending, reason: "no result of a check yet, counts as up"}
	}
	return health{state: Up, reason: "healthy"}
}
