package packet

import (
	"encoding/binary"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/lbd-project/lbd/internal/flow"
)

// Extension headers that have a next header (RFC 8200, section 4, and the
// registry of IANA), and the end of the chain. ESP has none that can be read.
const (
	nextHopByHop    = uint8(layers.IPProtocolIPv6HopByHop)
	nextRouting     = uint8(layers.IPProtocolIPv6Routing)
	nextFragment    = uint8(layers.IPProtocolIPv6Fragment)
	nextAH          = uint8(layers.IPProtocolAH)
	nextNone        = uint8(layers.IPProtocolNoNextHeader)
	nextDestination = uint8(layers.IPProtocolIPv6Destination)
	nextMobility    = 135
	nextHIP         = 139
	nextShim6       = 140
)

// minExtension is the length of the shortest extension header, and the unit in
// which all but AH count theirs.
const minExtension = 8

func (p *Parser) parse6(b []byte, in *Info) error {
	if len(b) < fixed6 {
		return errShort6
	}
	head := p.head[:fixed6]
	copy(head, b)
	// gopacket would decode hop-by-hop options, and refuse a payload of length 0.
	next, length := head[6], int(binary.BigEndian.Uint16(head[4:]))
	head[5], head[6] = 1, nextNone
	if err := p.ip6.DecodeFromBytes(head, gopacket.NilDecodeFeedback); err != nil {
		return err
	}
	in.Tuple = flow.New6(next, [16]byte(p.ip6.SrcIP), [16]byte(p.ip6.DstIP), 0, 0)

	// The payload's length is 0 in a jumbogram (RFC 2675, also BIG TCP), and then
	// the packet's end is the only bound there is.
	if length == 0 {
		length = maxLength
	}
	b = b[fixed6:min(fixed6+length, len(b))]
	for {
		n, err := p.extension(in, b)
		switch {
		case err != nil:
			return err
		case n == 0:
			return p.transport(in, b, length)
		}
		b, length = b[n:], length-n
	}
}

// extension reads the extension header of type in.Protocol at the start of b and
// replaces in.Protocol by the next one's. It returns the header's length, which
// is 8 at least, so a chain ends where its packet does; or 0 where b begins with
// no extension header, or nothing behind it is readable.
func (p *Parser) extension(in *Info, b []byte) (int, error) {
	switch in.Protocol {
	case nextHopByHop, nextRouting, nextFragment, nextDestination, nextAH,
		nextMobility, nextHIP, nextShim6:
	default:
		return 0, nil
	}
	if in.Fragment {
		// What the fragment header names is in the first fragment.
		return 0, nil
	}
	if len(b) < minExtension {
		return 0, errExtension
	}
	n := minExtension + int(b[1])*minExtension
	switch in.Protocol {
	case nextFragment:
		// The second octet is reserved; the offset has the upper 13 bits.
		n = minExtension
		in.Fragment = binary.BigEndian.Uint16(b[2:])&^7 != 0
	case nextAH:
		n = (int(b[1]) + 2) * 4 // RFC 4302, section 2.2
	}
	n = max(n, minExtension)
	if n > len(b) {
		return 0, errExtension
	}
	in.Protocol = b[0]
	return n, nil
}
