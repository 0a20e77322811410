package icmpcheck

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/healthcheck"
)

// The most that a checker puts up with before its deadline.
const (
	// maxIgnored is how many packets that are no reply to its request.
	maxIgnored = 1000
	// maxSent is how often it sends its request to get past links that are too
	// small for it.
	maxSent = 4
)

// checker pings its target whenever it is told to.
type checker struct {
	via    healthcheck.Via
	env    healthcheck.Env
	target netip.Addr
	size   int
}

func newChecker(via healthcheck.Via, env healthcheck.Env, target netip.Addr, size int) (healthcheck.Checker, error) {
	return &checker{via, env, target, size}, nil
}

// Check implements healthcheck.Checker.
func (c *checker) Check(ctx context.Context) (healthcheck.Result, error) {
	begun := time.Now()
	err := c.ping(ctx)
	r := healthcheck.Result{Latency: time.Since(begun)}
	if err != nil {
		return r, fmt.Errorf("ping %v: %w", c.target, err)
	}
	r.Detail = fmt.Sprintf("echo reply, %d bytes", c.size)
	return r, nil
}

func (c *checker) ping(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return inTime(err)
	}
	x := exchange{ctx: ctx, target: c.target, echo: newEcho(familyOf(c.target), c.size)}
	fd, err := c.open(&x)
	if err != nil {
		return err
	}
	// From here on the file owns the descriptor, and the runtime's poller waits.
	f := os.NewFile(uintptr(fd), "icmp check")
	defer f.Close()
	if x.packet, err = x.marshal(); err != nil {
		return err
	}
	if err := x.send(fd); err != nil {
		return err
	}
	return x.wait(f)
}

// inTime puts a person's words before the end of the time.
func inTime(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer in time: %w", err)
	}
	return err
}

// exchange is one request on its way.
type exchange struct {
	echo
	ctx    context.Context // of the check, which is all that an exchange lives for
	target netip.Addr
	packet []byte
	// header is whether received packets have that of IPv4 before them.
	header bool
	sent   int
	// buf and oob take a packet and its control messages.
	buf, oob []byte
	// ignored counts packets that were not about the request; heard is whether
	// any ICMP error came.
	ignored int
	heard   bool
}

// send sends the request.
func (x *exchange) send(fd int) error {
	x.sent++
	for {
		switch _, err := unix.Write(fd, x.packet); {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
		default:
			return local("send", err)
		}
	}
}

// wait returns once the exchange is over.
func (x *exchange) wait(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	// A file takes no context, but a deadline in the past ends its wait.
	stop := context.AfterFunc(x.ctx, func() { f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	// A header with options, and a byte more than a reply can have.
	x.buf = make([]byte, 60+len(x.packet)+1)
	x.oob = make([]byte, 512)
	var result error
	err = raw.Read(func(fd uintptr) (done bool) {
		done, result = x.read(int(fd))
		return done
	})
	switch {
	case x.ctx.Err() != nil && err != nil:
		result = inTime(x.ctx.Err())
	case err != nil:
		result = err
	}
	if result != nil && x.ignored > 0 {
		return fmt.Errorf("%w (ignored %d other packets)", result, x.ignored)
	}
	return result
}

// read takes all that has come, and reports whether the exchange is over.
func (x *exchange) read(fd int) (done bool, err error) {
	for {
		if done, err := x.readErrors(fd); done {
			return true, err
		}
		n, _, _, from, err := unix.Recvmsg(fd, x.buf, nil, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return false, nil
		case errors.Is(err, unix.EINTR):
		case err != nil:
			// The socket's error tells of one in the queue, which is about another
			// request, if it is of ICMP.
			if done, err := x.readErrors(fd); done {
				return true, err
			}
			if !x.heard {
				return true, os.NewSyscallError("recvmsg", err)
			}
		case x.isReply(x.buf[:n], from):
			return true, nil
		default:
			if x.ignored++; x.ignored == maxIgnored {
				return true, errors.New("too many packets that are no reply")
			}
		}
	}
}

// isReply reports whether a packet is the reply.
func (x *exchange) isReply(packet []byte, from unix.Sockaddr) bool {
	if address(from) != x.target {
		return false
	}
	if x.header {
		var err error
		if packet, err = payload4(packet); err != nil {
			return false
		}
	}
	return x.answeredBy(packet)
}

// readErrors takes the ICMP errors out of the socket's queue, and reports whether
// one of them ends the exchange.
func (x *exchange) readErrors(fd int) (done bool, err error) {
	for {
		n, oobn, _, _, err := unix.Recvmsg(fd, x.buf, x.oob, unix.MSG_ERRQUEUE)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return false, nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return true, os.NewSyscallError("recvmsg", err)
		}
		x.heard = true
		switch t := x.trouble(x.buf[:n], x.oob[:oobn]); {
		case t == nil:
			if x.ignored++; x.ignored == maxIgnored {
				return true, errors.New("too many packets that are no reply")
			}
		case t.tooBig() && x.sent < maxSent:
			// The socket's error would be that of sending; asking clears it.
			if _, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil {
				return true, os.NewSyscallError("getsockopt", err)
			}
			if err := x.send(fd); err != nil {
				return true, err
			}
		default:
			return true, t
		}
	}
}

// trouble returns what an error of the socket's queue says of the request, nil if
// it is of another one.
func (x *exchange) trouble(quote, oob []byte) *trouble {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || !x.quotedBy(quote) {
		return nil
	}
	for _, m := range messages {
		h := m.Header
		if !(h.Level == unix.SOL_IP && h.Type == unix.IP_RECVERR) && !(h.Level == unix.SOL_IPV6 && h.Type == unix.IPV6_RECVERR) {
			continue
		}
		e, err := parseExtended(m.Data, unix.AF_INET, unix.AF_INET6)
		if err != nil || e.origin != originICMP && e.origin != originICMP6 {
			continue
		}
		return &trouble{from: e.offender, v6: e.origin == originICMP6, kind: e.kind, code: e.code, errno: e.errno}
	}
	return nil
}

// address returns the address in sa, the zero Addr for other families.
func address(sa unix.Sockaddr) netip.Addr {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(sa.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(sa.Addr)
	}
	return netip.Addr{}
}

// local marks a fault of this host.
func local(op string, err error) error {
	if errors.Is(err, healthcheck.ErrLocal) {
		return err
	}
	return fmt.Errorf("%s: %w (%w)", op, err, healthcheck.ErrLocal)
}
