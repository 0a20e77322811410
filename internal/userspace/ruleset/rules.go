package ruleset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"

	"github.com/lbd-project/lbd/internal/userspace/tunnel"
	"github.com/lbd-project/lbd/ipvs"
)

// socketBuffer is for a transaction of thousands of services and the kernel's
// answers to it. Nothing is set aside: it is only how far the kernel may go.
const socketBuffer = 256 << 20

// sendTimeout is far more than the kernel takes for the largest transaction.
const sendTimeout = 2 * time.Minute

// Rules are the tables of one network namespace. Its methods are safe for
// concurrent use.
type Rules struct {
	opts  Options
	able  Abilities
	mu    sync.Mutex
	nft   *nftables.Conn
	link  *netlink.Conn // of nft
	watch *watch
	heard *listener
	// counters is for one caller at a time and not under mu.
	counters *counters
	// handshakes are for any caller.
	handshakes handshakes
	// generation is the kernel's after our last transaction, or a later one that
	// was not about our tables. unsure is set once it may have been.
	generation uint32
	unsure     bool
	tables     []*table // IPv4, IPv6
	flush      func(*nftables.Conn) error
	// begun is set once a transaction of ours was made.
	begun bool
	// last is what was applied, and names what is taken in it. Both are empty
	// while the kernel's tables are not known to be so.
	last  Spec
	names *names
	// tunnels are open once there was one; ends are those that are set, wanted
	// those that ought to be, and lost those of them without a route.
	tunnels            *tunnel.Tunnels
	ends, wanted, lost []tunnel.End
}

// Open finds out what the kernel can do; it changes nothing yet. The error
// matches ErrUnsupported where the kernel cannot queue packets for userspace, and
// fs.ErrPermission without CAP_NET_ADMIN.
func Open(ctx context.Context, o Options) (*Rules, error) {
	return open(ctx, o, (*nftables.Conn).Flush)
}

func open(ctx context.Context, o Options, flush func(*nftables.Conn) error) (*Rules, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := &Rules{opts: o, flush: flush}
	if r.watch, err = openWatch(o.NetNS); err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	if r.heard, err = openListener(o.NetNS); err != nil {
		return nil, errors.Join(fmt.Errorf("open nftables: %w", err), r.watch.close())
	}
	if r.counters, err = openCounters(&r.opts); err != nil {
		return nil, errors.Join(fmt.Errorf("open nftables: %w", err), r.watch.close(), r.heard.close())
	}
	if err := r.dial(); err != nil {
		return nil, errors.Join(err, r.watch.close(), r.heard.close(), r.counters.close())
	}
	if err := r.discover(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	r.tables = []*table{newTable(&r.opts, &r.able, ipvs.IPv4), newTable(&r.opts, &r.able, ipvs.IPv6)}
	r.forget()
	return r, nil
}

// dial opens a connection to the kernel, without messages that wait to be sent.
func (r *Rules) dial() error {
	keep := func(c *netlink.Conn) error {
		r.link = c
		return nil
	}
	nft, err := dial(r.opts.NetNS, keep, nftables.AsLasting())
	if err != nil {
		return err
	}
	r.nft = nft
	return nil
}

// dial returns a connection to the nftables of a network namespace; netns is as in
// Options. prepare is called with each socket of it.
func dial(netns int, prepare func(*netlink.Conn) error, conf ...nftables.ConnOption) (*nftables.Conn, error) {
	conf = append(conf, nftables.WithSockOptions(func(c *netlink.Conn) error {
		return errors.Join(c.SetReadBuffer(socketBuffer), c.SetWriteBuffer(socketBuffer), prepare(c))
	}))
	if netns > 0 {
		conf = append(conf, nftables.WithNetNSFd(netns))
	}
	nft, err := nftables.New(conf...)
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	return nft, nil
}

// abandon drops what waits to be sent, and to be read.
func (r *Rules) abandon() error { return errors.Join(r.nft.CloseLasting(), r.dial()) }

// send sends the transaction. Of some errors the kernel tells once and not for
// each message, which the library would wait for, so there is a deadline; and
// after any error a new connection, without answers left in it.
func (r *Rules) send() error {
	if err := r.link.SetReadDeadline(time.Now().Add(sendTimeout)); err != nil {
		return errors.Join(err, r.abandon())
	}
	if err := r.flush(r.nft); err != nil {
		return errors.Join(err, r.abandon())
	}
	return r.link.SetReadDeadline(time.Time{})
}

// Close closes the connections to the kernel. Tables and tunnels stay.
func (r *Rules) Close() error {
	err := errors.Join(r.nft.CloseLasting(), r.watch.close(), r.heard.close(), r.counters.close(), r.handshakes.close())
	if r.tunnels != nil {
		err = errors.Join(err, r.tunnels.Close())
	}
	return err
}

// Abilities returns what the host can do.
func (r *Rules) Abilities() Abilities { return r.able }

// Apply makes the tables what s says, in one transaction that writes only what
// differs from what was applied before. The first Apply takes over what an
// earlier lbd left, templates included; packets that wait in a queue are dropped
// then if that had other base chains. After an error the tables are as they
// were, and the next Apply writes everything.
func (r *Rules) Apply(ctx context.Context, s Spec) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.outgrown(&s) {
		r.forget()
	}
	d := diff(&r.last, &s)
	if err := d.check(&r.opts, &r.able); err != nil {
		return err
	}
	err := r.names.update(d)
	if err != nil {
		r.forget()
		return err
	}
	ends := s.tunnelEnds()
	// Ends are there before packets are sent to them, and until none is.
	if err = r.setTunnels(append(slices.Clone(r.ends), without(ends, r.ends)...)); err == nil {
		err = r.build(d, &s)
	}
	if err != nil {
		err = errors.Join(err, r.abandon())
	} else {
		err = r.commit()
	}
	if err == nil {
		err = r.setTunnels(ends)
	}
	if err != nil {
		r.forget()
		return fmt.Errorf("write nftables: %w", err)
	}
	r.begun = true
	r.last = s.clone(&r.last)
	return nil
}

