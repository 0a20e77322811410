package ruleset

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/lbd-project/lbd/internal/userspace/tunnel"
	"github.com/lbd-project/lbd/ipvs"
)

// ErrUnsupported matches what Open and Apply return when the kernel lacks what
// they need.
var ErrUnsupported = errors.New("not supported by this kernel")

// Abilities are what a host can do beyond what Open needs. An error says why it
// cannot.
type Abilities struct {
	// NativeQueue is set where the kernel has nftables' own expression "queue";
	// otherwise xtables' target NFQUEUE is used.
	NativeQueue bool
	// Reject answers packets that no real server takes; else they are dropped.
	Reject error
	// CTTimeout gives flows IPVS's time-outs; else they have connection
	// tracking's.
	CTTimeout error
	// Fib tells this host's addresses from others; else a chain in the forward hook
	// keeps back what real servers send that belongs to no flow.
	Fib error
	// OnePacket schedules each datagram by itself.
	OnePacket error
	// Route is direct routing.
	Route error
	// Tunnel is IP in IP.
	Tunnel error
}

// check returns why the host cannot have a service, or nil.
func (a *Abilities) check(v *Service) error {
	switch {
	case v.OnePacket && a.OnePacket != nil:
		return a.OnePacket
	case v.Forward != ipvs.Masq:
		return a.Route
	}
	return nil
}

// CheckServer returns why the host cannot forward to a real server that way, or
// nil.
func (a *Abilities) CheckServer(f ipvs.ForwardMethod, t ipvs.TunnelOptions) error {
	switch {
	case f == ipvs.Route:
		return a.Route
	case f == ipvs.Tunnel && t.Type != ipvs.TunnelIPIP:
		return fmt.Errorf("%w: tunnels of type %v", ErrUnsupported, t.Type)
	case f == ipvs.Tunnel:
		return errors.Join(a.Route, a.Tunnel)
	case f == ipvs.Bypass:
		return fmt.Errorf("%w: forwarding method %v", ErrUnsupported, f)
	}
	return nil
}

// probe tries expressions in a table that never comes to be: it is made and
// deleted in one transaction, so that nobody sees it.
func (r *Rules) probe(f ipvs.Family, rules ...exprs) error {
	family := versionOf(f).family
	t := r.nft.AddTable(&nftables.Table{Name: r.opts.Name + "_probe", Family: family})
	c := r.nft.AddChain(&nftables.Chain{Name: "probe", Table: t})
	for _, e := range rules {
		r.nft.AddRule(&nftables.Rule{Table: t, Chain: c, Exprs: e})
	}
	r.nft.DelTable(t)
	return r.send()
}

// discover finds out what the kernel can do.
func (r *Rules) discover() error {
	native := r.probe(ipvs.IPv4, exprs{&expr.Queue{Num: r.opts.Queue, Total: r.opts.Queues}})
	switch {
	case native == nil:
		r.able.NativeQueue = true
	case errors.Is(native, fs.ErrPermission):
		return fmt.Errorf("%w (needs CAP_NET_ADMIN)", native)
	case absent(native):
		xt := r.probe(ipvs.IPv4, exprs{xtQueue(&r.opts)})
		if xt != nil {
			return fmt.Errorf("%w: neither nftables' queue (%w) nor xtables' NFQUEUE (%w)", ErrUnsupported, native, xt)
		}
	default:
		return fmt.Errorf("probe nftables: %w", native)
	}
	four, six := versionOf(ipvs.IPv4), versionOf(ipvs.IPv6)
	r.able.Reject = unable("reject", errors.Join(
		r.probe(ipvs.IPv4, exprs{four.reject()}), r.probe(ipvs.IPv6, exprs{six.reject()})))
	for _, f := range []ipvs.Family{ipvs.IPv4, ipvs.IPv6} {
		t := newTable(&r.opts, &r.able, f)
		r.able.OnePacket = errors.Join(r.able.OnePacket, unable("one-packet scheduling", r.probe(f,
			exprs{&expr.Notrack{}},
			rule(exprs{imm(reg1, make([]byte, t.size)), imm(t.after, u32(0))}, t.rewrite(t.daddr, offDPort, true)))))
		r.able.Route = errors.Join(r.able.Route, unable("direct routing", r.probe(f,
			exprs{&expr.Notrack{}}, exprs{imm(reg1, make([]byte, t.size)), &expr.Dup{RegAddr: reg1}})))
	}
	r.able.Tunnel = unable("tunnels", tunnel.Flows.Probe())
	r.able.CTTimeout = unable("ct timeout", r.probeTimeout())
	for _, f := range []ipvs.Family{ipvs.IPv4, ipvs.IPv6} {
		r.able.Fib = errors.Join(r.able.Fib, unable("fib", r.probe(f, exprs{newTable(&r.opts, &r.able, f).localDestination()})))
	}
	return nil
}

// probeTimeout tries an object "ct timeout", which is no expression.
func (r *Rules) probeTimeout() error {
	t := r.nft.AddTable(&nftables.Table{Name: r.opts.Name + "_probe", Family: nftables.TableFamilyIPv4})
	r.addTimeout(t, timeouts(timeoutsOf(ipvs.Timeouts{}))[0])
	r.nft.DelTable(t)
	return r.send()
}

// absent says whether the kernel does not know an expression.
func absent(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.EOPNOTSUPP) ||
		errors.Is(err, syscall.EPROTONOSUPPORT) || errors.Is(err, syscall.EAFNOSUPPORT)
}

func unable(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %s: %w", ErrUnsupported, what, err)
}
