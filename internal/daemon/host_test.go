package daemon

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/memory"
	"github.com/lbd-project/lbd/internal/sysnet"
	"github.com/lbd-project/lbd/ipvs"
)

func cmpVIP(a, b VIP) bool { return a == b }

// The old values of the sysctls are remembered before the change, and given back
// when the configuration no longer needs them (kubernetes#71809 is what
// expire_quiescent_template is for).
func TestSysctls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.host.sysctls["expire_nodest_conn"] = 0
		r.host.beforeWrite = func() {
			if _, ok := r.load().Sysctls["expire_quiescent_template"]; !ok {
				t.Error("the sysctl is written before its old value is remembered")
			}
		}
		c := conf(service(vip, server(rs2, 1)))
		c.Sysctls = map[string]int{"expire_quiescent_template": 1}
		p := r.start(c)
		got, _ := r.host.state()
		if diff := cmp.Diff(map[string]int{"expire_nodest_conn": 0, "expire_quiescent_template": 1}, got); diff != "" {
			t.Errorf("sysctls (-want +got):\n%s", diff)
		}
		// The value that somebody else writes is not taken for the old one.
		r.host.beforeWrite = nil
		if err := r.host.SetSysctl("expire_quiescent_template", 0); err != nil {
			t.Fatal(err)
		}
		p.kill()
		p = r.start(c)
		if got, _ = r.host.state(); got["expire_quiescent_template"] != 1 {
			t.Errorf("sysctl after somebody changed it: want 1, got %d", got["expire_quiescent_template"])
		}
		if err := p.switchTo(conf(service(vip, server(rs2, 1)))); err != nil {
			t.Fatal(err)
		}
		got, _ = r.host.state()
		if diff := cmp.Diff(map[string]int{"expire_nodest_conn": 0, "expire_quiescent_template": 0}, got); diff != "" {
			t.Errorf("sysctls when they are not needed (-want +got):\n%s", diff)
		}
	})
}

// lbd adds the addresses of its services and takes back only those.
func TestVIPs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		on := func(addr string) VIP { return VIP{"lo", netip.MustParseAddrPort(addr).Addr()} }
		r.host.addresses[on(vip2)] = false // somebody else's
		r.host.beforeWrite = func() {
			if _, ok := r.load().VIPs[memory.VIP{Interface: "lo", Prefix: netip.MustParsePrefix("192.0.2.1/32")}]; !ok {
				t.Error("the address is added before it is remembered")
			}
		}
		c := conf(service(vip, server(rs2, 1)), service(vip2, server(rs2, 1)))
		c.VIPInterface = "lo"
		c.VirtualServices = append(c.VirtualServices, mark(7))
		p := r.start(c)
		_, got := r.host.state()
		if diff := cmp.Diff(map[VIP]bool{on(vip): true, on(vip2): false}, got, cmp.Comparer(cmpVIP)); diff != "" {
			t.Errorf("addresses (-want +got):\n%s", diff)
		}
		p.kill()
		empty := conf()
		empty.VIPInterface = "lo"
		r.start(empty)
		after(3 * time.Second)
		_, got = r.host.state()
		if diff := cmp.Diff(map[VIP]bool{on(vip2): false}, got, cmp.Comparer(cmpVIP)); diff != "" {
			t.Errorf("addresses when they are not needed (-want +got):\n%s", diff)
		}
	})
}

// An address that an lbd made whose memory is lost is lbd's again.
func TestVIPOfLostMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		own := VIP{"lo", netip.MustParseAddrPort(vip).Addr()}
		r.host.addresses[own] = true
		c := conf(service(vip, server(rs2, 1)))
		c.VIPInterface = "lo"
		p := r.start(c)
		empty := conf()
		empty.VIPInterface = "lo"
		if err := p.switchTo(empty); err != nil {
			t.Fatal(err)
		}
		after(3 * time.Second)
		if _, vips := r.host.state(); len(vips) != 0 {
			t.Errorf("addresses when they are not needed: want none, got %v", vips)
		}
	})
}

// An address that lbd failed to add, and somebody else then added, is not lbd's
// to take away.
func TestVIPsFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.host.addErr = errRefused
		c := conf(service(vip, server(rs2, 3)))
		c.VIPInterface = "lo"
		p := r.start(c)
		by := VIP{"lo", key(vip).Address.Addr()}
		r.host.mu.Lock()
		r.host.addErr, r.host.addresses[by] = nil, false
		r.host.mu.Unlock()
		after(time.Minute)
		empty := conf()
		empty.VIPInterface = "lo"
		if err := p.switchTo(empty); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		if _, vips := r.host.state(); len(vips) != 1 {
			t.Errorf("addresses: want somebody else's to stay, got %v", vips)
		}
	})
}

