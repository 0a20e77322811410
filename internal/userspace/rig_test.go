package userspace

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/conntrack"
	"github.com/lbd-project/lbd/internal/flow"
	"github.com/lbd-project/lbd/internal/nfqueue"
	"github.com/lbd-project/lbd/internal/userspace/ruleset"
	"github.com/lbd-project/lbd/ipvs"
)

// rig is an engine whose kernel is a model of one.
type rig struct {
	t      testing.TB
	engine *Engine
	reader *reader
	kernel *kernel
	rules  *fakeRules
	store  *fakeStore
	host   fakeHost
	log    *strings.Builder
	batch  []nfqueue.Packet
	clock  time.Duration
	// listeners is how many others listen to events.
	listeners int
}

func newRig(t testing.TB) *rig {
	t.Helper()
	g := &rig{t: t, kernel: newKernel(), rules: &fakeRules{intact: true}, store: &fakeStore{}, log: &strings.Builder{},
		host: fakeHost{ctEvents: "2", ctTimestamp: "0"}}
	g.rules.kernel = g.kernel
	g.kernel.quietMark = func(mark uint32) bool {
		return slices.ContainsFunc(g.rules.spec.Servers, func(s ruleset.Server) bool { return s.Mark == mark && s.Quiet })
	}
	g.kernel.now = func() time.Duration { return g.clock }
	g.start()
	return g
}

// start opens an engine, the next one where there was one.
func (g *rig) start() {
	g.t.Helper()
	log := slog.New(slog.NewTextHandler(g.log, nil))
	e, err := newEngine(Options{Store: g.store, Logger: log}, rand.NewPCG(1, 2))
	if err != nil {
		g.t.Fatal(err)
	}
	e.clock = func() time.Duration { return g.clock }
	g.kernel.events, g.kernel.lost = nil, false // a new socket hears nothing of before
	clear(g.kernel.closed)                      // new rules begin with 0
	clear(g.kernel.closedQuiet)
	clear(g.kernel.traffic)
	e.rules, e.events, e.table, e.host = g.rules, g.kernel, g.kernel, g.host
	e.listeners = func() (int, error) { return g.listeners, nil }
	e.setTime()
	if err := e.remember(); err != nil {
		g.t.Fatal(err)
	}
	if err := e.restore(context.Background()); err != nil {
		g.t.Fatal(err)
	}
	g.engine, g.reader = e, &reader{engine: e}
}

// pass lets time pass, with a tick at its end.
func (g *rig) pass(d time.Duration) {
	g.clock += d
	g.engine.tickEvents()
}

func (g *rig) apply(ops ...ipvs.Op) {
	g.t.Helper()
	if err := g.engine.Apply(context.Background(), ops); err != nil {
		g.t.Fatalf("Apply: %v", err)
	}
}

func (g *rig) resync() {
	g.t.Helper()
	if err := g.engine.resync(context.Background()); err != nil {
		g.t.Fatalf("resync: %v", err)
	}
}

// queue hands the engine the first packet of a flow and returns the mark that it
// gets, 0 for none.
func (g *rig) queue(tu flow.Tuple, seq uint32) uint32 {
	g.t.Helper()
	v := g.answer(nfqueue.Packet{Payload: firstPacket(tu, seq), Length: 60})
	if !v.Accept {
		g.t.Fatalf("packet of %v was dropped", tu)
	}
	if !v.SetMark {
		return 0
	}
	return v.Mark
}

// answer hands the engine a packet that came alone.
func (g *rig) answer(p nfqueue.Packet) nfqueue.Verdict {
	g.batch = append(g.batch[:0], p)
	g.reader.Batch(g.batch)
	return g.reader.Answer(0)
}

// connect queues the first packet of a flow and has conntrack confirm it. It
// returns the address of the real server, "" where the client was refused.
func (g *rig) connect(tu flow.Tuple, seq uint32) string {
	g.t.Helper()
	g.kernel.end(tu) // a tuple that is used again
	mark := g.queue(tu, seq)
	s := g.engine.model.server(g.engine.marks.id(mark))
	if s == nil {
		return ""
	}
	g.kernel.begin(tu, mark, false)
	return s.Address.String()
}

// counts checks active, inactive and persistent connections, "A/I/P" by address.
func (g *rig) counts(svc ipvs.ServiceKey, want map[string]string) {
	g.t.Helper()
	list, err := g.engine.Destinations(context.Background(), svc)
	if err != nil {
		g.t.Fatal(err)
	}
	got := make(map[string]string)
	for _, d := range list {
		got[d.Address.String()] = connsText(d.Conns)
	}
	if diff := diff(want, got); diff != "" {
		g.t.Errorf("counts (-want +got):\n%s", diff)
	}
	if g.engine.underflows != 0 {
		g.t.Errorf("%d counts would have gone below 0:\n%s", g.engine.underflows, g.log)
	}
}

