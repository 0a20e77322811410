package healthcheck

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pathFunc makes a function Paths.
type pathFunc func(Through, netip.Addr) (Path, error)

func (f pathFunc) Path(t Through, target netip.Addr) (Path, error) { return f(t, target) }
func (pathFunc) Kept(time.Time) error                              { return nil }

// TestThroughSockets wants the sockets of a path to have its priority and segment
// size, and a port that no other has, whoever they connect to: the answers of all
// real servers come from one address.
func TestThroughSockets(t *testing.T) {
	through := Through{Service: netip.MustParseAddr("192.0.2.100")}
	var targets []netip.AddrPort
	for _, a := range []string{"127.0.0.2:0", "127.0.0.3:0", "127.0.0.4:0"} {
		l, err := net.Listen("tcp", a)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		targets = append(targets, l.Addr().(*net.TCPAddr).AddrPort())
	}
	env := Env{Through: through, Paths: pathFunc(func(got Through, target netip.Addr) (Path, error) {
		if got != through || !target.IsLoopback() {
			t.Errorf("asked for the path of %v to %v", got, target)
		}
		return Path{Priority: 5, MaxSegment: 1000}, nil
	})}
	ports := map[uint16]bool{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			c, err := Via{}.Dial(t.Context(), env, "tcp", targets[i%3])
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { c.Close() })
			port := c.LocalAddr().(*net.TCPAddr).AddrPort().Port()
			mu.Lock()
			defer mu.Unlock()
			if ports[port] {
				t.Errorf("port %d twice", port)
			}
			ports[port] = true
			raw, err := c.(*net.TCPConn).SyscallConn()
			if err != nil {
				t.Error(err)
				return
			}
			raw.Control(func(fd uintptr) {
				if p, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PRIORITY); p != 5 || err != nil {
					t.Errorf("priority: want 5, got %d, %v", p, err)
				}
				if p, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG); p > 1000 || err != nil {
					t.Errorf("segment size: want at most 1000, got %d, %v", p, err)
				}
			})
		})
	}
	wg.Wait()
}

// TestThroughFails wants no packet to leave without its path.
func TestThroughFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	target := l.Addr().(*net.TCPAddr).AddrPort()
	env := Env{Through: Through{Service: netip.MustParseAddr("192.0.2.100"), Tunnel: true}}
	fails := func(m TCP, want string) {
		t.Helper()
		c, err := m.NewChecker(target, env)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Check(t.Context())
		_, dialErr := m.Via.Dial(t.Context(), env, "udp", target)
		for _, err := range []error{err, dialErr} {
			if !errors.Is(err, ErrLocal) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "in the tunnel to 127.0.0.1") {
				t.Errorf("want a fault of this host with %q, got %v", want, err)
			}
		}
	}
	fails(TCP{}, "no paths")
	env.Paths = pathFunc(func(Through, netip.Addr) (Path, error) { return Path{}, errors.New("washed away") })
	fails(TCP{}, "washed away")
	fails(TCP{Via: Via{NetNS: "blue"}}, "blue")
}
