package ruleset

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/nftables"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/userspace/tunnel"
	"github.com/lbd-project/lbd/ipvs"
)

// PathTimeout is how long a check over a path may take.
const PathTimeout = time.Minute

// maxPaths is how many paths there may be at once.
const maxPaths = 50000

// maxSegment is the most that TCP_MAXSEG takes (MAX_TCP_WINDOW in net/tcp.h), which
// the MTU of lo is beyond, and that of some other devices.
const maxSegment = 32767

// PathKey names a path: to a real server, through a service.
type PathKey struct {
	healthcheck.Through
	Server netip.Addr
}

// PathOptions are what stays the same for the life of Paths.
type PathOptions struct {
	// NetNS is a descriptor of the network namespace; 0 or less is the one of
	// the calling thread.
	NetNS int
	// Logger takes what a person should know; nil discards.
	Logger *slog.Logger
}

// Paths make packets of checks reach real servers as those of clients do by direct
// routing and in tunnels, whichever engine serves the clients. It has the tables
// "ip lbd_checks" and "ip6 lbd_checks", which are there while there is a path, and
// for tunnels routes of its own.
//
// The socket of a check connects to the real server's own address, and says by its
// priority which path its packets take. Connection tracking and the chains of others
// see that connection, and that alone. The last chain of the output hook turns its
// packets back to this host, where prerouting drops them and sends a copy to the real
// server, as direct routing does, or into the tunnel; behind the output hook, the copy
// gets the service's address as its destination. Answers get the real server's address
// back before anybody looks at them.
//
// Its methods are safe for concurrent use.
type Paths struct {
	opts   PathOptions
	tables []*pathTable
	ready  atomic.Pointer[map[PathKey]pathWay]

	mu    sync.Mutex
	watch *watch
	// numbers are those of the paths; last is the one that was given last.
	numbers map[PathKey]uint32
	last    uint32
	// known says that the tables are as numbers wants them, as of generation.
	known      bool
	generation uint32
	// repaired is when everything was last written.
	repaired time.Time
	tunnels  *tunnel.Tunnels
	ends     []tunnel.End
	lost     map[tunnel.End]error
}

// pathWay is a path, or why it cannot be used.
type pathWay struct {
	path healthcheck.Path
	err  error
}

const pathTableName = "lbd_checks"

// OpenPaths returns Paths without a path. It changes nothing in the kernel.
func OpenPaths(o PathOptions) *Paths {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Paths{opts: o, numbers: map[PathKey]uint32{}}
	p.tables = []*pathTable{newPathTable(pathTableName, ipvs.IPv4), newPathTable(pathTableName, ipvs.IPv6)}
	return p
}

// Close forgets the paths; what is in the kernel stays.
func (p *Paths) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	if p.watch != nil {
		err = p.watch.close()
		p.watch = nil
	}
	if p.tunnels != nil {
		err = errors.Join(err, p.tunnels.Close())
		p.tunnels = nil
	}
	return err
}

// Path implements healthcheck.Paths.
func (p *Paths) Path(t healthcheck.Through, target netip.Addr) (healthcheck.Path, error) {
	if ready := p.ready.Load(); ready != nil {
		if w, ok := (*ready)[pathKey(t, target)]; ok {
			return w.path, w.err
		}
	}
	return healthcheck.Path{}, errors.New("it was not set up")
}

func pathKey(t healthcheck.Through, server netip.Addr) PathKey {
	t.Service = t.Service.Unmap()
	return PathKey{t, server.Unmap()}
}

// Able returns why the host cannot have paths, with tunnels or without; nil if it
// can. It tries in a table that never comes to be.
func (p *Paths) Able(tunnels bool) error {
	for _, f := range []ipvs.Family{ipvs.IPv4, ipvs.IPv6} {
		t := newPathTable(pathTableName+"_try", f)
		err := p.transaction(func(nft *nftables.Conn) error {
			err := t.create(nft)
			nft.DelTable(t.nft)
			return err
		})
		if err != nil {
			return unable("nftables for checks through a service", err)
		}
	}
	if tunnels {
		return unable("tunnels for checks through a service", tunnel.Checks.Probe())
	}
	return nil
}

