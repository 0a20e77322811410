package config

// The sysctls that Parse sets unless the file does.
const (
	// sysctlExpireNodest is set always: any real server may be deleted one day,
	// the last one of a file too.
	sysctlExpireNodest = "expire_nodest_conn"
	// sysctlExpireTemplate is set where a service is persistent.
	sysctlExpireTemplate = "expire_quiescent_template"
)

// userspaceSysctls are those that the userspace engine has, too. They are its
// own: nothing in the kernel reads them there.
var userspaceSysctls = []string{"conn_reuse_mode", sysctlExpireNodest, sysctlExpireTemplate}

// sysctlObject lists the integer settings under /proc/sys/net/ipv4/vs with the
// ranges of vs_vars in net/netfilter/ipvs/ip_vs_ctl.c, by their last word.
var sysctlObject = newObject("sysctls", []key{
	sysctl("am_droprate", 1, maxThreshold),
	sysctl("amemthresh", 0, maxThreshold),
	sysctl("backup_only", 0, 1),
	sysctl("cache_bypass", 0, 1),
	sysctl("conn_reuse_mode", 0, 3),
	sysctl("conntrack", 0, 1),
	sysctl("drop_entry", 0, 3),
	sysctl("drop_packet", 0, 3),
	sysctl("est_nice", -20, 19),
	{name: sysctlExpireNodest, kind: kindInt, def: "1", max: 1,
		doc: "With 1 the connections of a real server that was deleted, at the end of its drain, by on_failure, ipvsctl disable or maint of an agent, end with their client's next packets: TCP is reset, UDP goes to another real server. With 0 such clients meet silence until the kernel forgets the connection, for up to 15 minutes. " +
			"The price of 1: after somebody's stray ipvsadm -C, connections that carry packets before the repair are reset; with 0 they stall and go on. It is one setting for all virtual services of the network namespace, foreign ones included. Where /proc/sys is read-only, as in many containers, set it to 1 outside, or to 0 here."},
	{name: sysctlExpireTemplate, kind: kindInt, max: 1, off: true,
		doc: "What persistent clients do whose real server has weight 0, be it drained, failed, or so in the file. With 1, which lbd sets where a virtual service is persistent, their new connections go to another real server, so that a drain ends. With 0 they come back until their persistence is over: a drain keeps them, and can last as long as they come; failed real servers are removed with on_failure: auto. It is one setting for all virtual services of the network namespace."},
	sysctl("ignore_tunneled", 0, 1),
	sysctl("nat_icmp_send", 0, 1),
	sysctl("pmtu_disc", 0, 1),
	sysctl("run_estimation", 0, 1),
	sysctl("schedule_icmp", 0, 1),
	sysctl("secure_tcp", 0, 3),
	sysctl("sloppy_sctp", 0, 1),
	sysctl("sloppy_tcp", 0, 1),
	sysctl("snat_reroute", 0, 1),
	sysctl("sync_persist_mode", 0, 1),
	sysctl("sync_ports", 1, 64),
	sysctl("sync_qlen_max", 0, maxThreshold),
	sysctl("sync_refresh_period", 0, maxThreshold),
	sysctl("sync_retries", 0, 3),
	sysctl("sync_sock_size", 0, maxThreshold),
	sysctl("sync_version", 0, 1),
}, notYet("sync_threshold", "est_cpulist"))

func sysctl(name string, lo, hi int64) key {
	return key{name: name, kind: kindInt, min: lo, max: hi, off: true}
}
