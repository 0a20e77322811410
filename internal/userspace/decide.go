package userspace

import (
	"net/netip"
	"slices"

	"github.com/lbd-project/lbd/internal/flow"
	"github.com/lbd-project/lbd/internal/nfqueue"
	"github.com/lbd-project/lbd/internal/packet"
	"github.com/lbd-project/lbd/internal/userspace/flowtable"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// reader answers the packets of one queue, on the queue's thread.
type reader struct {
	engine *Engine
	parser packet.Parser
	// packets are the batch, read what the parser made of them.
	packets []nfqueue.Packet
	read    []readPacket
	// info is the packet that is being answered, packet what schedulers see of it.
	info   *packet.Info
	packet sched.Packet
	// drained says whether the events were read since the batch came.
	drained bool
}

// readPacket is what the parser made of a packet, good where it was one.
type readPacket struct {
	packet.Info
	good bool
}

// pass lets a packet go on without a mark: if it is for a virtual service after
// all, the rules behind the queue give it one by weight.
var pass = nfqueue.Verdict{Accept: true}

// Batch reads packets.
func (r *reader) Batch(packets []nfqueue.Packet) {
	r.packets, r.drained = packets, false
	r.read = slices.Grow(r.read[:0], len(packets))[:len(packets)]
	for i := range packets {
		v := &r.read[i]
		v.good = r.parser.Parse(packets[i].Payload, &v.Info) == nil
	}
	if len(packets) > 1 {
		r.fetch()
	}
}

// fetch looks up the flows of a batch only to have their memory loaded: here the
// processor waits for that of several at once, later each packet would in turn.
func (r *reader) fetch() {
	e := r.engine
	e.mu.Lock()
	defer e.mu.Unlock() // whatever happens: all others wait for it
	for i := range r.read {
		if v := &r.read[i]; v.good {
			e.flows.Get(&v.Tuple)
		}
	}
}

// Answer decides on a packet of the batch: the first of a flow, or one that overtook
// what was decided on the first.
func (r *reader) Answer(i int) nfqueue.Verdict {
	e, p := r.engine, &r.packets[i]
	if !r.read[i].good {
		e.unparsed.Add(1)
		return pass
	}
	r.info = &r.read[i].Info
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.info.FIN || r.info.RST {
		e.closeRouted(&r.info.Tuple)
		return pass
	}
	svc := e.model.find(&r.info.Tuple, p.Mark&^e.marks.mask)
	if svc == nil {
		return pass
	}
	if e.crowded(&r.info.Tuple) {
		return nfqueue.Verdict{Accept: e.opt.FailOpen}
	}
	mark := e.marks.refuse()
	if s := r.decide(svc, p); s != nil {
		mark = e.marks.of(s.id)
	}
	return nfqueue.Verdict{Accept: true, SetMark: true, Mark: p.Mark&^e.marks.mask | mark}
}

// find returns the service of a packet: by its mark, by address and port, by
// address alone (ip_vs_service_find in net/netfilter/ipvs/ip_vs_ctl.c).
func (m *model) find(t *flow.Tuple, mark uint32) *service {
	family := ipvs.IPv6
	if t.Is4() {
		family = ipvs.IPv4
	}
	if m.marked && mark != 0 {
		if s := m.services[ipvs.MarkService(family, mark)]; s != nil {
			return s
		}
	}
	k := ipvs.ServiceKey{Family: family, Protocol: ipvs.Protocol(t.Protocol), Address: netip.AddrPortFrom(t.Dst(), t.DstPort)}
	if s := m.services[k]; s != nil || !m.anyPort {
		return s
	}
	k.Address = netip.AddrPortFrom(t.Dst(), 0)
	return m.services[k]
}

// decide returns the real server of a packet's flow, nil where none is
// available. A flow is decided on and counted once: the same packet again gets
// the same answer.
func (r *reader) decide(svc *service, p *nfqueue.Packet) *server {
	e, in := r.engine, r.info
	if onePacket(&svc.Service) && in.Protocol == uint8(ipvs.UDP) {
		return r.once(svc, p)
	}
	if svc.signals {
		// What was answered a moment ago matters.
		e.setTime()
		r.drain()
	}
	st := initialState(in.Protocol)
	if e.closedDue {
		e.readClosed()
		r.drained = true
	}
	var before *server
	old := e.flows.Get(&in.Tuple)
	if old != nil {
		before = e.model.server(old.Server)
		if !r.drained && r.drain() {
			old = e.flows.Get(&in.Tuple)
		}
	}
	repeats := false
	if old != nil {
		// Now: below, old's place and when it was Born become the next one's.
		repeats = e.repeats(old, in.Protocol)
		if s := r.sameFlow(old); s != nil {
			if repeats {
				s.repeated++
			}
			return s
		}
	}
	var s *server
	var n uint32
	r.fill()
	again := e.again(svc, in)
	kept := again
	if kept == nil && e.keepsServer(svc, before) {
		kept = before
	}
	switch {
	case svc.persistent():
		s, n = e.persistent(svc, &r.packet, st)
	case kept != nil:
		s = kept
		svc.table.Count(s.sched, sched.Uncounted, st)
	default:
		s = e.pick(svc, &r.packet, st)
	}
	f := old // its place in the table
	switch {
	case s == nil:
		if old != nil {
			e.flows.Delete(&in.Tuple)
		}
		return nil
	case old != nil:
		f.Reused = false
	default:
		f, _ = e.flows.Insert(&in.Tuple)
	}
	f.Server, f.State, f.Seq, f.Template = s.id, st, in.Seq, n
	f.Born, f.Generation = e.tick, e.generation
	s.flows++
	if repeats {
		s.repeated++
	}
	s.watch(f, in.Protocol)
	if n != 0 {
		e.templates.list[n].flows++
	}
	if again == nil {
		e.countConnection(svc, s)
	}
	return s
}

// drain takes in the events that wait, also those of before the packet came, and
// says whether there were any.
func (r *reader) drain() (some bool) {
	r.drained = true
	return r.engine.drain()
}

// sameFlow returns the server of the flow that the packet belongs to. It returns
// nil where the flow that the table has of this tuple is an old one, which counts no
// more then.
//
// The packet would not be queued if conntrack had its flow. So either a first
// copy of it is still on its way, or the old flow is gone: then the end of it was
// among the events before the packet was queued, or made none, or it was never
// confirmed.
func (r *reader) sameFlow(f *flowtable.Flow) *server {
	e, in := r.engine, r.info
	if s := e.model.server(f.Server); s != nil {
		if f.Seq == in.Seq || e.tick-f.Born <= atOnceTicks {
			e.doubt(s, f)
		}
		if f.Seq == in.Seq && !s.dead && e.tick-f.Born <= settleTicks {
			return s
		}
	}
	how := e.missing(f)
	if f.Seq == in.Seq && f.Open {
		how = lost // it comes again because nobody has answered it
	}
	if e.resyncing {
		e.overtaken[e.entry(0, &in.Tuple)] = true
	}
	e.uncount(f, how)
	return nil
}

// keepsServer says whether a client's port that is used again stays with the
// server that it had, as net.ipv4.vs.conn_reuse_mode 0 wants.
func (e *Engine) keepsServer(svc *service, before *server) bool {
	return e.sysctls.connReuseMode == 0 && before != nil && !before.dead && before.service == svc &&
		!(e.sysctls.expireNodestConn && before.Weight == 0)
}

// onePacket says whether there may be datagrams that a service schedules one by
// one. The kernel ignores the flag for other protocols.
func onePacket(s *ipvs.Service) bool {
	return s.Flags&ipvs.FlagOnePacket != 0 && (s.FWMark != 0 || s.Protocol == ipvs.UDP)
}

// once schedules a datagram by itself, which is not counted.
func (r *reader) once(svc *service, p *nfqueue.Packet) *server {
	e := r.engine
	r.fill()
	var s *server
	if svc.persistent() {
		s, _ = e.persistent(svc, &r.packet, sched.Uncounted)
	} else {
		s = e.pick(svc, &r.packet, sched.Uncounted)
	}
	if s == nil {
		return nil
	}
	e.countConnection(svc, s)
	c := counters{packetsIn: 1, bytesIn: uint64(p.Length)}
	svc.traffic.now.add(&c)
	s.traffic.now.add(&c)
	return s
}

func (e *Engine) pick(svc *service, p *sched.Packet, st sched.State) *server {
	s := svc.table.Pick(p, st)
	if s == nil {
		return nil
	}
	return e.model.server(s.ID())
}

func (e *Engine) countConnection(svc *service, s *server) {
	svc.traffic.now.connections++
	s.traffic.now.connections++
}

func (r *reader) fill() {
	t := &r.info.Tuple
	r.packet = sched.Packet{Src: t.Src(), Dst: t.Dst(), SrcPort: t.SrcPort, DstPort: t.DstPort, Protocol: t.Protocol}
}

// initialState is how the kernel counts a flow that begins: TCP is active from
// its first packet on, SCTP when it is established, UDP never.
func initialState(protocol uint8) sched.State {
	if protocol == uint8(ipvs.TCP) {
		return sched.Active
	}
	return sched.Inactive
}

// release forgets a flow and counts it no more.
func (e *Engine) release(f *flowtable.Flow, how outcome) {
	e.uncount(f, how)
	t := f.Tuple()
	e.flows.Delete(&t)
}

// uncount counts a flow that goes no more.
func (e *Engine) uncount(f *flowtable.Flow, how outcome) {
	if s := e.model.server(f.Server); s != nil {
		s.flows--
		if len(e.requests) > 0 {
			t := f.Tuple()
			e.endRequest(&t, s, 0)
		}
		from := s.unwatch(f, how != lost)
		if how == quietly {
			from = s.found(from)
		} else {
			from = s.from(from)
		}
		if !s.service.table.Count(s.sched, from, sched.Uncounted) {
			e.underflow(s)
		}
	}
	if f.Template != 0 {
		e.templates.list[f.Template].flows--
	}
}
