package userspace

import (
	"context"
	"errors"
	"iter"
	"net/netip"

	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/internal/userspace/ruleset"
	"github.com/lbd-project/lbd/ipvs"
)

// Connections streams the connections that conntrack has, and then the
// persistence templates, in no order and with the kernel's IPVS names of states.
// An error ends it. It is not a snapshot. One-packet datagrams are no
// connections.
func (e *Engine) Connections(ctx context.Context) iter.Seq2[ipvs.Connection, error] {
	return func(yield func(ipvs.Connection, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stopped := false
		err := e.dump(ctx, func(ev *conntrack.Event) {
			if stopped {
				return
			}
			if c, ok := e.connection(ev); ok && !yield(c, nil) {
				stopped = true
				cancel()
			}
		})
		if stopped {
			return
		}
		// What changed meanwhile may be missing, as in the kernel's list.
		if err != nil && !errors.Is(err, conntrack.ErrInterrupted) {
			yield(ipvs.Connection{}, &ipvs.Error{Op: "read connections", Err: err})
			return
		}
		list, err := e.listRouted(ctx)
		if err != nil {
			yield(ipvs.Connection{}, &ipvs.Error{Op: "read connections", Err: err})
			return
		}
		for _, c := range list {
			if !yield(c, nil) {
				return
			}
		}
		var some []ipvs.Connection
		for n := 0; n >= 0; {
			if some, n = e.listTemplates(n, some[:0]); ctx.Err() != nil {
				yield(ipvs.Connection{}, &ipvs.Error{Op: "read connections", Err: context.Cause(ctx)})
				return
			}
			for _, c := range some {
				if !yield(c, nil) {
					return
				}
			}
		}
	}
}

// connection returns a flow of conntrack as IPVS would list it.
func (e *Engine) connection(ev *conntrack.Event) (ipvs.Connection, bool) {
	e.mu.Lock()
	s := e.model.server(e.marks.id(ev.Mark))
	e.mu.Unlock()
	if s == nil {
		return ipvs.Connection{}, false
	}
	return ipvs.Connection{
		Protocol: ipvs.Protocol(ev.Orig.Protocol),
		Client:   netip.AddrPortFrom(ev.Orig.Src(), ev.Orig.SrcPort),
		Virtual:  netip.AddrPortFrom(ev.Orig.Dst(), ev.Orig.DstPort),
		Server:   netip.AddrPortFrom(ev.Reply.Src(), ev.Reply.SrcPort),
		State:    stateName(ev),
		Expires:  ev.Timeout,
	}, true
}

// listRouted returns the flows of real servers that get packets as they are. Only
// whether they close is known of them.
func (e *Engine) listRouted(ctx context.Context) (list []ipvs.Connection, err error) {
	e.mu.Lock()
	any := e.model.routed
	e.mu.Unlock()
	if !any {
		return nil, nil
	}
	err = e.rules.Flows(ctx, func(v *ruleset.Flow) {
		e.mu.Lock()
		defer e.mu.Unlock()
		s := e.model.server(e.marks.id(v.Mark))
		if s == nil {
			return
		}
		state := "UDP"
		switch {
		case v.Protocol == uint8(ipvs.UDP):
		case v.Inactive:
			state = "FIN_WAIT"
		default:
			state = "ESTABLISHED"
		}
		list = append(list, ipvs.Connection{
			Protocol: ipvs.Protocol(v.Protocol),
			Client:   netip.AddrPortFrom(v.Src(), v.SrcPort), Virtual: netip.AddrPortFrom(v.Dst(), v.DstPort),
			Server: s.Address, State: state, Expires: v.Expires,
		})
	})
	return list, err
}

// tcpStates are IPVS's names for conntrack's states, by enum tcp_conntrack, of a
// connection that the client closes first (tcp_states in
// net/netfilter/ipvs/ip_vs_proto_tcp.c): from the first packet on it is SYN_RECV
// to IPVS, from the second FIN on TIME_WAIT.
var tcpStates = [...]string{
	"NONE", "SYN_RECV", "SYN_RECV", "ESTABLISHED", "CLOSE_WAIT", "CLOSE_WAIT", "TIME_WAIT", "TIME_WAIT", "CLOSE", "SYN_RECV",
}

// sctpStates are IPVS's names for conntrack's states, by enum sctp_conntrack
// (sctp_state_name_table in net/netfilter/ipvs/ip_vs_proto_sctp.c). Conntrack
// calls a shutdown sent that the client asked for, IPVS received.
var sctpStates = [...]string{
	"NONE", "CLOSED", "INIT1", "C-REPLIED", "ESTABLISHED", "S-RECEIVED", "S-SENT", "S-ACK-SENT",
}

// stateName returns IPVS's name of the state of a flow.
func stateName(ev *conntrack.Event) string {
	name := func(names []string, state uint8) string {
		if int(state) < len(names) {
			return names[state]
		}
		return "NONE"
	}
	switch ipvs.Protocol(ev.Orig.Protocol) {
	case ipvs.TCP:
		n := name(tcpStates[:], ev.TCPState)
		if n == "CLOSE_WAIT" && ev.ServerCloses {
			return "FIN_WAIT"
		}
		return n
	case ipvs.SCTP:
		return name(sctpStates[:], ev.SCTPState)
	case ipvs.UDP:
		return "UDP"
	}
	return "NONE"
}

// someTemplates is how many numbers listTemplates looks at: packets wait for it.
const someTemplates = 1024

// listTemplates appends some of the templates to list, from number n on, as IPVS
// lists them: the client's port is 0, its address masked, and a mark is in the
// place of the address. It returns where to go on, -1 at the end.
func (e *Engine) listTemplates(n int, list []ipvs.Connection) ([]ipvs.Connection, int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	to := min(n+someTemplates, len(e.templates.list))
	for ; n < to; n++ {
		t := &e.templates.list[n]
		if t.server == nil || t.stale {
			continue
		}
		k := t.server.service.ServiceKey
		c := ipvs.Connection{
			Protocol: k.Protocol, Client: netip.AddrPortFrom(t.key.client, 0), Virtual: k.Address,
			Server: t.server.Address, State: "NONE", Expires: max(t.expires-e.now, 0),
		}
		if k.FWMark != 0 {
			c.Virtual = netip.AddrPortFrom(markAddress(k), 0)
		}
		list = append(list, c)
	}
	if to == len(e.templates.list) {
		return list, -1
	}
	return list, to
}

// markAddress writes a mark as an address of the service's family, in its first
// bytes, as ip_vs_sched_persist has it.
func markAddress(k ipvs.ServiceKey) netip.Addr {
	m := [4]byte{byte(k.FWMark >> 24), byte(k.FWMark >> 16), byte(k.FWMark >> 8), byte(k.FWMark)}
	if k.Family == ipvs.IPv4 {
		return netip.AddrFrom4(m)
	}
	var a [16]byte
	copy(a[:], m[:])
	return netip.AddrFrom16(a)
}
