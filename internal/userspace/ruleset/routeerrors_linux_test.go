package ruleset

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestNetnsRouteErrors sends ICMP errors about a connection to the address of the
// service, as routers on the way of the real server's answers do.
func TestNetnsRouteErrors(t *testing.T) {
	l := newRouteLab(t, Options{FailOpen: true})
	l.apply(routed())
	for _, s := range l.servers {
		nft(t, l.rulesOf(s), `table inet other { counter four {}
			counter six {}
			chain in { type filter hook prerouting priority -300
				icmp type { destination-unreachable, time-exceeded, parameter-problem } counter name four
				icmpv6 type { destination-unreachable, packet-too-big, time-exceeded, parameter-problem } counter name six
			}
		}`)
	}
	for _, addr := range routeAddresses {
		c, name := l.dial("tcp", addr)
		server := l.servers[name[0]-'0']
		quote := quoted(netip.MustParseAddrPort(addr), c.LocalAddr().(*net.TCPAddr).AddrPort())
		kinds, counter := []byte{3, 11, 12}, "four"
		if addr[0] == '[' {
			kinds, counter = []byte{1, 2, 3, 4}, "six"
		}
		for i, kind := range kinds {
			l.icmp(netip.MustParseAddrPort(addr).Addr(), kind, quote)
			end := time.Now().Add(waitTime)
			for l.counter(server, counter) != i+1 {
				if time.Now().After(end) {
					t.Fatalf("%s: type %d did not reach server %s", addr, kind, name)
				}
				time.Sleep(time.Millisecond)
			}
		}
		// Others are the host's.
		before := l.counter(server, counter)
		l.icmp(netip.MustParseAddrPort(addr).Addr(), kinds[0], quoted(netip.MustParseAddrPort(addr), netip.MustParseAddrPort(addr)))
		if err := echo(c, waitTime); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
		if n := l.counter(server, counter); n != before {
			t.Errorf("%s: an error about no flow reached a server", addr)
		}
	}
}

// quoted is the beginning of a packet of TCP.
func quoted(from, to netip.AddrPort) []byte {
	var b []byte
	if from.Addr().Is4() {
		b = make([]byte, 20, 28)
		b[0], b[8], b[9] = 0x45, 64, unix.IPPROTO_TCP
		copy(b[12:], from.Addr().AsSlice())
		copy(b[16:], to.Addr().AsSlice())
	} else {
		b = make([]byte, 40, 48)
		b[0], b[6], b[7] = 0x60, unix.IPPROTO_TCP, 64
		copy(b[8:], from.Addr().AsSlice())
		copy(b[24:], to.Addr().AsSlice())
	}
	b = binary.BigEndian.AppendUint16(b, from.Port())
	b = binary.BigEndian.AppendUint16(b, to.Port())
	return append(b, 0, 0, 0, 1)
}

// icmp sends an ICMP message from the client.
func (l *lab) icmp(to netip.Addr, kind byte, body []byte) {
	l.t.Helper()
	family, proto := unix.AF_INET, unix.IPPROTO_ICMP
	if to.Is6() {
		family, proto = unix.AF_INET6, unix.IPPROTO_ICMPV6
	}
	b := append([]byte{kind, 0, 0, 0, 0, 0, 5, 220}, body...)
	if to.Is4() {
		var sum uint32
		for i := 0; i < len(b); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
		sum = sum>>16 + sum&0xffff
		binary.BigEndian.PutUint16(b[2:], ^uint16(sum+sum>>16))
	}
	err := l.client.Do(func() error {
		fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		var sa unix.Sockaddr
		if to.Is4() {
			sa = &unix.SockaddrInet4{Addr: to.As4()}
		} else {
			sa = &unix.SockaddrInet6{Addr: to.As16()}
		}
		return unix.Sendto(fd, b, 0, sa)
	})
	if err != nil {
		l.t.Fatal(err)
	}
}
