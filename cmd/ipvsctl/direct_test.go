package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/ipvs/ipvstest"
)

// fakeKernel is a table that counts its closes.
type fakeKernel struct {
	*ipvstest.Fake
	conns  []ipvs.Connection
	closed int
}

func (f *fakeKernel) Connections(context.Context) iter.Seq2[ipvs.Connection, error] {
	return func(yield func(ipvs.Connection, error) bool) {
		for _, c := range f.conns {
			if !yield(c, nil) {
				return
			}
		}
	}
}

func (f *fakeKernel) Close() error {
	f.closed++
	return nil
}

// runDirect runs a command line with a fake in place of the kernel, and without
// an lbd.
func runDirect(t *testing.T, f *fakeKernel, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e strings.Builder
	a := newApp(strings.NewReader(""), &o, &e)
	a.openKernel = func() (kernelTable, error) { return f, nil }
	code = a.run(t.Context(), append([]string{"--socket=" + t.TempDir() + "/none"}, args...))
	if f.closed != 1 {
		t.Errorf("want the table closed once, got %d times", f.closed)
	}
	f.closed = 0
	return code, o.String(), e.String()
}

func kernelWithTwoServices(t *testing.T) *fakeKernel {
	t.Helper()
	f := &fakeKernel{Fake: ipvstest.New()}
	mark := ipvs.Service{ServiceKey: ipvs.MarkService(ipvs.IPv4, 7), Scheduler: "rr"}
	web := ipvs.Service{ServiceKey: ipvs.AddrService(ipvs.TCP, netip.MustParseAddrPort("192.0.2.10:80")), Scheduler: "wlc"}
	add := func(s ipvs.Service, d ipvs.Destination) ipvs.Op {
		return ipvs.Op{Kind: ipvs.OpAddDestination, Service: s, Destination: d}
	}
	old := ipvs.Destination{Address: netip.MustParseAddrPort("10.0.0.2:80"), Weight: 3}
	err := f.Do(
		ipvs.Op{Kind: ipvs.OpAddService, Service: web},
		add(web, old),
		add(web, ipvs.Destination{Address: netip.MustParseAddrPort("10.0.0.3:80"), Forward: ipvs.Route, UpperThreshold: 9}),
		ipvs.Op{Kind: ipvs.OpAddService, Service: mark},
	)
	if err != nil {
		t.Fatal(err)
	}
	if !f.SetConns(ipvs.DestinationKey{Service: web.ServiceKey, Address: old.Address}, ipvs.Conns{Active: 12, Inactive: 4}) {
		t.Fatal("no such real server")
	}
	return f
}

func TestListDirect(t *testing.T) {
	const web = `TCP 192.0.2.10:80 wlc
  10.0.0.3:80  Route         0       0         0
  10.0.0.2:80  Masq          3      12         4
`
	const titles = "  REAL SERVER  FORWARD  WEIGHT  ACTIVE  INACTIVE\n"
	const mark = "FWM 7 rr\n  no real servers: connections are refused\n"
	tests := []struct {
		name, args string
		want       string
	}{
		{"all", "list --direct", titles + mark + web},
		{"by address", "list --direct 192.0.2.10:80", titles + web},
		{"by key", "list --direct TCP_192.0.2.10:80", titles + web},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			args := strings.Fields(tt.args)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "_", " ")
			}
			code, out, errOut := runDirect(t, kernelWithTwoServices(t), args...)
			if code != exitDone || errOut != "" {
				t.Errorf("exit status %d, %s", code, errOut)
			}
			if diff := cmp.Diff(tt.want, out); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestListDirectWide(t *testing.T) {
	code, out, errOut := runDirect(t, kernelWithTwoServices(t), "list", "--direct", "-o", "wide")
	lines := strings.Split(out, "\n")
	if code != exitDone || errOut != "" || !strings.HasSuffix(lines[0], "B/S OUT") || strings.Contains(out, "unchecked") {
		t.Errorf("exit status %d, %s\n%s", code, errOut, out)
	}
}

func TestListDirectJSON(t *testing.T) {
	code, out, errOut := runDirect(t, kernelWithTwoServices(t), "list", "--direct", "-o", "json")
	var got []api.Service
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitDone || errOut != "" {
		t.Fatalf("exit status %d, %v, %s", code, err, errOut)
	}
	if len(got) != 2 || got[1].Key != "TCP 192.0.2.10:80" || got[1].RealServers[1].Active != 12 {
		t.Errorf("got %+v", got)
	}
	code, out, _ = runDirect(t, &fakeKernel{Fake: ipvstest.New()}, "list", "--direct", "-o", "json")
	if code != exitDone || out != "[]\n" {
		t.Errorf("an empty table: want [], got %d %q", code, out)
	}
}

