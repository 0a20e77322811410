package ruleset

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"net/netip"
	"slices"
	"time"

	"github.com/lbd-project/lbd/ipvs"
)

// The masks that a zero Options stands for.
const (
	DefaultMask      = 0x0fffff00
	DefaultStateMask = 0xf0000000
)

// Options are what stays the same for the life of Rules.
type Options struct {
	// NetNS is a descriptor of the network namespace; 0 or less is the one of
	// the calling thread.
	NetNS int
	// Name is the tables' name; empty is "lbd".
	Name string
	// Mask is the part of packet and connection marks that names a real server;
	// zero is DefaultMask.
	Mask uint32
	// StateMask is the part of connection marks that holds a connection's state,
	// disjoint from Mask: its lowest bit is Inactive, the next Busy, the third Reuse,
	// the fourth Tried. Zero is DefaultStateMask. What an older lbd left may have two
	// bits, so that nothing tells of Reuse.
	StateMask uint32
	// Queue is the first queue's number, Queues how many there are; zero is one.
	Queue, Queues uint16
	// FailOpen lets new flows be balanced by weight alone where the queue is
	// full or nobody reads it; otherwise they are dropped.
	FailOpen bool
	// Fanout spreads packets over the queues by the processor that handles them,
	// modulo Queues, instead of by their flow.
	Fanout bool
	// Logger takes what a person should know; nil discards.
	Logger *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
	if o.Name == "" {
		o.Name = "lbd"
	}
	if o.Mask == 0 {
		o.Mask = DefaultMask
	}
	if o.StateMask == 0 {
		o.StateMask = DefaultStateMask
	}
	if o.Queues == 0 {
		o.Queues = 1
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case o.Mask&o.StateMask != 0:
		return o, fmt.Errorf("mark mask %#x and state mask %#x overlap", o.Mask, o.StateMask)
	case bits.OnesCount32(o.Mask) < 2:
		return o, fmt.Errorf("mark mask %#x: needs two bits at least", o.Mask)
	case bits.OnesCount32(o.StateMask) < 2:
		return o, fmt.Errorf("state mask %#x: needs two bits at least", o.StateMask)
	case int(o.Queue)+int(o.Queues) > 1<<16:
		return o, fmt.Errorf("queues %d to %d: the last possible is 65535", o.Queue, int(o.Queue)+int(o.Queues)-1)
	}
	return o, nil
}

// Refuse is the mark of a packet that no real server takes: the client gets an
// ICMP "port unreachable", as from IPVS.
func (o Options) Refuse() uint32 { return o.Mask }

// Inactive is the bit of a connection mark that is set once either side closed.
func (o Options) Inactive() uint32 { return o.StateMask & -o.StateMask }

// Busy is the bit of a connection mark that is set while a request has no
// response yet.
func (o Options) Busy() uint32 {
	rest := o.StateMask &^ o.Inactive()
	return rest & -rest
}

// Reuse is the bit of a connection mark that flips when the entry, Inactive until
// then, goes on with another connection of the same addresses and ports; zero
// where StateMask has no room for it.
func (o Options) Reuse() uint32 {
	rest := o.StateMask &^ o.Inactive() &^ o.Busy()
	return rest & -rest
}

// Service is a virtual service as the rules see it.
type Service struct {
	// ID is the stable name of the service's chain and templates; not zero.
	ID uint32
	// Key says which packets belong to it.
	Key ipvs.ServiceKey
	// OnePacket schedules every datagram by itself; UDP alone, and neither for
	// a fwmark nor for every port.
	OnePacket bool
	// Forward is ipvs.Masq, or ipvs.Route where real servers get packets as they
	// are, by direct routing or in a tunnel.
	Forward ipvs.ForwardMethod
	// Mixed says of a service with Forward ipvs.Route that it has real servers by
	// masquerading as well. Then connection tracking begins with each packet and
	// forgets it again where it goes by direct routing, which costs some.
	Mixed bool
	// Persistent keeps templates: client to real server.
	Persistent bool
	// Timeout is how long a template lives after its last use.
	Timeout time.Duration
	// Netmask groups clients of a persistent service.
	Netmask ipvs.Netmask
	// Fallback are the real servers that take new flows while the queue cannot;
	// empty refuses them.
	Fallback []Share
	// Signals marks requests and responses in connection marks.
	Signals bool
	// Passive counts how its flows begin, for Handshakes: of those that connection
	// tracking carries, over TCP and UDP. Options.Tried must not be zero.
	Passive bool
}

