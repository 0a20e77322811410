package config

import (
	"net/netip"
	"time"

	"github.com/lbd-project/lbd/ipvs"
)

// serverDraft is a real server while its keys are read, or what the real servers
// of a service start from. A position is nil where the value is a default.
type serverDraft struct {
	at               *node
	addressAt        *node
	address          netip.Addr
	port             int // noPort for none
	weight           uint32
	forward          ipvs.ForwardMethod
	tunnel           ipvs.TunnelOptions
	tunnelAt         *node
	upper, lower     uint32
	upperAt, lowerAt *node
	checks           []check
	agent            *agent // nil for none
	onFailure        OnFailure
	onFailureAt      *node
	drainTimeout     time.Duration
}

// forget makes what is set a default.
func (d *serverDraft) forget() {
	d.tunnelAt, d.upperAt, d.lowerAt, d.onFailureAt = nil, nil, nil, nil
}

// setServer sets a key of a real server.
func (p *parser) setServer(d *serverDraft, k *key, v *node) {
	switch k.name {
	case "address":
		d.addressAt = v
		d.address, d.port, _ = p.addrPort(k, v)
	case "weight":
		i, _ := p.integer(k, v)
		d.weight = uint32(i)
	case "forwarding":
		switch s, _ := p.word(k, v); s {
		case "route":
			d.forward = ipvs.Route
		case "tunnel":
			d.forward = ipvs.Tunnel
		default:
			d.forward = ipvs.Masq
		}
	case "tunnel":
		d.tunnelAt = v
		d.tunnel = p.parseTunnel(v)
	case "upper_threshold":
		i, _ := p.integer(k, v)
		d.upper, d.upperAt = uint32(i), v
	case "lower_threshold":
		i, _ := p.integer(k, v)
		d.lower, d.lowerAt = uint32(i), v
	case "check":
		d.checks = p.parseCheckList(v)
	case "agent":
		d.agent = p.parseAgent(v)
	case "on_failure":
		s, _ := p.word(k, v)
		d.onFailure, d.onFailureAt = OnFailure(s), v
	case "drain_timeout":
		d.drainTimeout, _ = p.duration(k, v)
	default:
		panic(unhandled(k))
	}
}

// addrPort reads an address with or without a port.
func (p *parser) addrPort(k *key, v *node) (netip.Addr, int, bool) {
	if v.kind != scalar || v.isNull() {
		hint := ""
		if v.kind == sequence {
			hint = ": an IPv6 address in brackets needs quotes"
		}
		p.errorf(v, "%s: want an address, got %s%s", k.name, describe(v), hint)
		return netip.Addr{}, noPort, false
	}
	a, port, problem := parseAddrPort(v.value)
	if problem == "" {
		problem = notUnicast(a)
	}
	if problem != "" {
		p.errorf(v, "%s: %s: %s", k.name, describe(v), problem)
		return netip.Addr{}, noPort, false
	}
	return a, port, true
}

// parseTunnel reads tunnel.
func (p *parser) parseTunnel(n *node) ipvs.TunnelOptions {
	var o ipvs.TunnelOptions
	var portAt, checksumAt *node
	before := len(p.errs)
	set := func(k *key, v *node) {
		switch k.name {
		case "type":
			if s, ok := p.word(k, v); ok {
				_ = o.Type.UnmarshalText([]byte(s)) // the schema has no other words
			}
		case "port":
			i, _ := p.integer(k, v)
			o.Port, portAt = uint16(i), v
		case "checksum":
			if s, ok := p.word(k, v); ok {
				_ = o.Checksum.UnmarshalText([]byte(s))
				checksumAt = v
			}
		default:
			panic(unhandled(k))
		}
	}
	defaults(tunnelObject, set)
	portAt, checksumAt = n, n
	if !p.object(n, tunnelObject, set) || len(p.errs) > before {
		return ipvs.TunnelOptions{}
	}
	switch {
	case o.Type == ipvs.TunnelGUE && o.Port == 0:
		p.errorf(portAt, "tunnel: gue needs a port")
	case o.Type != ipvs.TunnelGUE && o.Port != 0:
		p.errorf(portAt, "tunnel: %s has no port", o.Type)
	}
	switch {
	case o.Type == ipvs.TunnelIPIP && o.Checksum != ipvs.ChecksumNone:
		p.errorf(checksumAt, "tunnel: ipip has no checksum")
	case o.Type == ipvs.TunnelGRE && o.Checksum == ipvs.ChecksumRemote:
		p.errorf(checksumAt, "tunnel: only gue has remcsum")
	}
	return o
}

