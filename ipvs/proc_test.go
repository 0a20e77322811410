package ipvs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const countsHeading = "IP Virtual Server version 1.2.1 (size=4096)\n" + headingService + "\n" + headingServer + "\n"

// countsText is the kernel's own text, all kinds of lines.
const countsText = countsHeading +
	"TCP  C000020A:0050 wlc  \n" +
	"  -> 0A000003:0050      Masq    1      2          3         \n" +
	"  -> 0A000002:1F90      Route   65535  4294967295 0         \n" +
	"UDP  C000020A:0035 rr ops persistent 75000 FFFFFF00\n" +
	"  -> [2001:0db8:0000:0000:0000:0000:0000:0002]:0035      Tunnel  0      0          7         \n" +
	"TCP  [2001:0db8:0000:0000:0000:0000:0000:000a]:01BB mh persistent 90000 00000080\n" +
	"  -> [2001:0db8:0000:0000:0000:0000:0000:0003]:01BB      Local   1      0          0         \n" +
	"SCTP  C000020A:0050 wlc  \n" +
	"IP_99  C000020A:0000 none  \n" +
	"FWM  00000007 wlc ops persistent 75000 FFFFFFFF\n" +
	"  -> 0A000002:0000      Tunnel  1      0          0         \n" +
	"  -> 0A000003:0000      Masq    2      0          0         \n" +
	"FWM  00012345 rr \n" +
	"  -> [2001:0db8:0000:0000:0000:0000:0000:0004]:0000      Route   3      0          0         \n"

func counts(svc ServiceKey, addr string, weight, active, inactive uint32) DestinationCounts {
	return DestinationCounts{DestinationKey: DestinationKey{svc, netip.MustParseAddrPort(addr)}, Weight: weight,
		Conns: Conns{Active: active, Inactive: inactive}}
}

