package ruleset

import (
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The tables of Paths. A packet of a check is known by its priority: one half says
// what has become of it, the other is the number of its path.
const (
	pathSocket = 0x6c62 << 16 // as its socket sent it
	pathCopy   = 0x6c63 << 16 // what goes to the real server
	pathTurned = 0x6c64 << 16 // on its way back to this host
	pathState  = 0xffff << 16
	pathNumber = 0xffff

	chainPathOut   = "checks_output"
	chainPathPost  = "checks_postrouting"
	chainPathIn    = "checks_prerouting"
	chainPathSend  = "send"
	chainPathLeave = "leave"

	mapPathServices = "services" // number : address of the service
	mapPathServers  = "servers"  // number : address of the real server
	mapPathTunnels  = "tunnels"  // number : address that leads into tunnels
	mapPathAnswers  = "answers"  // address . service . protocol . port . port : real server

	maxPathAnswers = 1 << 18 // elements of mapPathAnswers
	// pathTimeout is how long an answer may take, at least as long as a check.
	pathTimeout = PathTimeout + 5*time.Second

	// After everybody else has seen the packet in the hook, and before connection
	// tracking.
	priorityPathSend   = 350
	priorityPathAnswer = -350
)

// Registers of a path's rules: the tuple begins in reg1.
const (
	regPath     = reg32 + 11
	regPathPeer = reg32 + 12 // 16 bytes
)

// priorityIs compares the state of a path in the priority.
func priorityIs(op expr.CmpOp, state uint32) exprs {
	return exprs{meta(expr.MetaKeyPRIORITY, regPath), bitwise(regPath, pathState, 0), holds(op, regPath, u32(state))}
}

// setPathState gives the packet another state.
func setPathState(state uint32) exprs {
	return exprs{meta(expr.MetaKeyPRIORITY, regPath), bitwise(regPath, pathNumber, state), setMeta(expr.MetaKeyPRIORITY, regPath)}
}

func noPriority() exprs { return exprs{imm(regPath, u32(0)), setMeta(expr.MetaKeyPRIORITY, regPath)} }

// byNumber is "meta priority & NUMBER map @name" into a register.
func byNumber(name string, reg uint32) exprs {
	return exprs{meta(expr.MetaKeyPRIORITY, regPath), bitwise(regPath, pathNumber, 0),
		&expr.Lookup{SourceRegister: regPath, DestRegister: reg, IsDestRegSet: true, SetName: name}}
}

// pathRegs are where the parts of a tuple are after the first address.
func (v *version) pathRegs() (service, proto, sport, dport uint32) {
	n := v.after - reg32
	return reg32 + n, reg32 + 2*n, reg32 + 2*n + 1, reg32 + 2*n + 2
}

// leavePath gives the copy the service's address as its destination, changes by each
// of operations the element by which answers find their real server, and ends.
func (v *version) leavePath(operations ...uint32) exprs {
	service, proto, sport, dport := v.pathRegs()
	e := exprs{v.network(regPathPeer, v.daddr)}
	e = append(e, byNumber(mapPathServices, reg1)...)
	e = append(e, v.setAddress(v.daddr),
		v.network(reg1, v.saddr), v.network(service, v.daddr), meta(expr.MetaKeyL4PROTO, proto),
		transport(sport, offSPort, 2), transport(dport, offDPort, 2))
	for _, o := range operations {
		e = append(e, &expr.Dynset{SrcRegKey: reg1, SrcRegData: regPathPeer, SetName: mapPathAnswers, Operation: o})
	}
	return append(e, goTo(chainPathLeave)...)
}

// pathOutRules are what a packet of a check meets when all others have seen it on
// its way to the real server's own address. It is turned back to this host, so that
// connection tracking has confirmed its connection before the real server can answer,
// and so that its end is none to its socket.
func (v *version) pathOutRules() []exprs {
	return []exprs{
		// meta priority & STATE != SOCKET accept
		rule(priorityIs(expr.CmpOpNeq, pathSocket), verdict(expr.VerdictAccept)),
		// oif lo accept
		//
		// To a real server that is this host. With the service's address it would
		// be a client's packet, to be balanced: it keeps the real server's own.
		rule(exprs{meta(expr.MetaKeyOIF, reg1), holds(expr.CmpOpEq, reg1, u32(loopback))}, verdict(expr.VerdictAccept)),
		// meta priority & NUMBER map @servers meta priority set TURNED ip daddr set ip saddr accept
		rule(byNumber(mapPathServers, reg1), setPathState(pathTurned),
			exprs{v.network(reg1, v.saddr), v.setAddress(v.daddr)}, verdict(expr.VerdictAccept)),
		// drop
		//
		// Of a path that is no more.
		verdict(expr.VerdictDrop),
	}
}

// pathSendRules send a copy of what came back, to the real server or into the tunnel
// to it.
func (v *version) pathSendRules() []exprs {
	send := func(neighbour uint32) exprs {
		return rule(byNumber(mapPathServers, reg1), exprs{v.setAddress(v.daddr)}, setPathState(pathCopy),
			exprs{&expr.Dup{RegAddr: neighbour}}, verdict(expr.VerdictDrop))
	}
	return []exprs{
		// ip daddr set meta priority & NUMBER map @servers meta priority set COPY dup to meta priority & NUMBER map @tunnels drop
		rule(byNumber(mapPathTunnels, regPathPeer), send(regPathPeer)),
		// ip daddr set meta priority & NUMBER map @servers meta priority set COPY dup to ip daddr drop
		send(reg1),
		// drop
		verdict(expr.VerdictDrop),
	}
}

// pathPostRules turn the copy into what a client's packet is like.
func (v *version) pathPostRules() []exprs {
	other := exprs{meta(expr.MetaKeyL4PROTO, reg1), holds(expr.CmpOpNeq, reg1, []byte{protoTCP}), holds(expr.CmpOpNeq, reg1, []byte{protoUDP})}
	const update = unix.NFT_DYNSET_OP_UPDATE
	return []exprs{
		// meta priority & STATE != COPY accept
		rule(priorityIs(expr.CmpOpNeq, pathCopy), verdict(expr.VerdictAccept)),
		// meta l4proto != tcp meta l4proto != udp meta priority set 0 accept
		//
		// The tunnel is around it.
		rule(other, noPriority(), verdict(expr.VerdictAccept)),
		// tcp flags & (syn|ack) == syn
		//	ip daddr set meta priority & NUMBER map @services
		//	delete @answers { ip saddr . ip daddr . meta l4proto . th sport . th dport : the former ip daddr }
		//	update @answers { … } goto leave
		//
		// What an earlier check with the same port left would stay: an update keeps
		// the value.
		rule(protocol(protoTCP), tcpFlags(tcpSYN|tcpACK, expr.CmpOpEq, tcpSYN), v.leavePath(dynsetDelete, update)),
		// meta l4proto udp … delete … update … goto leave
		rule(protocol(protoUDP), v.leavePath(dynsetDelete, update)),
		// tcp flags & rst != 0 … delete … goto leave
		rule(protocol(protoTCP), tcpFlags(tcpRST, expr.CmpOpNeq, 0), v.leavePath(dynsetDelete)),
		// … update … goto leave
		v.leavePath(update),
		// drop
		verdict(expr.VerdictDrop),
	}
}

// pathLeaveRules end the post rules. What goes into a tunnel needs its number there.
func (v *version) pathLeaveRules() []exprs {
	return []exprs{
		// meta priority & NUMBER map @tunnels accept
		rule(byNumber(mapPathTunnels, reg1), verdict(expr.VerdictAccept)),
		// meta priority set 0
		noPriority(),
	}
}

// pathInRules make an answer one of the real server's own address.
func (v *version) pathInRules() []exprs {
	service, proto, sport, dport := v.pathRegs()
	return []exprs{
		// iif lo meta priority & STATE == TURNED goto send
		rule(exprs{meta(expr.MetaKeyIIF, reg1), holds(expr.CmpOpEq, reg1, u32(loopback))},
			priorityIs(expr.CmpOpEq, pathTurned), goTo(chainPathSend)),
		// ip saddr set ip daddr . ip saddr . meta l4proto . th dport . th sport map @answers
		{
			v.network(reg1, v.daddr), v.network(service, v.saddr), meta(expr.MetaKeyL4PROTO, proto),
			transport(sport, offDPort, 2), transport(dport, offSPort, 2),
			&expr.Lookup{SourceRegister: reg1, DestRegister: reg1, IsDestRegSet: true, SetName: mapPathAnswers},
			v.setAddress(v.saddr),
		},
	}
}

// pathChains are the chains of a table.
func (v *version) pathChains() []chain {
	filter, route := nftables.ChainTypeFilter, nftables.ChainTypeRoute
	in, out, post := nftables.ChainHookPrerouting, nftables.ChainHookOutput, nftables.ChainHookPostrouting
	return []chain{
		{name: chainPathSend, rules: v.pathSendRules()},
		{name: chainPathLeave, rules: v.pathLeaveRules()},
		{chainPathOut, out, route, priorityPathSend, v.pathOutRules()},
		{chainPathPost, post, filter, priorityPathSend, v.pathPostRules()},
		{chainPathIn, in, filter, priorityPathAnswer, v.pathInRules()},
	}
}
