package conntrack

// Numbers from include/uapi/linux/netlink.h, netfilter/nfnetlink.h,
// netfilter/nfnetlink_conntrack.h and netfilter/nfnetlink_compat.h.
const (
	nlmsgHeaderLen = 16 // NLMSG_HDRLEN
	nfgenmsgLen    = 4  // sizeof(struct nfgenmsg)
	attrHeaderLen  = 4  // NLA_HDRLEN
	attrTypeMask   = 0x3fff
	attrNested     = 0x8000 // NLA_F_NESTED

	nlmsgNoop    = 1 // NLMSG_NOOP
	nlmsgError   = 2 // NLMSG_ERROR
	nlmsgDone    = 3 // NLMSG_DONE
	nlmsgOverrun = 4 // NLMSG_OVERRUN

	flagRequest  = 0x1   // NLM_F_REQUEST
	flagAck      = 0x4   // NLM_F_ACK
	flagDumpIntr = 0x10  // NLM_F_DUMP_INTR
	flagDump     = 0x300 // NLM_F_DUMP
	flagCreate   = 0x400 // NLM_F_CREATE

	subsysConntrack = 1 << 8 // NFNL_SUBSYS_CTNETLINK, in the type's high byte

	msgNew         = subsysConntrack     // IPCTNL_MSG_CT_NEW, 0
	msgGet         = subsysConntrack | 1 // IPCTNL_MSG_CT_GET
	msgDelete      = subsysConntrack | 2 // IPCTNL_MSG_CT_DELETE
	msgGetStatsCPU = subsysConntrack | 4 // IPCTNL_MSG_CT_GET_STATS_CPU
	msgGetStats    = subsysConntrack | 5 // IPCTNL_MSG_CT_GET_STATS

	familyUnspec = 0  // AF_UNSPEC
	familyIPv4   = 2  // AF_INET
	familyIPv6   = 10 // AF_INET6
)

// Multicast groups, NFNLGRP_*.
const (
	groupNew     = 1 // NFNLGRP_CONNTRACK_NEW
	groupUpdate  = 2 // NFNLGRP_CONNTRACK_UPDATE
	groupDestroy = 3 // NFNLGRP_CONNTRACK_DESTROY
)

// Attributes of an entry, CTA_*.
const (
	attrTupleOrig      = 1  // CTA_TUPLE_ORIG
	attrTupleReply     = 2  // CTA_TUPLE_REPLY
	attrStatus         = 3  // CTA_STATUS
	attrProtoinfo      = 4  // CTA_PROTOINFO
	attrTimeout        = 7  // CTA_TIMEOUT
	attrMark           = 8  // CTA_MARK
	attrCountersOrig   = 9  // CTA_COUNTERS_ORIG
	attrCountersReply  = 10 // CTA_COUNTERS_REPLY
	attrID             = 12 // CTA_ID
	attrZone           = 18 // CTA_ZONE
	attrTimestamp      = 20 // CTA_TIMESTAMP
	attrMarkMask       = 21 // CTA_MARK_MASK
	attrStatusMask     = 26 // CTA_STATUS_MASK, Linux 5.15
	attrTimestampEvent = 27 // CTA_TIMESTAMP_EVENT, Linux 6.14
)

// Attributes within those.
const (
	attrTupleIP    = 1 // CTA_TUPLE_IP
	attrTupleProto = 2 // CTA_TUPLE_PROTO
	attrTupleZone  = 3 // CTA_TUPLE_ZONE

	attrIPv4Src = 1 // CTA_IP_V4_SRC
	attrIPv4Dst = 2 // CTA_IP_V4_DST
	attrIPv6Src = 3 // CTA_IP_V6_SRC
	attrIPv6Dst = 4 // CTA_IP_V6_DST

	attrProtoNum     = 1 // CTA_PROTO_NUM
	attrProtoSrcPort = 2 // CTA_PROTO_SRC_PORT
	attrProtoDstPort = 3 // CTA_PROTO_DST_PORT

	attrProtoinfoTCP  = 1 // CTA_PROTOINFO_TCP
	attrProtoinfoSCTP = 3 // CTA_PROTOINFO_SCTP
	attrState         = 1 // CTA_PROTOINFO_TCP_STATE, CTA_PROTOINFO_SCTP_STATE
	attrTCPFlagsOrig  = 4 // CTA_PROTOINFO_TCP_FLAGS_ORIGINAL
	attrTCPFlagsReply = 5 // CTA_PROTOINFO_TCP_FLAGS_REPLY

	attrPackets = 1 // CTA_COUNTERS_PACKETS
	attrBytes   = 2 // CTA_COUNTERS_BYTES

	attrStart = 1 // CTA_TIMESTAMP_START
	attrStop  = 2 // CTA_TIMESTAMP_STOP
)

// Statistics of a processor, CTA_STATS_*, and of the table, CTA_STATS_GLOBAL_*.
const (
	attrStatsFound         = 2  // CTA_STATS_FOUND
	attrStatsInvalid       = 4  // CTA_STATS_INVALID
	attrStatsInsertFailed  = 9  // CTA_STATS_INSERT_FAILED
	attrStatsDrop          = 10 // CTA_STATS_DROP
	attrStatsEarlyDrop     = 11 // CTA_STATS_EARLY_DROP
	attrStatsError         = 12 // CTA_STATS_ERROR
	attrStatsSearchRestart = 13 // CTA_STATS_SEARCH_RESTART
	attrStatsClashResolve  = 14 // CTA_STATS_CLASH_RESOLVE, Linux 5.9
	attrStatsChainTooLong  = 15 // CTA_STATS_CHAIN_TOOLONG, Linux 5.15

	attrGlobalEntries    = 1 // CTA_STATS_GLOBAL_ENTRIES
	attrGlobalMaxEntries = 2 // CTA_STATS_GLOBAL_MAX_ENTRIES, Linux 4.18
)

const (
	protoTCP  = 6   // IPPROTO_TCP
	protoUDP  = 17  // IPPROTO_UDP
	protoSCTP = 132 // IPPROTO_SCTP
)

// align rounds a length up to the 4 bytes of NLMSG_ALIGN and NLA_ALIGN.
func align(n int) int { return (n + 3) &^ 3 }
