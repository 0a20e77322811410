package ruleset

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net"
	"slices"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/ipvs"
)

// undecidedRules run for the first packet of a flow that has no mark: the queue
// was full or had no reader, or the flow is none of lbd's. The flow tells of its
// start, so that the daemon hears of what it did not see.
func (t *table) undecidedRules(s *shape) []exprs {
	rules := []exprs{
		// ct state != new return
		rule(ctIs(expr.CtKeySTATE, expr.CtStateBitNEW, 0), verdict(expr.VerdictReturn)),
		// jump fallback
		jump(chainFallback),
		// meta mark & MASK == 0 return
		rule(markIs(t.opts.Mask, 0), verdict(expr.VerdictReturn)),
	}
	rules = append(rules, t.carryRules(s)...)
	// ct event set new,destroy …
	rules = append(rules, t.eventRules(s, eventNew)...)
	return append(rules, t.connectRules()...)
}

// fallbackRules find the chain of a service.
func (t *table) fallbackRules() []exprs {
	// meta l4proto tcp tcp flags & (fin|syn|rst|ack) != syn return
	// meta l4proto sctp @th,96,8 != 1 return
	return append(midFlow(verdict(expr.VerdictReturn), verdict(expr.VerdictReturn)),
		// meta mark & ~MASK . meta l4proto vmap @chains_mark
		rule(t.foreignMark(), vmap(mapMarks)),
		// ip daddr . meta l4proto . th dport vmap @chains
		rule(t.service(), vmap(mapServices)),
		// ip daddr . meta l4proto vmap @chains_any
		rule(t.portless(), vmap(mapAnyPort)),
	)
}

// refuseRules answer as IPVS does where no real server is left.
func (t *table) refuseRules() []exprs {
	if t.able.Reject != nil {
		return []exprs{verdict(expr.VerdictDrop)}
	}
	return []exprs{
		// reject with icmp port-unreachable
		// reject with icmpv6 port-unreachable
		{t.reject()},
	}
}

// serviceChains are the chain of a service, and those that it shares with others
// of the same netmask and timeout: the kernel checks a map against every chain
// that uses it, so only few may.
//
// New flows come here without a mark where the queue was full or had no reader,
// and with one where the service keeps templates. The packet's priority carries
// numbers from chain to chain, see pickRules.
func (t *table) serviceChains(s *Service) []chain {
	own := chain{name: chainOf(s.ID)}
	chains := []chain{own}
	add := func(parts ...exprs) { chains[0].rules = append(chains[0].rules, rule(parts...)) }
	number := func(n uint32) exprs { return exprs{imm(reg1, u32(n)), setMeta(expr.MetaKeyPRIORITY, reg1)} }
	unmarked := markIs(t.opts.Mask, 0)

	mask := t.netmask(s.Netmask)
	recall := chain{name: fmt.Sprintf("recall-%s", mask), rules: t.recallRules(mask)}
	learn := chain{name: fmt.Sprintf("learn-%s-%d", mask, s.Timeout.Milliseconds()), rules: t.learnRules(mask, s.Timeout)}
	if t.opts.FailOpen && s.Persistent {
		// meta mark & MASK == 0 meta priority set ID jump recall-NETMASK
		add(unmarked, number(s.ID), jump(recall.name))
		chains = append(chains, recall)
	}
	switch {
	case !t.opts.FailOpen:
	case !s.live():
		// meta mark & MASK == 0 goto refuse
		add(unmarked, goTo(chainRefuse))
	default:
		// meta mark & MASK == 0 meta priority set numgen random mod 65536 offset REGION jump draw
		add(unmarked, exprs{
			&expr.Numgen{Register: reg1, Type: unix.NFT_NG_RANDOM, Modulus: regionSize, Offset: t.regions[s.ID]},
			setMeta(expr.MetaKeyPRIORITY, reg1),
		}, jump(chainDraw))
		// meta mark & MASK == 0 drop
		//
		// While elements of a map of intervals are written, Linux 6.1 at least does
		// not find those beside (nft_set_rbtree.c): the nearest element below is one
		// that is not there yet, and the search ends with it. The client sends its
		// packet again. If it went on it would come to this host, which refuses it.
		add(unmarked, exprs{&expr.Verdict{Kind: expr.VerdictDrop}})
	}
	if s.Persistent {
		// meta priority set ID goto learn-NETMASK-TIMEOUT
		add(number(s.ID), goTo(learn.name))
		chains = append(chains, learn)
	}
	return chains
}

// recallRules look for the template of a client.
func (t *table) recallRules(mask net.IPMask) []exprs {
	return []exprs{
		// meta priority set meta priority . ip saddr & NETMASK map @templates goto pick
		rule(t.client(mask), through(mapTemplates), exprs{setMeta(expr.MetaKeyPRIORITY, reg1)}, goTo(chainPick)),
	}
}

