package config

import (
	"net/netip"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/tcpcheck"
	"github.com/lbd-project/lbd/healthcheck/udpcheck"
)

// method returns what a check does.
func (o *options) method(via healthcheck.Via) healthcheck.Method {
	switch o.kind {
	case checkTLS:
		return o.stream(via)
	case checkUDP:
		return o.datagram(via)
	case checkHTTP, checkHTTPS:
		return o.web(via)
	case checkICMP:
		return o.icmp(via)
	case checkDNS:
		return o.dns(via)
	case checkSMTP:
		return o.smtp(via)
	case checkGRPC:
		return o.grpc(via)
	case checkExec:
		return o.exec(via)
	case checkFile:
		return o.weightFile()
	}
	talks := o.given["send"] != nil || o.given["expect"] != nil || o.given["steps"] != nil
	how := o.word("close")
	switch {
	case talks && o.given["close"] != nil && how == closeReset:
		o.p.errorf(o.given["close"], "close: with send, expect or steps a connection is not reset")
	case !talks && how != closeFIN:
		return healthcheck.TCP{Via: via}
	}
	return o.stream(via)
}

// example is a target of the documentation: options are good or not whoever is
// asked.
var example = netip.MustParseAddrPort("192.0.2.1:1")

// validate refuses a method with options that its checker would refuse.
func (o *options) validate(m healthcheck.Method, via healthcheck.Via) {
	target := example
	if via.Source.Unmap().Is6() {
		target = netip.MustParseAddrPort("[2001:db8::1]:1")
	}
	if !takesPort(o.kind) {
		target = netip.AddrPortFrom(target.Addr(), 0)
	}
	if _, err := m.NewChecker(target, healthcheck.Env{}); err != nil {
		o.p.errorf(o.at, "check: %v", err)
	}
}

// stream is a connection, in the clear or with TLS, and what is said over it.
func (o *options) stream(via healthcheck.Via) healthcheck.Method {
	c := tcpcheck.Check{Via: via}
	if o.kind == checkTLS {
		c.TLS = o.tls()
	}
	steps := o.given["steps"]
	for _, name := range []string{"send", "expect"} {
		if v := o.given[name]; v != nil && steps != nil {
			o.p.errorf(v, "%s: it belongs into steps, which is there", name)
		}
	}
	switch {
	case steps != nil:
		c.Steps = o.steps(steps)
	case o.given["send"] != nil || o.given["expect"] != nil:
		c.Steps = []tcpcheck.Step{{Send: o.payload("send"), Expect: o.expect("expect")}}
	}
	return c
}

func (o *options) steps(n *node) []tcpcheck.Step {
	if n.kind != sequence || n.first == nil {
		o.p.errorf(n, "steps: want a list of steps, got %s", describe(n))
		return nil
	}
	var list []tcpcheck.Step
	for item := n.first; item != nil && !o.p.full; item = item.next {
		var s tcpcheck.Step
		o.p.object(item, stepObject, func(k *key, v *node) {
			if k.name == "send" {
				s.Send = o.p.payload(k, v)
			} else {
				s.Expect = o.p.expect(k, v, matchObject)
			}
		})
		list = append(list, s)
	}
	return list
}

// datagram is a datagram and what comes back.
func (o *options) datagram(via healthcheck.Via) healthcheck.Method {
	return udpcheck.Check{
		Via:          via,
		Payload:      o.payload("send"),
		Expect:       o.expect("expect"),
		RequireReply: o.wantsReply(),
		MinReply:     o.integer("min_reply"),
		MaxReply:     o.integer("max_reply"),
	}
}

// wantsReply says whether silence fails a check of UDP. Who says what an answer must
// be like wants one, unless require_reply says otherwise.
func (o *options) wantsReply() bool {
	if o.given["require_reply"] != nil {
		return o.boolean("require_reply")
	}
	return o.given["expect"] != nil || o.integer("min_reply") > 0
}