// Timeouts are set where the configuration has some, and what was there before
// is given back when it has them no more, and by a clear.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		want := func(when string, tcp, fin, udp time.Duration) {
			t.Helper()
			want := ipvs.Timeouts{TCP: tcp, TCPFin: fin, UDP: udp}
			if got, err := r.table.Timeouts(t.Context()); err != nil || got != want {
				t.Errorf("timeouts %s: want %v, got %v, %v", when, want, got, err)
			}
		}
		if err := r.table.SetTimeouts(t.Context(), ipvs.Timeouts{TCP: 10 * time.Minute}); err != nil {
			t.Fatal(err)
		}
		with := func(to ipvs.Timeouts) *config.Config {
			c := conf(service(vip, server(rs2, 1)))
			c.Timeouts = to
			return c
		}
		both := with(ipvs.Timeouts{TCP: time.Hour, UDP: time.Minute})
		r.start(both).kill()
		want("of the configuration", time.Hour, 2*time.Minute, time.Minute)

		p := r.start(both)
		if err := p.switchTo(with(ipvs.Timeouts{UDP: 2 * time.Minute})); err != nil {
			t.Fatal(err)
		}
		want("after one left the configuration", 10*time.Minute, 2*time.Minute, 2*time.Minute)
		p.kill()
		if err := r.cleaner().clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		want("after a clear", 10*time.Minute, 2*time.Minute, 5*time.Minute)
		if m := r.load(); m.Timeouts != (ipvs.Timeouts{}) {
			t.Errorf("memory after a clear: want no timeouts, got %v", m.Timeouts)
		}
	})
}

// What cannot be remembered is not changed.
func TestTimeoutsAreRememberedFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.saveErr = errRefused
		before, err := r.table.Timeouts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c := conf(service(vip, server(rs2, 1)))
		c.Timeouts = ipvs.Timeouts{TCP: time.Hour}
		r.start(c)
		if got, err := r.table.Timeouts(t.Context()); err != nil || got != before {
			t.Errorf("timeouts with a full disk: want %v, got %v, %v", before, got, err)
		}
		// Somebody changes them meanwhile: these are what lbd will replace.
		before.TCP = 20 * time.Minute
		if err := r.table.SetTimeouts(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		r.mu.Lock()
		r.saveErr = nil
		r.mu.Unlock()
		after(time.Minute)
		if got, err := r.table.Timeouts(t.Context()); err != nil || got.TCP != time.Hour || r.load().Timeouts != (ipvs.Timeouts{TCP: before.TCP}) {
			t.Errorf("timeouts: want 1h and %v remembered, got %v, %v and %v", before.TCP, got.TCP, err, r.load().Timeouts)
		}
	})
}

// A warning is logged when it comes, is in the status while it lasts, and is in
// the answer to a reload.
func TestWarnings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.startFile(writeFile(t, goodFile))
		const odd = "forwarding is off"
		set := func(w ...string) {
			r.host.mu.Lock()
			r.host.warnings = w
			r.host.mu.Unlock()
		}
		set(odd)
		after(3 * adviceInterval)
		if st := p.mustStatus(); !slices.Contains(st.Warnings, odd) {
			t.Errorf("status: want the warning, got %v", st.Warnings)
		}
		if n := strings.Count(r.log.String(), odd); n != 1 {
			t.Errorf("log: want the warning once, got %d times", n)
		}
		if res, err := p.Reload(t.Context()); err != nil || !slices.Contains(res.Warnings, odd) {
			t.Errorf("reload: want the warning, got %v, %v", res.Warnings, err)
		}
		set()
		after(adviceInterval)
		if st := p.mustStatus(); slices.Contains(st.Warnings, odd) {
			t.Errorf("status: want no warning any more, got %v", st.Warnings)
		}
	})
}

// To look at the host is to ask for the way to every address: where that takes
// long, a reload looks, and time only where nobody has looked for long.
func TestAdviceIsRare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.host.lookTime = time.Second
		p := r.startFile(writeFile(t, goodFile))
		after(r.host.lookTime)
		want := func(n int) {
			t.Helper()
			r.host.mu.Lock()
			defer r.host.mu.Unlock()
			if r.host.looks != n {
				t.Errorf("after %v: want %d looks, got %d", time.Since(p.started), n, r.host.looks)
			}
		}
		want(1)
		after(9 * time.Minute)
		want(1)
		if _, err := p.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(2)
		after(9 * time.Minute)
		want(2)
		after(2 * time.Minute)
		want(3)
	})
}

// Where a look is quick, what somebody switches off is known soon.
func TestAdviceIsSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.startFile(writeFile(t, goodFile))
		after(time.Minute)
		const odd = "forwarding is off"
		r.host.mu.Lock()
		r.host.warnings = []string{odd}
		r.host.mu.Unlock()
		after(10 * time.Second)
		if st := p.mustStatus(); !slices.Contains(st.Warnings, odd) {
			t.Errorf("10s later: want the warning, got %v", st.Warnings)
		}
	})
}

func TestNeeds(t *testing.T) {
	t.Parallel()
	to := func(addr string, f ipvs.ForwardMethod) config.RealServer {
		rs := server(addr, 1)
		rs.Forward = f
		return rs
	}
	c := conf(service(vip2, to(rs3, ipvs.Masq), to(rs2, ipvs.Masq)), service(vip, to(rs3, ipvs.Route)),
		service("192.0.2.1:81", to(rs4, ipvs.Tunnel)), mark(7))
	c.VIPInterface = "lo"
	addr := func(s string) netip.Addr { return netip.MustParseAddrPort(s).Addr() }
	want := sysnet.Needs{
		VIPs: []netip.Addr{addr(vip), addr(vip2)}, VIPInterface: "lo",
		Masq: []netip.Addr{addr(rs2), addr(rs3)}, Direct: []netip.Addr{addr(rs3)}, Tunnel: []netip.Addr{addr(rs4)},
	}
	if diff := cmp.Diff(want, needs(c), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("needs (-want +got):\n%s", diff)
	}
}
