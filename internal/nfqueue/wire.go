package nfqueue

// From include/uapi/linux/netlink.h and netfilter/nfnetlink.h. Headers are in the
// host's byte order; what nfnetlink adds is in network order.
const (
	headerLen   = 16 // struct nlmsghdr: length, type, flags, sequence, port
	nfHeaderLen = 4  // struct nfgenmsg: family, version, resource id
	attrLen     = 4  // struct nlattr: length, type

	typeError = 2 // NLMSG_ERROR

	flagRequest = 0x1 // NLM_F_REQUEST
	flagAck     = 0x4 // NLM_F_ACK

	attrTypeMask = 0x3fff // NLA_TYPE_MASK: without "nested" and "network order"
)

// From include/uapi/linux/netfilter/nfnetlink_queue.h. Message types carry the
// subsystem in the upper byte.
const (
	subsystem   = 3 << 8        // NFNL_SUBSYS_QUEUE
	typePacket  = subsystem     // NFQNL_MSG_PACKET
	typeVerdict = subsystem | 1 // NFQNL_MSG_VERDICT
	typeConfig  = subsystem | 2 // NFQNL_MSG_CONFIG

	attrPacketHeader  = 1  // NFQA_PACKET_HDR
	attrVerdictHeader = 2  // NFQA_VERDICT_HDR
	attrMark          = 3  // NFQA_MARK
	attrPayload       = 10 // NFQA_PAYLOAD
	attrCapLen        = 13 // NFQA_CAP_LEN

	packetHeaderLen = 7 // struct nfqnl_msg_packet_hdr, packed: id, protocol, hook

	attrConfigCommand = 1 // NFQA_CFG_CMD
	attrConfigParams  = 2 // NFQA_CFG_PARAMS
	attrConfigMaxLen  = 3 // NFQA_CFG_QUEUE_MAXLEN
	attrConfigMask    = 4 // NFQA_CFG_MASK
	attrConfigFlags   = 5 // NFQA_CFG_FLAGS

	commandBind   = 1 // NFQNL_CFG_CMD_BIND
	commandUnbind = 2 // NFQNL_CFG_CMD_UNBIND
	copyPacket    = 2 // NFQNL_COPY_PACKET

	configFailOpen = 1 << 0 // NFQA_CFG_F_FAIL_OPEN
	configGSO      = 1 << 2 // NFQA_CFG_F_GSO
)

// From include/uapi/linux/netfilter.h.
const (
	verdictDrop   = 0 // NF_DROP
	verdictAccept = 1 // NF_ACCEPT
)

// align rounds a length up to netlink's alignment.
func align(n int) int { return (n + 3) &^ 3 }
