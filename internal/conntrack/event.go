package conntrack

import (
	"fmt"
	"time"

	"github.com/lbd-project/lbd/internal/flow"
)

// Kind says what happened to a flow.
type Kind uint8

// The kinds. An entry of a dump is New.
const (
	New     Kind = iota + 1 // IPCTNL_MSG_CT_NEW with NLM_F_CREATE
	Update                  // IPCTNL_MSG_CT_NEW without
	Destroy                 // IPCTNL_MSG_CT_DELETE
)

// String names the kind: "new", "update" or "destroy".
func (k Kind) String() string {
	switch k {
	case New:
		return "new"
	case Update:
		return "update"
	case Destroy:
		return "destroy"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Event is a flow as the kernel tells of it. Handlers must not keep a pointer to
// one: it is written again for the next.
type Event struct {
	Kind Kind
	// Orig is the tuple of the first packet, before any translation; Reply that
	// of the answers as they come from the real server.
	Orig, Reply flow.Tuple
	// ID tells entries with the same tuples apart (CTA_ID); zero if absent.
	ID uint32
	// Mark is the connection's mark (CTA_MARK); zero if absent.
	Mark uint32
	// Status are the IPS_* bits of
	// include/uapi/linux/netfilter/nf_conntrack_common.h (CTA_STATUS).
	Status uint32
	// TCPState is enum tcp_conntrack of
	// include/uapi/linux/netfilter/nf_conntrack_tcp.h, SCTPState enum
	// sctp_conntrack; zero if absent.
	TCPState, SCTPState uint8
	// ClientCloses and ServerCloses say which end of a TCP connection sent the
	// first FIN (IP_CT_TCP_FLAG_CLOSE_INIT). Destroy does not tell.
	ClientCloses, ServerCloses bool
	// Timeout is what is left, whole seconds (CTA_TIMEOUT). In Destroy it is not
	// zero on newer kernels where the entry was deleted before its time.
	Timeout time.Duration
	// Start and Stop are nanoseconds of the wall clock (CTA_TIMESTAMP); zero
	// without net.netfilter.nf_conntrack_timestamp. Stop is when the flow's time
	// was over, which may be long before its Destroy.
	Start, Stop int64
	// At is when the kernel made the event, nanoseconds of the wall clock
	// (CTA_TIMESTAMP_EVENT, Linux 6.14); zero on older kernels and without
	// net.netfilter.nf_conntrack_timestamp.
	At int64
	// Counted says that the four counters were there, which needs
	// net.netfilter.nf_conntrack_acct when the flow began.
	Counted bool
	// PacketsOrig and BytesOrig went to the real server, PacketsReply and
	// BytesReply came back.
	PacketsOrig, BytesOrig, PacketsReply, BytesReply uint64
}

// The status bits that callers look at.
const (
	StatusSeenReply = 1 << 1 // IPS_SEEN_REPLY
	StatusAssured   = 1 << 2 // IPS_ASSURED
	StatusConfirmed = 1 << 3 // IPS_CONFIRMED
	StatusDstNAT    = 1 << 5 // IPS_DST_NAT
)
