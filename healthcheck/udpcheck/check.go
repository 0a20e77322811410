package udpcheck

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/expect"
)

const (
	// MaxPayload is how many bytes a Check may send.
	MaxPayload = expect.MaxValue
	// maxReply is the most that a datagram can hold.
	maxReply = 65535
	// NeighbourTimeout is the least Timeout with which a Check sees that a target
	// on the same network is switched off: the kernel asks three times, a second
	// apart, who has its address, and then gives up (net.ipv4.neigh, ucast_solicit
	// or mcast_solicit times retrans_time_ms).
	NeighbourTimeout = 4 * time.Second
)

// Check is healthy when the target answers a datagram as it should or, where no
// reply is required, says nothing. An ICMP error fails it: port or host
// unreachable, from the target, from a router or from this host, which says so
// itself when nobody answers ARP or neighbour discovery. Datagrams that are not
// from the target's address and port are ignored. It implements
// healthcheck.Method.
type Check struct {
	Via healthcheck.Via
	// Payload is what is sent, at most MaxPayload bytes; empty for a datagram
	// without any.
	Payload []byte
	// RequireReply makes silence a failure. Without it, the target is healthy
	// if nothing at all has been heard when a twentieth of the probe's time (at
	// most 100 ms) is left: each probe takes its whole time, and all that can
	// fail it is a wrong answer or an ICMP error, which firewalls drop and which
	// takes the kernel 3 s to make up for a target that is off.
	RequireReply bool
	// Expect, MinReply and MaxReply are what an answer must have, required or
	// not. Lengths are in bytes; a MaxReply of 0 is no limit. The first
	// datagram decides.
	Expect             expect.Expect
	MinReply, MaxReply int
}

// Key implements healthcheck.Method. The payload is in it only as a SHA-256,
// because it may have a password.
func (c Check) Key() string {
	var b strings.Builder
	b.WriteString("udp")
	b.WriteString(c.Via.Key())
	if len(c.Payload) > 0 {
		fmt.Fprintf(&b, " send=%x", sha256.Sum256(c.Payload))
	}
	if c.RequireReply {
		b.WriteString(" reply")
	}
	if !c.Expect.IsZero() {
		b.WriteString(" expect=" + c.Expect.Key())
	}
	if c.MinReply != 0 {
		fmt.Fprintf(&b, " min=%d", c.MinReply)
	}
	if c.MaxReply != 0 {
		fmt.Fprintf(&b, " max=%d", c.MaxReply)
	}
	return b.String()
}

// Warnings of a check that can call dead targets healthy.
const (
	// SilenceWarning is for a target that no other check looks at.
	SilenceWarning = "a target that says nothing counts as healthy: require a reply, or add a check of another kind that must pass, too (icmp, tcp)"
	// TimeoutWarning is for a timeout of less than NeighbourTimeout.
	TimeoutWarning = "a target on the same network that is off is noticed only after 3 s: without a required reply the timeout should be at least 4 s"
)

// Warnings returns what people should hear of the check with this timeout: with a
// required reply nothing, else SilenceWarning, which another check of the same
// target makes pointless, and perhaps TimeoutWarning.
func (c Check) Warnings(timeout time.Duration) []string {
	switch {
	case c.RequireReply:
		return nil
	case timeout < NeighbourTimeout:
		return []string{SilenceWarning, TimeoutWarning}
	}
	return []string{SilenceWarning}
}

// NewChecker implements healthcheck.Method. It returns an error for a target that
// Via cannot reach and for options that are wrong, and on systems other than
// Linux.
func (c Check) NewChecker(target netip.AddrPort, env healthcheck.Env) (healthcheck.Checker, error) {
	target = netip.AddrPortFrom(target.Addr().Unmap(), target.Port())
	m, err := c.validate(target)
	if err != nil {
		return nil, fmt.Errorf("udp check of %v: %w", target, err)
	}
	return newChecker(c, target, env, m)
}

func (c Check) validate(target netip.AddrPort) (*expect.Matcher, error) {
	if err := c.Via.Validate(target.Addr()); err != nil {
		return nil, err
	}
	switch {
	case target.Port() == 0:
		return nil, errors.New("no port")
	case len(c.Payload) > MaxPayload:
		return nil, fmt.Errorf("%d bytes to send are more than %d", len(c.Payload), MaxPayload)
	case c.MinReply < 0 || c.MinReply > maxReply:
		return nil, fmt.Errorf("least length of the reply %d is not in 0 to %d", c.MinReply, maxReply)
	case c.MaxReply < 0 || c.MaxReply > maxReply:
		return nil, fmt.Errorf("greatest length of the reply %d is not in 0 to %d", c.MaxReply, maxReply)
	case c.MaxReply > 0 && c.MaxReply < c.MinReply:
		return nil, fmt.Errorf("greatest length of the reply %d is less than the least, %d", c.MaxReply, c.MinReply)
	}
	return c.Expect.Compile()
}

// judge says what is wrong with an answer.
func (c Check) judge(m *expect.Matcher, data []byte) error {
	n := len(data)
	switch {
	case n < c.MinReply:
		return fmt.Errorf("a reply of %d bytes, fewer than %d: %s", n, c.MinReply, show(data))
	case c.MaxReply > 0 && n > c.MaxReply:
		return fmt.Errorf("a reply of %d bytes, more than %d: %s", n, c.MaxReply, show(data))
	case m.Eval(data, true) != expect.Met:
		return fmt.Errorf("expect %v: got %s", c.Expect, show(data))
	}
	return nil
}

// show prints the begin of an answer.
func show(data []byte) string {
	const most = 64
	switch n := len(data); {
	case n == 0:
		return "no byte"
	case n > most:
		return fmt.Sprintf("%q…", data[:most])
	}
	return fmt.Sprintf("%q", data)
}
