package config

import (
	"net/netip"
	"slices"

	"github.com/lbd-project/lbd/healthcheck"
)

// check is a check as the file gives it, before it meets a real server.
type check struct {
	at     *node
	method healthcheck.Method
	timing healthcheck.Timing
	// port and address replace the real server's; 0 and the zero Addr do not.
	port    uint16
	address netip.Addr
	// bad checks have been reported.
	bad bool
}

// namedCheck is an entry of checks.
type namedCheck struct {
	check
	used bool
}

// parseChecks reads the named checks.
func (p *parser) parseChecks(n *node) {
	if n.kind != mapping {
		p.errorf(n, "checks: want a mapping of names to checks, got %s", describe(n))
		return
	}
	for kn := n.first; kn != nil && !p.full; kn = kn.next.next {
		if kn.kind != scalar || kn.isNull() || !goodName(kn.value) {
			p.errorf(kn, "checks: want a name of %s, got %s", nameSyntax, describe(kn))
			continue
		}
		if first, ok := p.checks[kn.value]; ok {
			p.errorf(kn, "repeated check %q, first at line %d", kn.value, first.at.line)
			continue
		}
		c := p.parseCheck(kn.next)
		c.at = kn
		p.checks[kn.value] = &namedCheck{check: c}
		p.checkNames = append(p.checkNames, kn.value)
	}
}

// parseCheck reads one check.
func (p *parser) parseCheck(n *node) check {
	c := check{at: n, method: healthcheck.TCP{}}
	before := len(p.errs)
	var timeoutAt *node
	set := func(k *key, v *node) {
		switch k.name {
		case "type":
			p.word(k, v)
		case "interval":
			c.timing.Interval, _ = p.duration(k, v)
		case "timeout":
			c.timing.Timeout, _ = p.duration(k, v)
			timeoutAt = v
		case "rise":
			i, _ := p.integer(k, v)
			c.timing.Rise = int(i)
		case "fall":
			i, _ := p.integer(k, v)
			c.timing.Fall = int(i)
		case "port":
			i, _ := p.integer(k, v)
			c.port = uint16(i)
		case "address":
			c.address, _ = p.checkAddress(k, v)
		default:
			panic(unhandled(k))
		}
	}
	defaults(checkObject, set)
	timeoutAt = nil
	ok := p.object(n, checkObject, set)
	c.bad = !ok || len(p.errs) > before
	if !c.bad && c.timing.Timeout > c.timing.Interval {
		at := n
		if timeoutAt != nil {
			at = timeoutAt
		}
		p.errorf(at, "timeout: want at most the interval of %s, got %s",
			shortDuration(int64(c.timing.Interval)), shortDuration(int64(c.timing.Timeout)))
		c.bad = true
	}
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
		p.errorf(v, "address: %s: %s", describe(v), problem)
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
		return []check{p.checkOrName(n)}
	}
	var list []check
	for item := n.first; item != nil && !p.full; item = item.next {
		list = append(list, p.checkOrName(item))
	}
	return list
}

func (p *parser) checkOrName(n *node) check {
	switch {
	case n.kind == mapping:
		return p.parseCheck(n)
	case n.kind != scalar || n.isNull():
		p.errorf(n, "check: want the name of a check or a check, got %s", describe(n))
		return check{at: n, bad: true}
	}
	named, ok := p.checks[n.value]
	if ok {
		named.used = true
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

// probes applies checks to a real server.
func (p *parser) probes(list []check, target netip.AddrPort) []healthcheck.Probe {
	var probes []healthcheck.Probe
	for _, c := range list {
		if c.bad {
			continue
		}
		t := target
		if c.address.IsValid() {
			t = netip.AddrPortFrom(c.address, t.Port())
		}
		if c.port != 0 {
			t = netip.AddrPortFrom(t.Addr(), c.port)
		}
		if t.Port() == 0 {
			p.errorf(c.at, "check: needs a port, as the real server has port 0")
			continue
		}
		probe := healthcheck.Probe{Method: c.method, Target: t, Timing: c.timing}
		if probes == nil {
			probes = make([]healthcheck.Probe, 0, len(list))
		}
		same := func(o healthcheck.Probe) bool { return o.Key() == probe.Key() }
		if !slices.ContainsFunc(probes, same) {
			probes = append(probes, probe)
		}
	}
	return probes
}