func TestCounts(t *testing.T) {
	k, c := newFakeKernel(t, nil)
	c.counts.proc = fakeProc{countsFile: countsText}
	web := AddrService(TCP, netip.MustParseAddrPort("192.0.2.10:80"))
	dns := AddrService(UDP, netip.MustParseAddrPort("192.0.2.10:53"))
	tls := AddrService(TCP, netip.MustParseAddrPort("[2001:db8::a]:443"))
	want := []DestinationCounts{
		counts(web, "10.0.0.3:80", 1, 2, 3),
		counts(web, "10.0.0.2:8080", 65535, 4294967295, 0),
		counts(dns, "[2001:db8::2]:53", 0, 0, 7),
		counts(tls, "[2001:db8::3]:443", 1, 0, 0),
		counts(MarkService(IPv4, 7), "10.0.0.2:0", 1, 0, 0),
		counts(MarkService(IPv4, 7), "10.0.0.3:0", 2, 0, 0),
		counts(MarkService(IPv6, 0x12345), "[2001:db8::4]:0", 3, 0, 0),
	}
	for range 2 { // the second reads the open file again
		got, err := c.Counts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, testOptions); diff != "" {
			t.Fatalf("counts (-want +got):\n%s", diff)
		}
	}
	if len(k.sent) != 0 || len(k.reader.sent) != 2 {
		t.Errorf("the kernel was asked %d times, and for services %d times; want 0 and 2", len(k.sent), len(k.reader.sent))
	}

	c.counts.drop()
	c.counts.proc = fakeProc{countsFile: countsHeading}
	if got, err := c.Counts(t.Context()); err != nil || got != nil {
		t.Errorf("empty table: %v, %v; want nil", got, err)
	}
	c.counts.drop()
	c.counts.proc = fakeProc{}
	if _, err := c.Counts(t.Context()); !errors.Is(err, ErrNotAvailable) {
		t.Errorf("no file: %v, want %v", err, ErrNotAvailable)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Counts(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestCountsMissing has a file that lacks services, and firewall mark services
// with nothing but tunneled servers, whose families the file does not tell.
func TestCountsMissing(t *testing.T) {
	const text = countsHeading +
		"TCP  C000020A:0050 wlc  \n" +
		"  -> 0A000001:0050      Masq    1      0          0         \n" +
		"FWM  00000007 wlc \n" +
		"  -> 0A000002:0000      Tunnel  1      0          0         \n" +
		"FWM  00000008 wlc \n" +
		"  -> 0A000003:0000      Tunnel  2      0          0         \n" +
		"FWM  00000009 wlc \n" +
		"  -> 0A000005:0000      Tunnel  4      0          0         \n" +
		"FWM  0000000A wlc \n" +
		"  -> 0A000006:0000      Tunnel  5      0          0         \n" +
		"FWM  0000000A wlc \n" +
		"  -> 0A000007:0000      Route   6      0          0         \n" +
		"FWM  0000000B wlc \n" +
		"  -> 0A000008:0000      Tunnel  7      0          0         \n" +
		"FWM  0000000B wlc \n" +
		"  -> 0A000009:0000      Route   8      0          0         \n"
	web, lost, empty := testService(80).ServiceKey, testService(81).ServiceKey, testService(82).ServiceKey
	mark := MarkService
	lacking := map[ServiceKey]string{
		lost:          "10.0.1.1:81",
		empty:         "",
		mark(IPv6, 7): "10.0.1.2:0",
		mark(IPv4, 7): "10.0.1.3:0",
		// Of both families the file has one, and its server does not tell which.
		mark(IPv6, 10): "10.0.1.4:0",
	}
	k, c := newFakeKernel(t, nil)
	var asked []ServiceKey
	k.reader.answer = func(k *fakeKernel, sent []byte) {
		r := requests(t, sent)[0]
		if r.cmd == cmdGetService {
			// Mark 9 and one of mark 11 have gone. The doubles are of a dump that was
			// changed under way.
			k.dumpServices(r.seq, []ServiceKey{web, lost, lost, mark(IPv6, 7), mark(IPv6, 8), mark(IPv6, 8), mark(IPv4, 7),
				mark(IPv6, 7), mark(IPv4, 10), empty, mark(IPv6, 10), mark(IPv4, 11)})
			return
		}
		for key, addr := range lacking {
			if !bytes.Equal(appendServiceKeyNest(nil, key), r.payload) {
				continue
			}
			asked = append(asked, key)
			if addr != "" {
				d := DestinationStatus{Conns: Conns{Active: 1, Inactive: 2, Persistent: 3}}
				d.Destination = Destination{Address: netip.MustParseAddrPort(addr), Weight: 1, Forward: Tunnel}
				k.reply(bodyMessage(r.seq, flagMulti, cmdNewDest, appendDestStatus(nil, d)))
			}
		}
		k.reply(doneMessage(r.seq, 0))
	}
	c.counts.proc = fakeProc{countsFile: text}
	want := []DestinationCounts{
		counts(web, "10.0.0.1:80", 1, 0, 0),
		counts(mark(IPv6, 8), "10.0.0.3:0", 2, 0, 0),
		counts(mark(IPv4, 10), "10.0.0.7:0", 6, 0, 0),
		counts(mark(IPv4, 11), "10.0.0.9:0", 8, 0, 0),
		counts(lost, "10.0.1.1:81", 1, 1, 2),
		counts(mark(IPv6, 7), "10.0.1.2:0", 1, 1, 2),
		counts(mark(IPv4, 7), "10.0.1.3:0", 1, 1, 2),
		counts(mark(IPv6, 10), "10.0.1.4:0", 1, 1, 2),
	}
	got, err := c.Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, testOptions); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	wantAsked := []ServiceKey{lost, mark(IPv6, 7), mark(IPv4, 7), empty, mark(IPv6, 10)}
	if diff := cmp.Diff(wantAsked, asked, testOptions); diff != "" {
		t.Errorf("asked for the real servers of (-want +got):\n%s", diff)
	}

	k.reader.answer = func(k *fakeKernel, sent []byte) {
		k.reply(errorMessage(requests(t, sent)[0].seq, syscall.EPERM))
	}
	if got, err := c.Counts(t.Context()); !errors.Is(err, os.ErrPermission) || got != nil {
		t.Errorf("without permission: %v, %v; want %v", got, err, os.ErrPermission)
	}
}

func TestCountsDoubleService(t *testing.T) {
	const service = "TCP  C000020A:0050 wlc  \n  -> 0A000003:0050      Masq    1      2          3         \n"
	const other = "TCP  C000020A:0051 wlc  \n  -> 0A000004:0051      Masq    1      0          0         \n"
	var table countsTable
	if err := table.parse([]byte(countsHeading + service + service + other)); err != nil {
		t.Fatal(err)
	}
	want := []DestinationCounts{
		counts(testService(80).ServiceKey, "10.0.0.3:80", 1, 2, 3),
		counts(testService(81).ServiceKey, "10.0.0.4:81", 1, 0, 0),
	}
	if diff := cmp.Diff(want, table.list(), testOptions); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestCountsMalformed(t *testing.T) {
	const svc = "TCP  C000020A:0050 wlc  \n"
	dest := func(s string) string { return countsHeading + svc + "  -> " + s + "\n" }
	for _, tt := range []struct{ name, text, want string }{
		{"other file", "Something else\n", `line 1 "Something else": unknown heading`},
		{"other service heading", "IP Virtual Server version 9\nProt\n", `line 2 "Prot": unknown heading`},
		{"other server heading", strings.Replace(countsHeading, "Weight", "Mass", 1), "line 3"},
		{"cut", countsHeading + "TCP  C00002", `line 4 "TCP  C00002": line is cut short`},
		{"server first", countsHeading + "  -> 0A000003:0050      Masq    1      2          3\n", "real server without a service"},
		{"protocol", countsHeading + "XYZ  C000020A:0050 wlc\n", "unknown protocol"},
		{"protocol number", countsHeading + "IP_256  C000020A:0050 wlc\n", "unknown protocol"},
		{"short address", countsHeading + "TCP  C000020:0050 wlc\n", "not an address"},
		{"not hexadecimal", countsHeading + "TCP  C000020G:0050 wlc\n", "not an address"},
		{"no port", countsHeading + "TCP  C000020A wlc\n", "not an address"},
		{"v6 groups", countsHeading + "TCP  [2001:0db8:0000:0000:0000:0000:0000-000a]:0050 wlc\n", "not an address"},
		{"v6 bracket", countsHeading + "TCP  [2001:0db8:0000:0000:0000:0000:0000:000a:0050 wlc\n", "not an address"},
		{"no scheduler", countsHeading + "TCP  C000020A:0050\n", "no scheduler"},
		{"mark 0", countsHeading + "FWM  00000000 wlc\n", "no firewall mark"},
		{"long mark", countsHeading + "FWM  000000007 wlc\n", "no firewall mark"},
		{"empty line", countsHeading + "\n", "line 4"},
		{"method", dest("0A000003:0050      Magic   1      2          3"), "unknown forwarding method"},
		{"no weight", dest("0A000003:0050      Masq"), "not a 32-bit number"},
		{"negative", dest("0A000003:0050      Masq    1      -2         3"), "not a 32-bit number"},
		{"huge", dest("0A000003:0050      Masq    1      2          4294967296"), "not a 32-bit number"},
		{"very huge", dest("0A000003:0050      Masq    1      2          99999999999999999999999"), "not a 32-bit number"},
		{"extra column", dest("0A000003:0050      Masq    1      2          3  4"), "unknown column"},
		{"long line", countsHeading + strings.Repeat("x", 1000) + "\n", strings.Repeat("x", 80) + `": `},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, c := newFakeKernel(t, nil)
			c.counts.proc = fakeProc{countsFile: tt.text}
			got, err := c.Counts(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) || got != nil {
				t.Errorf("%v, %v; want an error with %q", got, err, tt.want)
			}
		})
	}
}

