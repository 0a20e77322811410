package ipvs

// Numbers of the generic netlink interface, from include/uapi/linux/ip_vs.h,
// netlink.h and genetlink.h.
const (
	familyName    = "IPVS" // IPVS_GENL_NAME
	familyVersion = 1      // IPVS_GENL_VERSION

	nlmsgHeaderLen = 16 // NLMSG_HDRLEN
	genlHeaderLen  = 4  // GENL_HDRLEN
	attrHeaderLen  = 4  // NLA_HDRLEN
	attrTypeMask   = 0x3fff

	nlmsgNoop    = 1 // NLMSG_NOOP
	nlmsgError   = 2 // NLMSG_ERROR
	nlmsgDone    = 3 // NLMSG_DONE
	nlmsgOverrun = 4 // NLMSG_OVERRUN

	flagRequest  = 0x1   // NLM_F_REQUEST
	flagMulti    = 0x2   // NLM_F_MULTI
	flagAck      = 0x4   // NLM_F_ACK
	flagDumpIntr = 0x10  // NLM_F_DUMP_INTR
	flagCapped   = 0x100 // NLM_F_CAPPED
	flagAckTLVs  = 0x200 // NLM_F_ACK_TLVS
	flagDump     = 0x300 // NLM_F_DUMP

	errAttrMsg = 1 // NLMSGERR_ATTR_MSG
)

// Commands, IPVS_CMD_*.
const (
	cmdNewService = 1  // IPVS_CMD_NEW_SERVICE
	cmdSetService = 2  // IPVS_CMD_SET_SERVICE
	cmdDelService = 3  // IPVS_CMD_DEL_SERVICE
	cmdGetService = 4  // IPVS_CMD_GET_SERVICE
	cmdNewDest    = 5  // IPVS_CMD_NEW_DEST
	cmdSetDest    = 6  // IPVS_CMD_SET_DEST
	cmdDelDest    = 7  // IPVS_CMD_DEL_DEST
	cmdGetDest    = 8  // IPVS_CMD_GET_DEST
	cmdNewDaemon  = 9  // IPVS_CMD_NEW_DAEMON
	cmdDelDaemon  = 10 // IPVS_CMD_DEL_DAEMON
	cmdGetDaemon  = 11 // IPVS_CMD_GET_DAEMON
	cmdSetConfig  = 12 // IPVS_CMD_SET_CONFIG
	cmdGetConfig  = 13 // IPVS_CMD_GET_CONFIG
	cmdSetInfo    = 14 // IPVS_CMD_SET_INFO, only in replies
	cmdGetInfo    = 15 // IPVS_CMD_GET_INFO
	cmdZero       = 16 // IPVS_CMD_ZERO
	cmdFlush      = 17 // IPVS_CMD_FLUSH
)

// First-level attributes, IPVS_CMD_ATTR_*.
const (
	attrService       = 1 // IPVS_CMD_ATTR_SERVICE
	attrDest          = 2 // IPVS_CMD_ATTR_DEST
	attrDaemon        = 3 // IPVS_CMD_ATTR_DAEMON
	attrTimeoutTCP    = 4 // IPVS_CMD_ATTR_TIMEOUT_TCP
	attrTimeoutTCPFin = 5 // IPVS_CMD_ATTR_TIMEOUT_TCP_FIN
	attrTimeoutUDP    = 6 // IPVS_CMD_ATTR_TIMEOUT_UDP
)

// Attributes of a service, IPVS_SVC_ATTR_*.
const (
	svcAF        = 1  // IPVS_SVC_ATTR_AF
	svcProtocol  = 2  // IPVS_SVC_ATTR_PROTOCOL
	svcAddr      = 3  // IPVS_SVC_ATTR_ADDR
	svcPort      = 4  // IPVS_SVC_ATTR_PORT, network order
	svcFWMark    = 5  // IPVS_SVC_ATTR_FWMARK
	svcSchedName = 6  // IPVS_SVC_ATTR_SCHED_NAME
	svcFlags     = 7  // IPVS_SVC_ATTR_FLAGS, struct ip_vs_flags
	svcTimeout   = 8  // IPVS_SVC_ATTR_TIMEOUT, seconds
	svcNetmask   = 9  // IPVS_SVC_ATTR_NETMASK
	svcStats     = 10 // IPVS_SVC_ATTR_STATS
	svcPEName    = 11 // IPVS_SVC_ATTR_PE_NAME
	svcStats64   = 12 // IPVS_SVC_ATTR_STATS64
)

