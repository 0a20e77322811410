package ruleset

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/lbd-project/lbd/ipvs"
)

// skeleton is the list of a table without what a fresh and an edited one may
// differ in: the order of elements and of chains, and the regions of services.
func skeleton(list string) []string {
	list = regexp.MustCompile(`offset \d+ `).ReplaceAllString(list, "")
	// Elements are on lines of their own or not, as the nft command likes it.
	list = regexp.MustCompile(`,\s+`).ReplaceAllString(list, ",\n")
	list = regexp.MustCompile(`elements = \{`).ReplaceAllString(list, "$0\n")
	lines := strings.FieldsFunc(list, func(r rune) bool { return r == '\n' })
	var out []string
	inShares := false
	for _, line := range lines {
		line = strings.Trim(line, "\t ,}")
		inShares = inShares && line != "" || strings.HasPrefix(line, "map shares")
		if line != "" && !inShares {
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return out
}

// TestNetnsEdits goes through edits one by one, and compares what each leaves
// with what writing it afresh gives.
func TestNetnsEdits(t *testing.T) {
	r := openEmpty(t, Options{FailOpen: true})
	fresh := openEmpty(t, Options{FailOpen: true})
	list := func(r *Rules) string {
		return nft(t, r, "list", "ruleset")
	}
	spec := bothVersions()
	spec.Services = append(spec.Services, Service{ID: 9, Key: ipvs.MarkService(ipvs.IPv4, 7)})
	steps := []struct {
		name string
		edit func(s *Spec)
	}{
		{"all", func(*Spec) {}},
		{"weight", func(s *Spec) { s.Services[0].Fallback = []Share{{mark1, 3}, {mark2, 1}} }},
		{"weight 0", func(s *Spec) { s.Services[0].Fallback = []Share{{mark1, 0}, {mark2, 0}} }},
		{"weights again", func(s *Spec) { s.Services[0].Fallback = []Share{{mark1, 2}, {mark2, 1}} }},
		{"persistent", func(s *Spec) { s.Services[0].Persistent, s.Services[0].Timeout = true, time.Minute }},
		{"second persistent", func(s *Spec) { s.Services[2].Persistent, s.Services[2].Timeout = true, time.Minute }},
		{"netmask", func(s *Spec) { s.Services[0].Netmask = ipvs.NetmaskV6(24) }},
		{"not persistent", func(s *Spec) { s.Services[0].Persistent = false }},
		{"other address", func(s *Spec) { s.Servers[0].Address = s.Servers[1].Address }},
		{"other address again", func(s *Spec) { s.Servers[0].Address = bothVersions().Servers[0].Address }},
		{"delete a service", func(s *Spec) { s.Services = slices.Delete(s.Services, 1, 2) }},
		{"other id", func(s *Spec) { s.Services[1].ID = 77 }},
		{"delete a server", func(s *Spec) { s.Servers, s.Dead = s.Servers[1:], []uint32{mark1} }},
		{"none dead", func(s *Spec) { s.Dead = nil }},
		{"all events", func(s *Spec) { s.AllEvents = true }},
		{"order", func(s *Spec) { slices.Reverse(s.Services); slices.Reverse(s.Servers) }},
		{"everything else", func(s *Spec) { s.Services, s.Servers = nil, nil }},
	}
	for _, step := range steps {
		spec.Services = slices.Clone(spec.Services)
		step.edit(&spec)
		if err := r.Apply(t.Context(), spec); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if err := fresh.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		// A table stays once it is there.
		if err := fresh.Apply(t.Context(), bothVersions()); err != nil {
			t.Fatal(err)
		}
		if err := fresh.Apply(t.Context(), Spec{}); err != nil {
			t.Fatal(err)
		}
		if err := fresh.Apply(t.Context(), spec); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if want, got := skeleton(list(fresh)), skeleton(list(r)); !slices.Equal(want, got) {
			t.Fatalf("%s: (-want +got)\n%s", step.name, cmp.Diff(want, got))
		}
	}
}

// TestNetnsAdopt lets a second process take over, and sees that base chains are
// not made anew: their handles stay.
func TestNetnsAdopt(t *testing.T) {
	r := openEmpty(t, Options{FailOpen: true})
	const foreign = "table ip other { chain c { type filter hook forward priority 5; ip daddr 203.0.113.9 drop; }; }"
	nft(t, r, foreign)
	before := nft(t, r, "list", "table", "ip", "other")
	spec := bothVersions()
	spec.Services[0].Persistent, spec.Services[0].Timeout = true, time.Minute
	if err := r.Apply(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	want := handles(t, r, "")
	nft(t, r, "add element ip lbd templates { 1 . 198.51.100.7 timeout 60s : 0x100 }")

	second, err := Open(t.Context(), r.opts)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	spec.Services = spec.Services[:2]
	if err := second.Apply(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if got := handles(t, r, ""); !cmp.Equal(want, got) {
		t.Errorf("base chains were made anew (-want +got)\n%s", cmp.Diff(want, got))
	}
	list := nft(t, r, "list", "table", "ip", "lbd")
	if strings.Contains(list, "service-3") || !strings.Contains(list, "198.51.100.7") {
		t.Errorf("want no chain of service 3, and the template; got\n%s", list)
	}
	if err := second.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want, got := strings.TrimSpace(before), strings.TrimSpace(nft(t, r, "list", "ruleset")); want != got {
		t.Errorf("foreign table (-want +got)\n%s", cmp.Diff(want, got))
	}
}

// TestNetnsAdoptOlder takes over the chains of an older lbd, and those for services
// that are gone: the first Apply deletes what is of no use, a later one does not.
func TestNetnsAdoptOlder(t *testing.T) {
	r := openEmpty(t, Options{FailOpen: true})
	nft(t, r, `table ip lbd {
		set services { type ipv4_addr . inet_proto . inet_service; elements = { 192.0.2.99 . tcp . 80 }; }
		chain schedule { ip daddr . meta l4proto . th dport @services drop; }
		chain settle { ct state new drop; }
		chain schedule_prerouting { type filter hook prerouting priority -140; ct state != new return; jump schedule; }
		chain settle_prerouting { type filter hook prerouting priority -139; jump settle; }
		chain settle_output { type filter hook output priority -139; jump settle; }
		chain answers_forward { type filter hook forward priority 0; ct state established,related return; }
	}`)
	kept := handles(t, r, "schedule_prerouting")
	base := func() []string { return handles(t, r, "") }
	apply := func(r *Rules, s Spec) {
		t.Helper()
		if err := r.Apply(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if ok, err := r.Intact(t.Context()); !ok || err != nil {
			t.Errorf("intact: %v, %v", ok, err)
		}
	}
	apply(r, bothVersions())
	if got := handles(t, r, "schedule_prerouting"); !slices.Equal(kept, got) {
		t.Errorf("a base chain that stays was made anew: want %q, got %q", kept, got)
	}
	want := base()
	if list := nft(t, r, "list", "table", "ip", "lbd"); len(want) != 4 || strings.Contains(list, "settle") || strings.Contains(list, "192.0.2.99") {
		t.Errorf("left of the older table:\n%s", list)
	}
	apply(r, routed())
	all := base()
	r.forget()
	apply(r, bothVersions())
	if got := base(); len(all) <= len(want) || !slices.Equal(all, got) {
		t.Errorf("base chains were deleted while lbd lives: want %q, got %q", all, got)
	}
	next, err := Open(t.Context(), r.opts)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	apply(next, bothVersions())
	if got := base(); !slices.Equal(want, got) {
		t.Errorf("the next lbd: want %q, got %q", want, got)
	}
}

// handles are the handles of the base chains of table ip lbd, or of one of them.
func handles(t *testing.T, r *Rules, name string) []string {
	t.Helper()
	list := nft(t, r, "-a", "list", "table", "ip", "lbd")
	found := regexp.MustCompile(`chain (\w+) \{ # handle \d+\s+type`).FindAllString(list, -1)
	if name != "" {
		found = slices.DeleteFunc(found, func(s string) bool { return !strings.Contains(s, " "+name+" ") })
	}
	if len(found) == 0 {
		t.Fatalf("no base chain %s in\n%s", name, list)
	}
	return found
}

// nft runs the nft command in the namespace of r: with arguments, or with one
// piece of its language.
func nft(t testing.TB, r *Rules, args ...string) string {
	t.Helper()
	out, err := inNamespace(r.opts.NetNS, exec.Command("nft", args...))
	if err != nil {
		t.Fatalf("nft %q: %v", args, err)
	}
	return out
}
