package ruleset

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Names for services with Passive. Chains and sets are made with the first such
// service.
const (
	chainTryOut    = "passive_postrouting"
	chainTryIn     = "passive_input"
	chainTry       = "passive_try"      // the first packet of a flow
	chainAnswered  = "passive_answer"   // the first answer of its real server
	chainWithdrawn = "passive_withdraw" // a client's RST in place of it
	chainErrors    = "passive_errors"   // ICMP about a flow
	chainFrom      = "passive_from"     // the first answer, which may come from elsewhere
	chainErrorOf   = "passive_of"       // ICMP, which may, too

	setPassive     = "passive"             // mark
	setTried       = "passive_tried"       // mark; each element counts TCP connections that begin
	setAnswered    = "passive_answered"    // … that the real server took
	setReset       = "passive_reset"       // … that it refused
	setWithdrawn   = "passive_withdrawn"   // … that the client reset before either
	setUnreachable = "passive_unreachable" // mark . protocol; … of which ICMP says that it cannot be reached, and such ICMP about UDP
)

// priorityTry is behind whoever translates source addresses.
const priorityTry = 101

// What a client may have done to a packet so that no real server answers it. An
// attacker sends such packets to make real servers look bad, so they do not count:
// those that may die on the way for want of hops, have IP options, or have TCP
// options other than systems send: see plainOptions.
const (
	leastHops   = 16
	plainIPv4   = 4<<4 | 5 // version, and a header of 5 words
	offIPv4Hops = 8
	offIPv6Hops = 7
	offIPv6Next = 6
)

// Tried is the bit of a connection mark that is set while a TCP connection of a
// service with Passive has no answer yet; zero where StateMask has no room for it.
func (o Options) Tried() uint32 {
	rest := o.StateMask &^ o.Inactive() &^ o.Busy() &^ o.Reuse()
	return rest & -rest
}

// addPassiveSets defines the sets.
func (t *table) addPassiveSets() {
	mark, proto := nftables.TypeMark, nftables.TypeInetProto
	t.addSet(setPassive, nil, mark)
	t.addSet(setTried, nil, mark)
	t.addSet(setAnswered, nil, mark)
	t.addSet(setReset, nil, mark)
	t.addSet(setWithdrawn, nil, mark)
	t.addSet(setUnreachable, nil, mark, proto)
	for _, name := range countingSets {
		t.sets[name].Counter = true
	}
}

var countingSets = []string{setTried, setAnswered, setReset, setWithdrawn, setUnreachable}

// passiveSet says whether a set is of those.
func passiveSet(name string) bool { return name == setPassive || slices.Contains(countingSets, name) }

// has says whether a table of that shape has a set.
func (s *shape) has(set string) bool {
	return (s.stateless || !statelessSet(set)) && (s.tries || !passiveSet(set))
}

// passiveChains are the chains of services with Passive. Once there they stay, the
// base chains without a rule while there is no such service. Where source addresses
// are translated only first packets come, behind all that may drop one on this
// host.
func (t *table) passiveChains(s *shape) []chain {
	var enter []exprs
	if s.passive {
		// ct mark & MASK @passive jump passive_try
		enter = append(enter, rule(t.ofServers(setPassive), jump(chainTry)))
	}
	nat := nftables.ChainTypeNAT
	return []chain{
		{name: chainTry, rules: t.tryRules()},
		{name: chainAnswered, rules: t.answeredRules()},
		{name: chainWithdrawn, rules: t.withdrawnRules()},
		{name: chainErrors, rules: t.unreachableRules()},
		{name: chainFrom, rules: t.fromRules()},
		{name: chainErrorOf, rules: t.errorOfRules()},
		{chainTryOut, nftables.ChainHookPostrouting, nat, priorityTry, enter},
		{chainTryIn, nftables.ChainHookInput, nat, priorityTry, enter},
	}
}

