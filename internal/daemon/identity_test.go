package daemon

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/memory"
	"github.com/lbd-project/lbd/ipvs"
)

// A24, D37: a real server with another port is another real server. The old one
// drains and goes, what was known of its health does not go over to the new one,
// and the checks follow.
func TestOtherPort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		const moved = "10.0.0.3:8080"
		p := r.start(conf(service(vip, r.checked(rs2, 3), r.checked(rs3, 2))))
		r.net.set(rs3, errRefused)
		after(decided)
		r.table.SetConns(dkey(vip, rs3), ipvs.Conns{Active: 1})
		r.net.slow(900 * time.Millisecond)
		if err := p.switchTo(conf(service(vip, r.checked(rs2, 3), r.checked(moved, 2)))); err != nil {
			t.Fatal(err)
		}
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.3:8080=2 10.0.0.2:80=3 10.0.0.3:80=0")
		before := r.net.checked(rs3)
		r.table.SetConns(dkey(vip, rs3), ipvs.Conns{})
		after(10 * time.Second)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.3:8080=2 10.0.0.2:80=3")
		if n := r.net.checked(rs3) - before; n != 0 {
			t.Errorf("checks of the old port: want 0, got %d", n)
		}
		if n := r.net.checked(moved); n < 10 {
			t.Errorf("checks of the new port: want at least 10, got %d", n)
		}
	})
}

// F14: the same mark in both families is two services, through failures and
// reloads.
func TestSameMarkInBothFamilies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		v4, v6 := mark(1), mark(1)
		v4.RealServers = append(v4.RealServers, r.checked("10.0.0.2:0", 3))
		v4.RealServers[0].Probes[0] = r.probe("tcp", rs2)
		v6.Name, v6.ServiceKey = "mark-1-ipv6", ipvs.MarkService(ipvs.IPv6, 1)
		v6.RealServers = append(v6.RealServers, r.checked("[2001:db8::2]:0", 4))
		v6.RealServers[0].Probes[0] = r.probe("tcp", "[2001:db8::2]:80")
		p := r.start(conf(v4, v6))
		r.net.set(rs2, errRefused)
		after(decided)
		r.wantTable("FWM 1 wlc: 10.0.0.2:0=0", "FWM 1 IPv6 wlc: [2001:db8::2]:0=4")
		r.table.ResetRequests()
		if err := p.switchTo(conf(v6)); err != nil {
			t.Fatal(err)
		}
		after(10 * time.Second)
		r.wantTable("FWM 1 IPv6 wlc: [2001:db8::2]:0=4")
		want := map[ipvs.OpKind]int{ipvs.OpDeleteService: 1}
		if diff := cmp.Diff(want, r.table.Requests().Ops); diff != "" {
			t.Errorf("operations (-want +got):\n%s", diff)
		}
	})
}

// F21: no service and no real server of the file is lost on the way to the
// table, whatever kind it is and wherever it stands.
func TestEveryServiceIsProgrammed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var file strings.Builder
		want := make(map[string]int)
		file.WriteString("virtual_services:\n")
		kinds := []struct{ key, text, network string }{
			{"TCP 192.0.2.%d:80", "address: 192.0.2.%d:80", "10.0.%d.%d"},
			{"UDP 192.0.2.%d:80", "address: 192.0.2.%d:80, protocol: udp", "10.0.%d.%d"},
			{"SCTP 192.0.2.%d:80", "address: 192.0.2.%d:80, protocol: sctp, scheduler: sh", "10.0.%d.%d"},
			{"TCP 192.0.2.%d:443", "address: 192.0.2.%d:443, persistence: {timeout: 1m}", "10.0.%d.%d"},
			{"TCP [2001:db8::%x]:80", `address: "[2001:db8::%x]:80"`, "[2001:db8:1:%x::%x]"},
			{"TCP [2001:db8::%x]:443", `address: "[2001:db8::%x]:443", persistence: {netmask: 64}`, "[2001:db8:1:%x::%x]"},
			{"FWM %d", "fwmark: %d", "10.0.%d.%d"},
			{"FWM %d IPv6", "fwmark: %d, family: ipv6", "[2001:db8:1:%x::%x]"},
		}
		const each = 50
		for i := 1; i <= each; i++ {
			for _, k := range kinds {
				servers := i % 4 // services without one are services as well
				var list []string
				for j := range servers {
					list = append(list, fmt.Sprintf(`{address: "`+k.network+`"}`, i, j+1))
				}
				fmt.Fprintf(&file, "  - {"+k.text+", real_servers: [%s]}\n", i, strings.Join(list, ", "))
				want[fmt.Sprintf(k.key, i)] = servers
			}
		}
		if len(want) != each*len(kinds) {
			t.Fatalf("the test makes %d services, want %d", len(want), each*len(kinds))
		}
		r := newRig(t)
		p := r.startFile(writeFile(t, file.String()))
		table, err := r.table.Table(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := make(map[string]int)
		for _, e := range table {
			got[e.ServiceKey.String()] = len(e.Destinations)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("real servers by service (-want +got):\n%s", diff)
		}
		total := 0
		for n := range maps.Values(want) {
			total += n
		}
		st := p.mustStatus()
		if st.Services.Total != len(want) || st.RealServers.Total != total {
			t.Errorf("status: want %d services and %d real servers, got %+v and %+v", len(want), total, st.Services, st.RealServers)
		}
	})
}

// F18: the service that asked the kernel for a scheduler is left over when lbd
// dies in that moment; the next one takes it away.
func TestLeftoverOfCheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := conf(service(vip, server(rs2, 3)))
		p := r.start(c)
		var dying memory.Memory
		blocked := make(chan struct{})
		r.table.SetHooks(hooks(func(op ipvs.Op) {
			if op.Kind == ipvs.OpDeleteService {
				dying = r.load()
				<-blocked
			}
		}))
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			p.owner.do(t.Context(), p.stopped, func(ctx context.Context) { p.owner.missingSchedulers(ctx, []ipvs.Scheduler{"rr"}) })
		}()
		synctest.Wait()
		got := r.tableText()
		r.table.SetHooks(hooks(nil))
		close(blocked)
		<-asked
		p.kill()
		if want := fmt.Sprintf("FWM %d rr:", probeMark); !strings.Contains(got, want) {
			t.Fatalf("table in the middle of a check: want %s, got\n%s", want, got)
		}
		// The host as it was when lbd died.
		probe := ipvs.Service{ServiceKey: ipvs.MarkService(ipvs.IPv4, probeMark), Scheduler: "rr"}
		if err := r.table.Do(ipvs.Op{Kind: ipvs.OpAddService, Service: probe}); err != nil {
			t.Fatal(err)
		}
		r.stored = dying

		r.start(c)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3")
		if owned := slices.Collect(maps.Keys(r.load().Owned)); len(owned) != 1 {
			t.Errorf("owned: want the one service, got %v", owned)
		}
	})
}
