package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netns"
)

// Socket returns a new socket in the namespace of v, or else that of env, which
// does not block, is closed on exec and has the mark and the interface set. The
// caller closes it. Its domain, kind and proto are those of socket(2); it is not
// bound, see Bind. Errors match ErrLocal.
func (v Via) Socket(env Env, domain, kind, proto int) (int, error) {
	fd := -1
	err := env.in(v.NetNS, func() (err error) {
		fd, err = unix.Socket(domain, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, proto)
		return os.NewSyscallError("socket", err)
	})
	if err != nil {
		// The way back from the namespace may have failed.
		if fd >= 0 {
			unix.Close(fd)
		}
		return -1, local("create socket", needs("CAP_SYS_ADMIN", err))
	}
	if err := v.mark(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// in calls create in the namespace of this name or path, or else in that of the
// probes.
func (e Env) in(namespace string, create func() error) error {
	if namespace == "" && e.Enter == nil {
		return create()
	}
	if e.gate != nil {
		e.gate <- struct{}{}
		defer func() { <-e.gate }()
	}
	if namespace == "" {
		return e.Enter(create)
	}
	ns, err := netns.OpenName(namespace)
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.Do(create)
}

// mark sets what every packet of fd needs. The socket remembers its namespace,
// so it does not matter which one the thread is in.
func (v Via) mark(fd int) error {
	if v.Interface != "" {
		if err := unix.BindToDevice(fd, v.Interface); err != nil {
			return local("use interface "+v.Interface, needs("CAP_NET_RAW or Linux 5.7", err))
		}
	}
	if v.Mark != 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(v.Mark)); err != nil {
			return local(fmt.Sprintf("set mark %#x", v.Mark), needs("CAP_NET_ADMIN", err))
		}
	}
	return nil
}

// needs says what it takes where err says that this is not permitted.
func needs(what string, err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w (needs %s)", err, what)
	}
	return err
}

// Bind binds fd, a socket that Socket has made, to the source address, if there
// is one. Errors match ErrLocal.
func (v Via) Bind(fd int) error {
	if !v.Source.IsValid() {
		return nil
	}
	// The port is chosen once the target is known: chosen now, it would be taken
	// for every target, and some 28,000 probes at once would use up them all.
	// Raw sockets have none, and those of IPv6 do not know the option.
	err := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	if err != nil && !errors.Is(err, unix.ENOPROTOOPT) {
		return local("use source "+v.Source.String(), err)
	}
	_, sa := socketAddress(netip.AddrPortFrom(v.Source.Unmap(), 0))
	if err := unix.Bind(fd, sa); err != nil {
		return local("use source "+v.Source.String(), err)
	}
	return nil
}

// Dial connects to target, which Validate accepts, from a socket that is made in
// the namespace of v, or else that of env. The network is "tcp" or "udp"; the
// result is a *net.TCPConn or a connected *net.UDPConn, on which Read returns
// what ICMP says. ctx bounds the connecting and nothing later. Errors that came
// up before anything could be heard of the target match ErrLocal.
func (v Via) Dial(ctx context.Context, env Env, network string, target netip.AddrPort) (net.Conn, error) {
	target = netip.AddrPortFrom(target.Addr().Unmap(), target.Port())
	c, err := v.dial(ctx, env, network, target)
	if err != nil {
		return nil, fmt.Errorf("connect %s: %w", env.Through.Name(target), env.explain(err))
	}
	return c, nil
}

func (v Via) dial(ctx context.Context, env Env, network string, target netip.AddrPort) (net.Conn, error) {
	kind := unix.SOCK_STREAM
	if network == "udp" {
		kind = unix.SOCK_DGRAM
	} else if network != "tcp" {
		return nil, net.UnknownNetworkError(network)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	domain, sa := socketAddress(target)
	fd, err := v.Socket(env, domain, kind, 0)
	if err != nil {
		return nil, err
	}
	if kind == unix.SOCK_DGRAM {
		err = reportErrors(fd, domain)
	}
	if err == nil {
		err = v.leave(env, fd, kind, target)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	f, err := connect(ctx, fd, sa)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileConn(f)
}

// leave prepares how the packets of fd get to target: from the source address, and
// through env's service.
func (v Via) leave(env Env, fd, kind int, target netip.AddrPort) error {
	p, ok, err := env.path(v, target.Addr())
	if err != nil {
		return err
	}
	if !ok {
		return v.Bind(fd)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, int(p.Priority)); err != nil {
		return local("set priority", needs("CAP_NET_ADMIN", err))
	}
	if p.MaxSegment > 0 && kind == unix.SOCK_STREAM {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, p.MaxSegment); err != nil {
			return local("set segment size", err)
		}
	}
	// Answers of all real servers of a service come from its one address, so that
	// the local port alone tells whose they are: it is taken now, and exclusively.
	source := v.Source.Unmap()
	if !source.IsValid() {
		source = netip.IPv4Unspecified()
		if target.Addr().Is6() {
			source = netip.IPv6Unspecified()
		}
	}
	_, sa := socketAddress(netip.AddrPortFrom(source, 0))
	if err := unix.Bind(fd, sa); err != nil {
		return local("use source "+source.String(), err)
	}
	return nil
}

// reportErrors has a UDP socket return every ICMP error, not only "port
// unreachable".
func reportErrors(fd, domain int) error {
	level, option := unix.SOL_IP, unix.IP_RECVERR
	if domain == unix.AF_INET6 {
		level, option = unix.SOL_IPV6, unix.IPV6_RECVERR
	}
	if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
		return local("ask for ICMP errors", err)
	}
	return nil
}

// socketAddress returns a as the kernel wants it.
func socketAddress(a netip.AddrPort) (domain int, sa unix.Sockaddr) {
	if ip := a.Addr(); ip.Is6() {
		return unix.AF_INET6, &unix.SockaddrInet6{Addr: ip.As16(), Port: int(a.Port())}
	}
	return unix.AF_INET, &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}