// tryRules count a TCP connection that begins.
func (t *table) tryRules() []exprs {
	plain := exprs{
		t.network1(reg1, 0), holds(expr.CmpOpEq, reg1, []byte{plainIPv4}),
		t.network1(reg1, offIPv4Hops), holds(expr.CmpOpGt, reg1, []byte{leastHops}),
	}
	if t.size == 16 {
		plain = exprs{
			t.network1(reg1, offIPv6Next), holds(expr.CmpOpEq, reg1, []byte{protoTCP}),
			t.network1(reg1, offIPv6Hops), holds(expr.CmpOpGt, reg1, []byte{leastHops}),
		}
	}
	var rules []exprs
	for _, options := range plainOptions {
		// meta l4proto tcp @nh,0,8 0x45 ip ttl > 16 tcp doff … @th,160,… …
		//	ct mark & MASK @passive_tried ct mark set ct mark | TRIED
		// meta l4proto tcp ip6 nexthdr tcp ip6 hoplimit > 16 …
		rules = append(rules, rule(protocol(protoTCP), plain, hasOptions(options), t.ofServers(setTried), orCTMark(^uint32(0), t.opts.Tried())))
	}
	return rules
}

// network1 loads a byte of the IP header.
func (t *table) network1(reg, offset uint32) expr.Any {
	return &expr.Payload{Base: expr.PayloadBaseNetworkHeader, DestRegister: reg, Offset: offset, Len: 1}
}

// unreachable is "ct mark & MASK . ct l4proto @passive_unreachable".
func (t *table) unreachable() exprs {
	return append(exprs{ct(expr.CtKeyMARK, reg32), bitwise(reg32, t.opts.Mask, 0), ct(expr.CtKeyPROTOCOL, reg32+1)}, in(setUnreachable)...)
}

// repliedRule leads the first answer of a real server aside. That need not begin
// the connection: where the real server still has an earlier one from the client's
// port, it confirms what it has of that.
func (t *table) repliedRule(output bool) exprs {
	chain := chainFrom
	if output {
		chain = chainAnswered
	}
	// ct mark & TRIED != 0 ct direction reply meta l4proto tcp jump passive_from
	return rule(ctHas(expr.CtKeyMARK, t.opts.Tried()), reply(), protocol(protoTCP), jump(chain))
}

// fromRules let no client refuse its own connection in the name of the real server,
// by way of the interface that leads to the client. Such a packet comes here before
// rp_filter, and connection tracking believes it, so that the real server's own
// answer will not be seen.
func (t *table) fromRules() []exprs {
	return []exprs{
		// tcp flags & rst != 0 fib saddr . iif oif missing goto passive_withdraw
		rule(tcpFlags(tcpRST, expr.CmpOpNeq, 0), t.cameBy(expr.CmpOpEq), goTo(chainWithdrawn)),
		// goto passive_answer
		goTo(chainAnswered),
	}
}

// cameBy compares the interface that leads to the source of a packet with 0, which
// it is unless the packet came by it. Where the kernel cannot tell it is not.
func (t *table) cameBy(op expr.CmpOp) exprs {
	if t.able.Fib != nil {
		return exprs{meta(expr.MetaKeyIIF, reg1), holds(op, reg1, u32(0))}
	}
	return exprs{&expr.Fib{Register: reg1, ResultOIF: true, FlagSADDR: true, FlagIIF: true}, holds(op, reg1, u32(0))}
}

// withdrawnRule leads a client's RST for what nobody has answered aside: with it
// connection tracking forgets the connection, so that no answer will be seen.
func (t *table) withdrawnRule() exprs {
	// ct mark & TRIED != 0 meta l4proto tcp tcp flags & rst != 0 jump passive_withdraw
	return rule(ctHas(expr.CtKeyMARK, t.opts.Tried()), protocol(protoTCP), tcpFlags(tcpRST, expr.CmpOpNeq, 0), jump(chainWithdrawn))
}

func (t *table) withdrawnRules() []exprs {
	// ct mark & MASK @passive_withdrawn ct mark set ct mark & ~TRIED
	return []exprs{rule(t.ofServers(setWithdrawn), orCTMark(^t.opts.Tried(), 0))}
}

