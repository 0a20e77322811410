package oracle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// Timeouts of connections: long, and short for those that shall expire now.
const (
	longTimeout  = time.Hour
	shortTimeout = time.Second
)

// setup is a service to compare.
type setup struct {
	scheduler string
	options   sched.Options
	family    ipvs.Family
	// mark makes it a fwmark service of addresses many addresses; otherwise it
	// has one.
	mark      bool
	addresses int
}

// pool is a service in the kernel and its table in sched. Everything is done to
// both.
type pool struct {
	lab    *lab
	ctx    context.Context
	setup  setup
	number int
	key    ipvs.ServiceKey
	table  *sched.Table
	// servers has those that are in the list and those that were taken out.
	servers [maxServers]*sched.Server
	listed  [maxServers]bool
	// active and closing are the connections in the kernel's table.
	active, closing []conn
	clients         int
	// compared is the number of picks that were equal and refused that of those
	// that had no server in both.
	compared, refused int
	log               []event
}

// conn is a connection of a server.
type conn struct {
	flow
	server int
}

// newPool makes a service without servers.
func newPool(ctx context.Context, l *lab, s setup) (*pool, error) {
	l.services++
	p := &pool{lab: l, ctx: ctx, setup: s, number: l.services}
	p.key = ipvs.AddrService(ipvs.TCP, netip.AddrPortFrom(virtualAddr(p.number, 0, s.family), 80))
	if s.mark {
		p.key = ipvs.MarkService(s.family, uint32(p.number))
	}
	svc := ipvs.Service{ServiceKey: p.key, Scheduler: ipvs.Scheduler(s.scheduler)}
	if s.options.Fallback {
		svc.Flags |= ipvs.FlagSHFallback // mh's is the same bit
	}
	if s.options.Port {
		svc.Flags |= ipvs.FlagSHPort
	}
	var err error
	if p.table, err = sched.New(s.scheduler, s.options); err != nil {
		return nil, err
	}
	if err := l.table.AddService(ctx, svc); err != nil {
		return nil, err
	}
	return p, p.setFinTimeout(longTimeout)
}

// event is something that was done, for the report of a difference.
type event struct {
	what   string
	server int
	config sched.Config
	flow   flow
}

// note remembers an event, and forgets old ones.
func (p *pool) note(e event) {
	if len(p.log) >= 60 {
		p.log = append(p.log[:0], p.log[20:]...)
	}
	p.log = append(p.log, e)
}

// history is the last events and what sched knows, in list order.
func (p *pool) history() string {
	var b strings.Builder
	for _, e := range p.log {
		fmt.Fprintf(&b, "%s %d", e.what, e.server)
		if e.flow != (flow{}) {
			fmt.Fprintf(&b, " %v to %v", e.flow.src, e.flow.dst)
		}
		if e.config != (sched.Config{}) {
			fmt.Fprintf(&b, " %+v", e.config)
		}
		b.WriteByte('\n')
	}
	for s := range p.table.Servers() {
		fmt.Fprintf(&b, "%d: %+v, %d active, %d inactive, overloaded %v\n",
			s.ID(), s.Config(), s.Active(), s.Inactive(), s.Overloaded())
	}
	return b.String()
}

// destination is the kernel's form of a server.
func (p *pool) destination(i int, c sched.Config) ipvs.Destination {
	return ipvs.Destination{
		Address: netip.AddrPortFrom(serverAddr(i, p.setup.family), 80),
		// Direct routing: the client alone then ends a connection.
		Forward: ipvs.Route,
		Weight:  c.Weight, UpperThreshold: c.Upper, LowerThreshold: c.Lower,
	}
}

// add puts a server at the head of the list, a new one or one that was there.
func (p *pool) add(i int, c sched.Config) error {
	if err := p.lab.wire.barrier(); err != nil {
		return err
	}
	p.note(event{what: "add", server: i, config: c})
	d := p.destination(i, c)
	if err := p.lab.table.AddDestination(p.ctx, p.key, d); err != nil {
		return err
	}
	if p.servers[i] == nil {
		p.servers[i] = sched.NewServer(uint32(i), d.Address, c)
	} else {
		p.table.Update(p.servers[i], c)
	}
	p.table.Insert(p.servers[i])
	p.listed[i] = true
	return nil
}

// remove takes a server out of the list.
func (p *pool) remove(i int) error {
	if err := p.lab.wire.barrier(); err != nil {
		return err
	}
	p.note(event{what: "remove", server: i})
	key := ipvs.DestinationKey{Service: p.key, Address: p.servers[i].Address()}
	if err := p.lab.table.DeleteDestination(p.ctx, key); err != nil {
		return err
	}
	p.table.Remove(p.servers[i])
	p.listed[i] = false
	return nil
}

// edit changes the settings of a server in the list.
func (p *pool) edit(i int, c sched.Config) error {
	if err := p.lab.wire.barrier(); err != nil {
		return err
	}
	p.note(event{what: "edit", server: i, config: c})
	if err := p.lab.table.UpdateDestination(p.ctx, p.key, p.destination(i, c)); err != nil {
		return err
	}
	p.table.Update(p.servers[i], c)
	return nil
}