// parseServer reads a real server of svc, whose draft is sd, into rs.
func (p *parser) parseServer(n *node, sd *serviceDraft, svc *VirtualService, rs *RealServer) bool {
	d := sd.server
	d.at, d.port = n, noPort
	d.tunnelAt = nil // a tunnel of the service is for those servers that tunnel
	before := len(p.errs)
	if !p.object(n, serverObject, func(k *key, v *node) { p.setServer(&d, k, v) }) || len(p.errs) > before {
		return false
	}
	addr := netip.AddrPortFrom(d.address, p.serverPort(&d, sd, svc))
	if first, ok := p.servers[addr]; ok {
		p.errorf(d.addressAt, "duplicate real server %s, first at line %d", addr, first)
		return false
	}
	p.servers[addr] = d.addressAt.line
	p.checkServer(&d, svc)
	*rs = RealServer{
		Destination: ipvs.Destination{
			Address:        addr,
			Weight:         d.weight,
			Forward:        d.forward,
			UpperThreshold: d.upper,
			LowerThreshold: d.lower,
		},
		DrainTimeout: d.drainTimeout,
	}
	p.onFailure(&d, svc, rs)
	if d.forward == ipvs.Tunnel {
		rs.Tunnel = d.tunnel
	}
	if svc.Protocol == ipvs.UDP {
		p.warnTCPCheck(d.checks)
	}
	rs.Probes, rs.Rule = p.apply(&d, addr, svc)
	if d.agent != nil {
		rs.Probes = p.addAgent(rs.Probes, d.agent, addr)
	}
	return len(p.errs) == before
}

// serverPort returns the real server's port. Where the kernel would ignore the
// one in the file, that is an error: the file would say what does not happen.
func (p *parser) serverPort(d *serverDraft, sd *serviceDraft, svc *VirtualService) uint16 {
	want := svc.Address.Port() // 0 with fwmark
	switch {
	case d.port == noPort:
		return want
	case d.port == int(want):
	case d.forward != ipvs.Masq:
		p.errorf(d.addressAt, "address: the kernel leaves the port alone with forwarding %s: leave out the port %d", forwardWord(d.forward), d.port)
	case d.port == 0:
		p.errorf(d.addressAt, "address: port 0 keeps the port of the packet: only for a service with port 0 or an fwmark")
	case want == 0 && sd.persistent:
		p.errorf(d.addressAt, "address: the kernel keeps the port of the packet in a persistent service with %s: leave out the port %d",
			map[bool]string{true: "an fwmark", false: "port 0"}[svc.FWMark != 0], d.port)
	}
	return uint16(d.port)
}

func forwardWord(m ipvs.ForwardMethod) string {
	switch m {
	case ipvs.Route:
		return "route"
	case ipvs.Tunnel:
		return "tunnel"
	default:
		return "masq"
	}
}

// checkServer refuses what contradicts itself.
func (p *parser) checkServer(d *serverDraft, svc *VirtualService) {
	if d.address.Is6() && d.address.IsLinkLocalUnicast() {
		p.errorf(d.addressAt, "address: %s: the kernel refuses link-local real servers", describe(d.addressAt))
	}
	if f := ipvs.FamilyOf(d.address); f != svc.Family && d.forward != ipvs.Tunnel {
		p.errorf(d.addressAt, "address: an %s real server of an %s service needs forwarding: tunnel", f, svc.Family)
	}
	if d.tunnelAt != nil && d.forward != ipvs.Tunnel {
		p.errorf(d.tunnelAt, "tunnel: needs forwarding: tunnel, which is %s here", forwardWord(d.forward))
	}
	if d.lower > d.upper {
		p.errorf(orNode(d.lowerAt, orNode(d.upperAt, d.at)), "lower_threshold: want at most upper_threshold, which is %d, got %d", d.upper, d.lower)
	}
	// ip_vs_twos multiplies 32-bit integers: 256 for each active connection
	// times a weight.
	if most := uint32(1<<31) / 256 / max(d.weight, 1); svc.Scheduler == "twos" && most < 1<<16 {
		p.warnf(d.at, "weight %d with scheduler twos: the kernel's comparison overflows above %d active connections", d.weight, most)
	}
}

// warnTCPCheck warns of a check that tries the number of a UDP port with TCP.
func (p *parser) warnTCPCheck(list []check) {
	for i := range list {
		c := &list[i]
		p.warnTCPCheck(c.of)
		if c.kind == checkTCP && !c.bad && c.port == 0 {
			p.warnOnce(c.at, "check: tcp is tried on the port of a service with protocol udp: give the check a port if the real server does not listen there with TCP")
		}
	}
}

func orNode(a, b *node) *node {
	if a != nil {
		return a
	}
	return b
}
