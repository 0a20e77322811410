package config

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// serviceDraft is a virtual service while its keys are read, or what services
// start from. A position is nil where the value is a default.
type serviceDraft struct {
	at          *node
	name        string
	nameAt      *node
	address     netip.Addr
	port        int
	addressAt   *node
	mark        uint32
	markAt      *node
	family      string
	familyAt    *node
	protocol    string
	protocolAt  *node
	scheduler   ipvs.Scheduler
	schedulerAt *node
	ties        string
	tiesAt      *node
	flags       []*node // words
	flagsAt     *node
	persistent  bool
	persistence persistenceDraft
	onePacket   bool
	onePacketAt *node
	policy      policyDraft
	server      serverDraft
	servers     *node
}

// persistenceDraft is persistence while its keys are read. The netmask waits for
// the family.
type persistenceDraft struct {
	at        *node
	timeout   time.Duration
	netmaskAt *node
	engine    string
	engineAt  *node
}

// forget makes what is set a default.
func (d *serviceDraft) forget() {
	d.protocolAt, d.schedulerAt, d.tiesAt, d.flagsAt, d.onePacketAt = nil, nil, nil, nil, nil
	d.policy.forget()
	d.server.forget()
}

// builtinDefaults sets the defaults of the schema.
func (p *parser) builtinDefaults() {
	p.defaults.port = noPort
	defaults(defaultsObject, func(k *key, v *node) { p.setService(&p.defaults, k, v) })
	p.defaults.forget()
}

// setService sets a key of a virtual service.
func (p *parser) setService(d *serviceDraft, k *key, v *node) {
	switch k.name {
	case "name":
		if s, ok := p.text(k, v); ok && !goodName(s) {
			p.errorf(v, "name: want %s, got %s", nameSyntax, describe(v))
		} else {
			d.name, d.nameAt = s, v
		}
	case "address":
		d.addressAt = v
		d.address, d.port, _ = p.addrPort(k, v)
	case "fwmark":
		i, _ := p.integer(k, v)
		d.mark, d.markAt = uint32(i), v
	case "family":
		d.family, _ = p.word(k, v)
		d.familyAt = v
	case "protocol":
		d.protocol, _ = p.word(k, v)
		d.protocolAt = v
	case "scheduler":
		d.scheduler, _ = p.schedulerName(k, v)
		d.schedulerAt = v
	case "ties":
		d.ties, _ = p.word(k, v)
		d.tiesAt = v
	case "scheduler_flags":
		d.flags, _ = p.words(k, v)
		d.flagsAt = v
	case "persistence":
		d.persistent = !v.isNull()
		if d.persistent {
			d.persistence = p.parsePersistence(v)
		}
	case "one_packet":
		d.onePacket, _ = p.boolean(k, v)
		d.onePacketAt = v
	case "slow_start":
		d.policy.slowStart, _ = p.duration(k, v)
		d.policy.slowStartAt = v
	case "fail_open_below":
		i, _ := p.integer(k, v)
		d.policy.failOpenBelow = int(i)
	case "quorum":
		d.policy.quorum = p.parseQuorum(v)
	case "passive":
		d.policy.passive, d.policy.passiveAt = p.parsePassive(v), v
	case "real_servers":
		d.servers = v
	case "backup":
		d.policy.backup = v
	default:
		p.setServer(&d.server, k, v)
	}
}

const nameSyntax = "at most 128 letters, digits and any of ._:@+[]-"

// goodName says whether a name can stand in a command: ipvsctl writes
// SERVICE/ADDRESS.
func goodName(s string) bool {
	if s == "" || len(s) > 128 || s[0] == '-' {
		return false
	}
	for _, c := range []byte(s) {
		if !isAlnum(c) && !strings.ContainsRune("._:@+[]-", rune(c)) {
			return false
		}
	}
	return true
}

// words reads a list of the key's words, without repeats.
func (p *parser) words(k *key, v *node) ([]*node, bool) {
	if v.kind != sequence {
		p.errorf(v, "%s: want a list, got %s", k.name, describe(v))
		return nil, false
	}
	var list []*node
	seen := map[string]bool{}
	for item := v.first; item != nil && !p.full; item = item.next {
		w, ok := p.word(k, item)
		if ok && seen[w] {
			p.errorf(item, "%s: %s is repeated", k.name, w)
			ok = false
		}
		if ok {
			seen[w] = true
			list = append(list, item)
		}
	}
	return list, true
}

