package ruleset

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/ipvs"
)

// IPVS's default time-outs: tcp_timeouts of net/netfilter/ipvs/ip_vs_proto_tcp.c
// and udp_timeouts of ip_vs_proto_udp.c.
const (
	defaultTCP    = 900 * time.Second
	defaultTCPFin = 120 * time.Second
	defaultUDP    = 300 * time.Second
)

// TimeWait is how long connection tracking keeps a TCP connection after both sides
// closed, where the kernel has objects for time-outs (Abilities.CTTimeout).
const TimeWait = 120 * time.Second

// timeoutsOf replaces zero values by IPVS's defaults.
func timeoutsOf(t ipvs.Timeouts) ipvs.Timeouts {
	return ipvs.Timeouts{
		TCP:    cmp.Or(t.TCP, defaultTCP),
		TCPFin: cmp.Or(t.TCPFin, defaultTCPFin),
		UDP:    cmp.Or(t.UDP, defaultUDP),
	}
}

// timeout is an object "ct timeout". The kernel cannot change one, and takes the
// time-outs away from all connections of one that is deleted; so each has its
// values in its name, and stays until Remove.
type timeout struct {
	name     string
	protocol uint8
	// seconds by connection tracking's state; all states, in the kernel's order.
	seconds []uint32
}

func timeouts(t ipvs.Timeouts) []timeout {
	s := func(d time.Duration) uint32 { return uint32(max(d/time.Second, 1)) }
	tcp, fin, udp := s(t.TCP), s(t.TCPFin), s(t.UDP)
	return []timeout{
		{fmt.Sprintf("tcp-%d-%d", tcp, fin), unix.IPPROTO_TCP, []uint32{
			expr.CtStateTCPSYNSENT:     60, // IPVS is in SYN_RECV from the first packet on
			expr.CtStateTCPSYNRECV:     60,
			expr.CtStateTCPESTABLISHED: tcp,
			expr.CtStateTCPFINWAIT:     fin,
			expr.CtStateTCPCLOSEWAIT:   60,
			expr.CtStateTCPLASTACK:     30,
			expr.CtStateTCPTIMEWAIT:    s(TimeWait),
			expr.CtStateTCPCLOSE:       10,
			expr.CtStateTCPSYNSENT2:    60,
			expr.CtStateTCPRETRANS:     tcp, // IPVS does not hurry
			expr.CtStateTCPUNACK:       tcp,
		}},
		{fmt.Sprintf("udp-%d", udp), unix.IPPROTO_UDP, []uint32{
			expr.CtStateUDPUNREPLIED: udp,
			expr.CtStateUDPREPLIED:   udp,
		}},
	}
}

// marshalling guards what the library keeps in package variables: it writes the
// time-outs of one object over its defaults.
var marshalling sync.Mutex

func (r *Rules) addTimeout(t *nftables.Table, v timeout) {
	o := &expr.CtTimeout{L3Proto: uint16(t.Family), L4Proto: v.protocol, Policy: expr.CtStatePolicyTimeout{}}
	for state, s := range v.seconds {
		o.Policy[uint16(state)] = s
	}
	marshalling.Lock()
	defer marshalling.Unlock()
	r.nft.AddObject(&nftables.NamedObj{Table: t, Name: v.name, Type: nftables.ObjTypeCtTimeout, Obj: o})
}

// timeoutRules give a flow IPVS's time-outs instead of connection tracking's.
func (t *table) timeoutRules(s *shape) []exprs {
	if t.able.CTTimeout != nil {
		return nil
	}
	var rules []exprs
	for _, v := range timeouts(s.timeouts) {
		// meta l4proto tcp ct timeout set "tcp-900-120"
		rules = append(rules, rule(protocol(v.protocol), exprs{&expr.Objref{Type: unix.NFT_OBJECT_CT_TIMEOUT, Name: v.name}}))
	}
	return rules
}
