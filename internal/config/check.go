package config

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/udpcheck"
)

// check is a check as the file gives it, before it meets a real server.
type check struct {
	at *node
	// kind is its type; empty for a group.
	kind   string
	method healthcheck.Method
	timing healthcheck.Timing
	// port and address replace the real server's; 0 and the zero Addr do not.
	port    uint16
	address netip.Addr
	via     healthcheck.Via
	// through says that its packets go through the virtual service.
	through bool
	// group is RuleAll or RuleAny for a group of others.
	group healthcheck.RuleKind
	of    []check
	// depth is how deep groups stand in each other, itself included, and size how
	// many checks are in a group; both are 0 for a check.
	depth, size int
	// bad checks have been reported.
	bad bool
}

// namedCheck is an entry of checks.
type namedCheck struct {
	check
	used bool
	// unread is a group that was not read yet.
	unread bool
}

// parseChecks reads the named checks. Groups come last, wherever they stand,
// because they name others.
func (p *parser) parseChecks(n *node) {
	if n.kind != mapping {
		p.errorf(n, "checks: want a mapping of names to checks, got %s", describe(n))
		return
	}
	var groups []*node
	for kn := n.first; kn != nil && !p.full; kn = kn.next.next {
		if kn.kind != scalar || kn.isNull() || !goodName(kn.value) {
			p.errorf(kn, "checks: want a name of %s, got %s", nameSyntax, describe(kn))
			continue
		}
		if first, ok := p.checks[kn.value]; ok {
			p.errorf(kn, "repeated check %q, first at line %d", kn.value, first.at.line)
			continue
		}
		p.checks[kn.value] = &namedCheck{check: check{at: kn, bad: true}, unread: true}
		p.checkNames = append(p.checkNames, kn.value)
		if groupOf(kn.next) != nil {
			groups = append(groups, kn)
			continue
		}
		p.nameCheck(kn)
	}
	for _, kn := range groups {
		p.nameCheck(kn)
	}
}

func (p *parser) nameCheck(kn *node) {
	c := p.parseCheck(kn.next, 1)
	c.at = kn
	named := p.checks[kn.value]
	named.check, named.unread = c, false
}

// groupOf returns the key of a check that is a group; nil for another.
func groupOf(n *node) *node {
	if n.kind != mapping {
		return nil
	}
	for kn := n.first; kn != nil; kn = kn.next.next {
		if kn.kind == scalar && (kn.value == "any" || kn.value == "all") {
			return kn
		}
	}
	return nil
}

// maxGroupDepth is how deep groups may stand in each other, be it by name, and
// maxGroupSize how many checks a group may have, those of groups in it included: a
// few names can stand for very many.
const (
	maxGroupDepth = 3
	maxGroupSize  = 100
)

// parseCheck reads one check; depth is that of groups.
func (p *parser) parseCheck(n *node, depth int) check {
	if kn := groupOf(n); kn != nil {
		return p.parseGroup(n, kn, depth)
	}
	d := checkDraft{check: check{at: n, kind: checkType(n)}}
	d.options = options{p: p, at: n, kind: d.check.kind, given: map[string]*node{}}
	before := len(p.errs)
	set := func(k *key, v *node) { p.setCheck(&d, k, v) }
	for i := range checkObject.keys {
		if k := &checkObject.keys[i]; k.types == nil && k.def != "" {
			set(k, k.defaultNode())
		}
	}
	d.timeoutAt, d.toAt = nil, nil
	ok := p.object(n, checkObject, set)
	d.bad = !ok || len(p.errs) > before
	if d.bad {
		return d.check
	}
	p.checkTiming(n, &d)
	p.checkThrough(n, &d)
	d.check.method = d.options.method(d.via)
	if len(p.errs) == before {
		d.options.validate(d.check.method, d.via)
	}
	d.bad = len(p.errs) > before
	return d.check
}

// checkDraft is a check while its keys are read.
type checkDraft struct {
	check
	options
	timeoutAt, fastAt, toAt *node
}

// checkType returns the type that a check says it is; tcp for one that says
// nothing, or nothing that there is.
func checkType(n *node) string {
	if n.kind == mapping {
		for kn := n.first; kn != nil; kn = kn.next.next {
			if kn.kind == scalar && kn.value == "type" && slices.Contains(checkTypes, kn.next.value) {
				return kn.next.value
			}
		}
	}
	return checkTCP
}