func (p *parser) schedulerName(k *key, v *node) (ipvs.Scheduler, bool) {
	if v.kind != scalar || v.isNull() || !v.quoted && looksTyped(v.value) {
		p.errorf(v, "%s: want the name of a scheduler, got %s", k.name, describe(v))
		return "", false
	}
	for _, s := range kernelSchedulers {
		if s == v.value {
			return ipvs.Scheduler(s), true
		}
	}
	for _, s := range userspaceSchedulers {
		if s == v.value {
			p.refuse(EngineKernel, v, "scheduler: %s is of the userspace engine alone: the kernel has %s", s, and(kernelSchedulers))
			return ipvs.Scheduler(s), true
		}
	}
	all := slices.Concat(kernelSchedulers, userspaceSchedulers)
	if !schedulerSyntax(v.value) {
		p.errorf(v, "scheduler: want %s, got %s", oneOf(all), describe(v))
		return "", false
	}
	if near, ok := closest(v.value, all); ok {
		p.warnf(v, "scheduler %s is none of Linux's own, did you mean %s? It works only if this host's kernel has it", v.value, near)
	} else {
		p.warnf(v, "scheduler %s is none of Linux's own: it works only if this host's kernel has it", v.value)
	}
	p.refuse(EngineUserspace, v, "scheduler: the userspace engine has no %s: want %s", v.value, oneOf(all))
	return ipvs.Scheduler(strings.Clone(v.value)), true
}

func (p *parser) parsePersistence(n *node) persistenceDraft {
	d := persistenceDraft{at: n}
	set := func(k *key, v *node) {
		switch k.name {
		case "timeout":
			d.timeout, _ = p.duration(k, v)
		case "netmask":
			d.netmaskAt = v
		case "engine":
			d.engine, _ = p.word(k, v)
			d.engineAt = v
		default:
			panic(unhandled(k))
		}
	}
	defaults(persistenceObject, set)
	d.engineAt = n
	p.object(n, persistenceObject, set)
	return d
}

// netmask reads the granularity of persistence for a family.
func (p *parser) netmask(v *node, f ipvs.Family) ipvs.Netmask {
	i, isInt := parseInt(v)
	a, err := netip.ParseAddr(v.value)
	switch {
	case v.kind != scalar, f == ipvs.IPv4 && (err != nil || !a.Is4()):
		p.errorf(v, "netmask: want a mask such as 255.255.255.0, got %s", describe(v))
	case f == ipvs.IPv4:
		return ipvs.NetmaskV4(a)
	case !isInt || i < 1 || i > 128:
		p.errorf(v, "netmask: want a prefix length of 1 to 128 for IPv6, got %s", describe(v))
	default:
		return ipvs.NetmaskV6(uint8(i))
	}
	return ipvs.Netmask{}
}

// parseServices reads virtual_services.
func (p *parser) parseServices(n *node) []VirtualService {
	if n.kind != sequence {
		p.errorf(n, "virtual_services: want a list, got %s", describe(n))
		return nil
	}
	var list []VirtualService
	for item := n.first; item != nil && !p.full; item = item.next {
		if svc, ok := p.parseService(item); ok {
			list = append(list, svc)
		}
	}
	return list
}

func (p *parser) parseService(n *node) (VirtualService, bool) {
	d := p.defaults
	d.at = n
	before := len(p.errs)
	if !p.object(n, serviceObject, func(k *key, v *node) { p.setService(&d, k, v) }) {
		return VirtualService{}, false
	}
	// The real servers are read even where the service is wrong, to find what is
	// wrong with them, unless it has no identity to check them against.
	svc := VirtualService{Line: n.line, DrainTimeout: d.server.drainTimeout}
	identified := p.identify(&d, &svc)
	if identified {
		p.attributes(&d, &svc)
	}
	clear(p.servers)
	if d.servers != nil && identified {
		svc.RealServers = p.parseServers(&d, &svc)
	}
	if identified {
		p.policies(&d, &svc)
	}
	if len(p.errs) == before {
		p.checkQuorum(&d, &svc)
	}
	return svc, len(p.errs) == before
}

