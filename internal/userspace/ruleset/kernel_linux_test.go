package ruleset

import (
	"testing"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// TestKernelRuleset runs all on another kernel, one that has nftables' own
// expression "queue".
func TestKernelRuleset(t *testing.T) {
	netnstest.Require(t, "ipvs")
	if r := openEmpty(t, Options{}); !r.Abilities().NativeQueue {
		t.Error("the kernel has no queue expression")
	}
	for _, test := range []struct {
		name string
		fn   func(*testing.T)
	}{
		{"Adopt", TestNetnsAdopt},
		{"AnyPort", TestNetnsAnyPort},
		{"Dead", TestNetnsDead},
		{"DecideOnce", TestNetnsDecideOnce},
		{"Edits", TestNetnsEdits},
		{"Events", TestNetnsEvents},
		{"FailClosed", TestNetnsFailClosed},
		{"Fallback", TestNetnsFallback},
		{"ForeignMarks", TestNetnsForeignMarks},
		{"Gone", TestNetnsGone},
		{"Inactive", TestNetnsInactive},
		{"InactiveByServer", TestNetnsInactiveByServer},
		{"Intact", TestNetnsIntact},
		{"Leak", TestNetnsLeak},
		{"MidStream", TestNetnsMidStream},
		{"Queue", TestNetnsQueue},
		{"Refuse", TestNetnsRefuse},
		{"ResetBeforeEstablished", TestNetnsResetBeforeEstablished},
		{"Services", TestNetnsServices},
		{"Templates", TestNetnsTemplates},
		{"TemplatesEdit", TestNetnsTemplatesEdit},
		{"TemplatesExpire", TestNetnsTemplatesExpire},
		{"TemplateRefused", TestNetnsTemplateRefused},
		{"Timeouts", TestNetnsTimeouts},
	} {
		t.Run(test.name, test.fn)
	}
}