func TestListDirectErrors(t *testing.T) {
	code, out, errOut := runDirect(t, kernelWithTwoServices(t), "list", "--direct", "web")
	if want := "ipvsctl: virtual service \"web\": not found in the kernel\n"; code != exitFailed || out != "" || errOut != want {
		t.Errorf("want %d %q, got %d %q %q", exitFailed, want, code, out, errOut)
	}

	f := kernelWithTwoServices(t)
	f.SetAvailable(false)
	code, out, errOut = runDirect(t, f, "list", "--direct")
	if code != exitFailed || out != "" || !strings.HasPrefix(errOut, "ipvsctl: look at the kernel: ") {
		t.Errorf("no IPVS: got %d %q %q", code, out, errOut)
	}

	var o, e strings.Builder
	a := newApp(strings.NewReader(""), &o, &e)
	a.openKernel = func() (kernelTable, error) {
		return nil, &ipvs.Error{Op: "open", Err: fmt.Errorf("%w: is ip_vs loaded?", ipvs.ErrNotAvailable)}
	}
	code = a.run(context.Background(), []string{"list", "--direct"})
	if want := "ipvsctl: look at the kernel: open: IPVS not available: is ip_vs loaded?\n"; code != exitFailed || e.String() != want {
		t.Errorf("want %q, got %d %q", want, code, e.String())
	}
}

func TestConnectionsDirect(t *testing.T) {
	f := kernelWithTwoServices(t)
	conn := func(p ipvs.Protocol, client, virtual, server, state string) ipvs.Connection {
		ap := netip.MustParseAddrPort
		return ipvs.Connection{Protocol: p, Client: ap(client), Virtual: ap(virtual), Server: ap(server), State: state, Expires: 90 * time.Second}
	}
	f.conns = []ipvs.Connection{
		conn(ipvs.TCP, "198.51.100.1:40000", "192.0.2.10:80", "10.0.0.2:80", "ESTABLISHED"),
		conn(0, "198.51.100.0:0", "0.0.0.7:0", "10.0.0.2:0", "NONE"),
		conn(ipvs.UDP, "198.51.100.1:40000", "192.0.2.10:53", "10.0.0.3:53", "UDP"),
	}
	const titles = "PROTO  CLIENT              VIRTUAL        REAL SERVER  STATE        EXPIRES  SERVICE\n"
	const web = "TCP    198.51.100.1:40000  192.0.2.10:80  10.0.0.2:80  ESTABLISHED    1m30s  TCP 192.0.2.10:80\n"
	const mark = "IP     198.51.100.0:0      FWM 7          10.0.0.2:0   NONE           1m30s  FWM 7\n"
	const udp = "UDP    198.51.100.1:40000  192.0.2.10:53  10.0.0.3:53  UDP            1m30s  -\n"
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, titles + web + mark + udp},
		{[]string{"TCP 192.0.2.10:80"}, titles + web},
		{[]string{"-o", "json", "--state", "none"}, `{"service":"FWM 7","protocol":"IP","client":"198.51.100.0:0","virtual":"FWM 7",` +
			`"real_server":"10.0.0.2:0","state":"NONE","expires_seconds":90,"template":true}` + "\n"},
		{[]string{"--client", "192.0.2.1"}, "no connections\n"},
	} {
		code, out, errOut := runDirect(t, f, append([]string{"connections", "--direct"}, tt.args...)...)
		if diff := cmp.Diff(tt.want, out); diff != "" || code != exitDone || errOut != "" {
			t.Errorf("%q: exit status %d, %s (-want +got):\n%s", tt.args, code, errOut, diff)
		}
	}
	code, out, errOut := runDirect(t, f, "connections", "--direct", "web")
	if want := "ipvsctl: virtual service \"web\": not found in the kernel\n"; code != exitFailed || out != "" || errOut != want {
		t.Errorf("want %d %q, got %d %q %q", exitFailed, want, code, out, errOut)
	}
	f.SetAvailable(false)
	code, _, errOut = runDirect(t, f, "connections", "--direct")
	if code != exitFailed || !strings.HasPrefix(errOut, "ipvsctl: look at the kernel: ") {
		t.Errorf("no IPVS: got %d %q", code, errOut)
	}
}
