package userspace

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/ipvs"
)

// sctpSocket opens a one-to-one SCTP socket in a namespace, whose calls give up
// after a while.
func sctpSocket(t *testing.T, ns *netnstest.NS, family int) int {
	t.Helper()
	fd := -1
	err := ns.Do(func() (err error) {
		fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
		return err
	})
	if err != nil {
		t.Fatalf("SCTP socket: %v", err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	limit := unix.Timeval{Sec: 20}
	for _, opt := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, opt, &limit); err != nil {
			t.Fatal(err)
		}
	}
	return fd
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// serveSCTP sends the server's name on each connection and keeps it.
func (l *lab) serveSCTP(t *testing.T, s *labServer, f ipvs.Family) {
	t.Helper()
	at, family := netip.MustParseAddrPort(s.at(f)), unix.AF_INET
	if f == ipvs.IPv6 {
		family = unix.AF_INET6
	}
	fd := sctpSocket(t, s.ns, family)
	// So that a look for the test's end comes by.
	limit := unix.Timeval{Usec: 100_000}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, sockaddr(at)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 64); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-done })
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			c, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
			if err != nil {
				continue
			}
			defer unix.Close(c)
			_, _ = unix.Write(c, []byte(s.name))
		}
	}()
}

// associate connects the client, which stays connected until the test ends, and
// reads the server's name.
func (l *lab) associate(t *testing.T, svc ipvs.Service) (name string, fd int) {
	t.Helper()
	family := unix.AF_INET
	if svc.Family == ipvs.IPv6 {
		family = unix.AF_INET6
	}
	fd = sctpSocket(t, l.client, family)
	// A signal of the Go runtime interrupts a call; the connection is made all the
	// same (connect(2)).
	if err := unix.Connect(fd, sockaddr(svc.Address)); err != nil && err != unix.EINTR {
		t.Fatalf("connect: %v", err)
	}
	ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for end := time.Now().Add(20 * time.Second); ; {
		n, err := unix.Poll(ready, int(max(0, time.Until(end).Milliseconds())))
		if n == 1 {
			break
		}
		if err != unix.EINTR {
			t.Fatalf("wait for the server's name: %d, %v", n, err)
		}
	}
	b := make([]byte, 10)
	n, err := unix.Read(fd, b)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return string(b[:n]), fd
}

// testSCTP balances associations, which are active while they are established.
// The build machines' kernel has no SCTP sockets: TestKernelUserspaceTraffic
// calls it in the virtual machine.
func testSCTP(t *testing.T) {
	for _, f := range []ipvs.Family{ipvs.IPv4, ipvs.IPv6} {
		t.Run(f.String(), func(t *testing.T) {
			l := newLab(t, 2)
			for _, s := range l.servers {
				l.serveSCTP(t, s, f)
			}
			l.open()
			svc, ops := l.service(ipvs.SCTP, f)
			svc.Scheduler = "rr"
			ops[0].Service = svc
			l.apply(ops...)
			got := make(map[string]int)
			var fds []int
			connect := func() {
				t.Helper()
				name, fd := l.associate(t, svc)
				got[name]++
				fds = append(fds, fd)
			}
			for range 4 {
				connect()
			}
			if d := diff(map[string]int{"s1": 2, "s2": 2}, got); d != "" {
				t.Errorf("associations (-want +got):\n%s", d)
			}
			l.eventually(svc, map[string]string{"s1": "2/0/0", "s2": "2/0/0"})
			// An event says so: no dump has to come by. One may do so by chance, but
			// not each time.
			dumps := func() uint8 {
				l.engine.mu.Lock()
				defer l.engine.mu.Unlock()
				return l.engine.generation
			}
			for try := 1; ; try++ {
				before := dumps()
				connect()
				l.eventually(svc, map[string]string{
					"s1": fmt.Sprintf("%d/0/0", got["s1"]), "s2": fmt.Sprintf("%d/0/0", got["s2"]),
				})
				if dumps() == before {
					break
				}
				if try == 10 {
					t.Fatal("associations are active only after a dump")
				}
			}
			for _, fd := range fds {
				if err := unix.Shutdown(fd, unix.SHUT_RDWR); err != nil {
					t.Error(err)
				}
			}
			l.until(func() string {
				for name, text := range l.conns(svc) {
					var c ipvs.Conns
					fmt.Sscanf(text, "%d/%d/%d", &c.Active, &c.Inactive, &c.Persistent)
					if c.Active != 0 {
						return name + ": " + text
					}
				}
				return ""
			}, "associations that are active after their end")
		})
	}
}

// TestKernelUserspaceTraffic is what the build machines' kernel sees by TestNetns
// tests, on the virtual machine's with its own queue expression, and SCTP.
func TestKernelUserspaceTraffic(t *testing.T) {
	netnstest.Require(t, "ipvs") // the virtual machine's, for short
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"TCP", TestNetnsTCP},
		{"UDP", TestNetnsUDP},
		{"SCTP", testSCTP},
		{"restart", TestNetnsRestart},
		{"local client", TestNetnsLocalClient},
		{"retransmit", TestNetnsRetransmit},
		{"overrun", TestNetnsOverrun},
		{"delete", TestNetnsQuiesceAndDelete},
		{"persistence", TestNetnsPersistence},
		{"mark", TestNetnsMarkAndAnyPort},
		{"direct routing", TestNetnsRouted},
		{"one packet", TestNetnsOnePacket},
		{"tunnels", TestNetnsTunnel},
		{"clear", TestNetnsClear},
	} {
		t.Run(test.name, test.run)
	}
}
