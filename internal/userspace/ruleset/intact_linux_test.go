package ruleset

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNetnsIntact has another program do what it should not; lbd notices, and
// repairs all of it.
func TestNetnsIntact(t *testing.T) {
	r := openEmpty(t, Options{FailOpen: true})
	spec := persistent()
	spec.Dead = []uint32{mark4}
	ctx := t.Context()
	apply := func() {
		t.Helper()
		if err := r.Apply(ctx, spec); err != nil {
			t.Fatal(err)
		}
	}
	intact := func() bool {
		t.Helper()
		ok, err := r.Intact(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	apply()
	if !intact() {
		t.Fatal("not intact after the first Apply")
	}
	want := skeleton(nft(t, r, "list", "ruleset"))
	for _, damage := range []string{
		"flush ruleset",
		"delete table ip lbd",
		"delete table ip6 lbd",
		"flush chain ip lbd schedule_prerouting",
		"flush chain ip lbd service-1",
		"flush chain ip6 lbd learn-ffffffffffff00000000000000000000-100000",
		"flush chain ip6 lbd stray",
		"add rule ip lbd translate accept",
		"delete element ip lbd services { 192.0.2.1 . tcp . 80 }",
		"add element ip lbd services { 192.0.2.7 . tcp . 80 }",
		"delete element ip lbd chains { 192.0.2.1 . tcp . 80 }",
		"delete element ip lbd chains { 192.0.2.1 . tcp . 80 }; add element ip lbd chains { 192.0.2.1 . tcp . 80 : goto service-3 }",
		"delete element ip lbd servers { 0x100 }; add element ip lbd servers { 0x100 : 10.9.9.9 . 80 }",
		"flush map ip lbd shares",
		"flush set ip6 lbd dead",
		"delete element ip lbd closing { 0x100 }",
		"add table ip lbd { flags dormant; }",
		"add chain ip lbd schedule_prerouting { policy drop; }",
		"flush chain ip lbd refuse; add rule ip lbd refuse accept",
		"flush chain ip6 lbd learn-ffffffffffff00000000000000000000-100000; add rule ip6 lbd learn-ffffffffffff00000000000000000000-100000 accept; add rule ip6 lbd learn-ffffffffffff00000000000000000000-100000 accept",
		"add chain ip lbd foreign; add rule ip lbd foreign drop",
	} {
		t.Run(damage, func(t *testing.T) {
			nft(t, r, damage)
			if intact() {
				t.Fatal("not noticed")
			}
			apply()
			if got := skeleton(nft(t, r, "list", "ruleset")); !slices.Equal(want, got) {
				t.Errorf("(-want +got)\n%s", cmp.Diff(want, got))
			}
			if !intact() {
				t.Error("not intact after the repair")
			}
		})
	}
	// Others may change what is theirs, also between two edits of ours.
	nft(t, r, "add table ip other")
	if !intact() {
		t.Error("a foreign table was taken for damage")
	}
	nft(t, r, "delete element ip lbd services { 192.0.2.1 . tcp . 80 }")
	spec.Dead = nil
	apply()
	if intact() {
		t.Error("damage before an edit was not noticed")
	}
}

// TestNetnsIntactForeignHook has another program hook a chain of its own into
// lbd's table. Such chains are not deleted, since that drops all queued packets,
// but they do nothing any more.
func TestNetnsIntactForeignHook(t *testing.T) {
	r := openEmpty(t, Options{FailOpen: true})
	spec := persistent()
	if err := r.Apply(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	nft(t, r, "add chain ip lbd foreign { type filter hook prerouting priority 0; policy drop; }; add rule ip lbd foreign drop")
	if ok, err := r.Intact(t.Context()); err != nil || ok {
		t.Fatalf("intact: want false, got %v, %v", ok, err)
	}
	if err := r.Apply(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if ok, err := r.Intact(t.Context()); err != nil || !ok {
		t.Errorf("intact after the repair: want true, got %v, %v", ok, err)
	}
	want := []string{"chain foreign {", "table ip lbd {", "type filter hook prerouting priority filter; policy accept;"}
	if got := skeleton(nft(t, r, "list", "chain", "ip", "lbd", "foreign")); !slices.Equal(want, got) {
		t.Errorf("(-want +got)\n%s", cmp.Diff(want, got))
	}
}

func BenchmarkNetnsIntact(b *testing.B) {
	r := openEmpty(b, Options{FailOpen: true})
	if err := r.Apply(b.Context(), many(1000, 20)); err != nil {
		b.Fatal(err)
	}
	run := func(name string, prepare func()) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				prepare()
				if ok, err := r.Intact(b.Context()); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
	if _, err := r.Intact(b.Context()); err != nil {
		b.Fatal(err)
	}
	run("unchanged", func() {})
	run("changed by others", func() {
		b.StopTimer()
		nft(b, r, "add table ip other; delete table ip other")
		b.StartTimer()
	})
	run("unsure", func() { r.unsure = true })
}
