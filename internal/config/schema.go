package config

import (
	"math"
	"slices"

	"github.com/lbd-project/lbd/sched"
)

// keyKind is the type of a key's value.
type keyKind uint8

const (
	kindString keyKind = iota
	kindRaw            // a text, be it one that YAML takes for a number or a boolean
	kindInt
	kindBool
	kindDuration
	kindObject // a mapping with the keys of object
	kindMap    // a mapping from names to objects
	kindInts   // a mapping from the keys of object to integers
	kindList   // a sequence of objects
	kindWords  // a sequence of words of enum
	kindCheck  // a name, an object, or a sequence of both
	kindChecks // a sequence of names and objects
	kindMask   // an IPv4 address or an integer
	kindBits   // a mask of 32 bits, as a number or as text in hexadecimal
	kindArgs   // a sequence of texts: a program and its arguments
	kindTexts  // a sequence of texts, or one text
	kindTable  // a mapping from names to texts
	kindBytes  // a text, or an object that gives bytes in another way
	kindExpect // a mapping from names to texts, or to objects that say what a text must be like
	kindStatus // a number, a range, or a sequence of both
)

// object is a mapping with known keys.
type object struct {
	// what names it in messages: "a virtual service".
	what string
	keys []key
	// names are those of keys, by themselves to be searched fast.
	names []string
}

// key describes one key: it is what the parser, reference.yaml, schema.json and
// lbd.yaml(5) know of it.
type key struct {
	name string
	kind keyKind
	// def is the value of a key that is left out, as written in YAML; empty for
	// a key that then has no value or one that depends on others.
	def string
	// example is shown in reference.yaml where there is no def.
	example string
	// doc says what the key does, in sentences.
	doc string
	// enum are the allowed words.
	enum []string
	// others has words for the same elsewhere, with the allowed ones for them; lacks
	// those for what lbd has not, with what to do instead.
	others, lacks map[string]string
	// min and max bound a kindInt; a kindDuration in nanoseconds.
	min, max int64
	// types are the types of checks that have the key; nil for all.
	types []string
	// seconds allows whole seconds only.
	seconds bool
	// null allows an empty value, which takes a default away.
	null bool
	// required keys cannot be left out.
	required bool
	// off keeps the key commented out in reference.yaml, because others there
	// exclude it.
	off bool
	// unsupported keys are known and refused as not supported yet.
	unsupported bool
	object      *object
}

// find returns the index of a key. A scan beats a map: most lookups are of the
// first names.
func (o *object) find(name string) (int, bool) {
	i := slices.Index(o.names, name)
	return i, i >= 0
}

// maxKeys is the most that an object can have.
const maxKeys = 64

func newObject(what string, keys ...[]key) *object {
	o := &object{what: what, keys: slices.Concat(keys...)}
	for _, k := range o.keys {
		o.names = append(o.names, k.name)
	}
	return o
}

func notYet(names ...string) []key {
	keys := make([]key, len(names))
	for i, name := range names {
		keys[i] = key{name: name, unsupported: true}
	}
	return keys
}

const (
	millisecond = int64(1e6)
	second      = 1000 * millisecond
	hour        = 3600 * second
	// maxKernelTime is the longest time that the kernel takes: it keeps
	// 2^31/HZ seconds (ip_vs_set_timeout in net/netfilter/ipvs/ip_vs_ctl.c),
	// which at 1000 HZ is a little more than 24 days.
	maxKernelTime = 24 * 24 * hour
	// maxThreshold is the kernel's: it refuses 2^31 and more.
	maxThreshold = math.MaxInt32
)

// tunnelKeys are the keys of tunnel.
var tunnelObject = newObject("tunnel", []key{
	{name: "type", kind: kindString, def: "ipip", enum: []string{"ipip", "gre", "gue"},
		doc: "Encapsulation: ipip, gre (Linux 5.4) or gue (Linux 5.3)."},
	{name: "port", kind: kindInt, def: "0", max: 65535,
		doc: "UDP port of the real server's gue tunnel; 0 for the others."},
	{name: "checksum", kind: kindString, def: "none", enum: []string{"none", "csum", "remcsum"},
		doc: "Checksum of the outer packet: none, csum (gre and gue) or remcsum (gue)."},
})

