package ruleset

import (
	"cmp"
	"net/netip"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/nftables"

	"github.com/lbd-project/lbd/internal/packet"
	"github.com/lbd-project/lbd/ipvs"
)

func persistent() Spec {
	s := bothVersions()
	for i := range s.Services {
		v := &s.Services[i]
		v.Persistent, v.Timeout = true, 100*time.Second
		if v.Key.Family == ipvs.IPv4 {
			v.Netmask = ipvs.NetmaskV4(netip.MustParseAddr("255.255.0.255"))
		} else {
			v.Netmask = ipvs.NetmaskV6(48)
		}
	}
	return s
}

// templates lists the templates in order, with what is left rounded to the time
// that the services give.
func (l *lab) templates() []Template {
	l.t.Helper()
	list, err := l.rules.Templates(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	for i := range list {
		if e := &list[i].Expires; *e > 90*time.Second && *e <= 100*time.Second {
			*e = 100 * time.Second
		}
	}
	slices.SortFunc(list, func(a, b Template) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), a.Client.Compare(b.Client))
	})
	return list
}

// TestNetnsTemplates learns from verdicts, and from the fallback, and keeps
// clients where they were while there is no daemon.
func TestNetnsTemplates(t *testing.T) {
	for _, way := range []string{"queue", "fallback"} {
		t.Run(way, func(t *testing.T) {
			l := newLab(t, Options{FailOpen: true})
			l.apply(persistent())
			var d *daemon
			if way == "queue" {
				d = l.serve(to(1))
			}
			where := map[string]string{}
			for _, network := range []string{"tcp", "udp"} {
				for _, addr := range addresses {
					name, err := l.ask(l.client, network, addr)
					if err != nil {
						t.Fatal(err)
					}
					where[network+addr] = name
				}
			}
			if d != nil {
				d.stop()
			}
			var want []Template
			for i, key := range []string{"tcp" + addresses[0], "tcp" + addresses[1], "udp" + addresses[0], "udp" + addresses[1]} {
				v := Template{Service: uint32(i + 1), Client: netip.MustParseAddr("198.51.0.2"), Expires: 100 * time.Second,
					Mark: map[string]uint32{"0": mark1, "1": mark2}[where[key]]}
				if i%2 == 1 {
					v.Client, v.Mark = netip.MustParseAddr("2001:db8:1::"), v.Mark+2<<8
				}
				want = append(want, v)
			}
			same := gocmp.Comparer(func(a, b netip.Addr) bool { return a == b })
			if got := l.templates(); !gocmp.Equal(want, got, same) {
				t.Errorf("(-want +got)\n%s", gocmp.Diff(want, got, same))
			}
			for range 12 {
				for _, network := range []string{"tcp", "udp"} {
					for _, addr := range addresses {
						if name, err := l.ask(l.client, network, addr); name != where[network+addr] || err != nil {
							t.Fatalf("%s %s: want server %s, got %q, %v", network, addr, where[network+addr], name, err)
						}
					}
				}
			}
			// Weight 0 and no daemon: the template still leads there.
			s := persistent()
			for i := range s.Services {
				s.Services[i].Fallback = nil
			}
			l.apply(s)
			if name, err := l.ask(l.client, "tcp", addresses[0]); name != where["tcp"+addresses[0]] || err != nil {
				t.Errorf("without weights: want server %s, got %q, %v", where["tcp"+addresses[0]], name, err)
			}
		})
	}
}

// addTemplates writes templates as if packets had made them.
func (l *lab) addTemplates(list ...Template) {
	l.t.Helper()
	for _, t := range l.rules.tables {
		var elements []nftables.SetElement
		for i := range list {
			if v := &list[i]; v.Client.BitLen() == int(t.size)*8 {
				e := v.element()
				e.Timeout = v.Expires
				elements = append(elements, e)
			}
		}
		if err := l.rules.nft.SetAddElements(t.sets[mapTemplates], elements); err != nil {
			l.t.Fatal(err)
		}
	}
	if err := l.rules.commit(); err != nil {
		l.t.Fatal(err)
	}
}

// TestNetnsTemplatesEdit deletes templates.
func TestNetnsTemplatesEdit(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	if got := l.templates(); len(got) != 0 {
		t.Errorf("without tables: want none, got %v", got)
	}
	l.apply(persistent())
	four, six := netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("2001:db8:7::")
	all := []Template{
		{1, four, mark1, 100 * time.Second},
		{1, four.Next(), mark2, 100 * time.Second},
		{2, six, mark3, 100 * time.Second},
		{3, four, mark1, 100 * time.Second},
	}
	same := gocmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	check := func(what string, want ...Template) {
		t.Helper()
		if got := l.templates(); !gocmp.Equal(want, got, same) {
			t.Errorf("%s (-want +got)\n%s", what, gocmp.Diff(want, got, same))
		}
	}
	ctx := t.Context()
	del := func(service uint32, marks ...uint32) {
		t.Helper()
		if err := l.rules.DeleteTemplates(ctx, service, marks...); err != nil {
			t.Fatal(err)
		}
	}
	l.addTemplates(all...)
	check("added", all...)
	del(1, mark1)
	check("service and mark", all[1:]...)
	l.addTemplates(all...)
	del(1)
	check("service", all[2:]...)
	l.addTemplates(all...)
	del(0, mark1, mark3)
	check("marks", all[1])
	del(0)
	check("all")
	if ok, err := l.rules.Intact(ctx); !ok || err != nil {
		t.Errorf("intact after edits of templates: %v, %v", ok, err)
	}
}

// TestNetnsTemplatesExpire has templates expire while they are deleted.
func TestNetnsTemplatesExpire(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	l.apply(persistent())
	var list []Template
	for i := range 40 {
		a := netip.AddrFrom4([4]byte{203, 0, 113, byte(i)})
		list = append(list, Template{1, a, mark1, 100 * time.Second})
	}
	l.addTemplates(list...)
	// As if they had expired between the reading and the deleting.
	gone := append(slices.Clone(list[10:13]), Template{1, netip.MustParseAddr("203.0.113.200"), mark1, time.Second})
	if err := l.rules.deleteTemplates(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	if got := l.templates(); len(got) != len(list)-3 {
		t.Errorf("want %d templates, got %v", len(list)-3, got)
	}
	if err := l.rules.deleteTemplates(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	if got := l.templates(); len(got) != 0 {
		t.Errorf("want none, got %v", got)
	}
}

// TestNetnsTemplateRefused writes none for a client that no server took.
func TestNetnsTemplateRefused(t *testing.T) {
	l := newLab(t, Options{FailOpen: true})
	l.apply(persistent())
	l.serve(func(packet.Info) uint32 { return DefaultMask })
	l.ask(l.client, "tcp", addresses[0])
	if got := l.templates(); len(got) != 0 {
		t.Errorf("want none, got %v", got)
	}
}
