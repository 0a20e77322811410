package icmpcheck

import (
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/net/bpf"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// open returns a socket that is connected to the target: the kernel shows it
// nothing of other hosts but the ICMP errors that are about the target. It gives
// x the socket's id and says how it shows packets. Its errors match
// healthcheck.ErrLocal.
func (c *checker) open(x *exchange) (fd int, err error) {
	fd, raw, err := c.socket()
	if err != nil {
		return -1, err
	}
	if err := c.prepare(fd, raw, x); err != nil {
		unix.Close(fd)
		return -1, err
	}
	x.header = raw && c.target.Is4()
	return fd, nil
}

// socket makes a raw socket, or an unprivileged one where that is not permitted.
func (c *checker) socket() (fd int, raw bool, err error) {
	domain, proto := unix.AF_INET, unix.IPPROTO_ICMP
	if c.target.Is6() {
		domain, proto = unix.AF_INET6, unix.IPPROTO_ICMPV6
	}
	fd, err = c.via.Socket(c.env, domain, unix.SOCK_RAW, proto)
	// Not what else may be refused, such as the mark.
	if call, ok := errors.AsType[*os.SyscallError](err); !ok || call.Syscall != "socket" || !errors.Is(err, unix.EPERM) {
		return fd, true, err
	}
	fd, err = c.via.Socket(c.env, domain, unix.SOCK_DGRAM, proto)
	if errors.Is(err, unix.EACCES) { // ping_init_sock of the kernel's net/ipv4/ping.c
		err = fmt.Errorf("%w: needs CAP_NET_RAW, or lbd's group within net.ipv4.ping_group_range", err)
	}
	return fd, false, err
}

// prepare sets up and connects a socket.
func (c *checker) prepare(fd int, raw bool, x *exchange) error {
	var target unix.Sockaddr
	level, recverr := unix.SOL_IP, unix.IP_RECVERR
	if c.target.Is4() {
		target = &unix.SockaddrInet4{Addr: c.target.As4()}
		// Without the DF bit routers divide what is too big.
		if err := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT); err != nil {
			return local("allow fragments", err)
		}
	} else {
		target = &unix.SockaddrInet6{Addr: c.target.As16()}
		level, recverr = unix.SOL_IPV6, unix.IPV6_RECVERR
	}
	if err := unix.SetsockoptInt(fd, level, recverr, 1); err != nil {
		return local("ask for ICMP errors", err)
	}
	if raw {
		if err := filter(fd, x); err != nil {
			return local("filter packets", err)
		}
	}
	if err := c.via.Bind(fd); err != nil {
		return err
	}
	if err := unix.Connect(fd, target); err != nil {
		return local("connect", err)
	}
	if raw {
		return drain(fd)
	}
	// The kernel has chosen the id, and keeps others' replies away.
	switch self, err := unix.Getsockname(fd); self := self.(type) {
	case *unix.SockaddrInet4:
		x.ID = self.Port
	case *unix.SockaddrInet6:
		x.ID = self.Port
	default:
		return local("ask for the id", err)
	}
	return nil
}

// filter has the kernel drop what is no echo reply with the id of x: a raw socket
// gets a copy of every packet of its protocol that the target sends to this host.
func filter(fd int, x *exchange) error {
	// A filter sees the header of IPv4, which X skips, but not that of IPv6.
	var skip bpf.Instruction = bpf.LoadMemShift{Off: 0}
	reply := uint32(ipv4.ICMPTypeEchoReply)
	if x.proto == family6.proto {
		skip = bpf.LoadConstant{Dst: bpf.RegX, Val: 0}
		reply = uint32(ipv6.ICMPTypeEchoReply)
	}
	program, err := bpf.Assemble([]bpf.Instruction{
		skip,
		bpf.LoadIndirect{Off: 0, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: reply, SkipFalse: 3},
		bpf.LoadIndirect{Off: 4, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(x.ID), SkipFalse: 1},
		bpf.RetConstant{Val: math.MaxUint32}, // all of it
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return err
	}
	code := make([]unix.SockFilter, len(program))
	for i, in := range program {
		code[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	fprog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &fprog)
}

// drain takes out what came before the filter was there: with many checks at once
// that may be enough to leave no room for the reply.
func drain(fd int) error {
	var b [1]byte
	for {
		switch _, _, err := unix.Recvfrom(fd, b[:], 0); {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return local("read", err)
		}
	}
}
