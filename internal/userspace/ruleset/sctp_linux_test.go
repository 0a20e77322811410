package ruleset

import (
	"encoding/binary"
	"hash/crc32"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/ipvs"
)

// sctp is where this host, which need not have SCTP, sends it from.
type sctp struct {
	t  *testing.T
	fd int
}

func openSCTP(t *testing.T, ns *netnstest.NS) sctp {
	t.Helper()
	fd := -1
	err := ns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return sctp{t, fd}
}

// send sends a packet with one chunk.
func (s sctp) send(from uint16, to netip.AddrPort, tag uint32, chunk []byte) {
	s.t.Helper()
	b := binary.BigEndian.AppendUint16(nil, from)
	b = binary.BigEndian.AppendUint16(b, to.Port())
	b = binary.BigEndian.AppendUint32(b, tag)
	b = append(b, 0, 0, 0, 0)
	b = append(b, chunk...)
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	if err := unix.Sendto(s.fd, b, 0, &unix.SockaddrInet4{Addr: to.Addr().As4()}); err != nil {
		s.t.Fatal(err)
	}
}

// initiate is the chunk INIT, or INIT ACK, with a tag for the answers.
func initiate(kind, tag byte) []byte {
	return []byte{kind, 0, 0, 20, 0, 0, 0, tag, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1}
}

// Kinds of chunks: RFC 9260, section 3.2.
const (
	chunkInitAck    = 2
	chunkHeartbeat  = 4
	chunkCookieEcho = 10
	chunkCookieAck  = 11
)

// sctpService is bothVersions with SCTP in the place of TCP and IPv4.
func sctpService() Spec {
	s := bothVersions()
	s.Services[0].Key.Protocol = ipvs.SCTP
	return s
}

// TestNetnsSCTP queues an INIT, and no other chunk that connection tracking takes
// for a beginning.
func TestNetnsSCTP(t *testing.T) {
	eachWay(t, Options{}, sctpService(), func(t *testing.T, l *lab) {
		client := openSCTP(t, l.client)
		send := func(port uint16, tag uint32, chunk []byte) conntrack.Event {
			t.Helper()
			client.send(port, netip.MustParseAddrPort("192.0.2.1:80"), tag, chunk)
			return l.flowOf(&net.TCPAddr{IP: net.IPv4(198, 51, 100, 2), Port: int(port)}, every)
		}
		if e := send(1001, 0, initiate(sctpInit, 9)); e.Mark&DefaultMask == 0 || e.Reply.SrcPort != 8080 {
			t.Errorf("INIT: %+v", e)
		}
		if e := send(1002, 7, []byte{chunkHeartbeat, 0, 0, 12, 0, 1, 0, 8, 1, 2, 3, 4}); e.Mark != 0 || e.Reply.SrcPort != 80 {
			t.Errorf("HEARTBEAT: %+v", e)
		}
	})
}

// TestNetnsSCTPStates listens as the daemon does: each state of an association
// makes an event, with the state, also where the service wants signals, of which
// SCTP has none.
func TestNetnsSCTPStates(t *testing.T) {
	wanting := signalled(1)
	wanting.Services[0].Key.Protocol = ipvs.SCTP
	t.Run("plain", func(t *testing.T) { sctpStates(t, sctpService()) })
	t.Run("signals", func(t *testing.T) { sctpStates(t, wanting) })
}

func sctpStates(t *testing.T, s Spec) {
	eachWay(t, Options{}, s, func(t *testing.T, l *lab) {
		l.lb.SetSysctl("net.netfilter.nf_conntrack_events", "0")
		// Hosts that have SCTP would answer.
		for _, ns := range append([]*netnstest.NS{l.client}, l.servers...) {
			nft(t, l.rulesOf(ns), `table inet mute { chain in { type filter hook prerouting priority -300; meta l4proto sctp drop; }; }`)
		}
		ev, err := conntrack.OpenEvents(conntrack.EventConfig{NetNS: l.lb.FD(),
			Groups: conntrack.News | conntrack.Updates | conntrack.Destroys})
		if err != nil {
			t.Fatal(err)
		}
		defer ev.Close()
		// Kernels differ in whether an event without a change of state comes, too.
		var got []uint8
		await := func(want ...uint8) {
			t.Helper()
			for end := time.Now().Add(waitTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
				ev.Drain(func(e *conntrack.Event) {
					if e.Kind == conntrack.Update && e.Orig.Protocol == unix.IPPROTO_SCTP {
						got = slices.Compact(append(got, e.SCTPState))
					}
				})
				if slices.Equal(want, got) {
					return
				}
			}
			t.Fatalf("states: want %v, got %v", want, got)
		}
		vip, here := netip.MustParseAddrPort("192.0.2.1:80"), netip.MustParseAddrPort("198.51.100.2:1001")
		client := openSCTP(t, l.client)
		client.send(here.Port(), vip, 0, initiate(sctpInit, 9))
		e := l.flowOf(net.TCPAddrFromAddrPort(here), every)
		i := slices.IndexFunc(bothVersions().Servers, func(s Server) bool { return s.Mark == e.Mark&DefaultMask })
		if i < 0 {
			t.Fatalf("no real server has mark %#x", e.Mark)
		}
		server := openSCTP(t, l.servers[i])
		server.send(8080, here, 9, initiate(chunkInitAck, 7))
		client.send(here.Port(), vip, 7, []byte{chunkCookieEcho, 0, 0, 8, 1, 2, 3, 4})
		const wait, echoed, established = 2, 3, 4 // SCTP_CONNTRACK_COOKIE_WAIT, …
		await(wait, echoed)
		server.send(8080, here, 9, []byte{chunkCookieAck, 0, 0, 4})
		await(wait, echoed, established)
	})
}
