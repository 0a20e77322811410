package conntrack

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/flow"
	"github.com/lbd-project/lbd/internal/netnstest"
)

// TestKernelConntrack runs the tests of the netns tier on the kernel of the
// virtual machine, which is older: what they say must hold there too.
func TestKernelConntrack(t *testing.T) {
	netnstest.Require(t, "ipvs") // Marks the tier.
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"Events", TestNetnsEvents},
		{"ForeignFlows", TestNetnsForeignFlows},
		{"Overrun", TestNetnsOverrun},
		{"DrainLimit", TestNetnsDrainLimit},
		{"DeleteEvents", TestNetnsDeleteEvents},
		{"WhoEmits", TestNetnsWhoEmits},
		{"Recycled", TestNetnsRecycled},
		{"HeldEvent", TestNetnsHeldEvent},
		{"Expired", TestNetnsExpired},
		{"ICMP", TestNetnsICMP},
		{"Requests", TestNetnsRequests},
		{"RequestsBlurred", TestNetnsRequestsBlurred},
		{"RequestsHTTP", TestNetnsRequestsHTTP},
		{"Queries", TestNetnsQueries},
		{"Dump", TestNetnsDump},
		{"DumpCancelled", TestNetnsDumpCancelled},
		{"DumpChurn", TestNetnsDumpChurn},
		{"Delete", TestNetnsDelete},
		{"DeleteFlow", TestNetnsDeleteFlow},
		{"Stats", TestNetnsStats},
		{"Listeners", TestNetnsListeners},
	} {
		t.Run(test.name, test.run)
	}
}

// TestKernelConntrackAutoload: the first flow after OpenEvents is heard of, also
// where the kernel had to load the module for it.
func TestKernelConntrackAutoload(t *testing.T) {
	netnstest.Require(t, "ipvs")
	l := newLab(t)
	l.echo()
	l.rules(ruleset(markThenEvents))
	if netnstest.OwnsModules() {
		const module = "nf_conntrack_netlink"
		for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			err := unix.DeleteModule(module, unix.O_NONBLOCK)
			if err == nil || errors.Is(err, unix.ENOENT) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("unload %s: %v", module, err)
			}
		}
	}
	e := l.events(EventConfig{})
	l.dial("tcp", vip4+":80").Close()
	l.await(e, func(got []Event) bool { return count(got, Update) == 1 })
}

// TestKernelConntrackSCTP follows an association: its state, its events and its
// end. SCTP sockets are not everywhere.
func TestKernelConntrackSCTP(t *testing.T) {
	netnstest.Require(t, "ipvs")
	l := newLab(t)
	l.rules(`
table ip lab {
	chain pre {
		type nat hook prerouting priority -100
		ip daddr ` + vip4 + ` sctp dport 80 ` + eventsThenMark + ` dnat to ` + server4 + `:8080
	}
}`)
	e, tab := l.events(EventConfig{}), l.table()
	socket := func() int {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	var server, client int
	err := l.server.Do(func() error {
		server = socket()
		addr := &unix.SockaddrInet4{Port: 8080, Addr: netip.MustParseAddr(server4).As4()}
		return errors.Join(unix.Bind(server, addr), unix.Listen(server, 1))
	})
	if err != nil {
		t.Fatal(err)
	}
	err = l.client.Do(func() error {
		client = socket()
		to := &unix.SockaddrInet4{Port: 80, Addr: netip.MustParseAddr(vip4).As4()}
		err := unix.Connect(client, to)
		// A signal of the Go runtime interrupts a call; the association is made all
		// the same.
		for err == unix.EINTR || err == unix.EALREADY {
			time.Sleep(time.Millisecond)
			err = unix.Connect(client, to)
		}
		if err == unix.EISCONN {
			err = nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(client)
	if err != nil {
		t.Fatal(err)
	}
	local := netip.AddrPortFrom(netip.MustParseAddr(client4), uint16(name.(*unix.SockaddrInet4).Port))

	all := l.dump(tab, Filter{Mark: 0x100, MarkMask: 0xfffff00})
	want := Event{
		Kind:  New,
		Orig:  flow.New(protoSCTP, local, netip.MustParseAddrPort(vip4+":80")),
		Reply: flow.New(protoSCTP, netip.MustParseAddrPort(server4+":8080"), local),
		Mark:  0x100, SCTPState: 4, // SCTP_CONNTRACK_ESTABLISHED
	}
	if len(all) != 1 {
		t.Fatalf("want one entry, got %s", list(all))
	}
	got := Event{Kind: all[0].Kind, Orig: all[0].Orig, Reply: all[0].Reply, Mark: all[0].Mark, SCTPState: all[0].SCTPState}
	if diff := cmp.Diff(want, got, compareTuples); diff != "" {
		t.Errorf("entry (-want +got)\n%s", diff)
	}
	if err := tab.DeleteFlow(t.Context(), all[0].Orig, all[0].ID); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"new 100", "destroy 100"}, kinds(l.drain(e))); diff != "" {
		t.Errorf("events (-want +got)\n%s", diff)
	}
}