func TestConnections(t *testing.T) {
	const v6 = "2001:0db8:0000:0000:0000:0000:0000:000"
	text := headingConnections + "\n" +
		"TCP C0000201 9C40 C000020A 0050 0A000002 1F90 ESTABLISHED     899\n" +
		"UDP " + v6 + "1 C350 " + v6 + "a 0035 " + v6 + "2 0035 UDP             300\n" +
		"TCP C0000201 9C41 C000020A 0050 " + v6 + "2 0050 FIN_WAIT        119\n" +
		"IP  C0000200 0000 00000007 0000 0A000002 0000 NONE             42\n" +
		"SCTP C0000201 9C41 C000020A 0050 0A000002 0050 COOKIE_ECHOED 18446744073709551615\n" +
		"UDP C0000201 0000 C000020A 13C4 0A000002 13C4 UDP             180 sip 17-24@192.0.2.1  x\n"
	ap := netip.MustParseAddrPort
	want := []Connection{
		{Protocol: TCP, Client: ap("192.0.2.1:40000"), Virtual: ap("192.0.2.10:80"), Server: ap("10.0.0.2:8080"),
			State: "ESTABLISHED", Expires: 899 * time.Second},
		{Protocol: UDP, Client: ap("[2001:db8::1]:50000"), Virtual: ap("[2001:db8::a]:53"), Server: ap("[2001:db8::2]:53"),
			State: "UDP", Expires: 300 * time.Second},
		{Protocol: TCP, Client: ap("192.0.2.1:40001"), Virtual: ap("192.0.2.10:80"), Server: ap("[2001:db8::2]:80"),
			State: "FIN_WAIT", Expires: 119 * time.Second},
		{Protocol: 0, Client: ap("192.0.2.0:0"), Virtual: ap("0.0.0.7:0"), Server: ap("10.0.0.2:0"),
			State: "NONE", Expires: 42 * time.Second},
		{Protocol: SCTP, Client: ap("192.0.2.1:40001"), Virtual: ap("192.0.2.10:80"), Server: ap("10.0.0.2:80"),
			State: "COOKIE_ECHOED"},
		{Protocol: UDP, Client: ap("192.0.2.1:0"), Virtual: ap("192.0.2.10:5060"), Server: ap("10.0.0.2:5060"),
			State: "UDP", Expires: 180 * time.Second, Engine: "sip", EngineData: "17-24@192.0.2.1  x"},
	}
	_, c := newFakeKernel(t, nil)
	c.proc = fakeProc{connectionsFile: text}
	var got []Connection
	for conn, err := range c.Connections(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, conn)
	}
	if diff := cmp.Diff(want, got, testOptions); diff != "" {
		t.Errorf("connections (-want +got):\n%s", diff)
	}
	n := 0
	for range c.Connections(t.Context()) {
		if n++; n == 2 {
			break
		}
	}
	if n != 2 {
		t.Errorf("%d connections before the break, want 2", n)
	}
}

