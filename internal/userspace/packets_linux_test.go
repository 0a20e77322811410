package userspace

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/ipvs"
)

// clientAddr is the client's address of a family.
func clientAddr(f ipvs.Family) netip.Addr {
	if f == ipvs.IPv6 {
		return netip.MustParseAddr("2001:db8:1::100")
	}
	return netip.MustParseAddr("198.51.100.100")
}

// sendRaw sends whole packets, network header included, from a namespace.
func sendRaw(t *testing.T, ns *netnstest.NS, f ipvs.Family, to netip.Addr, packets ...[]byte) {
	t.Helper()
	domain, addr := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{})
	if f == ipvs.IPv6 {
		domain, addr = unix.AF_INET6, &unix.SockaddrInet6{Addr: to.As16()}
	} else {
		addr = &unix.SockaddrInet4{Addr: to.As4()}
	}
	err := ns.Do(func() error {
		fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, p := range packets {
			if err := unix.Sendto(fd, p, 0, addr); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("send a packet to %v: %v", to, err)
	}
}

// datagram returns a UDP header and payload with a checksum.
func datagram(from, to netip.AddrPort, payload []byte) []byte {
	b := make([]byte, 8, 8+len(payload))
	binary.BigEndian.PutUint16(b, from.Port())
	binary.BigEndian.PutUint16(b[2:], to.Port())
	binary.BigEndian.PutUint16(b[4:], uint16(8+len(payload)))
	b = append(b, payload...)
	sum := append(append([]byte{}, from.Addr().AsSlice()...), to.Addr().AsSlice()...)
	sum = append(sum, 0, unix.IPPROTO_UDP, byte(len(b)>>8), byte(len(b)))
	binary.BigEndian.PutUint16(b[6:], checksum(append(sum, b...)))
	return b
}

// checksum is the Internet checksum (RFC 1071).
func checksum(b []byte) uint16 {
	var sum uint32
	if len(b)%2 == 1 {
		b = append(b, 0)
	}
	for ; len(b) > 0; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// network returns a packet: a network header that names next as what follows.
func network(from, to netip.Addr, next uint8, rest []byte) []byte {
	if from.Is4() {
		h := make([]byte, 20)
		h[0], h[8], h[9] = 0x45, 64, next
		binary.BigEndian.PutUint16(h[2:], uint16(20+len(rest)))
		copy(h[12:], from.AsSlice())
		copy(h[16:], to.AsSlice())
		return append(h, rest...)
	}
	h := make([]byte, 40)
	h[0], h[6], h[7] = 0x60, next, 64
	binary.BigEndian.PutUint16(h[4:], uint16(len(rest)))
	copy(h[8:], from.AsSlice())
	copy(h[24:], to.AsSlice())
	return append(h, rest...)
}

// fragments cuts what is behind a network header into packets of size bytes.
func fragments(from, to netip.Addr, b []byte, size int) [][]byte {
	var list [][]byte
	for at := 0; at < len(b); at += size {
		end := min(at+size, len(b))
		more := end < len(b)
		var p []byte
		if from.Is4() {
			p = network(from, to, unix.IPPROTO_UDP, b[at:end])
			binary.BigEndian.PutUint16(p[4:], 4711)
			binary.BigEndian.PutUint16(p[6:], uint16(at/8))
			if more {
				p[6] |= 0x20
			}
		} else {
			h := make([]byte, 8)
			h[0] = unix.IPPROTO_UDP
			binary.BigEndian.PutUint16(h[2:], uint16(at))
			if more {
				h[3] |= 1
			}
			binary.BigEndian.PutUint32(h[4:], 4711)
			p = network(from, to, unix.IPPROTO_FRAGMENT, append(h, b[at:end]...))
		}
		list = append(list, p)
	}
	return list
}

// answered reads a datagram and checks which server sent it.
func answered(t *testing.T, pc net.PacketConn, svc ipvs.Service, want string) {
	t.Helper()
	if err := pc.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	n, from, err := pc.ReadFrom(b)
	if err != nil || string(b[:n]) != want || from.String() != svc.Address.String() {
		t.Errorf("answer: want %s from %v, got %q from %v, %v", want, svc.Address, b[:n], from, err)
	}
}

// TestNetnsFragments sends a datagram in fragments, the last one first: only the
// first has ports. It is one flow, and comes whole.
func TestNetnsFragments(t *testing.T) {
	for _, f := range []ipvs.Family{ipvs.IPv4, ipvs.IPv6} {
		t.Run(f.String(), func(t *testing.T) {
			l := newLab(t, 2)
			l.open()
			svc, ops := l.service(ipvs.UDP, f)
			l.apply(ops...)
			from := netip.AddrPortFrom(clientAddr(f), 5000)
			pc := l.client.ListenPacket("udp", from.String())
			parts := fragments(from.Addr(), svc.Address.Addr(), datagram(from, svc.Address, make([]byte, 1900)), 800)
			sendRaw(t, l.client, f, svc.Address.Addr(), parts[2], parts[0], parts[1])
			answered(t, pc, svc, "s1")
			sendRaw(t, l.client, f, svc.Address.Addr(), parts[1], parts[2], parts[0])
			answered(t, pc, svc, "s1")
			l.eventually(svc, map[string]string{"s1": "0/1/0", "s2": "0/0/0"})
			if n := l.engine.unparsed.Load(); n != 0 {
				t.Errorf("%d packets that were not understood", n)
			}
		})
	}
}

// padding is an extension header with options that say nothing, to be followed by
// next.
func padding(next uint8) []byte { return []byte{next, 0, 1, 4, 0, 0, 0, 0} }

// TestNetnsExtensionHeaders has headers between IPv6's own and the transport's.
func TestNetnsExtensionHeaders(t *testing.T) {
	l := newLab(t, 2)
	l.open()
	svc, ops := l.service(ipvs.UDP, ipvs.IPv6)
	l.apply(ops...)
	from := netip.AddrPortFrom(clientAddr(ipvs.IPv6), 5000)
	pc := l.client.ListenPacket("udp", from.String())
	d := datagram(from, svc.Address, []byte("who"))
	all := append(append(padding(unix.IPPROTO_DSTOPTS), padding(unix.IPPROTO_UDP)...), d...)
	sendRaw(t, l.client, ipvs.IPv6, svc.Address.Addr(), network(from.Addr(), svc.Address.Addr(), unix.IPPROTO_HOPOPTS, all))
	answered(t, pc, svc, "s1")
	l.eventually(svc, map[string]string{"s1": "0/1/0", "s2": "0/0/0"})

	web, ops := l.service(ipvs.TCP, ipvs.IPv6)
	l.apply(ops...)
	for i, want := range []string{"s1", "s2"} {
		d := net.Dialer{Timeout: patience, Control: func(_, _ string, c syscall.RawConn) (err error) {
			if e := c.Control(func(fd uintptr) {
				err = unix.SetsockoptString(int(fd), unix.IPPROTO_IPV6, unix.IPV6_DSTOPTS, string(padding(0)))
			}); e != nil {
				return e
			}
			return err
		}}
		var c net.Conn
		if err := l.client.Do(func() (err error) {
			c, err = d.Dial("tcp", web.Address.String())
			return err
		}); err != nil {
			t.Fatalf("connection %d with destination options: %v", i, err)
		}
		defer c.Close()
		b := make([]byte, 2)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
			t.Errorf("connection %d: want %s, got %q, %v", i, want, b, err)
		}
	}
	l.eventually(web, map[string]string{"s1": "1/0/0", "s2": "1/0/0"})
	if n := l.engine.unparsed.Load(); n != 0 {
		t.Errorf("%d packets that were not understood", n)
	}
}

// ipTool runs a command of iproute2 in a namespace.
func ipTool(t *testing.T, ns *netnstest.NS, args ...string) string {
	t.Helper()
	out, err := ns.Run(exec.Command("ip", args...))
	if err != nil {
		t.Fatalf("ip %v: %v", args, err)
	}
	return out
}

// TestNetnsPathMTUOfServer has a router with a small MTU before the real server.
// Its ICMP error is about the translated packet; the client must learn from it.
func TestNetnsPathMTUOfServer(t *testing.T) {
	for _, f := range []ipvs.Family{ipvs.IPv4, ipvs.IPv6} {
		t.Run(f.String(), func(t *testing.T) {
			l := newLab(t, 1)
			router := netnstest.New(t)
			// The lab's bridge is the namespace that the balancer's other end is in.
			netnstest.Veth(router, "eth0", l.hub, "router")
			l.hub.AddPort("br0", "router")
			router.AddAddr("eth0", "10.0.0.9/24")
			router.AddAddr("eth0", "fd00::9/64")
			router.AddRoute("0.0.0.0/0", "10.0.0.1")
			router.AddRoute("::/0", "fd00::1")
			router.SetSysctl("net.ipv4.ip_forward", "1")
			router.SetSysctl("net.ipv6.conf.all.forwarding", "1")
			router.SetSysctl("net.ipv4.conf.all.send_redirects", "0")
			router.SetSysctl("net.ipv4.conf.eth0.send_redirects", "0")
			s := l.servers[0]
			if f == ipvs.IPv4 {
				ipTool(t, l.balancer, "route", "add", s.v4.String()+"/32", "via", "10.0.0.9")
				ipTool(t, router, "route", "add", s.v4.String()+"/32", "dev", "eth0", "mtu", "lock", "1300")
			} else {
				ipTool(t, l.balancer, "-6", "route", "add", s.v6.String()+"/128", "via", "fd00::9")
				ipTool(t, router, "-6", "route", "add", s.v6.String()+"/128", "dev", "eth0", "mtu", "lock", "1300")
			}
			l.open()
			svc, ops := l.service(ipvs.TCP, f)
			l.apply(ops...)
			conns, _ := l.connect(svc, 1)
			c := conns[0]
			const size = 100_000
			go c.Write(make([]byte, size))
			if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			if n, err := io.CopyN(io.Discard, c, size); err != nil {
				t.Fatalf("%d of %d bytes came back: %v", n, size, err)
			}
			route := ipTool(t, l.client, "route", "get", svc.Address.Addr().String())
			if !strings.Contains(route, "mtu 1300") {
				t.Errorf("the client has not learnt: %s", route)
			}
		})
	}
}

// TestNetnsErrorOfClient has the client's side answer with an ICMP error that
// carries eight bytes of the transport header: it must reach the real server,
// about a packet of its own.
func TestNetnsErrorOfClient(t *testing.T) {
	for _, f := range []ipvs.Family{ipvs.IPv4, ipvs.IPv6} {
		t.Run(f.String(), func(t *testing.T) {
			l := newLab(t, 1)
			l.open()
			svc, ops := l.service(ipvs.UDP, f)
			l.apply(ops...)
			if got, err := l.ask(svc, 6000); got != "s1" || err != nil {
				t.Fatalf("want s1, got %q, %v", got, err)
			}
			client := netip.AddrPortFrom(clientAddr(f), 6000)
			inner := network(svc.Address.Addr(), client.Addr(), unix.IPPROTO_UDP, datagram(svc.Address, client, []byte("s1"))[:8])
			message, kind, net := []byte{2, 0, 0, 0, 0, 0, 1300 >> 8, 1300 & 0xff}, "ip6:ipv6-icmp", "-6"
			if f == ipvs.IPv4 {
				message[0], message[1], kind, net = 3, 4, "ip4:icmp", "-4"
			}
			message = append(message, inner...)
			if f == ipvs.IPv4 { // the kernel does it for IPv6
				binary.BigEndian.PutUint16(message[2:], checksum(message))
			}
			c, err := l.client.DialContext(t.Context(), kind, svc.Address.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Write(message); err != nil {
				t.Fatal(err)
			}
			l.until(func() string {
				route := ipTool(t, l.servers[0].ns, net, "route", "get", client.Addr().String())
				if !strings.Contains(route, "mtu 1300") {
					return fmt.Sprintf("route of the real server: %s", route)
				}
				return ""
			}, "an error that reaches the real server")
			l.eventually(svc, map[string]string{"s1": "0/1/0"})
		})
	}
}
