package config

import (
	"net/netip"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/agentcheck"
)

var agentObject = newObject("an agent", []key{
	{name: "port", kind: kindInt, min: 1, max: 65535, required: true, example: "9707",
		doc: "Port of the agent."},
	{name: "address", kind: kindString, example: "10.0.0.9", off: true,
		doc: "Address of the agent; default is the real server's."},
	{name: "source", kind: kindString, example: "10.0.0.1", off: true,
		doc: "Address of this host that it is asked from."},
	{name: "interface", kind: kindString, example: "eth0", off: true,
		doc: "Interface that the question leaves by."},
	{name: "mark", kind: kindBits, example: `"0x7"`, off: true,
		doc: "Mark of the packets to it, for rules and routes of this host."},
	{name: "netns", kind: kindString, example: "probes", off: true,
		doc: "Name or path of the network namespace that it is asked from; default is that of the top level."},
	{name: "send", kind: kindBytes, object: bytesObject, example: `"web\n"`, off: true,
		doc: "What is sent to it first: a text, {hex: 0d0a}, or nothing."},
	{name: "interval", kind: kindDuration, def: "2s", min: millisecond, max: hour,
		doc: "Time between the starts of two questions."},
	{name: "timeout", kind: kindDuration, def: "1s", min: millisecond, max: hour,
		doc: "Time after which it is not waited for any longer; at most interval."},
})

// agent is an agent before it meets a real server.
type agent struct {
	at      *node
	port    uint16
	address netip.Addr
	check   agentcheck.Check
	timing  healthcheck.Timing
}

// parseAgent reads agent; nil for none.
func (p *parser) parseAgent(n *node) *agent {
	if n.isNull() {
		return nil
	}
	a := &agent{at: n, timing: healthcheck.Timing{Rise: 1, Fall: 1}}
	before := len(p.errs)
	set := func(k *key, v *node) {
		switch k.name {
		case "port":
			i, _ := p.integer(k, v)
			a.port = uint16(i)
		case "address":
			a.address, _ = p.checkAddress(k, v)
		case "source":
			a.check.Via.Source, _ = p.checkAddress(k, v)
		case "interface":
			a.check.Via.Interface, _ = p.iface(k, v)
		case "mark":
			a.check.Via.Mark, _ = p.bits(k, v)
		case "netns":
			a.check.Via.NetNS, _ = p.netns(k, v)
		case "send":
			a.check.Send = string(p.payload(k, v))
		case "interval":
			a.timing.Interval, _ = p.duration(k, v)
		case "timeout":
			a.timing.Timeout, _ = p.duration(k, v)
		default:
			panic(unhandled(k))
		}
	}
	defaults(agentObject, set)
	if !p.object(n, agentObject, set) || len(p.errs) > before {
		return nil
	}
	if a.timing.Timeout > a.timing.Interval {
		p.errorf(n, "timeout: want at most the interval of %s, got %s", duration(a.timing.Interval), duration(a.timing.Timeout))
		return nil
	}
	return a
}

// addAgent adds an agent to the probes of a real server.
func (p *parser) addAgent(list []healthcheck.Probe, a *agent, server netip.AddrPort) []healthcheck.Probe {
	address := server.Addr()
	if a.address.IsValid() {
		address = a.address
	}
	probe := healthcheck.Probe{Method: a.check, Target: netip.AddrPortFrom(address, a.port), Advisory: true, Timing: a.timing}
	if _, err := a.check.NewChecker(probe.Target, healthcheck.Env{}); err != nil {
		p.errorf(a.at, "agent: %v", err)
	}
	return append(list, probe)
}