var persistenceObject = newObject("persistence", []key{
	{name: "timeout", kind: kindDuration, def: "5m", min: second, max: maxKernelTime, seconds: true,
		doc: "How long a client sticks to its real server after its last connection; whole seconds. However short it is, the client sticks while the kernel remembers one of its connections: with TCP two minutes after the end."},
	{name: "netmask", kind: kindMask, example: "255.255.255.255",
		doc: "Clients that are equal under the mask stick together: any IPv4 mask, or for IPv6 a prefix length of 1 to 128. Left out, each address is a client of its own."},
	{name: "engine", kind: kindString, def: `""`, enum: []string{"", "sip"},
		doc: "Persistence engine of the kernel: sip sticks by Call-ID and needs UDP."},
})

var quorumObject = newObject("quorum", []key{
	{name: "up", kind: kindInt, def: "1", min: 1, max: math.MaxUint32,
		doc: "Weight that makes the quorum: the sum of the weights, as the file and operators have them, of the real servers that are well and not drained. At most the sum of all weights in the file."},
	{name: "hysteresis", kind: kindInt, def: "0", max: math.MaxUint32,
		doc: "Keeps the quorum from changing with every real server: once lost it is gained at up + hysteresis, once held it is lost below up - hysteresis, and always at 0. With a hysteresis of up or more it is lost at 0 alone. The start goes by up."},
	{name: "on_up", kind: kindArgs, example: `[/usr/local/sbin/announce, "on"]`, off: true,
		doc: "Program with its arguments, no shell, that is run when the quorum is gained, and after each start of lbd once the checks have found it held. It gets LBD_SERVICE, LBD_KEY and LBD_QUORUM (held or lost) and has 30 seconds. One runs at a time, and none delays a change of weights: what has changed again before it is told is left out. One that fails is in the log and not tried again. status and doctor warn of a program that is missing, or that others than root can change."},
	{name: "on_down", kind: kindArgs, example: `[/usr/local/sbin/announce, "off"]`, off: true,
		doc: "The same for a quorum that is lost, or is found so after a start. It is not run when lbd stops, nor when the service leaves the file."},
})

var passiveObject = newObject("passive", []key{
	{name: "window", kind: kindDuration, def: "10s", min: 2 * second, max: 300 * second,
		doc: "Time in which failures count."},
	{name: "failures", kind: kindInt, def: "5", min: 1, max: 1_000_000,
		doc: "How many connections must have failed in it at least."},
	{name: "ratio", kind: kindInt, def: "50", min: 1, max: 100,
		doc: "Percentage of the real server's new connections that must have failed."},
	{name: "hold", kind: kindDuration, def: "30s", min: 5 * second, max: hour,
		doc: "For how long it then gets no connections. If it fails again before it has been back for twice as long, that doubles."},
	{name: "max_hold", kind: kindDuration, def: "5m", min: 5 * second, max: 24 * hour,
		doc: "The longest time that comes of doubling; hold where that is longer."},
	{name: "max_ejected", kind: kindInt, def: "50", min: 1, max: 100,
		doc: "Percentage of the real servers with connections that may be out at a time. If there are two one always may, and one always stays."},
})

// serverKeys are the keys of a real server that may have a default.
var serverKeys = []key{
	{name: "weight", kind: kindInt, def: "1", max: 65535,
		doc: "Share of new connections. 0 quiesces: no new connections, old ones live."},
	{name: "forwarding", kind: kindString, def: "masq", enum: []string{"masq", "route", "tunnel"},
		doc: "How packets reach the real server: masq (NAT), route (direct routing) or tunnel. With route and tunnel the kernel leaves the port alone. With masq, clients in a network of the real servers need real servers that answer by way of this host: set their net.ipv4.conf.*.accept_redirects and net.ipv6.conf.*.accept_redirects to 0, or an ICMP redirect of this host ends such connections."},
	{name: "tunnel", kind: kindObject, object: tunnelObject, off: true,
		doc: "The encapsulation of forwarding: tunnel."},
	{name: "upper_threshold", kind: kindInt, def: "0", max: maxThreshold,
		doc: "Connections at which the real server gets no new ones; 0 for no limit."},
	{name: "lower_threshold", kind: kindInt, def: "0", max: maxThreshold,
		doc: "Connections below which it gets new ones again; 0 for three quarters of upper_threshold. At most upper_threshold."},
	{name: "check", kind: kindCheck, null: true, object: checkObject, example: "tcp-ok",
		doc: "The name of a check, a check, or a list of both, which must all pass. Without one a real server counts as up; an empty value takes a default away."},
	{name: "agent", kind: kindObject, null: true, object: agentObject, off: true,
		doc: "An agent on the real server that says how it is, in the words of HAProxy's agent-check: up, down, fail, stopped, ready, drain, maint, a weight as 50% or weight:7; maxconn is ignored. Drain is weight 0, and maint takes the real server out of the table as ipvsctl disable does, which ends its open connections (see expire_nodest_conn). It takes the server out and changes its weight, and takes back what it did; it never lifts a failed check, and its own failure changes nothing."},
	{name: "on_failure", kind: kindString, def: "auto", enum: []string{"auto", "quiesce", "remove"},
		doc: "What happens to a failed real server: quiesce sets its weight to 0, so that its open connections may go on; remove deletes it, so that they end (see expire_nodest_conn): TCP is reset, UDP goes to another real server with the client's next datagram. auto chooses for each service, and ipvsctl explain says why. It removes with UDP, whose clients would keep a failed real server for as long as they go on sending; with sh, dh and mh without a fallback flag, which would refuse its clients; and with persistence where sysctls sets expire_quiescent_template to 0, which would bring them back. Else it quiesces: TCP and SCTP connections that a failed real server does not end itself last until the client gives up, and new ones go elsewhere, those of persistent clients, too. So it does with an fwmark: give remove where that is on UDP."},
	{name: "drain_timeout", kind: kindDuration, def: "5m", max: maxKernelTime,
		doc: "How long a real server that left the file keeps its connections at weight 0 before it is deleted; 0s deletes at once. It is deleted earlier once none is active; with UDP and an fwmark once all were quiet for their time-out."},
}