// Renews says whether Apply of s writes everything again, so that all counters
// begin at zero: whoever wants what they have counted reads it before.
func (r *Rules) Renews(s *Spec) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begun && (len(r.last.Servers) == 0 || r.outgrown(s))
}

// outgrown says whether a table is too small for s.
func (r *Rules) outgrown(s *Spec) bool {
	four := 0
	for i := range s.Servers {
		if s.Servers[i].Address.Addr().Unmap().Is4() {
			four++
		}
	}
	return slices.ContainsFunc(r.tables, func(t *table) bool {
		if t.is == ipvs.IPv4 {
			return t.outgrown(four)
		}
		return t.outgrown(len(s.Servers) - four)
	})
}

// forget makes the next Apply write everything.
func (r *Rules) forget() {
	r.last, r.names = Spec{}, newNames()
	for _, t := range r.tables {
		t.reset()
	}
}

// build makes the transaction. A family without services gets no table, unless
// it has one.
func (r *Rules) build(d *difference, s *Spec) error {
	for _, t := range r.tables {
		part := d.of(t.is)
		if !t.known && len(part.added) == 0 && len(part.addedServers) == 0 {
			there, err := r.exists(t)
			if err != nil {
				return err
			}
			if !there {
				continue
			}
		}
		if err := r.write(t, part, s); err != nil {
			return err
		}
	}
	return nil
}

// Remove deletes the tables, and with them the templates. Packets that wait in a
// queue are dropped by the kernel.
func (r *Rules) Remove(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	r.forget()
	for _, t := range r.tables {
		// Added first, since deleting an absent table fails.
		r.nft.AddTable(t.nft)
		r.nft.DelTable(t.nft)
	}
	if err := r.commit(); err != nil {
		return fmt.Errorf("delete nftables tables: %w", err)
	}
	if r.able.Tunnel != nil {
		return nil
	}
	r.ends, r.wanted, r.lost = nil, nil, nil
	return tunnel.Flows.Remove(r.opts.NetNS)
}
