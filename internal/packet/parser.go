package packet

import (
	"encoding/binary"
	"errors"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/lbd-project/lbd/internal/flow"
)

// What is wrong with a packet. The values are fixed, so that hostile packets
// cost no allocation.
var (
	errEmpty        = errors.New("packet is empty")
	errVersion      = errors.New("packet is neither IPv4 nor IPv6")
	errShort4       = errors.New("packet ends within its IPv4 header")
	errHeaderLen4   = errors.New("IPv4 header length below 20")
	errTotalLen4    = errors.New("IPv4 total length below its header length")
	errShort6       = errors.New("packet ends within its IPv6 header")
	errExtension    = errors.New("packet ends within an IPv6 extension header")
	errShortTCP     = errors.New("packet ends within its TCP header")
	errOffsetTCP    = errors.New("TCP data offset below 20 or beyond the packet")
	errShortUDP     = errors.New("packet ends within its UDP header")
	errLengthUDP    = errors.New("UDP length below 8")
	errShortSCTP    = errors.New("packet ends within its SCTP header")
	errShortChunk   = errors.New("packet ends within its first SCTP chunk")
	errChunkInvalid = errors.New("SCTP chunk length too small")
)

// Protocol numbers that the parser acts on.
const (
	protocolTCP  = uint8(layers.IPProtocolTCP)
	protocolUDP  = uint8(layers.IPProtocolUDP)
	protocolSCTP = uint8(layers.IPProtocolSCTP)
)

// Lengths of the fixed part of headers.
const (
	fixed4    = 20
	fixed6    = 40
	fixedTCP  = 20
	fixedUDP  = 8
	fixedSCTP = 12
)

// Parser reads packets. It is not for concurrent use; the zero value is ready.
//
// gopacket decodes the fixed part of each header, from a copy that says that no
// more follows. What follows it (options, extension headers, chunks) is walked
// here: gopacket allocates for each IPv6 option, refuses packets for bad TCP
// options that every host takes, and indexes SCTP chunks unchecked. What it would
// refuse in a fixed part is refused before, since its errors are allocated.
type Parser struct {
	ip4  layers.IPv4
	ip6  layers.IPv6
	tcp  layers.TCP
	udp  layers.UDP
	sctp layers.SCTP
	head [fixed6]byte
}

// Parse reads the packet b, which begins with its network header and may be cut
// at its end, as long as the cut is behind what Info tells. It sets all of in;
// after an error in has what was read before it. The packet's checksums are not
// looked at: the kernel did, or the device will.
func (p *Parser) Parse(b []byte, in *Info) error {
	*in = Info{}
	if len(b) == 0 {
		return errEmpty
	}
	switch b[0] >> 4 {
	case 4:
		return p.parse4(b, in)
	case 6:
		return p.parse6(b, in)
	}
	return errVersion
}

func (p *Parser) parse4(b []byte, in *Info) error {
	if len(b) < fixed4 {
		return errShort4
	}
	header := int(b[0]&0xf) * 4
	if header < fixed4 {
		return errHeaderLen4
	}
	// The total length is 0 in packets above 64 KiB that the kernel will cut
	// before they leave (BIG TCP).
	whole := int(binary.BigEndian.Uint16(b[2:]))
	if whole == 0 {
		whole = maxLength
	}
	if whole < fixed4 {
		return errTotalLen4
	}
	head := p.head[:fixed4]
	copy(head, b)
	head[0] = 4<<4 | fixed4/4
	if err := p.ip4.DecodeFromBytes(head, gopacket.NilDecodeFeedback); err != nil {
		return err
	}
	in.Fragment = p.ip4.FragOffset != 0
	in.Tuple = flow.New4(uint8(p.ip4.Protocol), [4]byte(p.ip4.SrcIP), [4]byte(p.ip4.DstIP), 0, 0)

	if whole < header {
		return errTotalLen4
	}
	if len(b) < header {
		return errShort4
	}
	// What lies behind the total length is the padding of a frame.
	return p.transport(in, b[header:min(whole, len(b))], whole-header)
}

// maxLength stands for the length of a packet that does not tell it.
const maxLength = 1 << 30

// transport reads the header behind the network headers. whole is how long all
// behind them is; b is cut.
func (p *Parser) transport(in *Info, b []byte, whole int) error {
	if in.Fragment {
		return nil
	}
	switch in.Protocol {
	case protocolTCP:
		return p.parseTCP(in, b, whole)
	case protocolUDP:
		return p.parseUDP(in, b)
	case protocolSCTP:
		return p.parseSCTP(in, b)
	}
	return nil
}

func (p *Parser) parseTCP(in *Info, b []byte, whole int) error {
	if len(b) < fixedTCP {
		return errShortTCP
	}
	if offset := int(b[12]>>4) * 4; offset < fixedTCP || offset > whole {
		return errOffsetTCP
	}
	head := p.head[:fixedTCP]
	copy(head, b)
	head[12] = fixedTCP / 4 << 4
	if err := p.tcp.DecodeFromBytes(head, gopacket.NilDecodeFeedback); err != nil {
		return err
	}
	in.SrcPort, in.DstPort = uint16(p.tcp.SrcPort), uint16(p.tcp.DstPort)
	in.SYN, in.ACK, in.FIN, in.RST = p.tcp.SYN, p.tcp.ACK, p.tcp.FIN, p.tcp.RST
	in.Seq = p.tcp.Seq
	return nil
}

func (p *Parser) parseUDP(in *Info, b []byte) error {
	if len(b) < fixedUDP {
		return errShortUDP
	}
	// 0 is for jumbograms (RFC 2675, section 4).
	if n := binary.BigEndian.Uint16(b[4:]); n != 0 && n < fixedUDP {
		return errLengthUDP
	}
	head := p.head[:fixedUDP]
	copy(head, b)
	if err := p.udp.DecodeFromBytes(head, gopacket.NilDecodeFeedback); err != nil {
		return err
	}
	in.SrcPort, in.DstPort = uint16(p.udp.SrcPort), uint16(p.udp.DstPort)
	return nil
}