// serviceKeys are the keys of a virtual service that may have a default and
// that its real servers do not have.
var serviceKeys = []key{
	{name: "protocol", kind: kindString, def: "tcp", enum: []string{"tcp", "udp", "sctp"},
		doc: "Protocol; not with fwmark."},
	{name: "scheduler", kind: kindString, def: "wlc", example: "wlc",
		doc: "How a real server is chosen. Both engines have " + and(kernelSchedulers) + "; the kernel may have others, and the userspace engine has " + and(userspaceSchedulers) + ". To change it leaves the service without a scheduler in the kernel for an instant, some tens of milliseconds, in which new connections are refused."},
	{name: "ties", kind: kindString, def: sched.TiesFirst.String(), enum: []string{sched.TiesFirst.String(), sched.TiesRoundRobin.String(), sched.TiesRandom.String()},
		doc: "Which of several real servers that are equal gets a connection: the first, as in the kernel, each in turn, or one at random. Only the userspace engine has a choice, with the schedulers " + and(tieSchedulers) + "."},
	{name: "scheduler_flags", kind: kindWords, enum: []string{"sh-port", "sh-fallback", "mh-port", "mh-fallback"},
		doc: "Flags of sh and mh: hash the client's port too; take another real server where the chosen one has weight 0."},
	{name: "persistence", kind: kindObject, null: true, object: persistenceObject, off: true,
		doc: "Sends a client to the real server that it had before. Left out or empty, the service is not persistent."},
	{name: "one_packet", kind: kindBool, def: "false",
		doc: "Schedules each datagram by itself; only with UDP or fwmark. Connections are not counted then, so the schedulers that go by them are refused: lc, wlc, sed, nq, wlc-fair, p2c, least-time and least-active. With masq replies are not translated back."},
	{name: "slow_start", kind: kindDuration, def: "0s", max: hour,
		doc: "How long a real server that failed or was disabled takes to its full share when it is back; 0s for none. Its weight grows in a straight line, in steps of a hundredth but at least a second; never from 0, not at the first start of lbd, and not while no other real server takes connections. As long as it is set all weights of the service are multiplied by one number, 100 unless that made one greater than 65535, so that a weight of 1 can grow, too. Only with the schedulers " + and(slowStartSchedulers) + "; as a default it is for the services with one of these, and a warning names the others."},
	{name: "fail_open_below", kind: kindInt, def: "0", max: 100,
		doc: "Percentage of the weight, as for quorum, without that of drained and disabled real servers, that has to be well: below it health is ignored, and failed real servers get connections as if they were well. 0 is never. Backup servers that can take connections come first."},
	{name: "quorum", kind: kindObject, object: quorumObject,
		doc: "When enough real servers are well, and what to run when that changes."},
	{name: "passive", kind: kindObject, null: true, object: passiveObject, off: true,
		doc: "Takes a real server out for a time when connections of clients fail to reach it, whatever its checks say: the first packet of a TCP connection is not answered within 3 seconds, or by a reset or an ICMP error; of UDP ICMP errors of the real server itself alone count. What clients do later does not count, nor do connections that begin with Multipath TCP, Fast Open or other TCP options than systems send by themselves, nor with IP options or few hops left, and nothing is done unless another real server of the service is reached, nor while health is ignored. It is treated as on_failure says, comes back by itself, with the slow start if there is one, and at a restart of lbd; a reload changes nothing. {} is on with the values below; left out or empty, the service has none. Only with the userspace engine and forwarding: masq, not with sctp, one_packet or port 0; with fwmark mark only what the real servers listen for, since what they refuse counts. As a default it is for the services that can have it, and a warning names the others."},
}

