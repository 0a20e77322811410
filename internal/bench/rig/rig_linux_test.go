package rig

import (
	"context"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// balance sends the connections to VIP to the servers in turn.
func balance(t *testing.T, r *Rig, rules string) {
	t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if _, err := r.Balancer.Run(cmd); err != nil {
		t.Fatalf("nft: %v", err)
	}
}

const inTurn = `table ip t {
	chain c {
		type nat hook prerouting priority -100;
		ip daddr 192.0.2.10 dnat to numgen inc mod 2 map { 0 : 10.0.1.2, 1 : 10.0.2.2 }
	}
}`

func newRig(t *testing.T, servers int, w Work) *Rig {
	t.Helper()
	r := New(t, Build(t.Context(), t, "../load", t.TempDir()), servers)
	for i := range servers {
		if err := r.Serve(t.Context(), i, w); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func to(port uint16) netip.AddrPort { return netip.AddrPortFrom(VIP(), port) }

func TestNetnsRequests(t *testing.T) {
	netnstest.Require(t, "netns")
	r := newRig(t, 2, Work{Workers: 1})
	balance(t, r, inTurn)
	// 3 addresses and 50 ports: each tuple comes back after 150 of 1000 requests.
	o, err := r.Run(t.Context(), Load{
		Kind: Requests, Connections: 5, Threads: 2, Count: 1000, Time: time.Second,
		Sources: 3, Ports: 50, To: to(AnswerPort),
	})
	if err != nil {
		t.Fatal(err)
	}
	if o.Done != 1000 || o.Bytes != 64*1000 {
		t.Errorf("want 1000 requests with 64 bytes each, got %d with %d bytes in all", o.Done, o.Bytes)
	}
	if diff := cmp.Diff(map[string]uint64{"A": 500, "B": 500}, o.Servers); diff != "" {
		t.Errorf("servers (-want +got)\n%s", diff)
	}
	if o.P50 <= 0 || o.P95 < o.P50 || o.P95 > o.Elapsed || o.Busy <= 0 {
		t.Errorf("times make no sense: %+v", o)
	}
}

// TestNetnsWarmUp sees that requests of the warm-up are not counted, while all
// of a time without end are bounded by it.
func TestNetnsWarmUp(t *testing.T) {
	netnstest.Require(t, "netns")
	r := newRig(t, 1, Work{Workers: 1, Mean: 20 * time.Millisecond})
	o, err := r.Run(t.Context(), Load{
		Kind: Requests, Connections: 1, Threads: 1, WarmUp: 300 * time.Millisecond, Time: 200 * time.Millisecond,
		Sources: 1, Ports: 1000, To: netip.AddrPortFrom(Server(0), AnswerPort),
	})
	if err != nil {
		t.Fatal(err)
	}
	// One at a time, each takes 20 ms or more: of 25 in all, 10 are in the window
	// and one may have begun before it.
	if o.Done < 1 || o.Done > 11 {
		t.Errorf("want 1 to 11 requests, got %d", o.Done)
	}
	if o.Elapsed < 200*time.Millisecond {
		t.Errorf("want 200ms or more, got %v", o.Elapsed)
	}
}

// TestNetnsWorkers sees that a server has as many workers as it shall: more
// requests wait.
func TestNetnsWorkers(t *testing.T) {
	netnstest.Require(t, "netns")
	r := newRig(t, 1, Work{Workers: 3, Mean: 40 * time.Millisecond, Spread: 10 * time.Millisecond})
	o, err := r.Run(t.Context(), Load{
		Kind: Requests, Connections: 12, Threads: 1, Count: 60, Time: time.Second,
		Sources: 1, Ports: 1000, To: netip.AddrPortFrom(Server(0), AnswerPort),
	})
	if err != nil {
		t.Fatal(err)
	}
	// 3 at once of 60, 30 ms at least each.
	if want := 600 * time.Millisecond; o.Elapsed < want {
		t.Errorf("want %v or more, got %v", want, o.Elapsed)
	}
	// All but the first requests wait for three others before.
	if want := 4 * 30 * time.Millisecond; o.P95 < want {
		t.Errorf("p95: want %v or more, got %v", want, o.P95)
	}
}

func TestNetnsBulk(t *testing.T) {
	netnstest.Require(t, "netns")
	r := newRig(t, 2, Work{Workers: 1})
	balance(t, r, inTurn)
	for kind, port := range map[Kind]uint16{Down: SourcePort, Up: DiscardPort} {
		o, err := r.Run(t.Context(), Load{
			Kind: kind, Connections: 2, Threads: 1, WarmUp: 50 * time.Millisecond, Time: 100 * time.Millisecond,
			Sources: 1, Ports: 1000, To: to(port),
		})
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if o.Bytes < 1<<16 || o.Elapsed < 100*time.Millisecond {
			t.Errorf("%s: want 64 KiB or more in 100ms or more, got %d bytes in %v", kind, o.Bytes, o.Elapsed)
		}
	}
}

// TestNetnsFailures sees that refused and silent servers are an error.
func TestNetnsFailures(t *testing.T) {
	netnstest.Require(t, "netns")
	r := newRig(t, 1, Work{Workers: 1})
	o, err := r.Run(t.Context(), Load{
		Kind: Requests, Connections: 2, Threads: 1, Count: 20, Time: time.Second,
		Sources: 1, Ports: 1000, To: to(AnswerPort),
	})
	if err == nil || o == nil || o.Failed != 20 {
		t.Errorf("refused: want an error and 20 failures, got %+v, %v", o, err)
	}
	_, err = r.Run(t.Context(), Load{
		Kind: Down, Connections: 1, Threads: 1, Time: 50 * time.Millisecond,
		Sources: 1, Ports: 1000, To: netip.AddrPortFrom(Server(0), AnswerPort+1),
	})
	if err == nil {
		t.Error("refused download: want an error")
	}
}

func TestNetnsProcess(t *testing.T) {
	netnstest.Require(t, "netns")
	ns := netnstest.New(t)
	p, err := StartProcess(t, ns, "/bin/sh", "-c", "echo up; exec sleep 60")
	if err != nil {
		t.Fatal(err)
	}
	up := func() error {
		if p.Output() != "up\n" {
			return context.Canceled
		}
		return nil
	}
	if err := p.Await(t.Context(), up); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	p, err = StartProcess(t, ns, "/bin/sh", "-c", "echo why >&2; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	never := func() error { return context.Canceled }
	if err := p.Await(t.Context(), never); err == nil || !strings.Contains(err.Error(), "why") {
		t.Errorf("a program that ends: want its words, got %v", err)
	}
	if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("stop of a program that ended: want its status, got %v", err)
	}
}
