package packet

import (
	"encoding/binary"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

const (
	chunkHeader = 4  // type, flags, length
	chunkInit   = 20 // an INIT without parameters (RFC 9260, 3.3.2)
)

// parseSCTP reads the common header and, of an INIT, the initiate tag. An INIT
// is the only chunk of its packet (RFC 9260, section 6.10), so the first tells.
func (p *Parser) parseSCTP(in *Info, b []byte) error {
	if len(b) < fixedSCTP {
		return errShortSCTP
	}
	head := p.head[:fixedSCTP]
	copy(head, b)
	if err := p.sctp.DecodeFromBytes(head, gopacket.NilDecodeFeedback); err != nil {
		return err
	}
	in.SrcPort, in.DstPort = uint16(p.sctp.SrcPort), uint16(p.sctp.DstPort)
	chunk := b[fixedSCTP:]
	if len(chunk) < chunkHeader {
		return errShortChunk
	}
	if layers.SCTPChunkType(chunk[0]) != layers.SCTPChunkTypeInit {
		return nil
	}
	if binary.BigEndian.Uint16(chunk[2:]) < chunkInit {
		return errChunkInvalid
	}
	if len(chunk) < chunkHeader+4 {
		return errShortChunk
	}
	in.Init = true
	in.Seq = binary.BigEndian.Uint32(chunk[chunkHeader:])
	return nil
}