var serverObject = newObject("a real server", []key{
	{name: "address", kind: kindString, required: true, example: "10.0.0.2:80",
		doc: `Address with the port: "10.0.0.2:80", "[2001:db8::2]:80". The port defaults to the service's. Host names are refused. A family other than the service's needs forwarding: tunnel.`},
}, serverKeys, notYet("name", "fall_back"))

var serviceObject = newObject("a virtual service", []key{
	{name: "name", kind: kindString, example: "web",
		doc: "Unique name; default is the address, with udp: or sctp: before it where it is not TCP, or fwmark:7 (fwmark:7:ipv6)."},
	{name: "address", kind: kindString, example: "192.0.2.10:80",
		doc: `Address and port: "192.0.2.10:80", "[2001:db8::10]:80". Port 0 is every port and needs persistence. A service has an address or an fwmark.`},
	{name: "fwmark", kind: kindInt, min: 1, max: math.MaxUint32, example: "7", off: true,
		doc: "Firewall mark of the packets of this service, instead of an address."},
	{name: "family", kind: kindString, enum: []string{"ipv4", "ipv6"}, example: "ipv4", off: true,
		doc: "Family of the marked packets: ipv4, which is the default, or ipv6."},
}, serviceKeys, serverKeys, []key{
	{name: "real_servers", kind: kindList, object: serverObject,
		doc: "The real servers. The first wins ties. A service without any refuses connections."},
	{name: "backup", kind: kindList, def: "[]", object: serverObject,
		doc: "Real servers that replace the others while the quorum is lost and one of them can take connections (sorry servers). Who stands by is treated as on_failure says, with weight 0 or removed: its connections go on with the former. They have the keys of real_servers, and the service's checks unless they say otherwise."},
})

var defaultsObject = newObject("defaults", serviceKeys, serverKeys)

var socketObject = newObject("socket", []key{
	{name: "path", kind: kindString, def: "/run/lbd/lbd.sock", doc: "Path of the control socket."},
	{name: "group", kind: kindString, def: `""`,
		doc: "Group that may read and write; empty for root's group alone. A group that this host does not have is an error at start."},
})

var timeoutsObject = newObject("timeouts", []key{
	{name: "tcp", kind: kindDuration, example: "15m", min: second, max: maxKernelTime, seconds: true,
		doc: "Idle established TCP connections."},
	{name: "tcp_fin", kind: kindDuration, example: "2m", min: second, max: maxKernelTime, seconds: true,
		doc: "TCP connections after a FIN."},
	{name: "udp", kind: kindDuration, example: "5m", min: second, max: maxKernelTime, seconds: true,
		doc: "UDP flows."},
})

var userspaceObject = newObject("userspace", []key{
	{name: "queues", kind: kindInt, example: "2", off: true, min: 1, max: 64,
		doc: "Queues (NFQUEUE) over which new connections are spread, each with a thread of lbd on the processors whose packets it gets. Unless set, one for each processor, at most 4. One handles some 250,000 connections a second."},
	{name: "queue_base", kind: kindInt, def: "100", max: 65535,
		doc: "Number of the first queue. No other program may use these queues."},
	{name: "mark_mask", kind: kindBits, def: `"0x0fffff00"`, example: `"0x0fffff00"`,
		doc: "Bits of packet marks and conntrack marks that name the real server, contiguous, at least 4. All other bits stay what they are. There is room for 2^bits - 2 real servers, those included that left and still have connections. Nothing else on the host may use these bits."},
	{name: "ct_state_mask", kind: kindBits, def: `"0xf0000000"`, example: `"0xf0000000"`,
		doc: "Bits of conntrack marks that tell the state of a connection, contiguous, at least 3, with passive 4, and none of mark_mask. Nothing else on the host may use these bits."},
	{name: "queue_length", kind: kindInt, def: "4096", min: 1, max: 1 << 20,
		doc: "Packets of new connections that wait in a queue. What comes while it is full is decided by fail_open."},
	{name: "fail_open", kind: kindBool, def: "true",
		doc: "New connections that lbd cannot schedule, because a queue is full or lbd is not running, go to a real server by weight alone. With false their packets are dropped, and TCP clients try again."},
	{name: "overhead", kind: kindString, def: sched.OverheadTotal.String(), enum: []string{sched.OverheadTotal.String(), sched.OverheadInactive.String()},
		doc: "How lc, wlc, wlc-fair, lblc, lblcr, twos and p2c weigh a real server's connections, and when its thresholds hold: total is 256 times the active ones and all, as in Linux 6.1.187, 6.12.105 and later, inactive is 256 times the active ones and the inactive, as before."},
})