// Set makes the paths those of keys; without any, the tables and routes are deleted.
// Paths that stay are not touched. After an error the old ones are in force, or will
// be after the next Keep.
func (p *Paths) Set(ctx context.Context, keys []PathKey) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(keys) == 0 && len(p.numbers) == 0 {
		return nil
	}
	next, err := p.number(keys)
	if err != nil {
		return err
	}
	if len(next) == 0 {
		if err := p.remove(); err != nil {
			return err
		}
		p.numbers, p.known = next, false
		p.ready.Store(nil)
		return nil
	}
	if p.known { // else what others did since the last Keep would be taken for ours
		if err := p.keepTables(); err != nil && !errors.Is(err, errInterrupted) {
			return err
		}
	}
	return p.write(next)
}

// number gives each of keys a number, and those that have one theirs. Numbers are
// given again as late as possible: packets of an earlier path may still be there.
func (p *Paths) number(keys []PathKey) (map[PathKey]uint32, error) {
	next := make(map[PathKey]uint32, len(keys))
	used := make(map[uint32]bool, len(keys)+len(p.numbers))
	for _, n := range p.numbers {
		used[n] = true
	}
	for _, k := range keys {
		k = pathKey(k.Through, k.Server)
		if n, ok := p.numbers[k]; ok {
			next[k] = n
			continue
		}
		if _, ok := next[k]; ok {
			continue
		}
		if len(used) >= maxPaths {
			return nil, fmt.Errorf("more than %d checks go through a service", maxPaths)
		}
		for p.last = p.last%pathNumber + 1; used[p.last]; {
			p.last = p.last%pathNumber + 1
		}
		next[k], used[p.last] = p.last, true
	}
	return next, nil
}

