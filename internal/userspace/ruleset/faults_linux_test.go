package ruleset

import (
	"errors"
	"io/fs"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/google/nftables"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/ipvs"
)

// failing answers the n-th transactions, from 1, with errors, and sends the
// others.
func failing(errs map[int]error) func(*nftables.Conn) error {
	n := 0
	return func(c *nftables.Conn) error {
		n++
		if err := errs[n]; err != nil {
			return err
		}
		return c.Flush()
	}
}

// TestNetnsProbe has the kernel lack things. The first transactions of Open try
// the queue expression and, where that is missing, the target.
func TestNetnsProbe(t *testing.T) {
	netnstest.Require(t, "netns")
	native := openEmpty(t, Options{}).Abilities().NativeQueue
	first := 2 // the transaction after those about queues
	if native {
		first = 1
	}
	absent, busy := error(syscall.ENOENT), error(syscall.EBUSY)
	for _, test := range []struct {
		name string
		errs map[int]error
		// want is what Open's error matches, nil for none.
		want error
		look func(a Abilities) bool
	}{
		{"all there", nil, nil, func(a Abilities) bool {
			return a.Reject == nil && a.CTTimeout == nil && a.OnePacket == nil && a.Route == nil && a.Tunnel == nil && a.Fib == nil
		}},
		{"no queue expression", map[int]error{1: absent}, nil, func(a Abilities) bool { return !a.NativeQueue }},
		{"no queue at all", map[int]error{1: absent, 2: absent}, ErrUnsupported, nil},
		{"not permitted", map[int]error{1: syscall.EPERM}, fs.ErrPermission, nil},
		{"another error", map[int]error{1: busy}, busy, nil},
		{"no reject", map[int]error{first + 1: absent}, nil, func(a Abilities) bool {
			return errors.Is(a.Reject, ErrUnsupported) && errors.Is(a.Reject, absent)
		}},
		{"no reject of IPv6", map[int]error{first + 2: absent}, nil, func(a Abilities) bool { return errors.Is(a.Reject, ErrUnsupported) }},
		{"no notrack", map[int]error{first + 3: absent}, nil, func(a Abilities) bool { return errors.Is(a.OnePacket, ErrUnsupported) }},
		{"no dup", map[int]error{first + 4: absent}, nil, func(a Abilities) bool { return errors.Is(a.Route, ErrUnsupported) }},
		{"no dup of IPv6", map[int]error{first + 6: absent}, nil, func(a Abilities) bool { return errors.Is(a.Route, ErrUnsupported) }},
		{"no timeouts", map[int]error{first + 7: absent}, nil, func(a Abilities) bool { return errors.Is(a.CTTimeout, ErrUnsupported) }},
		{"no fib", map[int]error{first + 8: absent}, nil, func(a Abilities) bool { return errors.Is(a.Fib, ErrUnsupported) }},
		{"no fib of IPv6", map[int]error{first + 9: absent}, nil, func(a Abilities) bool { return errors.Is(a.Fib, ErrUnsupported) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			if native && (test.name == "no queue expression" || test.name == "no queue at all") {
				// The target needs a module that this kernel may not have.
				test.look = func(Abilities) bool { return true }
			}
			r, err := open(t.Context(), Options{NetNS: netnstest.New(t).FD()}, failing(test.errs))
			if test.want != nil {
				if !errors.Is(err, test.want) {
					t.Errorf("want %v, got %v", test.want, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if !test.look(r.Abilities()) {
				t.Errorf("abilities: %+v", r.Abilities())
			}
			if left := nft(t, r, "list", "ruleset"); left != "" {
				t.Errorf("left by the probe:\n%s", left)
			}
		})
	}
}

// TestNetnsWithout applies what a lesser kernel can do, and refuses the rest.
func TestNetnsWithout(t *testing.T) {
	lack := errors.Join(ErrUnsupported, errors.New("on purpose"))
	r := openEmpty(t, Options{FailOpen: true})
	r.able.Reject, r.able.CTTimeout, r.able.Fib = lack, lack, lack
	r.able.OnePacket, r.able.Route, r.able.Tunnel = lack, lack, lack
	if err := r.Apply(t.Context(), bothVersions()); err != nil {
		t.Fatal(err)
	}
	list := nft(t, r, "list", "ruleset")
	if strings.Contains(list, "ct timeout") || strings.Contains(list, "reject") || strings.Contains(list, "fib") {
		t.Errorf("rules that the kernel has not:\n%s", list)
	}
	tunnelled := routed()
	for i := range tunnelled.Servers {
		tunnelled.Servers[i].Forward = ipvs.Tunnel
	}
	for name, s := range map[string]Spec{"one packet": onePacket(bothVersions()), "route": routed(), "tunnel": tunnelled} {
		if err := r.Apply(t.Context(), s); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "on purpose") {
			t.Errorf("%s: want it refused with the reason, got %v", name, err)
		}
	}
	if err := r.Apply(t.Context(), bothVersions()); err != nil {
		t.Errorf("after refusals: %v", err)
	}
}

// TestNetnsFailedApply has the kernel refuse an edit: nothing changes, and the next
// Apply writes everything.
func TestNetnsFailedApply(t *testing.T) {
	fail := error(nil)
	netnstest.Require(t, "netns")
	r, err := open(t.Context(), Options{NetNS: netnstest.New(t).FD(), FailOpen: true}, func(c *nftables.Conn) error {
		if fail != nil {
			return fail
		}
		return c.Flush()
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	apply := func(s Spec) error { return r.Apply(t.Context(), s) }
	if err := apply(bothVersions()); err != nil {
		t.Fatal(err)
	}
	before := nft(t, r, "list", "ruleset")
	s := bothVersions()
	s.Services = s.Services[1:]
	fail = syscall.EBUSY
	if err := apply(s); !errors.Is(err, fail) {
		t.Errorf("want %v, got %v", fail, err)
	}
	if err := r.Remove(t.Context()); !errors.Is(err, fail) {
		t.Errorf("remove: want %v, got %v", fail, err)
	}
	fail = nil
	if after := nft(t, r, "list", "ruleset"); before != after {
		t.Errorf("a failed edit changed something:\n%s", after)
	}
	// What the first Apply would not have to write is gone meanwhile.
	nft(t, r, "delete table ip6 lbd")
	if err := apply(s); err != nil {
		t.Fatal(err)
	}
	list := nft(t, r, "list", "ruleset")
	if strings.Contains(list, "service-1 ") || !strings.Contains(list, "table ip6 lbd") {
		t.Errorf("after the next Apply:\n%s", list)
	}
	if ok, err := r.Intact(t.Context()); !ok || err != nil {
		t.Errorf("intact: %v, %v", ok, err)
	}
}

// TestNetnsRefusedSpecs are Specs that cannot be.
func TestNetnsRefusedSpecs(t *testing.T) {
	r := openEmpty(t, Options{StateMask: 0x70000000})
	for _, test := range []struct {
		edit func(s *Spec)
		want string
	}{
		{func(s *Spec) { s.Services[0].ID = 0 }, "service TCP 192.0.2.1:80: id 0"},
		{func(s *Spec) { s.Services[0].ID = s.Services[1].ID }, "id 2 is taken"},
		{func(s *Spec) { s.Services[2].Key = s.Services[0].Key }, "service TCP 192.0.2.1:80: twice"},
		{func(s *Spec) { s.Services[0].Key.Family = 3 }, "address family 3"},
		{func(s *Spec) { s.Services[0].Key.Family = ipvs.IPv6 }, "of another family"},
		{func(s *Spec) { s.Services[0].Key.Protocol = 99 }, "protocol 99"},
		{func(s *Spec) { s.Services[0].Key = ipvs.MarkService(ipvs.IPv4, 0x100) }, "has bits of lbd's own mask"},
		{func(s *Spec) { s.Services[0].Fallback = []Share{{0x1, 1}} }, "mark 0x1 of a real server is not within mask"},
		{func(s *Spec) { s.Services[0].OnePacket = true }, "one-packet scheduling of TCP"},
		{func(s *Spec) {
			s.Services[2].OnePacket = true
			s.Services[2].Key.Address = netip.AddrPortFrom(s.Services[2].Key.Address.Addr(), 0)
		}, "one-packet scheduling without an address and a port"},
		{func(s *Spec) { s.Services[0].Passive = true }, "state mask 0x70000000: to count how connections begin needs four bits"},
		{func(s *Spec) { s.Servers[0].Mark = 0 }, "mark 0x0 is not within mask"},
		{func(s *Spec) { s.Servers[0].Mark = DefaultMask }, "mark 0xfffff00 is not within mask"},
		{func(s *Spec) { s.Servers[0].Mark = mark2 }, "mark 0x200 is taken"},
		{func(s *Spec) { s.Servers[0].Address = netip.AddrPort{} }, "no address"},
		{func(s *Spec) { s.Servers[0].Forward = ipvs.Bypass }, "not supported by this kernel"},
	} {
		s := bothVersions()
		test.edit(&s)
		if err := r.Apply(t.Context(), s); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("want %q, got %v", test.want, err)
		}
	}
	if list := nft(t, r, "list", "ruleset"); list != "" {
		t.Errorf("written all the same:\n%s", list)
	}
	if err := r.Apply(t.Context(), bothVersions()); err != nil {
		t.Errorf("after refusals: %v", err)
	}
}

func TestOptions(t *testing.T) {
	for _, test := range []struct {
		o    Options
		want string
	}{
		{Options{Mask: 0xff, StateMask: 0x80}, "overlap"},
		{Options{Mask: 1}, "two bits"},
		{Options{StateMask: 0x80000000}, "state mask 0x80000000: needs two bits"},
		{Options{Queue: 65535, Queues: 2}, "the last possible is 65535"},
	} {
		if _, err := test.o.withDefaults(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: want %q, got %v", test.o, test.want, err)
		}
	}
	o, err := Options{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if o.Inactive() != 0x10000000 || o.Busy() != 0x20000000 || o.Reuse() != 0x40000000 || o.Refuse() != 0x0fffff00 {
		t.Errorf("inactive %#x, busy %#x, reuse %#x, refuse %#x", o.Inactive(), o.Busy(), o.Reuse(), o.Refuse())
	}
	if o.Tried() != 0x80000000 {
		t.Errorf("tried %#x", o.Tried())
	}
	if o, err = (Options{StateMask: 0xc0000000}).withDefaults(); err != nil || o.Busy() != 0x80000000 || o.Reuse() != 0 || o.Tried() != 0 {
		t.Errorf("two bits: busy %#x, reuse %#x, tried %#x, %v", o.Busy(), o.Reuse(), o.Tried(), err)
	}
}