// firstPacket is a SYN, a datagram, or an INIT.
func firstPacket(tu flow.Tuple, seq uint32) []byte {
	var transport []byte
	switch tu.Protocol {
	case 6:
		transport = make([]byte, 20)
		binary.BigEndian.PutUint32(transport[4:], seq)
		transport[12], transport[13] = 5<<4, 2
	case 17:
		transport = make([]byte, 16)
		binary.BigEndian.PutUint16(transport[4:], 16)
	case 132:
		transport = make([]byte, 32)
		transport[12] = 1 // INIT
		binary.BigEndian.PutUint16(transport[14:], 20)
		binary.BigEndian.PutUint32(transport[16:], seq)
	}
	binary.BigEndian.PutUint16(transport, tu.SrcPort)
	binary.BigEndian.PutUint16(transport[2:], tu.DstPort)
	if tu.Is4() {
		ip := make([]byte, 20, 20+len(transport))
		ip[0], ip[8], ip[9] = 0x45, 64, tu.Protocol
		binary.BigEndian.PutUint16(ip[2:], uint16(20+len(transport)))
		src, dst := tu.Src().As4(), tu.Dst().As4()
		copy(ip[12:], src[:])
		copy(ip[16:], dst[:])
		return append(ip, transport...)
	}
	ip := make([]byte, 40, 40+len(transport))
	ip[0], ip[6], ip[7] = 0x60, tu.Protocol, 64
	binary.BigEndian.PutUint16(ip[4:], uint16(len(transport)))
	src, dst := tu.Src().As16(), tu.Dst().As16()
	copy(ip[8:], src[:])
	copy(ip[24:], dst[:])
	return append(ip, transport...)
}

// kernel is conntrack: its table, and the events that wait in the socket.
type kernel struct {
	entries map[flow.Tuple]*entry
	nextID  uint32
	events  []conntrack.Event
	// lose says which events get lost.
	lose           func() bool
	lost, everLost bool
	// drains is how often the socket was read.
	drains int
	// during is called for each entry of a dump, before it is handed on.
	during func(ev *conntrack.Event)
	stats  conntrack.Stats
	// dumpError is what dumps fail with.
	dumpError error
	// closed and closedQuiet are the rules' counters by mark, quietMark says whether
	// connections of one end without an event, and now is the time. marks says that changes of marks make
	// events, as they do where signals are wanted or others listen.
	closed, closedQuiet map[uint32]uint64
	quietMark           func(mark uint32) bool
	now                 func() time.Duration
	marks               bool
	// deleted says that an entry was whose end was quiet.
	deleted bool
	// traffic are their counters of traffic to real servers and back, by mark.
	traffic map[uint32][2]counted
}

type entry struct {
	conntrack.Event
	// told says that its begin made an event: flows of the rules behind the queue.
	told bool
	// quiet says that its end will make none, closed when it closed.
	quiet  bool
	closed time.Duration
}

func newKernel() *kernel {
	return &kernel{
		entries: make(map[flow.Tuple]*entry), closed: make(map[uint32]uint64), closedQuiet: make(map[uint32]uint64),
		traffic: make(map[uint32][2]counted),
	}
}

const (
	testInactive = 0x10000000
	testReuse    = 0x40000000
)

// begin confirms a flow; told makes an event of it.
func (k *kernel) begin(tu flow.Tuple, mark uint32, told bool) {
	k.nextID++
	en := &entry{told: told}
	en.Orig, en.ID, en.Mark = tu, k.nextID, mark
	en.Status = conntrack.StatusConfirmed | conntrack.StatusDstNAT | conntrack.StatusSeenReply
	k.entries[tu] = en
	if told {
		k.send(conntrack.New, en)
	}
}

// close is the first FIN.
func (k *kernel) close(tu flow.Tuple) {
	en := k.entries[tu]
	if en == nil || tu.Protocol != 6 || en.Mark&testInactive != 0 || !k.quietMark(en.Mark&ruleset.DefaultMask) {
		k.reset(tu)
		return
	}
	k.closedQuiet[en.Mark&ruleset.DefaultMask]++
	en.Mark |= testInactive
	en.quiet, en.closed = true, k.now()
}

// reset closes as a RST does: the end makes an event.
func (k *kernel) reset(tu flow.Tuple) {
	if en := k.entries[tu]; en != nil && en.Mark&testInactive == 0 {
		if tu.Protocol == 6 {
			k.closed[en.Mark&ruleset.DefaultMask]++
		}
		en.Mark |= testInactive
		if k.marks {
			k.send(conntrack.Update, en)
		}
	}
}