// learnRules write or refresh the template of a client, whoever picked: the
// daemon, the template itself, or chance.
func (t *table) learnRules(mask net.IPMask, timeout time.Duration) []exprs {
	const value = reg32 + 8 // past the longest key
	return []exprs{
		// meta mark & MASK != 0 update @templates { meta priority . ip saddr & NETMASK timeout T : meta mark & MASK }
		rule(markHas(t.opts.Mask), t.client(mask), exprs{
			meta(expr.MetaKeyMARK, value), bitwise(value, t.opts.Mask, 0),
			&expr.Dynset{SrcRegKey: reg1, SrcRegData: value, SetName: mapTemplates,
				Operation: unix.NFT_DYNSET_OP_UPDATE, Timeout: timeout},
		}),
		// meta priority set 0
		{imm(reg1, u32(0)), setMeta(expr.MetaKeyPRIORITY, reg1)},
	}
}

// client loads "meta priority . ip saddr & NETMASK", the key of a template; the
// priority is the service's number.
func (t *table) client(mask net.IPMask) exprs {
	const addr = reg32 + 1
	e := exprs{meta(expr.MetaKeyPRIORITY, reg1), t.network(addr, t.saddr)}
	if ones, _ := mask.Size(); ones == int(t.size)*8 {
		return e
	}
	return append(e, &expr.Bitwise{SourceRegister: addr, DestRegister: addr, Len: t.size, Mask: mask, Xor: make([]byte, t.size)})
}

func (t *table) netmask(m ipvs.Netmask) net.IPMask {
	if t.size == 4 {
		return binary.BigEndian.AppendUint32(nil, m.V4())
	}
	return net.CIDRMask(int(m.V6()), 128)
}

// drawRules turn the number that a service drew into a mark.
func (t *table) drawRules() []exprs {
	return []exprs{
		// meta priority set meta priority map @shares goto pick
		rule(exprs{
			meta(expr.MetaKeyPRIORITY, reg1),
			&expr.Byteorder{SourceRegister: reg1, DestRegister: reg1, Op: expr.ByteorderHton, Len: 4, Size: 4},
		}, through(mapShares), exprs{setMeta(expr.MetaKeyPRIORITY, reg1)}, goTo(chainPick)),
	}
}

// pickRules turn the packet's priority into its mark. The priority is the only
// thing of a packet that can hold a value beside a mark which has bits of
// others: Linux before 6.13 cannot combine two registers. The kernel sets it
// again when it forwards the packet.
func (t *table) pickRules(s *shape) []exprs {
	var rules []exprs
	if s.stateless && !s.allEvents {
		// ct event set new,destroy,mark
		//
		// Before the connection's mark, whose event is the flow's start then, also
		// after eventRules.
		rules = append(rules, setEvents(eventNew|eventDestroy|eventMark))
	}
	for m := t.opts.Mask; m != 0; m &= m - 1 {
		bit := uint32(1) << bits.TrailingZeros32(m)
		// meta priority & BIT != 0 meta mark set meta mark | BIT
		rules = append(rules, exprs{
			meta(expr.MetaKeyPRIORITY, reg1), bitwise(reg1, bit, 0), holds(expr.CmpOpNeq, reg1, u32(0)),
			meta(expr.MetaKeyMARK, reg1), bitwise(reg1, ^bit, bit), setMeta(expr.MetaKeyMARK, reg1),
		})
	}
	// meta priority set 0
	return append(rules, exprs{imm(reg1, u32(0)), setMeta(expr.MetaKeyPRIORITY, reg1)})
}

// regionSize is how finely a service's weights are told apart. Each service has a
// region of its own in mapShares: a map for each service is what the kernel
// cannot do, since it looks sets up one by one (25 s for 5,000 services).
const (
	regionSize = 1 << 16
	maxRegions = 1<<16 - 1 // the last would end past the largest number
)

// live says whether a service has a real server that takes new flows.
func (v *Service) live() bool {
	return slices.ContainsFunc(v.Fallback, func(f Share) bool { return f.Weight > 0 })
}

// shareElements calls yield for each interval of a service: its real servers side
// by side, as wide as their weights. Shares below 1/65536 vanish.
func (t *table) shareElements(s *Service, yield func(set string, e element)) {
	if !t.opts.FailOpen || !s.live() {
		return
	}
	var sum, at uint64
	for _, f := range s.Fallback {
		sum += uint64(f.Weight)
	}
	region := t.regions[s.ID]
	begin := uint32(0)
	for _, f := range s.Fallback {
		at += uint64(f.Weight)
		// A weight has 32 bits and so has any sum of them that matters, so that
		// this does not overflow.
		end := uint32(at * regionSize / sum)
		if end > begin {
			yield(mapShares, element{key: string(be32(region + begin)), value: string(u32(f.Mark))})
			yield(mapShares, element{key: string(be32(region + end)), end: true})
		}
		begin = end
	}
}