// setCheck sets a key that all checks have, and keeps one that its type has.
func (p *parser) setCheck(d *checkDraft, k *key, v *node) {
	if !k.has(d.check.kind) {
		p.errorf(v, "%s: a check of type %s does not have it: of %s", k.name, d.check.kind, strings.Join(k.types, ", "))
		return
	}
	switch k.name {
	case "type":
		p.word(k, v)
	case "interval":
		d.timing.Interval, _ = p.duration(k, v)
	case "fast_interval":
		d.timing.Fast, _ = p.duration(k, v)
		d.fastAt = v
	case "down_interval":
		d.timing.Down, _ = p.duration(k, v)
	case "timeout":
		d.timing.Timeout, _ = p.duration(k, v)
		d.timeoutAt = v
	case "rise":
		i, _ := p.integer(k, v)
		d.timing.Rise = int(i)
	case "fall":
		i, _ := p.integer(k, v)
		d.timing.Fall = int(i)
	case "start":
		s, ok := p.word(k, v)
		if ok {
			_ = d.timing.Start.UnmarshalText([]byte(s)) // the schema has no other words
		}
	case "port":
		i, _ := p.integer(k, v)
		d.port = uint16(i)
	case "address":
		d.address, _ = p.checkAddress(k, v)
	case "source":
		d.via.Source, _ = p.checkAddress(k, v)
	case "interface":
		d.via.Interface, _ = p.iface(k, v)
	case "mark":
		d.via.Mark, _ = p.bits(k, v)
	case "netns":
		d.via.NetNS, _ = p.netns(k, v)
	case "to":
		s, _ := p.word(k, v)
		d.through, d.toAt = s == toService, v
	default:
		if k.types == nil {
			panic(unhandled(k))
		}
		d.given[k.name] = v
	}
}

// checkTiming refuses what contradicts itself.
func (p *parser) checkTiming(n *node, d *checkDraft) {
	t := &d.timing
	shortest, of := t.Interval, "interval"
	if t.Fast > t.Interval {
		p.errorf(d.fastAt, "fast_interval: want at most the interval of %s, got %s", duration(t.Interval), duration(t.Fast))
		return
	}
	if t.Fast > 0 {
		shortest, of = t.Fast, "fast_interval"
	}
	if t.Down > 0 && t.Down < shortest {
		shortest, of = t.Down, "down_interval"
	}
	if t.Timeout <= shortest {
		return
	}
	at := n
	if d.timeoutAt != nil {
		at = d.timeoutAt
	}
	p.errorf(at, "timeout: want at most the %s of %s, got %s", of, duration(shortest), duration(t.Timeout))
}

func duration(d time.Duration) string { return shortDuration(int64(d)) }

// parseGroup reads a group of checks.
func (p *parser) parseGroup(n, kn *node, depth int) check {
	c := check{at: n, group: healthcheck.RuleAll}
	if kn.value == "any" {
		c.group = healthcheck.RuleAny
	}
	before := len(p.errs)
	switch {
	case n.first != kn || kn.next.next != nil:
		p.errorf(kn, "%s: a group of checks has no other keys", kn.value)
	case depth > maxGroupDepth:
		p.errorf(kn, "%s: groups stand in each other at most %d deep", kn.value, maxGroupDepth)
	case kn.next.kind != sequence || kn.next.first == nil:
		p.errorf(kn.next, "%s: want a list of checks, got %s", kn.value, describe(kn.next))
	default:
		for item := kn.next.first; item != nil && !p.full; item = item.next {
			sub := p.checkOrName(item, depth+1)
			c.of = append(c.of, sub)
			c.depth, c.size = max(c.depth, 1+sub.depth), c.size+max(1, sub.size)
		}
		if c.size > maxGroupSize {
			p.errorf(kn, "%s: want at most %d checks, those of groups in it included, got %d", kn.value, maxGroupSize, c.size)
		}
	}
	c.bad = len(p.errs) > before || slices.ContainsFunc(c.of, func(c check) bool { return c.bad })
	return c
}

func (p *parser) checkAddress(k *key, v *node) (netip.Addr, bool) {
	s, ok := p.text(k, v)
	if !ok {
		return netip.Addr{}, false
	}
	a, problem := parseAddr(s)
	if problem == "" {
		problem = notUnicast(a)
	}
	if problem != "" {
		p.errorf(v, "%s: %s: %s", k.name, describe(v), problem)
		return netip.Addr{}, false
	}
	return a, true
}

// parseCheckList reads the value of check: nothing, a name, a check, or a list.
func (p *parser) parseCheckList(n *node) []check {
	switch {
	case n.isNull():
		return nil
	case n.kind != sequence:
		return []check{p.checkOrName(n, 1)}
	}
	var list []check
	for item := n.first; item != nil && !p.full; item = item.next {
		list = append(list, p.checkOrName(item, 1))
	}
	return list
}