// TestConnectionsMany is longer than the buffer, so that lines are cut by it.
func TestConnectionsMany(t *testing.T) {
	var b strings.Builder
	b.WriteString(headingConnections + "\n")
	const n = 5000
	for i := range n {
		fmt.Fprintf(&b, "TCP %08X %04X C000020A 0050 0A000002 1F90 ESTABLISHED %7d\n", 0x0a010000+i, i, i)
	}
	_, c := newFakeKernel(t, nil)
	c.proc = fakeProc{connectionsFile: b.String()}
	i := 0
	for conn, err := range c.Connections(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if conn.Client.Port() != uint16(i) || conn.Expires != time.Duration(i)*time.Second {
			t.Fatalf("connection %d is %+v", i, conn)
		}
		i++
	}
	if i != n {
		t.Errorf("%d connections, want %d", i, n)
	}
}

func TestConnectionsMalformed(t *testing.T) {
	const head = headingConnections + "\n"
	for _, tt := range []struct{ name, text, want string }{
		{"other file", "Something else\n", "unknown heading"},
		{"cut", head + "TCP C0000201", "line is cut short"},
		{"too long", head + strings.Repeat("x", 2000) + "\n", "too long"},
		{"endless", head + strings.Repeat("x", 1<<20), "too long"},
		{"protocol", head + "XYZ C0000201 9C40 C000020A 0050 0A000002 1F90 NONE 1\n", "unknown protocol"},
		{"address", head + "TCP C000020 9C40 C000020A 0050 0A000002 1F90 NONE 1\n", "not an address"},
		{"port", head + "TCP C0000201 9C4 C000020A 0050 0A000002 1F90 NONE 1\n", "not an address"},
		{"no state", head + "TCP C0000201 9C40 C000020A 0050 0A000002 1F90\n", "no state"},
		{"no expiry", head + "TCP C0000201 9C40 C000020A 0050 0A000002 1F90 NONE\n", "expiry is not a 64-bit number"},
		{"expiry", head + "TCP C0000201 9C40 C000020A 0050 0A000002 1F90 NONE 1x\n", "expiry is not a 64-bit number"},
		{"empty line", head + "\n", "line 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, c := newFakeKernel(t, nil)
			c.proc = fakeProc{connectionsFile: tt.text}
			var got []Connection
			var err error
			for conn, e := range c.Connections(t.Context()) {
				if e != nil {
					err = e
					continue
				}
				got = append(got, conn)
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || got != nil {
				t.Errorf("%v, %v; want an error with %q", got, err, tt.want)
			}
		})
	}
}