// answeredRules are for the first answer of a real server. What the client does
// after its first packet changes nothing. Connections that are not of a real server
// keep a bit that others gave them.
func (t *table) answeredRules() []exprs {
	taken := orCTMark(^t.opts.Tried(), 0)
	return []exprs{
		// tcp flags & rst != 0 ct mark & MASK @passive_reset ct mark set ct mark & ~TRIED
		rule(tcpFlags(tcpRST, expr.CmpOpNeq, 0), t.ofServers(setReset), taken),
		// tcp flags & rst == 0 ct mark & MASK @passive_answered ct mark set ct mark & ~TRIED
		rule(tcpFlags(tcpRST, expr.CmpOpEq, 0), t.ofServers(setAnswered), taken),
	}
}

// errorRule leads ICMP errors about flows aside, before they are counted with the
// other packets.
func (t *table) errorRule(output bool) exprs {
	chain := chainErrorOf
	if output {
		chain = chainErrors
	}
	// meta l4proto icmp ct state related iif != lo goto passive_of
	return rule(protocol(t.icmp()), ctHas(expr.CtKeySTATE, expr.CtStateBitRELATED), uncounted(output), goTo(chain))
}

// errorOfRules let errors count that the real server sent, and came by the interface
// that leads to it. Others may be of a client. Where a router sends them nobody
// answers either, which counts for TCP.
func (t *table) errorOfRules() []exprs {
	port := uint32(8 + 20 + offDPort) // behind the ICMP and the IP header
	if t.size == 16 {
		port = 8 + 40 + offDPort
	}
	counts := goTo(chainErrors)
	return []exprs{
		// ip saddr . @th,240,16 @answers fib saddr . iif oif exists goto passive_errors
		rule(exprs{t.network(reg1, t.saddr), transport(t.after, port, 2)}, in(setSources), t.cameBy(expr.CmpOpNeq), counts),
		// ip saddr @answers_any fib saddr . iif oif exists goto passive_errors
		rule(exprs{t.network(reg1, t.saddr)}, in(setAnyPortSource), t.cameBy(expr.CmpOpNeq), counts),
		// ct mark & MASK . ct direction @traffic
		t.count(),
		goTo(chainTracked),
	}
}

func (t *table) icmp() uint8 {
	if t.size == 16 {
		return unix.IPPROTO_ICMPV6
	}
	return unix.IPPROTO_ICMP
}

// unreachableRules count ICMP errors that say that a real server, or its port,
// cannot be reached; not those about the size of packets or their way, which are
// the client's.
func (t *table) unreachableRules() []exprs {
	unreachable := uint8(3) // ICMP_DEST_UNREACH
	if t.size == 16 {
		unreachable = 1 // ICMPV6_DEST_UNREACH
	}
	tracked := goTo(chainTracked)
	of := func(proto uint8) exprs {
		return exprs{ct(expr.CtKeyPROTOCOL, reg1), holds(expr.CmpOpEq, reg1, []byte{proto})}
	}
	rules := []exprs{
		// ct mark & MASK . ct direction @traffic
		t.count(),
		// ct direction original goto tracked
		rule(original(), tracked),
		// icmp type != destination-unreachable goto tracked
		rule(exprs{transport(reg1, 0, 1), holds(expr.CmpOpNeq, reg1, []byte{unreachable})}, tracked),
	}
	if t.size == 4 {
		for _, code := range []byte{4, 5} { // ICMP_FRAG_NEEDED, ICMP_SR_FAILED
			// icmp code frag-needed goto tracked
			rules = append(rules, rule(exprs{transport(reg1, 1, 1), holds(expr.CmpOpEq, reg1, []byte{code})}, tracked))
		}
	}
	return append(rules,
		// ct l4proto udp ct mark & MASK . ct l4proto @passive_unreachable goto tracked
		rule(of(protoUDP), t.unreachable(), tracked),
		// ct l4proto tcp ct mark & TRIED != 0 ct mark & MASK . ct l4proto @passive_unreachable ct mark set ct mark & ~TRIED
		rule(of(protoTCP), ctHas(expr.CtKeyMARK, t.opts.Tried()),
			t.unreachable(), orCTMark(^t.opts.Tried(), 0)),
		// goto tracked
		tracked,
	)
}