var topObject = newObject("the file", []key{
	{name: "engine", kind: kindString, def: string(EngineAuto), enum: []string{string(EngineAuto), string(EngineKernel), string(EngineUserspace)},
		doc: "What schedules connections: kernel is IPVS, userspace is lbd itself with nftables and connection tracking; auto takes the kernel where it has IPVS and userspace where it has not. It changes with a restart, and only after lbd --clear."},
	{name: "netns", kind: kindString, def: `""`,
		doc: "Name or path of the network namespace of the virtual services, their addresses and the checks; empty for lbd's own. The sockets stay in lbd's own."},
	{name: "socket", kind: kindObject, object: socketObject, doc: "The control socket, for ipvsctl."},
	{name: "state_file", kind: kindString, def: "/var/lib/lbd/state.json",
		doc: "Where lbd keeps what ipvsctl drain, disable and weight say of real servers, over restarts and reboots. Its directory is made, for root alone, if it is missing. The configuration counts for more: a weight is dropped when the file says another one than before, all of it when the real server leaves the file. Each lbd needs a file of its own. Empty keeps nothing. It changes with a restart."},
	{name: "state_max_age", kind: kindDuration, def: "0s", max: 100 * 365 * 24 * hour,
		doc: "What lbd finds in state_file when it starts counts for nothing if lbd has not run for longer than this; the file is set aside. 0s is any time: a real server that somebody drained for maintenance gets connections again when somebody says so, and not because the load balancer was off."},
	{name: "on_exit", kind: kindString, def: "keep", enum: []string{"keep", "clear"},
		doc: "What happens to the virtual services when lbd stops: keep leaves them working, clear removes what lbd owns."},
	{name: "vip_interface", kind: kindString, def: `""`,
		doc: "Interface, such as lo or a dummy device, that lbd gives the services' addresses, and takes back only its own; empty for none. Linux answers ARP for such an IPv4 address on every link, unless arp_ignore forbids it, but neighbour discovery for an IPv6 address only on the link of the interface that has it: route that address to this host, or name the interface of the link."},
	{name: "exclusive", kind: kindBool, def: "false",
		doc: "Removes virtual services that lbd does not own. Otherwise they are listed as foreign and left alone."},
	{name: "reconcile_interval", kind: kindDuration, def: "30s", min: 100 * millisecond, max: hour,
		doc: "How often the kernel's table is compared with what it should be, and repaired."},
	{name: "mirror_interval", kind: kindDuration, def: "1s", min: 100 * millisecond, max: hour,
		doc: "How often the connection counts are read."},
	{name: "timeouts", kind: kindObject, object: timeoutsObject, off: true,
		doc: "The kernel's connection timeouts, whole seconds. lbd restores the old ones when it clears its table; those left out stay as they are."},
	{name: "sysctls", kind: kindInts, object: sysctlObject,
		doc: "Settings of net.ipv4.vs that lbd owns, and restores when it clears its table. Those left out stay as they are, but for expire_nodest_conn and expire_quiescent_template. The userspace engine has conn_reuse_mode and those two alone, as settings of its own; with it others are errors."},
	{name: "userspace", kind: kindObject, object: userspaceObject,
		doc: "The userspace engine."},
	{name: "notify", kind: kindObject, object: notifyObject,
		doc: "Who is told of events, as ipvsctl events tells them. Each hook has a queue of its own, for 4096 events, and is told in order; none delays another, nor a change of weights. Each event is told once: a command that shall be told the state that counts, and again after a start, is on_up or on_down of quorum. What cannot be told is lost: the oldest when the queue is full, what is older than max_age, what was refused; it is logged, ipvsctl status has it, and the next notification says how much was lost. When lbd stops, and when a reload takes a hook away, there are 2 seconds for what waits; a hook that changes under the same name takes over what waits."},
	{name: "checks", kind: kindMap, object: checkObject, example: "tcp-ok",
		doc: "Checks by name."},
	{name: "defaults", kind: kindObject, object: defaultsObject,
		doc: "Values for the keys that a virtual service or a real server leaves out. A real server takes its service's before these."},
	{name: "virtual_services", kind: kindList, required: true, object: serviceObject,
		doc: "The virtual services; [] for none."},
}, notYet("http"))
