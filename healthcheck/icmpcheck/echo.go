package icmpcheck

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

const (
	headerLen = 8 // of an echo message: type, code, checksum, id, sequence
	nonceLen  = 8 // the payload's random begin
)

// family is what differs between ICMP and ICMPv6.
type family struct {
	proto          int // the protocol's number
	request, reply icmp.Type
}

// The numbers of the protocols are those of IANA.
var (
	family4 = family{1, ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply}
	family6 = family{58, ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply}
)

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return family4
	}
	return family6
}

// echo is a request with all that its reply repeats.
type echo struct {
	family
	icmp.Echo
}

// newEcho returns a request with a payload of size bytes, whose first eight and
// sequence number nobody can guess, and with a random id.
func newEcho(f family, size int) echo {
	e := echo{family: f, Echo: icmp.Echo{Data: make([]byte, size)}}
	// The rest is a pattern in which what a link does to packets shows.
	for i := range e.Data {
		e.Data[i] = byte(i)
	}
	rand.Read(e.Data[:nonceLen]) // never fails, by its contract
	var ids [4]byte
	rand.Read(ids[:])
	e.ID = int(binary.BigEndian.Uint16(ids[:2]))
	e.Seq = int(binary.BigEndian.Uint16(ids[2:]))
	return e
}

// marshal returns the request. The checksum of ICMPv6 is the kernel's work.
func (e echo) marshal() ([]byte, error) {
	m := icmp.Message{Type: e.request, Body: &e.Echo}
	return m.Marshal(nil)
}

// answeredBy reports whether an ICMP message is the reply to e.
func (e echo) answeredBy(msg []byte) bool {
	m, err := icmp.ParseMessage(e.proto, msg)
	if err != nil || m.Type != e.reply || m.Code != 0 {
		return false
	}
	body, ok := m.Body.(*icmp.Echo)
	return ok && body.ID == e.ID && body.Seq == e.Seq && bytes.Equal(body.Data, e.Data)
}

// quotedBy reports whether the begin of an ICMP message, which is what errors
// quote, is that of e. Routers quote eight bytes at least, and may have something
// else behind what they quote (RFC 4884).
func (e echo) quotedBy(quote []byte) bool {
	if len(quote) < headerLen {
		return false
	}
	quote = quote[:min(len(quote), headerLen+nonceLen)]
	m, err := icmp.ParseMessage(e.proto, quote)
	if err != nil || m.Type != e.request || m.Code != 0 {
		return false
	}
	body, ok := m.Body.(*icmp.Echo)
	return ok && body.ID == e.ID && body.Seq == e.Seq && bytes.HasPrefix(e.Data, body.Data)
}

// payload4 returns what an IPv4 packet carries.
func payload4(packet []byte) ([]byte, error) {
	if len(packet) < ipv4.HeaderLen || packet[0]>>4 != ipv4.Version {
		return nil, errors.New("no IPv4 packet")
	}
	n := int(packet[0]&15) * 4
	if n < ipv4.HeaderLen || n > len(packet) {
		return nil, errors.New("bad length of the IPv4 header")
	}
	return packet[n:], nil
}