func (p *parser) parseServers(d *serviceDraft, svc *VirtualService) []RealServer {
	list := p.serverList(d.servers, "real_servers", d, svc)
	quiesced := func(rs RealServer) bool { return rs.Weight == 0 }
	if len(list) > 0 && !slices.ContainsFunc(list, func(rs RealServer) bool { return !quiesced(rs) }) {
		p.warnf(d.at, "virtual service %s: every real server has weight 0: it refuses connections", svc.Name)
	}
	return list
}

// serverList reads a list of real servers, and leaves out those that are wrong.
func (p *parser) serverList(n *node, name string, d *serviceDraft, svc *VirtualService) []RealServer {
	if n.kind != sequence {
		p.errorf(n, "%s: want a list, got %s", name, describe(n))
		return nil
	}
	count := 0
	for item := n.first; item != nil; item = item.next {
		count++
	}
	if count == 0 {
		return nil
	}
	list := make([]RealServer, 0, count)
	masq := false
	for item := n.first; item != nil && !p.full; item = item.next {
		rs := &list[:len(list)+1][len(list)]
		if !p.parseServer(item, d, svc, rs) {
			continue
		}
		list = list[:len(list)+1]
		masq = masq || rs.Forward == ipvs.Masq
	}
	if masq && svc.Flags&ipvs.FlagOnePacket != 0 {
		p.warnOnePacketMasq(d, svc)
	}
	return list
}

// identify sets the key and the name. It is false where they are not known.
func (p *parser) identify(d *serviceDraft, svc *VirtualService) bool {
	switch {
	case d.addressAt != nil && d.markAt != nil:
		p.errorf(d.markAt, "a virtual service has an address or an fwmark, not both")
		return false
	case d.markAt != nil:
		if d.mark == 0 {
			return false
		}
		p.identifyMark(d, svc)
	case d.addressAt != nil:
		if !d.address.IsValid() || !p.identifyAddress(d, svc) {
			return false
		}
	default:
		p.errorf(d.at, "a virtual service needs address or fwmark")
		return false
	}
	if d.name != "" {
		svc.Name = d.name
	}
	at := orNode(d.nameAt, orNode(d.addressAt, d.markAt))
	if first, ok := p.services[svc.ServiceKey]; ok {
		p.errorf(orNode(d.addressAt, d.markAt), "duplicate virtual service %s, first at line %d", svc.ServiceKey, first)
	} else if first, ok := p.names[svc.Name]; ok {
		p.errorf(at, "duplicate name %s, first at line %d", svc.Name, first)
	}
	p.services[svc.ServiceKey] = svc.Line
	p.names[svc.Name] = svc.Line
	return true
}

func (p *parser) identifyMark(d *serviceDraft, svc *VirtualService) {
	f := ipvs.IPv4
	if d.family == "ipv6" {
		f = ipvs.IPv6
	}
	if d.protocolAt != nil {
		p.errorf(d.protocolAt, "protocol: a virtual service with an fwmark takes every protocol: leave it out")
	}
	if shared := d.mark & p.userspace.MarkMask; shared != 0 {
		p.refuse(EngineUserspace, d.markAt, "fwmark: %#x has the bits %#x of userspace.mark_mask %#08x, in which the userspace engine writes the real server: use other bits, or another mark_mask", d.mark, shared, p.userspace.MarkMask)
	}
	svc.ServiceKey = ipvs.MarkService(f, d.mark)
	svc.Name = "fwmark:" + strconv.FormatUint(uint64(d.mark), 10)
	if f == ipvs.IPv6 {
		svc.Name += ":ipv6"
	}
}