// passiveElements calls yield for each element that a mark has.
func passiveElements(mark uint32, yield func(set string, e element)) {
	key := string(u32(mark))
	yield(setPassive, element{key: key})
	yield(setTried, element{key: key})
	yield(setAnswered, element{key: key})
	yield(setReset, element{key: key})
	yield(setWithdrawn, element{key: key})
	for _, p := range []byte{protoTCP, protoUDP} {
		yield(setUnreachable, element{key: key + string(padded([]byte{p}))})
	}
}

// editPassive collects the edits of the sets: the marks of real servers whose
// service has Passive.
func (t *table) editPassive(c *changes, s *Spec) {
	wanting, want := map[uint32]bool{}, map[uint32]bool{}
	for i := range s.Services {
		if v := &s.Services[i]; v.Passive && v.Key.Family == t.is {
			wanting[v.ID] = true
		}
	}
	if len(wanting) > 0 {
		for i := range s.Servers {
			if v := &s.Servers[i]; wanting[v.Service] {
				want[v.Mark] = true
			}
		}
	}
	for m := range t.passive {
		if !want[m] {
			passiveElements(m, c.remove)
		}
	}
	for m := range want {
		if !t.passive[m] {
			passiveElements(m, c.insert)
		}
	}
	t.passive = want
}

// Handshake is something that happens as a flow of a service with Passive begins.
type Handshake uint8

// The kinds of Handshake. A TCP connection is Tried once, and then is Answered,
// Reset or Unreachable at most once: its first answer, or ICMP in place of one; or
// it is Withdrawn, reset by the client before any of these, and says nothing. Of UDP
// each ICMP error is UnreachableUDP; Traffic tells of answers.
const (
	Tried Handshake = iota
	Answered
	Reset
	Unreachable
	Withdrawn
	UnreachableUDP
)

// handshakes reads the counters of services with Passive. It has a socket of its
// own, once it is used, so that nobody else waits for it.
type handshakes struct {
	mu       sync.Mutex
	counters *counters
}

// Handshakes calls visit with the mark of each real server of services with
// Passive, a kind, and how many of that kind there were since it came into the
// rules. The counts are like those of Closed; it may be called at any time.
func (r *Rules) Handshakes(visit func(mark uint32, kind Handshake, n uint64)) error {
	h := &r.handshakes
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counters == nil {
		c, err := openCounters(&r.opts)
		if err != nil {
			return fmt.Errorf("open nftables: %w", err)
		}
		h.counters = c
	}
	for _, set := range countingSets {
		for _, t := range r.tables {
			request := dumpRequest(uint8(t.family), r.opts.Name, set)
			if err := h.counters.read([][]byte{request}, r.opts.handshakes(set, visit)); err != nil {
				return fmt.Errorf("read nftables counters: %w", err)
			}
		}
	}
	return nil
}

// handshakes reads elements of a set: a mark, and a protocol where it has one.
func (o *Options) handshakes(set string, visit func(mark uint32, kind Handshake, n uint64)) countVisitor {
	kind := map[string]Handshake{setTried: Tried, setAnswered: Answered, setReset: Reset, setWithdrawn: Withdrawn, setUnreachable: Unreachable}[set]
	size := 4
	if kind == Unreachable {
		size = 8
	}
	return func(key []byte, n, _ uint64) {
		if len(key) != size {
			return
		}
		kind := kind
		if size == 8 && key[4] == protoUDP {
			kind = UnreachableUDP
		}
		if mark := binary.NativeEndian.Uint32(key); o.isServer(mark) {
			visit(mark, kind, n)
		}
	}
}

func (h *handshakes) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counters == nil {
		return nil
	}
	return h.counters.close()
}
