package ruleset

import (
	"encoding/hex"
	"strings"

	"github.com/google/nftables/expr"
)

// plainOptions are the TCP options of first packets as systems send them, in hex; a
// point is any digit. Linux drops a packet without a word whose options are malformed,
// or those of signed connections where nobody asked for them (tcp_inbound_hash in
// include/net/tcp.h), and resets one that joins a Multipath TCP connection that there
// is none of (subflow_check_req in net/mptcp/subflow.c). Rules cannot read the list of
// options, so all lists but these may be such.
var plainOptions = []string{
	"",
	"0204....", // the segment size alone, as small systems
	// Linux, Android, as tcp_timestamps, tcp_sack and tcp_window_scaling say.
	"0204....0402080a................010303..",
	"0204....01010402010303..",
	"0204....0101080a................010303..",
	"0204....0402080a................",
	"0204....010303..",
	"0204....01010402",
	"0204....0101080a................",
	"0204....010303..01010402",                         // Windows
	"0204....010303..0402080a................",         // FreeBSD
	"0204....010303..0101080a................04020000", // macOS, iOS
}

// tcpHeader is the length of a TCP header without options, offTCPLength where its
// length is, in words, the upper four bits.
const (
	tcpHeader    = 20
	offTCPLength = 12
)

// hasOptions holds for a TCP segment with a list of plainOptions.
func hasOptions(list string) exprs {
	words := byte((tcpHeader + len(list)/2) / 4)
	r := exprs{
		transport(reg1, offTCPLength, 1),
		&expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: 1, Mask: []byte{0xf0}, Xor: []byte{0}},
		holds(expr.CmpOpEq, reg1, []byte{words << 4}),
	}
	for at := 0; at < len(list); {
		n := strings.IndexByte(list[at:], '.')
		if n < 0 {
			n = len(list) - at
		}
		if value, err := hex.DecodeString(list[at : at+n]); err != nil {
			panic(err) // a list of this file
		} else if n > 0 {
			r = append(r, transport(reg1, uint32(tcpHeader+at/2), uint32(n/2)), holds(expr.CmpOpEq, reg1, value))
		}
		for at += n; at < len(list) && list[at] == '.'; at++ {
		}
	}
	return r
}