// Attributes of a real server, IPVS_DEST_ATTR_*.
const (
	destAddr         = 1  // IPVS_DEST_ATTR_ADDR
	destPort         = 2  // IPVS_DEST_ATTR_PORT, network order
	destFwdMethod    = 3  // IPVS_DEST_ATTR_FWD_METHOD
	destWeight       = 4  // IPVS_DEST_ATTR_WEIGHT
	destUThresh      = 5  // IPVS_DEST_ATTR_U_THRESH
	destLThresh      = 6  // IPVS_DEST_ATTR_L_THRESH
	destActiveConns  = 7  // IPVS_DEST_ATTR_ACTIVE_CONNS
	destInactConns   = 8  // IPVS_DEST_ATTR_INACT_CONNS
	destPersistConns = 9  // IPVS_DEST_ATTR_PERSIST_CONNS
	destStats        = 10 // IPVS_DEST_ATTR_STATS
	destAddrFamily   = 11 // IPVS_DEST_ATTR_ADDR_FAMILY, since Linux 3.18
	destStats64      = 12 // IPVS_DEST_ATTR_STATS64
	destTunType      = 13 // IPVS_DEST_ATTR_TUN_TYPE, since Linux 5.3
	destTunPort      = 14 // IPVS_DEST_ATTR_TUN_PORT, network order
	destTunFlags     = 15 // IPVS_DEST_ATTR_TUN_FLAGS
)

// Attributes of a sync daemon, IPVS_DAEMON_ATTR_*.
const (
	daemonState       = 1 // IPVS_DAEMON_ATTR_STATE
	daemonMcastIfn    = 2 // IPVS_DAEMON_ATTR_MCAST_IFN
	daemonSyncID      = 3 // IPVS_DAEMON_ATTR_SYNC_ID
	daemonSyncMaxLen  = 4 // IPVS_DAEMON_ATTR_SYNC_MAXLEN, since Linux 4.3 as the next
	daemonMcastGroup  = 5 // IPVS_DAEMON_ATTR_MCAST_GROUP
	daemonMcastGroup6 = 6 // IPVS_DAEMON_ATTR_MCAST_GROUP6
	daemonMcastPort   = 7 // IPVS_DAEMON_ATTR_MCAST_PORT, native order
	daemonMcastTTL    = 8 // IPVS_DAEMON_ATTR_MCAST_TTL
)

// Attributes of statistics, IPVS_STATS_ATTR_*, in the order of the fields of
// Stats: 1 to 5 count, 6 to 10 are rates.
const (
	statsConns    = 1  // IPVS_STATS_ATTR_CONNS
	statsOutBytes = 5  // IPVS_STATS_ATTR_OUTBYTES
	statsInBytes  = 4  // IPVS_STATS_ATTR_INBYTES
	statsOutBPS   = 10 // IPVS_STATS_ATTR_OUTBPS
	statsPad      = 11 // IPVS_STATS_ATTR_PAD
)

// Attributes of GET_INFO, IPVS_INFO_ATTR_*.
const (
	infoVersion     = 1 // IPVS_INFO_ATTR_VERSION
	infoConnTabSize = 2 // IPVS_INFO_ATTR_CONN_TAB_SIZE
)

// Bits of a service's flags and of a connection's flags.
const (
	serviceHashed = 0x2 // IP_VS_SVC_F_HASHED
	forwardMask   = 0x7 // IP_VS_CONN_F_FWD_MASK
)
