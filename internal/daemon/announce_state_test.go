package daemon

import (
	"testing"

	"github.com/lbd-project/lbd/internal/daemon/fleet"
)

// Every alert has a state for programs, and no two have the same.
func TestAlertStates(t *testing.T) {
	seen := map[string]fleet.AlertKind{}
	for k := fleet.AlertQuorumHeld; k <= fleet.AlertFailOpenEnd; k++ {
		state := alertStates[k]
		if other, ok := seen[state]; ok || state == "" {
			t.Errorf("%v has the state %q, as %v", k, state, other)
		}
		seen[state] = k
	}
}
