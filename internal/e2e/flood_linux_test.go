package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/internal/netnstest"
)

// spoofed is the network of the senders that a flood pretends to have.
const spoofed = "198.19.0.0/16"

// TestNetnsFlood sends SYNs of false senders.
func TestNetnsFlood(t *testing.T) {
	netnstest.Require(t, "netns", "nfqueue")
	flood(t, 60_000, "are half open")
}

// TestKernelFlood sends more of them than conntrack has room for.
func TestKernelFlood(t *testing.T) {
	netnstest.Require(t, "netns", "nfqueue")
	const limit = "/proc/sys/net/netfilter/nf_conntrack_max"
	if !netnstest.OwnsModules() {
		t.Skip("the limit of conntrack is the whole machine's")
	}
	before, err := os.ReadFile(limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.WriteFile(limit, before, 0o644) })
	if err := os.WriteFile(limit, []byte("2000"), 0o644); err != nil {
		t.Fatal(err)
	}
	flood(t, 8_000, "when it is full, new ones fail")
}

// flood sends n SYNs while connections are in use and lbd is asked for its
// status. It waits for a warning with a text, and for the counts to be right when
// the flood is over.
func flood(t *testing.T, n int, warning string) {
	const established = 20
	l := NewLab(t, Masq, 2)
	l.AddVIP(VIP4)
	l.Balancer.AddRoute(spoofed, clientFront4)
	for _, s := range l.Servers {
		echo(s.NS.Listen("tcp", net.JoinHostPort(s.V4.String(), "90")))
	}
	lbd, err := startFlooded(t, l)
	if err != nil {
		t.Fatal(err)
	}
	var conns []net.Conn
	for range established {
		c, err := l.Client.DialContext(t.Context(), "tcp", net.JoinHostPort(VIP4, "90"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	before := memoryOf(t, lbd)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	var pings, answers int
	wg.Go(func() {
		for i := 0; i < established || ctx.Err() == nil; i++ {
			if err := ping(conns[i%established]); err != nil {
				t.Errorf("established connection %d: %v", i%established, err)
				return
			}
			pings++
		}
	})
	client := api.NewClient(lbd.Socket, startTimeout)
	var said []string
	warned := false
	wg.Go(func() {
		defer cancel()
		// The warning may take a comparison with conntrack, and a look.
		for end := time.Now().Add(time.Minute); !warned && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			s, err := client.Status(t.Context())
			if err != nil {
				t.Errorf("status: %v", err)
				return
			}
			answers++
			said = s.Warnings
			warned = strings.Contains(strings.Join(said, "\n"), warning)
		}
	})
	sendSYNs(t, l.Client, n)
	wg.Wait()
	if !warned {
		t.Errorf("want a warning with %q, got %q", warning, said)
	}
	if pings < established || answers == 0 {
		t.Errorf("%d pings, %d answers: want each connection to be tried, and an answer", pings, answers)
	}
	t.Logf("%d SYNs, %d pings of established connections, memory %d kB before and %d kB after, warnings %q", n, pings, before, memoryOf(t, lbd), said)
	// Some hundred bytes a flow, twice for a table that grows, and the collector's
	// share.
	if after := memoryOf(t, lbd); after-before > 50_000+n {
		t.Errorf("memory: %d kB before the flood, %d kB after", before, after)
	}
	recovered(t, client, l.Balancer, established)
	for i, c := range conns {
		if err := ping(c); err != nil {
			t.Errorf("established connection %d after the flood: %v", i, err)
		}
	}
	c, err := l.Client.DialContext(t.Context(), "tcp", net.JoinHostPort(VIP4, "90"))
	if err != nil {
		t.Fatalf("a new connection after the flood: %v", err)
	}
	defer c.Close()
	if err := ping(c); err != nil {
		t.Errorf("a new connection after the flood: %v", err)
	}
}

func startFlooded(t *testing.T, l *Lab) (*LBD, error) {
	bin, _, err := Programs(t.Context(), t.TempDir())
	if err != nil {
		return nil, err
	}
	dir := t.TempDir()
	lbd := NewLBD(t, l.Balancer, bin, filepath.Join(dir, "lbd.yaml"), dir)
	config := fmt.Sprintf(`engine: userspace
socket: {path: %s}
state_file: ""
virtual_services:
  - {address: "%s:90", real_servers: [{address: "%v:90"}, {address: "%v:90"}]}
`, lbd.Socket, VIP4, l.Servers[0].V4, l.Servers[1].V4)
	if err := os.WriteFile(lbd.Config, []byte(config), 0o600); err != nil {
		return nil, err
	}
	return lbd, lbd.Start()
}

// echo sends back what comes.
func echo(ln net.Listener) {
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
}

func ping(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("ping")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 4))
	return err
}

