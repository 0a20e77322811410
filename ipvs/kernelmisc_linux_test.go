package ipvs

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// TestKernelNamespaces has the same VIP in many namespaces, and pins that a
// client stays in the one that it was opened in, whatever thread it is used on.
func TestKernelNamespaces(t *testing.T) {
	const n = 20
	clients := make([]*Client, n)
	for i := range clients {
		netnstest.Require(t, "netns", "ipvs")
		ns := netnstest.New(t)
		var err error
		if i%2 == 0 {
			clients[i], err = Open(WithNetNS(ns.FD()))
		} else {
			err = ns.Do(func() error {
				clients[i], err = Open()
				return err
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { emptyAndClose(t, clients[i]) })
		d := dest("10.0.0.1:80", Masq)
		d.Weight = uint32(i)
		mustApply(t, clients[i], addService(service(kernelV4)), addDest(kernelV4, d))
	}
	for i, c := range clients {
		done := make(chan error, 1)
		go func() {
			runtime.LockOSThread()
			c.drop() // the socket is opened again, too
			table, err := c.Table(t.Context())
			if err == nil && (len(table) != 1 || len(table[0].Destinations) != 1 || table[0].Destinations[0].Weight != uint32(i)) {
				err = fmt.Errorf("table %+v", table)
			}
			for range 2 {
				counts, cerr := c.Counts(t.Context())
				if cerr == nil && (len(counts) != 1 || counts[0].Weight != uint32(i)) {
					cerr = fmt.Errorf("counts %+v", counts)
				}
				err = errors.Join(err, cerr)
				if i == 0 {
					c.counts.drop()
				}
			}
			done <- err
		}()
		if err := <-done; err != nil {
			t.Errorf("namespace %d: %v", i, err)
		}
	}
	if err := clients[0].Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if table := mustTable(t, clients[0]); table != nil {
		t.Errorf("after flush: %v", table)
	}
	if table := mustTable(t, clients[1]); len(table) != 1 {
		t.Errorf("another namespace was flushed")
	}
}

func TestKernelTimeouts(t *testing.T) {
	c, _ := kernelClient(t)
	ctx := t.Context()
	want := Timeouts{15 * time.Minute, 2 * time.Minute, 5 * time.Minute}
	check := func() {
		t.Helper()
		got, err := c.Timeouts(ctx)
		if err != nil || got != want {
			t.Errorf("timeouts %v, %v; want %v", got, err, want)
		}
	}
	check()
	if err := c.SetTimeouts(ctx, Timeouts{TCPFin: time.Second}); err != nil {
		t.Fatal(err)
	}
	want.TCPFin = time.Second
	check()
	if err := c.SetTimeouts(ctx, Timeouts{TCP: time.Hour, UDP: 7 * time.Second}); err != nil {
		t.Fatal(err)
	}
	want.TCP, want.UDP = time.Hour, 7*time.Second
	check()
	// All or nothing.
	if err := c.SetTimeouts(ctx, Timeouts{TCP: time.Second, UDP: math.MaxInt32 * time.Second}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("too large: %v, want %v", err, unix.EINVAL)
	}
	check()
}

func TestKernelInfo(t *testing.T) {
	c, _ := kernelClient(t)
	info, err := c.Info(t.Context())
	if err != nil || info.Version != "1.2.1" || info.ConnTableSize < 256 {
		t.Errorf("info %+v, %v", info, err)
	}
}

// TestKernelAckOfGet pins why requests that are answered with data do not ask
// for an ACK: it comes on top.
func TestKernelAckOfGet(t *testing.T) {
	c, _ := kernelClient(t)
	err := c.run(t.Context(), func() error {
		for _, tt := range []struct {
			flags uint16
			want  []uint16
		}{
			{flagRequest | flagAck, []uint16{c.link.family, nlmsgError}},
			{flagRequest, []uint16{c.link.family}},
		} {
			c.begin(cmdGetInfo, tt.flags, nil)
			if err := c.link.conn.send(c.wbuf); err != nil {
				return err
			}
			var got []uint16
			err := c.receive(t.Context(), func(m *message) (bool, error) {
				got = append(got, m.typ)
				return len(got) == len(tt.want), nil
			})
			if err != nil {
				return err
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("flags %#x: answers %#x, want %#x", tt.flags, got, tt.want)
			}
		}
		// Nothing is left.
		if err := c.link.conn.setReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			return err
		}
		if n, err := c.link.conn.receive(c.rbuf); err == nil {
			t.Errorf("%d more bytes", n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestKernelSyncDaemons(t *testing.T) {
	c, ns := kernelClient(t)
	ctx := t.Context()
	netnstest.Veth(ns, "sync0", netnstest.New(t), "sync0")
	ns.AddAddr("sync0", "192.0.2.1/24")
	ns.AddAddr("sync0", "2001:db8::1/64")
	list := func(want ...SyncDaemon) {
		t.Helper()
		got, err := c.SyncDaemons(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("sync daemons (-want +got):\n%s", diff)
		}
	}
	list()
	master := SyncDaemon{State: SyncMaster, Interface: "sync0", SyncID: 7}
	backup := SyncDaemon{State: SyncBackup, Interface: "sync0", SyncID: 255, MaxLen: 1200,
		Group: netip.MustParseAddr("ff02::81"), Port: 8849, TTL: 3}
	for _, d := range []SyncDaemon{backup, master} {
		if err := c.StartSyncDaemon(ctx, d); err != nil {
			t.Fatal(err)
		}
		if err := c.StartSyncDaemon(ctx, d); !errors.Is(err, ErrSyncDaemonRunning) {
			t.Errorf("second %v: %v, want %v", d.State, err, ErrSyncDaemonRunning)
		}
	}
	// What the kernel has chosen.
	master.MaxLen, master.Group, master.Port, master.TTL = 1472, netip.MustParseAddr("224.0.0.81"), 8848, 1
	list(master, backup)

	// Mixed families and sync daemons exclude each other.
	mustApply(t, c, addService(service(kernelV6)))
	if err := c.AddDestination(ctx, kernelV6, dest("10.0.0.2:80", Tunnel)); !errors.Is(err, unix.EINVAL) {
		t.Errorf("mixed family with a sync daemon: %v, want %v", err, unix.EINVAL)
	}
	for _, s := range []SyncState{SyncMaster, SyncBackup} {
		if err := c.StopSyncDaemon(ctx, s); err != nil {
			t.Fatal(err)
		}
		if err := c.StopSyncDaemon(ctx, s); !errors.Is(err, ErrSyncDaemonNotRunning) {
			t.Errorf("second stop of %v: %v, want %v", s, err, ErrSyncDaemonNotRunning)
		}
	}
	list()
	if err := c.AddDestination(ctx, kernelV6, dest("10.0.0.2:80", Tunnel)); err != nil {
		t.Fatal(err)
	}
	if err := c.StartSyncDaemon(ctx, master); !errors.Is(err, unix.EINVAL) {
		t.Errorf("sync daemon with mixed family: %v, want %v", err, unix.EINVAL)
	}
}

// TestKernelSyncDaemonStopsAtOnce stops daemons right after their start, so that
// the threads of some have not run yet.
func TestKernelSyncDaemonStopsAtOnce(t *testing.T) {
	c, ns := kernelClient(t)
	ns.AddAddr("lo", "192.0.2.1/32")
	for range 200 {
		if err := c.StartSyncDaemon(t.Context(), SyncDaemon{State: SyncMaster, Interface: "lo"}); err != nil {
			t.Fatal(err)
		}
		if err := c.StopSyncDaemon(t.Context(), SyncMaster); err != nil {
			t.Fatal(err)
		}
	}
}
