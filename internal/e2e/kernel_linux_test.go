package e2e

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// TestKernelLab sees that the topology carries traffic in every mode and both
// families, with a table made by ipvsadm: when a scenario fails, this says
// whether to look at lbd.
func TestKernelLab(t *testing.T) {
	netnstest.Require(t, "netns", "ipvs")
	flags := map[Mode]string{Masq: "-m", Route: "-g", Tunnel: "-i"}
	words := map[Mode]string{Masq: "Masq", Route: "Route", Tunnel: "Tunnel"}
	for _, mode := range []Mode{Masq, Route, Tunnel} {
		t.Run(string(mode), func(t *testing.T) {
			l := NewLab(t, mode, 3)
			l.AddVIP(VIP4)
			l.AddVIP(VIP6)
			ipvsadm := func(args ...string) {
				t.Helper()
				if _, err := l.Balancer.Run(exec.Command("ipvsadm", args...)); err != nil {
					t.Fatal(err)
				}
			}
			http4, http6 := net.JoinHostPort(VIP4, "80"), net.JoinHostPort(VIP6, "80")
			dns := net.JoinHostPort(VIP4, "53")
			ipvsadm("-A", "-t", http4, "-s", "wlc")
			ipvsadm("-A", "-t", http6, "-s", "wlc", "-p", "300")
			ipvsadm("-A", "-u", dns, "-s", "rr")
			for _, s := range l.Servers {
				ipvsadm("-a", "-t", http4, "-r", net.JoinHostPort(s.V4.String(), "80"), flags[mode], "-w", "2")
				ipvsadm("-a", "-t", http6, "-r", net.JoinHostPort(s.V6.String(), "80"), flags[mode])
				ipvsadm("-a", "-u", dns, "-r", net.JoinHostPort(s.V4.String(), "53"), flags[mode])
			}
			spread := make(Spread)
			for range 6 {
				h, err := l.Hold("http://" + http4 + "/hold")
				if err != nil {
					t.Fatal(err)
				}
				defer h.Close()
				spread[h.Server]++
				name, err := l.Ask(t.Context(), dns)
				if err != nil {
					t.Fatal(err)
				}
				spread[name]++
			}
			if want, got := "s1=4 s2=4 s3=4", spread.String(); want != got {
				t.Errorf("spread: want %s, got %s", want, got)
			}
			d, err := l.StartDownload("d", "http://"+http6, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			table, err := ReadTable(l.Balancer)
			if err != nil {
				t.Fatal(err)
			}
			w := words[mode]
			want := fmt.Sprintf(`TCP 192.0.2.10:80 wlc
  10.0.0.4:80 %s 2 2 0
  10.0.0.3:80 %s 2 2 0
  10.0.0.2:80 %s 2 2 0
TCP [2001:db8::10]:80 wlc persistent
  [fd00::4]:80 %s 1 1 0
  [fd00::3]:80 %s 1 0 0
  [fd00::2]:80 %s 1 0 0
UDP 192.0.2.10:53 rr
  10.0.0.4:53 %s 1 0 2
  10.0.0.3:53 %s 1 0 2
  10.0.0.2:53 %s 1 0 2
`, w, w, w, w, w, w, w, w, w)
			if diff := cmp.Diff(want, table.WithCounts()); diff != "" {
				t.Errorf("table (-want +got)\n%s", diff)
			}
			if err := d.Finish(requestTimeout); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestKernelTableBesideOthers sees that services of another namespace hide none.
func TestKernelTableBesideOthers(t *testing.T) {
	netnstest.Require(t, "netns", "ipvs")
	ours, others := netnstest.New(t), netnstest.New(t)
	add := func(n *netnstest.NS, port int) {
		t.Helper()
		for _, args := range [][]string{
			{"-A", "-t", fmt.Sprintf("192.0.2.10:%d", port), "-s", "rr"},
			{"-a", "-t", fmt.Sprintf("192.0.2.10:%d", port), "-r", "10.0.0.2:80", "-m"},
		} {
			if _, err := n.Run(exec.Command("ipvsadm", args...)); err != nil {
				t.Fatal(err)
			}
		}
	}
	var want strings.Builder
	for port := 80; port < 90; port++ {
		add(ours, port)
		add(others, port)
		fmt.Fprintf(&want, "TCP 192.0.2.10:%d rr\n  10.0.0.2:80 Masq 1\n", port)
	}
	table, err := ReadTable(ours)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.String(), table.String()); diff != "" {
		t.Errorf("table (-want +got)\n%s", diff)
	}
}