// sendSYNs sends n SYNs from as many addresses and ports, and lets nobody wait
// for a processor for long.
func sendSYNs(t *testing.T, ns *netnstest.NS, n int) {
	t.Helper()
	to := netip.MustParseAddr(VIP4)
	err := ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		p := make([]byte, 40)
		p[0], p[8], p[9] = 0x45, 64, unix.IPPROTO_TCP
		binary.BigEndian.PutUint16(p[2:], 40)
		copy(p[16:], to.AsSlice())
		binary.BigEndian.PutUint16(p[22:], 90)
		p[32], p[33] = 5<<4, 2
		binary.BigEndian.PutUint16(p[34:], 1024)
		for i := range n {
			copy(p[12:], []byte{198, 19, byte(i >> 8), byte(i)})
			binary.BigEndian.PutUint16(p[20:], uint16(1024+i%60000))
			binary.BigEndian.PutUint32(p[24:], rand.Uint32())
			p[36], p[37] = 0, 0
			binary.BigEndian.PutUint16(p[36:], tcpChecksum(p))
			if err := unix.Sendto(fd, p, 0, &unix.SockaddrInet4{Addr: to.As4()}); err != nil && err != unix.ENOBUFS {
				return err
			}
			if i%100 == 99 {
				time.Sleep(time.Millisecond)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("send SYNs: %v", err)
	}
}

// tcpChecksum is that of an IPv4 packet with TCP and no options.
func tcpChecksum(p []byte) uint16 {
	sum := uint32(unix.IPPROTO_TCP + len(p) - 20)
	for i := 12; i < len(p); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// memoryOf returns the resident memory of lbd in kB.
func memoryOf(t *testing.T, d *LBD) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	f := strings.Fields(rest)
	if len(f) == 0 {
		t.Fatalf("no VmRSS in %s", b)
	}
	kb, err := strconv.Atoi(f[0])
	if err != nil {
		t.Fatal(err)
	}
	return kb
}

// endHalfOpen deletes what conntrack would keep for a minute.
func endHalfOpen(t *testing.T, ns *netnstest.NS) {
	t.Helper()
	table, err := conntrack.OpenTable(ns.FD())
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	const established = 3 // TCP_CONNTRACK_ESTABLISHED
	var list []conntrack.Event
	if err := table.Dump(t.Context(), conntrack.Filter{}, func(e *conntrack.Event) {
		if e.Orig.Protocol == unix.IPPROTO_TCP && e.TCPState != established {
			list = append(list, *e)
		}
	}); err != nil && !errors.Is(err, conntrack.ErrInterrupted) {
		t.Fatal(err)
	}
	for i := range list {
		// One that has ended by itself is as good.
		_ = table.DeleteFlow(t.Context(), list[i].Orig, list[i].ID)
	}
}

// recovered waits until lbd counts the established connections and no other,
// while it ends the half open ones: SYNs may still wait in the queue.
func recovered(t *testing.T, client *api.Client, ns *netnstest.NS, want uint32) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		endHalfOpen(t, ns)
		table, err := client.Table(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var active uint32
		for _, s := range table {
			for _, d := range s.RealServers {
				active += d.Active
			}
		}
		if active == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("active connections after the flood: want %d, got %d", want, active)
		}
	}
}