// expire ends the connections whose time is over.
func (k *kernel) expire() {
	for tu, en := range k.entries {
		if en.quiet && k.now()-en.closed >= ruleset.TimeWait {
			k.end(tu)
		}
	}
}

// reopen lets the entry of a closed connection carry the next one of its ports.
func (k *kernel) reopen(tu flow.Tuple) {
	if en := k.entries[tu]; en != nil && en.Mark&testInactive != 0 {
		en.Mark, en.quiet = en.Mark&^testInactive^testReuse, false
		k.send(conntrack.Update, en)
	}
}

// end is the end of an entry, for whatever reason.
func (k *kernel) end(tu flow.Tuple) {
	if en := k.entries[tu]; en != nil {
		delete(k.entries, tu)
		if !en.quiet {
			k.send(conntrack.Destroy, en)
		}
	}
}

func (k *kernel) sendUpdate(en *entry) { k.send(conntrack.Update, en) }

func (k *kernel) send(kind conntrack.Kind, en *entry) {
	if k.lose != nil && k.lose() {
		k.lost, k.everLost = true, true
		return
	}
	ev := en.Event
	ev.Kind = kind
	k.events = append(k.events, ev)
}

func (k *kernel) Drain(handle func(*conntrack.Event)) (int, error) {
	k.drains++
	n := min(len(k.events), conntrack.DrainLimit)
	for i := range k.events[:n] {
		ev := k.events[i]
		handle(&ev)
	}
	k.events = slices.Delete(k.events, 0, n)
	if n < conntrack.DrainLimit && k.lost {
		k.lost = false
		return n, conntrack.ErrOverrun
	}
	return n, nil
}

func (k *kernel) Dump(ctx context.Context, f conntrack.Filter, handle func(*conntrack.Event)) error {
	var list []conntrack.Event
	for _, en := range k.entries {
		if en.Mark&f.MarkMask == f.Mark && en.Status&f.StatusMask == f.Status {
			list = append(list, en.Event)
		}
	}
	slices.SortFunc(list, func(a, b conntrack.Event) int { return int(a.ID) - int(b.ID) })
	for i := range list {
		list[i].Kind = conntrack.New
		if k.during != nil {
			k.during(&list[i])
		}
		handle(&list[i])
	}
	return k.dumpError
}

func (k *kernel) Delete(ctx context.Context, f conntrack.Filter) error {
	if f.MarkMask == 0 {
		return conntrack.ErrUnboundFlush
	}
	for tu, en := range k.entries {
		if en.Mark&f.MarkMask == f.Mark {
			k.deleted = k.deleted || en.quiet
			k.end(tu)
		}
	}
	return nil
}

func (k *kernel) Stats(context.Context) (conntrack.Stats, error) {
	return k.stats, nil
}

func (k *kernel) Close() error { return nil }

// fakeRules remember what they were told.
type fakeRules struct {
	spec      ruleset.Spec
	applied   int
	abilities ruleset.Abilities
	templates []ruleset.Template
	flows     []ruleset.Flow
	intact    bool
	// changes makes Wait return.
	changes chan struct{}
	kernel  *kernel
	// reading is called by Closed, if it is not nil.
	reading func()
	// closedError is what Closed fails with, trafficError what Traffic does.
	closedError, trafficError error
	// handshakes are what Handshakes visits, handshakesError what it fails with.
	handshakes      []handshake
	handshakesError error
	// trafficReads counts the calls of Traffic.
	trafficReads int
	// renews is what Renews returns.
	renews bool
	// fail is returned by Apply, before is called by it.
	fail   error
	before func(ruleset.Spec)
}

func (r *fakeRules) Abilities() ruleset.Abilities { return r.abilities }

func (r *fakeRules) Renews(*ruleset.Spec) bool { return r.renews || !r.intact }

func (r *fakeRules) Apply(ctx context.Context, s ruleset.Spec) error {
	if r.before != nil {
		r.before(s)
	}
	if r.fail != nil {
		return r.fail
	}
	r.spec, r.intact = s, true
	r.applied++
	return nil
}

func (r *fakeRules) Intact(context.Context) (bool, error) { return r.intact, nil }