// client returns a new flow of the nth client, to the nth virtual address.
func (p *pool) client(n, address int) flow {
	p.clients++
	src := netip.AddrFrom4([4]byte{100, 64 + byte(n>>16&0x1f), byte(n >> 8), byte(n)})
	if p.setup.family == ipvs.IPv6 {
		src = netip.MustParseAddr(fmt.Sprintf("fd64:%x::%x:%x", n%7, n>>16&0xff, n&0xffff))
	}
	// Unique with the client for longer than connections live.
	port := uint16(1024 + p.clients%64000)
	dst := netip.AddrPortFrom(virtualAddr(p.number, address, p.setup.family), 80)
	return flow{netip.AddrPortFrom(src, port), dst}
}

// open opens a connection and compares where it went. It returns false where it
// was refused.
func (p *pool) open(f flow) (bool, error) {
	n, refused, err := p.lab.wire.open(f)
	if err != nil {
		return false, err
	}
	got := -1
	if !refused {
		got = int(n) - 1
	}
	want := -1
	packet := &sched.Packet{
		Src: f.src.Addr(), SrcPort: f.src.Port(),
		Dst: f.dst.Addr(), DstPort: f.dst.Port(),
		Protocol: protoTCP,
	}
	if s := p.table.Pick(packet, sched.Active); s != nil {
		want = int(s.ID())
	}
	if got != want {
		return false, fmt.Errorf("pick %d, %v to %v: the kernel chose %d, sched %d and counted it\n%s",
			p.compared+p.refused+1, f.src, f.dst, got, want, p.history())
	}
	if got < 0 {
		p.refused++
		return false, nil
	}
	p.note(event{what: "open", server: got, flow: f})
	p.compared++
	// Established: a connection that only opens would expire in a minute.
	if err := p.lab.wire.send(f, flagACK); err != nil {
		return false, err
	}
	p.active = append(p.active, conn{f, got})
	return true, nil
}

// finish closes the ith active connection, which then is inactive. It does
// nothing where the server is not in the list: the kernel then drops what the
// client sends.
func (p *pool) finish(i int) error {
	c := p.active[i]
	if !p.listed[c.server] {
		return nil
	}
	p.note(event{what: "close", server: c.server, flow: c.flow})
	if err := p.lab.wire.send(c.flow, flagFIN|flagACK); err != nil {
		return err
	}
	last := len(p.active) - 1
	p.active[i] = p.active[last]
	p.active = p.active[:last]
	p.closing = append(p.closing, c)
	p.table.Count(p.servers[c.server], sched.Active, sched.Inactive)
	return nil
}

// expire makes closing connections that choose names go now, and waits for it;
// not those of servers out of the list, whose timers no segment reaches.
func (p *pool) expire(choose func(conn) bool) error {
	if err := p.setFinTimeout(shortTimeout); err != nil {
		return err
	}
	var kept []conn
	for _, c := range p.closing {
		if !p.listed[c.server] || !choose(c) {
			kept = append(kept, c)
			continue
		}
		p.note(event{what: "expire", server: c.server, flow: c.flow})
		// Every segment sets the timer anew.
		if err := p.lab.wire.send(c.flow, flagFIN|flagACK); err != nil {
			return err
		}
		p.table.Count(p.servers[c.server], sched.Inactive, sched.Uncounted)
	}
	p.closing = kept
	if err := p.setFinTimeout(longTimeout); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(p.ctx, 30*time.Second)
	defer cancel()
	for {
		diff, err := p.counts()
		if err != nil || diff == "" {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("counts of the kernel: %s", diff)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *pool) setFinTimeout(d time.Duration) error {
	if err := p.lab.wire.barrier(); err != nil {
		return err
	}
	return p.lab.table.SetTimeouts(p.ctx, ipvs.Timeouts{TCP: longTimeout, TCPFin: d})
}

// counts compares the counts of the servers in the list, and returns a
// difference.
func (p *pool) counts() (string, error) {
	list, err := p.lab.table.Destinations(p.ctx, p.key)
	if err != nil {
		return "", err
	}
	i := 0
	for s := range p.table.Servers() {
		if i >= len(list) {
			return fmt.Sprintf("%d servers, want more", len(list)), nil
		}
		d := list[i]
		if d.Address != s.Address() {
			return fmt.Sprintf("server %d is %v, want %v", i, d.Address, s.Address()), nil
		}
		if d.Conns.Active != s.Active() || d.Conns.Inactive != s.Inactive() {
			return fmt.Sprintf("server %d has %+v, want %d and %d", s.ID(), d.Conns, s.Active(), s.Inactive()), nil
		}
		i++
	}
	if i != len(list) {
		return fmt.Sprintf("%d servers, want %d", len(list), i), nil
	}
	return "", nil
}

// check is counts as an error.
func (p *pool) check() error {
	if err := p.lab.wire.barrier(); err != nil {
		return err
	}
	diff, err := p.counts()
	if err == nil && diff != "" {
		err = fmt.Errorf("counts of the kernel: %s\n%s", diff, p.history())
	}
	return err
}

// anyListed returns a server of the list, or -1.
func (p *pool) anyListed(rnd *rand.Rand, listed bool) int {
	var of []int
	for i, l := range p.listed {
		if l == listed {
			of = append(of, i)
		}
	}
	if len(of) == 0 {
		return -1
	}
	return of[rnd.IntN(len(of))]
}
