package e2e

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/api"
)

// What packets fill is left out of the rules, whatever its form, and nothing
// else.
func TestWithoutLearned(t *testing.T) {
	const rules = `table ip lbd {
	map servers {
		type mark : ipv4_addr . inet_service
		elements = { 0x00000100 : 10.0.0.2 . 80,
			     0x00000200 : 10.0.0.3 . 80 }
	}
	map templates {
		type ipv4_addr : mark
		flags dynamic,timeout
		elements = { 198.51.100.100 timeout 5m : 0x00000100,
			     198.51.100.101 timeout 5m : 0x00000200 }
	}
	set one {
		type ipv4_addr
		flags timeout
		elements = { 198.51.100.100 timeout 5m }
	}
	set last {
		type inet_proto
		elements = { 6 }
	}
	chain sched {
		type filter hook prerouting priority -140; policy accept;
	}
}
`
	const want = `table ip lbd {
	map servers {
		type mark : ipv4_addr . inet_service
		elements = { 0x00000100 : 10.0.0.2 . 80,
			     0x00000200 : 10.0.0.3 . 80 }
	}
	map templates {
		type ipv4_addr : mark
		flags dynamic,timeout
	}
	set one {
		type ipv4_addr
		flags timeout
	}
	set last {
		type inet_proto
		elements = { 6 }
	}
	chain sched {
		type filter hook prerouting priority -140; policy accept;
	}
}
`
	if diff := cmp.Diff(want, withoutLearned(rules)); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

// Only tables of the name count, of every family.
func TestTablesOf(t *testing.T) {
	const text = "table ip theirs {\n\tchain table {\n\t}\n}\ntable ip lbd {\n\tset lbd {\n\t}\n}\ntable ip6 lbd {\n}\ntable inet lbd2 {\n}\n"
	const want = "table ip lbd {\n\tset lbd {\n\t}\n}\ntable ip6 lbd {\n}\n"
	if diff := cmp.Diff(want, tablesOf(text, "lbd")); diff != "" {
		t.Errorf("tables (-want +got):\n%s", diff)
	}
}

func TestAPIScheduler(t *testing.T) {
	for want, s := range map[string]api.Service{
		"wlc":                          {Scheduler: "wlc", Flags: []string{"sh-port"}},
		"rr ops":                       {Scheduler: "rr", Flags: []string{"ops"}},
		"wlc persistent":               {Scheduler: "wlc", PersistenceSeconds: 300, Netmask: "255.255.255.255"},
		"wlc persistent 255.255.255.0": {Scheduler: "wlc", PersistenceSeconds: 300, Netmask: "255.255.255.0"},
	} {
		if got := apiScheduler(s); got != want {
			t.Errorf("want %q, got %q", want, got)
		}
	}
}