func (p *parser) identifyAddress(d *serviceDraft, svc *VirtualService) bool {
	proto := ipvs.TCP
	switch d.protocol {
	case "udp":
		proto = ipvs.UDP
	case "sctp":
		proto = ipvs.SCTP
	}
	if d.port == noPort {
		p.errorf(d.addressAt, "address: the port is missing: write %s (port 0 is every port, and needs persistence)", netip.AddrPortFrom(d.address, 80))
		return false
	}
	ap := netip.AddrPortFrom(d.address, uint16(d.port))
	svc.ServiceKey = ipvs.AddrService(proto, ap)
	if d.port == 0 && !d.persistent {
		p.errorf(d.addressAt, "address: port 0 is every port, which the kernel schedules only with persistence")
	}
	if d.familyAt != nil && d.family != "" && d.family != svc.Family.String() {
		p.errorf(d.familyAt, "family: the address is %s: family is for services with an fwmark", svc.Family)
	}
	svc.Name = ap.String()
	if proto != ipvs.TCP {
		svc.Name = d.protocol + ":" + svc.Name
	}
	return true
}

// attributes sets what can change in place.
func (p *parser) attributes(d *serviceDraft, svc *VirtualService) {
	svc.Scheduler = d.scheduler
	for _, word := range d.flags {
		flag, of := flagOf(word.value)
		switch {
		case of == d.scheduler:
			svc.Flags |= flag
		case d.flagsAt != nil && d.scheduler != "":
			p.errorf(word, "scheduler_flags: %s is of the scheduler %s, which is %s here", word.value, of, d.scheduler)
		}
	}
	if d.ties != sched.TiesFirst.String() && d.ties != "" {
		p.breakTies(d, svc)
	}
	if d.onePacket {
		p.onePacket(d, svc)
	}
	if d.persistent {
		p.persistent(d, svc)
	}
	none := func(n *node) bool { return n == nil || n.kind == sequence && n.first == nil }
	if none(d.servers) && none(d.policy.backup) {
		p.warnf(d.at, "virtual service %s has no real servers: it refuses connections", svc.Name)
	}
}

// breakTies makes the rule for ties a part of the scheduler's name.
func (p *parser) breakTies(d *serviceDraft, svc *VirtualService) {
	at := orNode(d.tiesAt, d.at)
	switch {
	case slices.Contains(tieSchedulers, string(d.scheduler)):
		p.refuse(EngineKernel, at, "ties: %s is of the userspace engine alone: in the kernel the first real server wins", d.ties)
		svc.Scheduler += ipvs.Scheduler(":" + d.ties)
	case d.tiesAt != nil && d.scheduler != "":
		p.errorf(at, "ties: scheduler %s finds no real servers equal: ties are for %s", d.scheduler, and(tieSchedulers))
	}
}

func (p *parser) onePacket(d *serviceDraft, svc *VirtualService) {
	svc.Flags |= ipvs.FlagOnePacket
	at := orNode(d.onePacketAt, d.at)
	if svc.FWMark == 0 && svc.Protocol != ipvs.UDP {
		p.errorf(at, "one_packet: only with protocol udp or an fwmark")
	}
	if needsCounts(d.scheduler) {
		p.errorf(at, "one_packet: connections are not counted, so %s has nothing to compare: use rr, wrr, sh, mh or twos", d.scheduler)
	}
}

// warnOnePacketMasq warns of replies that go wrong. ip_vs_conn_hash leaves out the
// connection of a single packet, so ip_vs_out_hook finds none for the reply and
// lets it through as it is; only the engine sip makes a new one there.
func (p *parser) warnOnePacketMasq(d *serviceDraft, svc *VirtualService) {
	if svc.Persistence.Engine != "sip" {
		p.warnf(orNode(d.onePacketAt, d.at), "one_packet with forwarding masq: the kernel does not translate replies back, which reach the client from the real server's own address: use route or tunnel unless nobody replies")
	}
}

func (p *parser) persistent(d *serviceDraft, svc *VirtualService) {
	svc.Flags |= ipvs.FlagPersistent
	svc.Persistence.Timeout = d.persistence.timeout
	if d.persistence.netmaskAt != nil {
		svc.Persistence.Netmask = p.netmask(d.persistence.netmaskAt, svc.Family)
	}
	svc.Persistence.Engine = d.persistence.engine
	if d.persistence.engine != "" {
		p.refuse(EngineUserspace, d.persistence.engineAt, "engine: persistence by %s is of the kernel alone", d.persistence.engine)
	}
	if d.persistence.engine == "sip" && svc.FWMark == 0 && svc.Protocol != ipvs.UDP {
		p.errorf(d.persistence.engineAt, "engine: sip needs protocol udp")
	}
}
