package tunnel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netns"
)

// Use is what tunnels are for. Each use has routes of its own, so that it can come
// and go without the other.
type Use uint8

// The uses: packets of clients, whose marks name their ends, and packets of checks,
// whose priorities do.
const (
	Flows Use = iota
	Checks
)

// Gateway is the address to send packets to that shall be wrapped. All are set
// aside for what must never be on a network: RFC 7600, RFC 7050 and RFC 6666.
func (u Use) Gateway(six bool) netip.Addr {
	switch {
	case six && u == Checks:
		return netip.AddrFrom16([16]byte{0: 1, 15: 9}) // 100::9
	case six:
		return netip.AddrFrom16([16]byte{0: 1, 15: 8}) // 100::8
	case u == Checks:
		return netip.AddrFrom4([4]byte{192, 0, 0, 170})
	}
	return netip.AddrFrom4([4]byte{192, 0, 0, 8})
}

// field is what of a packet names its end.
func (u Use) field() int16 {
	if u == Checks {
		return skbPriority
	}
	return skbMark
}

// End is where a tunnel ends.
type End struct {
	// Mark is what packets for it have within the mask of their mark, or of their
	// priority: see Use.
	Mark uint32
	// Address is the other end's.
	Address netip.Addr
	// Inner6 is set where the packets to be wrapped are IPv6.
	Inner6 bool
}

// Tunnels are the tunnels of one network namespace. Its methods must not run at
// the same time.
type Tunnels struct {
	use     Use
	ns      *netns.NS
	ends    *ebpf.Map
	program *ebpf.Program
	set     map[End]way
}

// way is how packets to an end go.
type way struct {
	source netip.Addr
	device uint32
	// mtu is how large what they carry may be.
	mtu int
}

// Open loads the program for the namespace of a descriptor, or for the thread's
// own where that is 0 or less. mask is the part of marks or priorities that names
// ends. No route is made yet.
func (u Use) Open(fd int, mask uint32) (*Tunnels, error) {
	ns, err := netns.Open(own(fd))
	if err != nil {
		return nil, err
	}
	t := &Tunnels{use: u, ns: ns, set: make(map[End]way)}
	if t.ends, t.program, err = load(u.field(), mask); err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return t, nil
}

// Close forgets the tunnels; those that are set stay in the kernel.
func (t *Tunnels) Close() error {
	return errors.Join(t.ends.Close(), t.program.Close(), t.ns.Close())
}

// Unreachable is an end that the host has no route to.
type Unreachable struct {
	End End
	Err error
}

// Set makes the ends those of list, and the routes that lead into them. Packets
// for an end that cannot be reached are dropped.
func (t *Tunnels) Set(list []End) (unreachable []Unreachable, err error) {
	err = t.ns.Do(func() error {
		unreachable, err = t.update(list)
		return err
	})
	return unreachable, err
}

func (t *Tunnels) update(list []End) (unreachable []Unreachable, err error) {
	want := make(map[End]way, len(list))
	var routes [2]way
	for _, e := range list {
		w, ok := t.set[e]
		if !ok {
			if w, err = find(e.Address); err != nil {
				unreachable = append(unreachable, Unreachable{e, err})
				continue
			}
			if err := t.ends.Put(e.Mark, header(w.source, e.Address, e.Inner6)); err != nil {
				return nil, fmt.Errorf("tunnel to %v: %w", e.Address, err)
			}
		}
		want[e] = w
		r := &routes[inner(e)]
		if r.mtu == 0 || w.mtu < r.mtu {
			*r = w
		}
	}
	for i, r := range routes {
		if r.mtu == 0 {
			continue
		}
		if err := setRoute(t.use.Gateway(i == 1), r.device, t.program.FD(), r.mtu); err != nil {
			return nil, err
		}
	}
	marks := make(map[uint32]bool, len(want))
	for e := range want {
		marks[e.Mark] = true
	}
	for e := range t.set {
		if marks[e.Mark] {
			continue
		}
		if err := t.ends.Delete(e.Mark); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil, fmt.Errorf("end tunnel to %v: %w", e.Address, err)
		}
	}
	t.set = want
	return unreachable, nil
}

// MTU returns how large a packet for an end may be; 0 for one that is not set.
func (t *Tunnels) MTU(e End) int { return t.set[e].mtu }

// Intact says whether the routes into the tunnels are there: the kernel deletes
// them with their device, or when that goes down. Where one is missing, the next
// Set looks for all ways afresh.
func (t *Tunnels) Intact() (intact bool, err error) {
	var need [2]bool
	for e := range t.set {
		need[inner(e)] = true
	}
	intact = true
	err = t.ns.Do(func() (err error) {
		for i := 0; i < len(need) && intact && err == nil; i++ {
			if need[i] {
				intact, err = hasRoute(t.use.Gateway(i == 1))
			}
		}
		return err
	})
	if err != nil {
		return false, err
	}
	if !intact {
		clear(t.set)
	}
	return intact, nil
}

// inner is 1 for an end of IPv6 packets, else 0.
func inner(e End) int {
	if e.Inner6 {
		return 1
	}
	return 0
}

// find looks for the way to an end.
func find(to netip.Addr) (w way, err error) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9)))
	if err != nil {
		return w, err
	}
	defer c.Close()
	level, option, overhead := unix.IPPROTO_IP, unix.IP_MTU, overhead4
	if to.Is6() {
		level, option, overhead = unix.IPPROTO_IPV6, unix.IPV6_MTU, overhead6
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return w, err
	}
	var optErr error
	err = raw.Control(func(fd uintptr) { w.mtu, optErr = unix.GetsockoptInt(int(fd), level, option) })
	if err = errors.Join(err, optErr); err != nil {
		return w, err
	}
	w.mtu -= overhead
	w.source = c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	w.device, err = device(to)
	return w, err
}

// Remove deletes the routes of a namespace, whoever made them.
func (u Use) Remove(fd int) error {
	return netns.In(own(fd), func() error {
		err := errors.Join(deleteRoute(u.Gateway(false)), deleteRoute(u.Gateway(true)))
		if errors.Is(err, syscall.EAFNOSUPPORT) {
			return nil
		}
		return err
	})
}

// own turns the descriptors that mean the thread's own namespace here into those
// that do so for package netns.
func own(fd int) int {
	if fd <= 0 {
		return -1
	}
	return fd
}

// Probe says whether the host can have tunnels, by making one in a namespace that
// nobody else is in.
func (u Use) Probe() error {
	ends, program, err := load(u.field(), ^uint32(0))
	if err != nil {
		return err
	}
	defer ends.Close()
	defer program.Close()
	const lo = 1
	return netns.Fresh(func() error { return setRoute(u.Gateway(false), lo, program.FD(), 1280) })
}