func (v *Service) equal(o *Service) bool {
	a, b := *v, *o
	a.Fallback, b.Fallback = nil, nil
	return a.ID == b.ID && a.Key == b.Key && a.OnePacket == b.OnePacket && a.Forward == b.Forward && a.Mixed == b.Mixed &&
		a.Persistent == b.Persistent && a.Timeout == b.Timeout && a.Netmask == b.Netmask &&
		a.Signals == b.Signals && a.Passive == b.Passive && slices.Equal(v.Fallback, o.Fallback)
}

// untracked says whether connection tracking shall not even begin.
func (v *Service) untracked() bool { return v.OnePacket || v.Forward != ipvs.Masq && !v.Mixed }

// stateless says whether connection tracking does not carry all of its flows.
func (v *Service) stateless() bool { return v.OnePacket || v.Forward != ipvs.Masq }

// Share is a real server's part of a service's new flows.
type Share struct {
	// Mark is the real server's.
	Mark uint32
	// Weight is its share; zero takes nothing.
	Weight uint32
}

// Server is a real server of one service.
type Server struct {
	// Service is the ID of its service; zero if that is gone.
	Service uint32
	// Mark names it, within Options.Mask; neither zero nor Options.Refuse.
	Mark uint32
	// Address is where its packets go; port 0 keeps the packet's.
	Address netip.AddrPort
	// Forward is how they get there.
	Forward ipvs.ForwardMethod
	// Tunnel refines Forward == ipvs.Tunnel.
	Tunnel ipvs.TunnelOptions
	// Quiet says that a TCP connection which closes by FIN makes no event at its
	// end. Masquerading alone.
	Quiet bool
}

// Spec is all that the tables shall hold.
type Spec struct {
	// Services are the virtual services.
	Services []Service
	// Servers are the real servers, also deleted ones whose flows live on.
	Servers []Server
	// Dead are marks of deleted real servers: packets from their clients are
	// dropped, answers still pass.
	Dead []uint32
	// Timeouts are those of connections; zero values are IPVS's defaults.
	Timeouts ipvs.Timeouts
	// AllEvents leaves the event masks of connections alone, for the sake of
	// another program that listens to connection tracking.
	AllEvents bool
}

// check returns what is wrong with what is added, or nil.
func (d *difference) check(o *Options, a *Abilities) error {
	var errs []error
	for i := range d.added {
		v := &d.added[i]
		if err := cmp.Or(v.check(o), a.check(v)); err != nil {
			errs = append(errs, fmt.Errorf("service %v: %w", v.Key, err))
		}
	}
	for _, v := range d.addedServers {
		switch {
		case !o.isServer(v.Mark):
			errs = append(errs, fmt.Errorf("real server %v: mark %#x is not within mask %#x", v.Address, v.Mark, o.Mask))
		case !v.Address.Addr().IsValid():
			errs = append(errs, fmt.Errorf("real server with mark %#x: no address", v.Mark))
		default:
			if err := a.CheckServer(v.Forward, v.Tunnel); err != nil {
				errs = append(errs, fmt.Errorf("real server %v: %w", v.Address, err))
			}
		}
	}
	return errors.Join(errs...)
}

func (v *Service) check(o *Options) error {
	switch k := v.Key; {
	case v.ID == 0:
		return errors.New("id 0")
	case k.Family != ipvs.IPv4 && k.Family != ipvs.IPv6:
		return fmt.Errorf("address family %d", k.Family)
	case k.FWMark&o.Mask != 0:
		return fmt.Errorf("mark %#x has bits of lbd's own mask %#x", k.FWMark, o.Mask)
	case k.FWMark == 0 && ipvs.FamilyOf(k.Address.Addr()) != k.Family:
		return fmt.Errorf("address %v is of another family", k.Address)
	case k.FWMark == 0 && !slices.Contains(protocols, k.Protocol):
		return fmt.Errorf("protocol %v", k.Protocol)
	case v.Passive && o.Tried() == 0:
		return fmt.Errorf("state mask %#x: to count how connections begin needs four bits", o.StateMask)
	case v.OnePacket && k.FWMark == 0 && k.Protocol != ipvs.UDP:
		return fmt.Errorf("one-packet scheduling of %v", k.Protocol)
	}
	if v.OnePacket && (v.Key.FWMark != 0 || v.Key.Address.Port() == 0) {
		return fmt.Errorf("%w: one-packet scheduling without an address and a port", ErrUnsupported)
	}
	for _, f := range v.Fallback {
		if !o.isServer(f.Mark) {
			return fmt.Errorf("mark %#x of a real server is not within mask %#x", f.Mark, o.Mask)
		}
	}
	return nil
}

// isServer says whether a mark can be a real server's.
func (o *Options) isServer(mark uint32) bool {
	return mark != 0 && mark&^o.Mask == 0 && mark != o.Refuse()
}

// protocols are those that IPVS balances.
var protocols = []ipvs.Protocol{ipvs.TCP, ipvs.UDP, ipvs.SCTP}
