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
		for _, c := range append(list, e.listTemplates()...) {
			if !yield(c, nil) {
				return
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

// tcpStates are IPVS's names for conntrack's states, by enum tcp_conntrack: from
// the first packet on a connection is SYN_RECV to IPVS.
var tcpStates = [...]string{
	"NONE", "SYN_RECV", "SYN_RECV", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE", "SYN_RECV",
}

// sctpStates are IPVS's names for conntrack's states, by enum sctp_conntrack.
var sctpStates = [...]string{
	"NONE", "CLOSED", "COOKIE_WAIT", "COOKIE_ECHOED", "ESTABLISHED", "SHUTDOWN_SENT", "SHUTDOWN_RECEIVED", "SHUTDOWN_ACK_SENT",
}

func stateName(ev *conntrack.Event) string {
	name := func(names []string, state uint8) string {
		if int(state) < len(names) {
			return names[state]
		}
		return "NONE"
	}
	switch ipvs.Protocol(ev.Orig.Protocol) {
	case ipvs.TCP:
		return name(tcpStates[:], ev.TCPState)
	case ipvs.SCTP:
		return name(sctpStates[:], ev.SCTPState)
	case ipvs.UDP:
		return "UDP"
	}
	return "NONE"
}

// listTemplates returns the templates as IPVS lists them: the client's port is
// 0, its address masked, and a mark is in the place of the address.
func (e *Engine) listTemplates() []ipvs.Connection {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := make([]ipvs.Connection, 0, len(e.templates.byKey))
	for _, n := range e.templates.byKey {
		t := &e.templates.list[n]
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
	return list
}

// markAddress writes a mark as an address of the service's family, as
// ip_vs_conn_fill_param_persist has it.
func markAddress(k ipvs.ServiceKey) netip.Addr {
	m := [4]byte{byte(k.FWMark >> 24), byte(k.FWMark >> 16), byte(k.FWMark >> 8), byte(k.FWMark)}
	if k.Family == ipvs.IPv4 {
		return netip.AddrFrom4(m)
	}
	var a [16]byte
	copy(a[12:], m[:])
	return netip.AddrFrom16(a)
}
