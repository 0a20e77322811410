package e2e

import (
	"bytes"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// newPlainLab is a Lab without IPVS whose client reaches the servers by plain
// routing, so that the Lab can be tested on any kernel.
func newPlainLab(t *testing.T) *Lab {
	t.Helper()
	netnstest.Require(t, "netns")
	l := NewLab(t, Masq, 3)
	l.Client.AddRoute("10.0.0.0/24", balancerFront4)
	l.Client.AddRoute("fd00::/64", balancerFront6)
	return l
}

func TestNetnsLabTraffic(t *testing.T) {
	l := newPlainLab(t)
	for i, s := range l.Servers {
		want := []string{"s1", "s2", "s3"}[i]
		for _, url := range []string{"http://" + s.V4.String(), "http://[" + s.V6.String() + "]", "http://" + s.V4.String() + ":8080"} {
			if got, err := l.Get(t.Context(), url); err != nil || got != want {
				t.Errorf("get %s: want %s, got %q, %v", url, want, got, err)
			}
		}
		for _, addr := range []string{s.V4.String() + ":53", "[" + s.V6.String() + "]:53"} {
			if got, err := l.Ask(t.Context(), addr); err != nil || got != want {
				t.Errorf("ask %s: want %s, got %q, %v", addr, want, got, err)
			}
		}
	}
}

// TestNetnsLabRefuse sees that a server that refuses keeps what it has.
func TestNetnsLabRefuse(t *testing.T) {
	l := newPlainLab(t)
	s := l.Servers[0]
	url := "http://" + s.V4.String()
	d, err := l.StartDownload("d", url, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	h, err := l.Hold(url + "/hold")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if h.Server != "s1" || d.Server != "s1" {
		t.Errorf("servers: want s1 and s1, got %s and %s", h.Server, d.Server)
	}
	// As in a child that does not execute its program yet.
	copied, err := s.listeners[HTTPPort].(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	s.Refuse(HTTPPort)
	if _, err := l.Get(t.Context(), url); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("get of a server that refuses: want refused, got %v", err)
	}
	if err := d.Finish(requestTimeout); err != nil {
		t.Errorf("finish the download: %v", err)
	}
	s.Open(HTTPPort)
	if _, err := l.Get(t.Context(), url); err != nil {
		t.Errorf("get after Open: %v", err)
	}
}

func TestNetnsLabUnplug(t *testing.T) {
	l := newPlainLab(t)
	s := l.Servers[1]
	s.Unplug()
	st := l.StartStream("http://"+s.V4.String(), 1, time.Millisecond)
	time.Sleep(50 * time.Millisecond)
	if r := st.Stop(); r.Good != 0 {
		t.Errorf("an unplugged server answered %d requests", r.Good)
	}
	s.Plug()
	for _, url := range []string{"http://" + s.V4.String(), "http://[" + s.V6.String() + "]"} {
		if _, err := l.Get(t.Context(), url); err != nil {
			t.Errorf("get after Plug: %v", err)
		}
	}
}

// TestNetnsLabDownloadCut sees that a cut download is an error, and so is one
// whose content is another.
func TestNetnsLabDownloadCut(t *testing.T) {
	l := newPlainLab(t)
	s := l.Servers[2]
	url := "http://" + s.V4.String()
	cut, err := l.StartDownload("cut", url, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := l.StartDownload("wrong", url, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	wrong.want.Read(make([]byte, 1))
	if err := wrong.Finish(requestTimeout); err == nil || !strings.Contains(err.Error(), "wrong bytes") {
		t.Errorf("a download that lost a byte: want an error that says so, got %v", err)
	}
	s.Kill()
	if err := cut.Finish(requestTimeout); err == nil {
		t.Error("a cut download finished")
	}
	if _, err := l.Get(t.Context(), url); err == nil {
		t.Error("a killed server answered")
	}
	s.Open(HTTPPort)
	if got, err := l.Get(t.Context(), url+"/slow?for=1ms"); err != nil || got != "s3" {
		t.Errorf("get after Open: want s3, got %q, %v", got, err)
	}
}

// TestContent sees that content is the same in pieces of any size.
func TestContent(t *testing.T) {
	want, err := io.ReadAll(Content(100_003))
	if err != nil || len(want) != 100_003 {
		t.Fatalf("want 100003 bytes, got %d, %v", len(want), err)
	}
	got, err := io.ReadAll(iotest.HalfReader(iotest.OneByteReader(Content(100_003))))
	if err != nil || !bytes.Equal(want, got) {
		t.Errorf("content differs when read in pieces, %v", err)
	}
	seen := make(map[string]bool)
	for piece := range slices.Chunk(want[:100_000], 8) {
		if seen[string(piece)] {
			t.Fatalf("%x is there twice", piece)
		}
		seen[string(piece)] = true
	}
}

func TestNetnsStream(t *testing.T) {
	l := newPlainLab(t)
	s := l.Servers[0]
	st := l.StartStream("http://"+s.V4.String(), 2, time.Millisecond)
	defer st.Stop()
	waitFor(t, func() bool { return st.Result().Good >= 10 })
	if r := st.Result(); r.Failed != 0 || r.Spread["s1"] != r.Good {
		t.Errorf("stream: want no failure and all from s1, got %+v", r)
	}
	s.Refuse(HTTPPort)
	waitFor(t, func() bool { return st.Result().Failed >= 3 })
	s.Open(HTTPPort)
	st.Reset()
	waitFor(t, func() bool { return st.Result().Good >= 10 })
	if r := st.Stop(); r.Failed != 0 || r.LastErr != nil {
		t.Errorf("stream after Reset: want no failure, got %+v", r)
	}
}

func waitFor(t *testing.T, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatal("waited 20 s in vain")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestParseTable(t *testing.T) {
	const text = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
UDP  C000020A:0035 rr ops 
  -> 0A000002:0035      Masq    1      0          3         
TCP  C000020A:0050 wlc persistent 75000 FFFFFFFF
  -> 0A000003:0050      Route   0      1          2         
  -> 0A000002:0050      Tunnel  65535  10         0         
TCP  [2001:0db8:0000:0000:0000:0000:0000:0010]:0050 wlc persistent 75000 FFFFFF00
  -> [fd00:0000:0000:0000:0000:0000:0000:0002]:0050      Masq    3      0          0         
FWM  00000007 wlc 
`
	const want = `FWM 7 wlc
TCP 192.0.2.10:80 wlc persistent
  10.0.0.3:80 Route 0 1 2
  10.0.0.2:80 Tunnel 65535 10 0
TCP [2001:db8::10]:80 wlc persistent FFFFFF00
  [fd00::2]:80 Masq 3 0 0
UDP 192.0.2.10:53 rr ops
  10.0.0.2:53 Masq 1 0 3
`
	got, err := parseTable(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.WithCounts()); diff != "" {
		t.Errorf("table (-want +got)\n%s", diff)
	}
	for _, bad := range []string{
		"TCP  C000020A0050 wlc", "TCP  C00002:0050 wlc", "TCP C000020A:10050 wlc", "FWM  xyz wlc", "TCP  [zz]:0050 wlc",
		"TCP  C000020A:0050 wlc\n  -> 0A000002:0050 Masq x 0 0",
	} {
		if got, err := parseTable(bad); err == nil {
			t.Errorf("parse %q: want an error, got %v", bad, got)
		}
	}
}