// write makes the kernel have the paths next. It writes everything unless the tables
// are known.
func (p *Paths) write(next map[PathKey]uint32) error {
	if p.watch == nil {
		w, err := openWatch(p.opts.NetNS)
		if err != nil {
			return fmt.Errorf("open nftables: %w", err)
		}
		p.watch = w
	}
	known, ours := p.known, uint32(1)
	if known && maps.Equal(p.numbers, next) {
		ours = 0 // nothing to write
	}
	before, err := p.watch.generation()
	if err != nil {
		return err
	}
	err = p.transaction(func(nft *nftables.Conn) error {
		for _, t := range p.tables {
			old := t.elements(p.numbers)
			if !p.known {
				old = nil
				if err := t.create(nft); err != nil {
					return err
				}
			}
			if err := t.edit(nft, old, t.elements(next)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write nftables rules of checks: %w", err)
	}
	p.known = false // until the rest is done
	if err := p.setTunnels(next); err != nil {
		return fmt.Errorf("set tunnels of checks: %w", err)
	}
	after, err := p.watch.generation()
	if err != nil {
		return err
	}
	switch {
	case known && before != p.generation:
		// Somebody else wrote before: the next Keep reads.
	case after-before > ours:
		p.generation = before // … or meanwhile
	default:
		p.generation = after
	}
	if !known {
		p.repaired = time.Now()
	}
	p.numbers, p.known = next, true
	p.publish()
	return nil
}

// publish tells the checks of the paths.
func (p *Paths) publish() {
	ready := make(map[PathKey]pathWay, len(p.numbers))
	for k, n := range p.numbers {
		w := pathWay{path: healthcheck.Path{Priority: pathSocket | n}}
		if k.Tunnel {
			e := k.end(n)
			if w.err = p.lost[e]; w.err == nil {
				headers := 20 + 20
				if e.Inner6 {
					headers = 40 + 20
				}
				w.path.MaxSegment = min(p.tunnels.MTU(e)-headers, maxSegment)
			}
		}
		ready[k] = w
	}
	p.ready.Store(&ready)
}

// elements are the elements of a table for paths.
func (t *pathTable) elements(numbers map[PathKey]uint32) pathElements {
	e := pathElements{mapPathServices: {}, mapPathServers: {}, mapPathTunnels: {}}
	for k, n := range numbers {
		if k.Service.Is6() != (t.size == 16) {
			continue
		}
		e[mapPathServices][string(u32(n))] = string(k.Service.AsSlice())
		e[mapPathServers][string(u32(n))] = string(k.Server.AsSlice())
		if k.Tunnel {
			e[mapPathTunnels][string(u32(n))] = string(tunnel.Checks.Gateway(t.size == 16).AsSlice())
		}
	}
	return e
}

// end is the end of the tunnel of a path.
func (k PathKey) end(number uint32) tunnel.End {
	return tunnel.End{Mark: number, Address: k.Server, Inner6: k.Service.Is6()}
}

// setTunnels makes the tunnels those of paths.
func (p *Paths) setTunnels(numbers map[PathKey]uint32) error {
	var ends []tunnel.End
	for k, n := range numbers {
		if k.Tunnel {
			ends = append(ends, k.end(n))
		}
	}
	if len(ends) == 0 && p.tunnels == nil {
		return nil
	}
	if p.tunnels == nil {
		t, err := tunnel.Checks.Open(p.opts.NetNS, pathNumber)
		if err != nil {
			return err
		}
		p.tunnels = t
	}
	unreachable, err := p.tunnels.Set(ends)
	if err != nil {
		return err
	}
	before := p.lost
	p.lost = map[tunnel.End]error{}
	for _, u := range unreachable {
		p.lost[u.End] = u.Err
		if before[u.End] == nil {
			p.opts.Logger.Warn("a tunnel of a check has no route to its end", "real_server", u.End.Address, "err", u.Err)
		}
	}
	p.ends = ends
	return nil
}

// Keep puts back what others have deleted or changed. It is cheap as long as nobody
// changes any nftables rules of the namespace.
func (p *Paths) Keep(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := ctx.Err(); err != nil || len(p.numbers) == 0 {
		return err
	}
	// While others write nobody knows: the next call looks again.
	if err := p.keepTables(); err != nil && !errors.Is(err, errInterrupted) {
		return fmt.Errorf("look after paths of checks: %w", err)
	}
	if len(p.ends) == 0 {
		return nil
	}
	intact, err := p.tunnels.Intact()
	if err == nil && (!intact || len(p.lost) > 0) {
		if err = p.setTunnels(p.numbers); err == nil {
			p.publish()
		}
	}
	if err != nil {
		return fmt.Errorf("look after tunnels of checks: %w", err)
	}
	return nil
}

// keepTables puts back what others have deleted or changed of the tables. The error
// matches errInterrupted where others write just now.
func (p *Paths) keepTables() error {
	if !p.known {
		return p.write(p.numbers)
	}
	now, err := p.watch.generation()
	if err != nil || now == p.generation {
		return err
	}
	for _, t := range p.tables {
		wrong, err := p.verify(t, t.elements(p.numbers))
		if err != nil {
			return err
		}
		if wrong != "" {
			p.opts.Logger.Warn("nftables rules of checks were changed by another program: they are written again", "table", t.nft.Name, "what", wrong)
			p.known = false
			return p.write(p.numbers)
		}
	}
	p.generation = now
	return nil
}

// Kept implements healthcheck.Paths. It puts back what others have deleted. While
// they are writing it does not know.
func (p *Paths) Kept(since time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.numbers) == 0 {
		return nil // of a check that nobody waits for
	}
	if err := p.keepTables(); err != nil {
		return err
	}
	if !p.repaired.Before(since) {
		return errors.New("its rules were changed by another program while the target was asked")
	}
	return nil
}

// remove deletes the tables and routes. A kernel that has no nftables has none.
func (p *Paths) remove() error {
	for _, t := range p.tables {
		err := p.transaction(func(nft *nftables.Conn) error {
			nft.AddTable(t.nft)
			nft.DelTable(t.nft)
			return nil
		})
		if err != nil && !absent(err) {
			return fmt.Errorf("delete nftables table of checks: %w", err)
		}
	}
	if p.tunnels != nil {
		if _, err := p.tunnels.Set(nil); err != nil {
			return err
		}
	}
	p.ends, p.lost = nil, nil
	return tunnel.Checks.Remove(p.opts.NetNS)
}

// Remove deletes what there is of paths, also of those that an earlier process
// left.
func (p *Paths) Remove(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.remove(); err != nil {
		return err
	}
	p.numbers, p.known = map[PathKey]uint32{}, false
	p.ready.Store(nil)
	return nil
}

// Left reports whether there are tables, of this process or an earlier one.
func (p *Paths) Left() (bool, error) {
	nft, err := p.dial()
	if err != nil {
		return false, err
	}
	for _, t := range p.tables {
		list, err := nft.ListTablesOfFamily(t.family)
		if err != nil {
			if absent(err) {
				continue
			}
			return false, fmt.Errorf("list tables: %w", err)
		}
		if slices.ContainsFunc(list, func(n *nftables.Table) bool { return n.Name == t.nft.Name }) {
			return true, nil
		}
	}
	return false, nil
}
