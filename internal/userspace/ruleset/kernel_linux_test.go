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
		{"AdoptOlder", TestNetnsAdoptOlder},
		{"Answered", TestNetnsAnswered},
		{"AnyPort", TestNetnsAnyPort},
		{"Dead", TestNetnsDead},
		{"Closed", TestNetnsClosed},
		{"ClosedAllocates", TestNetnsClosedAllocates},
		{"ClosedUnderApply", TestNetnsClosedUnderApply},
		{"ClosedWithout", TestNetnsClosedWithout},
		{"DeadOfBothFamilies", TestNetnsDeadOfBothFamilies},
		{"DeadUnanswered", TestNetnsDeadUnanswered},
		{"DecideOnce", TestNetnsDecideOnce},
		{"Edits", TestNetnsEdits},
		{"Events", TestNetnsEvents},
		{"FailClosed", TestNetnsFailClosed},
		{"FailedApply", TestNetnsFailedApply},
		{"Fallback", TestNetnsFallback},
		{"Fanout", TestNetnsFanout},
		{"Flows", TestNetnsFlows},
		{"ForeignFlows", TestNetnsForeignFlows},
		{"ForeignMarks", TestNetnsForeignMarks},
		{"Gone", TestNetnsGone},
		{"Handshakes", TestNetnsHandshakes},
		{"HandshakesFlood", TestNetnsHandshakesFlood},
		{"HandshakesForged", TestNetnsHandshakesForged},
		{"HandshakesOdd", TestNetnsHandshakesOdd},
		{"HandshakesOldSocket", TestNetnsHandshakesOldSocket},
		{"HandshakesOptions", TestNetnsHandshakesOptions},
		{"HandshakesWithdrawn", TestNetnsHandshakesWithdrawn},
		{"ActiveAgain", TestNetnsActiveAgain},
		{"Inactive", TestNetnsInactive},
		{"InactiveByServer", TestNetnsInactiveByServer},
		{"Intact", TestNetnsIntact},
		{"Leak", TestNetnsLeak},
		{"LeakNotOwn", TestNetnsLeakNotOwn},
		{"MarkBits", TestNetnsMarkBits},
		{"MidStream", TestNetnsMidStream},
		{"OnePacket", TestNetnsOnePacket},
		{"OnePacketAmbiguous", TestNetnsOnePacketAmbiguous},
		{"OnePacketAnyPort", TestNetnsOnePacketAnyPort},
		{"OnePacketGone", TestNetnsOnePacketGone},
		{"OnePacketOthers", TestNetnsOnePacketOthers},
		{"OnePacketRefuse", TestNetnsOnePacketRefuse},
		{"PassiveEdits", TestNetnsPassiveEdits},
		{"Priority", TestNetnsPriority},
		{"Probe", TestNetnsProbe},
		{"Queue", TestNetnsQueue},
		{"Quiet", TestNetnsQuiet},
		{"Refuse", TestNetnsRefuse},
		{"RefusedSpecs", TestNetnsRefusedSpecs},
		{"ResetBeforeEstablished", TestNetnsResetBeforeEstablished},
		{"Related", TestNetnsRelated},
		{"Route", TestNetnsRoute},
		{"RouteDatagrams", TestNetnsRouteDatagrams},
		{"RouteDead", TestNetnsRouteDead},
		{"RouteErrors", TestNetnsRouteErrors},
		{"RouteLocal", TestNetnsRouteLocal},
		{"RouteMixed", TestNetnsRouteMixed},
		{"RouteQueue", TestNetnsRouteQueue},
		{"RouteRepeat", TestNetnsRouteRepeat},
		{"SCTP", TestNetnsSCTP},
		{"SCTPRoute", TestNetnsSCTPRoute},
		{"SCTPStates", TestNetnsSCTPStates},
		{"ServerAsClient", TestNetnsServerAsClient},
		{"Services", TestNetnsServices},
		{"Signals", TestNetnsSignals},
		{"SignalsEvents", TestNetnsSignalsEvents},
		{"TemplateRefused", TestNetnsTemplateRefused},
		{"Templates", TestNetnsTemplates},
		{"TemplatesEdit", TestNetnsTemplatesEdit},
		{"TemplatesExpire", TestNetnsTemplatesExpire},
		{"Timeouts", TestNetnsTimeouts},
		{"Traffic", TestNetnsTraffic},
		{"TrafficErrors", TestNetnsTrafficErrors},
		{"Tunnel", TestNetnsTunnel},
		{"TunnelEdits", TestNetnsTunnelEdits},
		{"Unanswered", TestNetnsUnanswered},
		{"Without", TestNetnsWithout},
	} {
		t.Run(test.name, test.fn)
	}
}
