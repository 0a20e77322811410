package ruleset

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/ipvs"
)

// unwrap does what a tunnel device of a real server would, on kernels without
// one: it takes IP in IP from a raw socket, and sends what is in there to the
// host itself.
func unwrap(t *testing.T, ns *netnstest.NS, outer6, inner6 bool) {
	t.Helper()
	family, proto, offset := unix.AF_INET, unix.IPPROTO_IPIP, 20
	if inner6 {
		proto = unix.IPPROTO_IPV6
	}
	if outer6 {
		family, offset = unix.AF_INET6, 0 // raw sockets of IPv6 show no header
	}
	out := unix.AF_INET
	if inner6 {
		out = unix.AF_INET6
	}
	var in, to int
	err := ns.Do(func() (err error) {
		if in, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto); err != nil {
			return err
		}
		to, err = unix.Socket(out, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	tv := unix.NsecToTimeval((20 * time.Millisecond).Nanoseconds())
	if err := unix.SetsockoptTimeval(in, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 128<<10)
		for {
			select {
			case <-stop:
				return
			default:
			}
			n, _, err := unix.Recvfrom(in, b, 0)
			if err != nil || n < offset+28 || inner6 && n < offset+48 {
				continue
			}
			p := b[offset:n]
			fixChecksum(p)
			if inner6 {
				unix.Sendto(to, p, 0, &unix.SockaddrInet6{Addr: [16]byte(p[24:40])})
			} else {
				unix.Sendto(to, p, 0, &unix.SockaddrInet4{Addr: [4]byte(p[16:20])})
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
		unix.Close(in)
		unix.Close(to)
	})
}

// fixChecksum fills in the transport checksum, which a device would: virtual ones
// do not.
func fixChecksum(p []byte) {
	var pseudo []byte
	var proto byte
	var l4 []byte
	if p[0]>>4 == 4 {
		proto, l4, pseudo = p[9], p[int(p[0]&15)*4:], p[12:20]
	} else {
		proto, l4, pseudo = p[6], p[40:], p[8:40]
	}
	at := map[byte]int{unix.IPPROTO_TCP: 16, unix.IPPROTO_UDP: 6}[proto]
	if at == 0 || len(l4) < at+2 {
		return
	}
	l4[at], l4[at+1] = 0, 0
	sum := uint32(proto) + uint32(len(l4))
	for _, b := range [][]byte{pseudo, l4} {
		for len(b) > 1 {
			sum += uint32(binary.BigEndian.Uint16(b))
			b = b[2:]
		}
		if len(b) == 1 {
			sum += uint32(b[0]) << 8
		}
		for sum>>16 != 0 {
			sum = sum&0xffff + sum>>16
		}
	}
	binary.BigEndian.PutUint16(l4[at:], ^uint16(sum))
}

// TestNetnsTunnel sends everything through tunnels of IP in IP, of either version
// in either.
func TestNetnsTunnel(t *testing.T) {
	for _, outer6 := range []bool{false, true} {
		for _, way := range []string{"queue", "fallback"} {
			t.Run(map[bool]string{false: "in IPv4 ", true: "in IPv6 "}[outer6]+way, func(t *testing.T) {
				l := newRouteLab(t, Options{FailOpen: true})
				if err := l.rules.Abilities().Tunnel; err != nil {
					t.Fatal(err)
				}
				for _, s := range l.servers {
					unwrap(t, s, outer6, false)
					unwrap(t, s, outer6, true)
				}
				s := routed()
				for i := range s.Servers {
					v := &s.Servers[i]
					v.Forward = ipvs.Tunnel
					// The services of even index are IPv4, and so are the first two
					// servers.
					v.Service = s.Services[i/2].ID
					v.Address = routed().Servers[i%2].Address
					if outer6 {
						v.Address = routed().Servers[2+i%2].Address
					}
				}
				l.apply(s)
				if way == "queue" {
					l.serve(to(1))
				}
				for _, addr := range routeAddresses {
					for _, network := range []string{"tcp", "udp"} {
						seen := map[string]int{}
						for range 12 {
							name, err := l.ask(l.client, network, addr)
							if err != nil {
								t.Fatalf("%s %s: %v", network, addr, err)
							}
							seen[name]++
						}
						if way == "queue" && seen["1"] != 12 || way == "fallback" && (seen["0"] == 0 || seen["1"] == 0) {
							t.Errorf("%s %s: %v", network, addr, seen)
						}
					}
					// Larger than what fits: the client must be told.
					c, _ := l.dial("tcp", addr)
					data := bytes.Repeat([]byte("0123456789"), 20<<10)
					go c.Write(data)
					back := make([]byte, len(data))
					if _, err := io.ReadFull(c, back); err != nil || !bytes.Equal(data, back) {
						t.Errorf("%s: 200 kB: %v", addr, err)
					}
				}
				if n := len(l.flows(every)); n != 0 {
					t.Errorf("connection tracking has %d entries", n)
				}
				if err := l.rules.Remove(t.Context()); err != nil {
					t.Fatal(err)
				}
				if routes := l.routes(); strings.Contains(routes, "encap") {
					t.Errorf("routes after Remove:\n%s", routes)
				}
			})
		}
	}
}

// TestNetnsTunnelEdits changes where a tunnel ends, and what cannot be a tunnel.
func TestNetnsTunnelEdits(t *testing.T) {
	l := newRouteLab(t, Options{FailOpen: true})
	for _, s := range l.servers {
		unwrap(t, s, false, false)
	}
	s := routed()
	s.Services, s.Servers = s.Services[:1], s.Servers[:1]
	s.Services[0].Fallback = []Share{{mark1, 1}}
	v := &s.Servers[0]
	v.Forward, v.Service = ipvs.Tunnel, s.Services[0].ID
	for i, want := range []string{"0", "1"} {
		v.Address = routed().Servers[i].Address
		l.apply(s)
		if name, err := l.ask(l.client, "tcp", routeAddresses[0]); name != want || err != nil {
			t.Errorf("want server %s, got %q, %v", want, name, err)
		}
	}
	v.Tunnel.Type = ipvs.TunnelGRE
	if err := l.rules.Apply(t.Context(), s); err == nil || !strings.Contains(err.Error(), "tunnels of type") {
		t.Errorf("GRE: want it refused, got %v", err)
	}
	v.Tunnel = ipvs.TunnelOptions{}
	v.Address = netip.MustParseAddrPort("203.0.113.1:80") // no route there
	if err := l.rules.Apply(t.Context(), s); err != nil {
		t.Errorf("an end without a route: %v", err)
	}
	v.Address = routed().Servers[0].Address
	l.apply(s)
	if name, err := l.ask(l.client, "tcp", routeAddresses[0]); name != "0" || err != nil {
		t.Errorf("after that: want server 0, got %q, %v", name, err)
	}
}