// Wait returns for each value that the rig sends to changes.
func (r *fakeRules) Wait(ctx context.Context) error {
	select {
	case <-r.changes:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *fakeRules) Templates(context.Context) ([]ruleset.Template, error) { return r.templates, nil }

func (r *fakeRules) DeleteTemplates(ctx context.Context, service uint32, marks ...uint32) error {
	r.templates = slices.DeleteFunc(r.templates, func(t ruleset.Template) bool {
		return (service == 0 || t.Service == service) && slices.Contains(marks, t.Mark)
	})
	return nil
}

func (r *fakeRules) Closed(visit func(mark uint32, n uint64, quiet bool)) error {
	if r.reading != nil {
		r.reading()
	}
	for mark, n := range r.kernel.closed {
		visit(mark, n, false)
	}
	for mark, n := range r.kernel.closedQuiet {
		visit(mark, n, true)
	}
	return r.closedError
}

func (r *fakeRules) Traffic(visit func(mark uint32, back bool, packets, bytes uint64)) error {
	r.trafficReads++
	for mark, v := range r.kernel.traffic {
		visit(mark, false, v[0].packets, v[0].bytes)
		visit(mark, true, v[1].packets, v[1].bytes)
	}
	return r.trafficError
}

func (r *fakeRules) Handshakes(visit func(mark uint32, kind ruleset.Handshake, n uint64)) error {
	for _, v := range r.handshakes {
		visit(v.mark, v.kind, v.n)
	}
	return r.handshakesError
}

// handshake is what a counter of the rules says.
type handshake struct {
	mark uint32
	kind ruleset.Handshake
	n    uint64
}

func (r *fakeRules) Flows(ctx context.Context, visit func(*ruleset.Flow)) error {
	for _, v := range r.flows {
		visit(&v)
	}
	return nil
}

func (r *fakeRules) DeleteFlows(ctx context.Context, marks ...uint32) error {
	r.flows = slices.DeleteFunc(r.flows, func(v ruleset.Flow) bool { return slices.Contains(marks, v.Mark) })
	return nil
}

func (r *fakeRules) Remove(context.Context) error {
	r.spec = ruleset.Spec{}
	return nil
}

func (r *fakeRules) Close() error { return nil }

// fakeHost is /proc/sys.
type fakeHost map[string]string

func (h fakeHost) read(name string) (string, error) {
	v, ok := h[name]
	if !ok {
		return "", fs.ErrNotExist
	}
	return v, nil
}

func (h fakeHost) write(name, value string) error {
	h[name] = value
	return nil
}

// fakeStore keeps bytes, as of the last Save that worked.
type fakeStore struct {
	data []byte
	fail error
}

func (s *fakeStore) Load() ([]byte, error) { return s.data, nil }

func (s *fakeStore) Save(b []byte) error {
	if s.fail == nil {
		s.data = slices.Clone(b)
	}
	return s.fail
}

var errTest = errors.New("test error")

// The services and packets that most tests use.
var (
	web  = tcpService("192.0.2.10:80")
	web6 = tcpService("[2001:db8::10]:80")
)

func tcpService(a string) ipvs.Service {
	return ipvs.Service{ServiceKey: ipvs.AddrService(ipvs.TCP, netip.MustParseAddrPort(a)), Scheduler: "wlc"}
}

func udpService(a string) ipvs.Service {
	return ipvs.Service{ServiceKey: ipvs.AddrService(ipvs.UDP, netip.MustParseAddrPort(a)), Scheduler: "wlc"}
}

func addOp(s ipvs.Service) ipvs.Op    { return ipvs.Op{Kind: ipvs.OpAddService, Service: s} }
func editOp(s ipvs.Service) ipvs.Op   { return ipvs.Op{Kind: ipvs.OpUpdateService, Service: s} }
func deleteOp(s ipvs.Service) ipvs.Op { return ipvs.Op{Kind: ipvs.OpDeleteService, Service: s} }

func serverOp(kind ipvs.OpKind, s ipvs.Service, address string, weight uint32) ipvs.Op {
	return ipvs.Op{Kind: kind, Service: s, Destination: ipvs.Destination{
		Address: netip.MustParseAddrPort(address), Weight: weight,
	}}
}

func add(s ipvs.Service, address string, weight uint32) ipvs.Op {
	return serverOp(ipvs.OpAddDestination, s, address, weight)
}

func update(s ipvs.Service, address string, weight uint32) ipvs.Op {
	return serverOp(ipvs.OpUpdateDestination, s, address, weight)
}

func remove(s ipvs.Service, address string) ipvs.Op {
	return serverOp(ipvs.OpDeleteDestination, s, address, 0)
}

// tupleTo returns the tuple of a client's flow to a service.
func tupleTo(s ipvs.Service, client string) flow.Tuple {
	return flow.New(uint8(s.Protocol), netip.MustParseAddrPort(client), s.Address)
}

// dumpAsked says whether the engine has asked for a dump since it was last asked.
func (g *rig) dumpAsked() bool {
	select {
	case <-g.engine.urgent:
		return true
	default:
		return false
	}
}