func (p *parser) checkOrName(n *node, depth int) check {
	switch {
	case n.kind == mapping:
		return p.parseCheck(n, depth)
	case n.kind != scalar || n.isNull():
		p.errorf(n, "check: want the name of a check or a check, got %s", describe(n))
		return check{at: n, bad: true}
	}
	named, ok := p.checks[n.value]
	if ok {
		named.used = true
		if named.unread {
			p.errorf(n, "check: %s is a group: it must come before the group that names it", n.value)
		}
		if named.depth > 0 && depth-1+named.depth > maxGroupDepth {
			p.errorf(n, "check: %s: groups stand in each other at most %d deep", n.value, maxGroupDepth)
		}
		c := named.check
		c.at = n
		return c
	}
	if near, ok := closest(n.value, p.checkNames); ok {
		p.errorf(n, "check: no check is named %s, did you mean %s?", describe(n), near)
	} else if len(p.checkNames) == 0 {
		p.errorf(n, "check: no check is named %s: checks defines none", describe(n))
	} else {
		p.errorf(n, "check: no check is named %s: checks has %s", describe(n), oneOf(p.checkNames))
	}
	return check{at: n, bad: true}
}

// probes are the probes of a real server while checks are applied to it.
type probes struct {
	p      *parser
	target netip.AddrPort
	// server and service are whose they are.
	server  *serverDraft
	service *VirtualService
	list    []healthcheck.Probe
}

// apply applies checks to a real server. The rule is nil where all probes must
// pass.
func (p *parser) apply(d *serverDraft, target netip.AddrPort, svc *VirtualService) ([]healthcheck.Probe, *healthcheck.Rule) {
	ps := probes{p: p, target: target, server: d, service: svc}
	list := d.checks
	rule := healthcheck.Rule{Kind: healthcheck.RuleAll}
	plain := true
	for i := range list {
		c := &list[i]
		if r, ok := ps.rule(c); ok {
			rule.Of = append(rule.Of, r)
		}
		plain = plain && c.group == healthcheck.RuleProbe
	}
	if ps.silent(rule) {
		ps.warnOfSilence(list)
	}
	if plain {
		return ps.list, nil
	}
	return ps.list, &rule
}

// silent reports whether a dead real server looks healthy by a rule: its UDP checks
// pass without an answer, and no other check looks at it, or counts.
func (ps *probes) silent(rule healthcheck.Rule) bool {
	return len(rule.Of) > 0 && healthcheck.Up == rule.Eval(func(probe int) healthcheck.State {
		if c, ok := ps.list[probe].Method.(udpcheck.Check); ok && !c.RequireReply {
			return healthcheck.Up
		}
		return healthcheck.Down
	})
}

// warnOfSilence warns of the UDP checks that pass without an answer.
func (ps *probes) warnOfSilence(list []check) {
	for i := range list {
		c := &list[i]
		ps.warnOfSilence(c.of)
		u, ok := c.method.(udpcheck.Check)
		if !ok || c.bad || ps.p.silent[c.at] {
			continue
		}
		ps.p.silent[c.at] = true
		for _, w := range u.Warnings(c.timing.Timeout) {
			ps.p.warnf(c.at, "check: %s", w)
		}
	}
}

// rule returns what a check says of the probes, which it adds.
func (ps *probes) rule(c *check) (healthcheck.Rule, bool) {
	if c.bad {
		return healthcheck.Rule{}, false
	}
	if c.group != healthcheck.RuleProbe {
		r := healthcheck.Rule{Kind: c.group}
		for i := range c.of {
			if sub, ok := ps.rule(&c.of[i]); ok {
				r.Of = append(r.Of, sub)
			}
		}
		return r, len(r.Of) > 0
	}
	t := ps.target
	if c.address.IsValid() {
		t = netip.AddrPortFrom(c.address, t.Port())
	}
	if c.port != 0 {
		t = netip.AddrPortFrom(t.Addr(), c.port)
	}
	switch {
	case !takesPort(c.kind):
		t = netip.AddrPortFrom(t.Addr(), 0)
	case t.Port() == 0 && needsPort(c.kind):
		ps.p.errorf(c.at, "check: needs a port, as the real server has port 0")
		return healthcheck.Rule{}, false
	}
	if err := c.via.Validate(t.Addr()); err != nil {
		ps.p.errorf(c.at, "check: %v", err)
		return healthcheck.Rule{}, false
	}
	probe := healthcheck.Probe{Method: c.method, Target: t, Timing: c.timing}
	if c.through {
		var problem string
		if probe.Through, problem = ps.through(c); problem != "" {
			ps.p.errorf(c.at, "check: to: service: %s", problem)
			return healthcheck.Rule{}, false
		}
	}
	return healthcheck.Rule{Kind: healthcheck.RuleProbe, Probe: ps.add(probe)}, true
}

// add adds a probe unless it is there, and returns its place.
func (ps *probes) add(probe healthcheck.Probe) int {
	if len(ps.list) > 0 {
		key := probe.Key()
		if i := slices.IndexFunc(ps.list, func(o healthcheck.Probe) bool { return o.Key() == key }); i >= 0 {
			return i
		}
	}
	ps.list = append(ps.list, probe)
	return len(ps.list) - 1
}
