package tcpcheck

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/expect"
	"github.com/lbd-project/lbd/healthcheck/tlsopt"
)

const (
	// MaxSteps is how many steps a Check may have.
	MaxSteps = 100
	// MaxSend is how many bytes a step may send.
	MaxSend = expect.MaxValue
	// MaxAnswer is how many bytes of an answer are looked at.
	MaxAnswer = 32 << 10
)

// Check is healthy when a connection comes about, with a TLS handshake if asked
// for, and every step succeeds. Without either it is the connection alone, as of
// healthcheck.TCP, but for its end. It implements healthcheck.Method.
//
// In the end the connection is closed politely: close_notify, FIN, and the rest
// of what the target says is read. As the probe's side closes first, unless a
// step makes the target do it, the host keeps each connection for a minute
// (TIME_WAIT), as any client's.
type Check struct {
	Via healthcheck.Via
	// TLS is nil for a connection in the clear. Where it has no server name, the
	// certificate has to be for the target's address.
	TLS *tlsopt.Options
	// Steps are taken in order, at most MaxSteps.
	Steps []Step
}

// Step sends, then expects; one of them may be missing.
//
// An answer is all that has come since the last step that sent something, or
// since the start. All expectations until the next such step look at the whole
// of it: {send, expect A}, {expect B} finds A and B in one answer, in any order.
// It does not matter in which pieces the answer comes. An answer is looked at
// until it has what is expected, at most its first MaxAnswer bytes; one that
// never has it fails when the target closes or the probe's time is up.
//
// A negated expectation fails as soon as the answer has what it must not. It
// holds once the answer is complete, which a target that keeps the connection
// open does not tell. So the answer counts as complete when it has all that the
// other steps since the last send expect; or, if they expect nothing, when the
// target closes, has sent MaxAnswer bytes, or has been silent, after its first
// byte, for 200 ms or half of the probe's remaining time, whichever is less.
// A target that says nothing at all never meets it.
type Step struct {
	// Send is what is sent, at most MaxSend bytes; empty for nothing.
	Send []byte
	// Expect is what the answer must have; the zero value is nothing.
	Expect expect.Expect
}

// Key implements healthcheck.Method. What is sent is in it only as a SHA-256,
// because it may be a password.
func (c Check) Key() string {
	var b strings.Builder
	b.WriteString("tcp-steps")
	b.WriteString(c.Via.Key())
	if c.TLS != nil {
		b.WriteString(" " + c.TLS.Key())
	}
	for _, s := range c.Steps {
		if len(s.Send) > 0 {
			fmt.Fprintf(&b, " send=%x", sha256.Sum256(s.Send))
		}
		if !s.Expect.IsZero() {
			b.WriteString(" expect=" + s.Expect.Key())
		}
	}
	return b.String()
}

// NewChecker implements healthcheck.Method. It returns an error for a target that
// Via cannot reach, for options of TLS and expectations that are wrong, and for a
// step that would do nothing.
func (c Check) NewChecker(target netip.AddrPort, env healthcheck.Env) (healthcheck.Checker, error) {
	k := &checker{via: c.Via, env: env, target: target, options: c.TLS, steps: len(c.Steps)}
	if err := c.prepare(k); err != nil {
		return nil, fmt.Errorf("tcp check of %v: %w", target, err)
	}
	return k, nil
}

func (c Check) prepare(k *checker) error {
	if err := c.Via.Validate(k.target.Addr()); err != nil {
		return err
	}
	switch {
	case k.target.Port() == 0:
		return errors.New("no port")
	case len(c.Steps) > MaxSteps:
		return fmt.Errorf("%d steps are more than %d", len(c.Steps), MaxSteps)
	}
	var err error
	if c.TLS != nil {
		if k.config, err = c.TLS.Config(k.target.Addr().Unmap().String()); err != nil {
			return err
		}
	}
	k.rounds, err = rounds(c.Steps)
	return err
}

// round is something to send and what the answer to it must have.
type round struct {
	send []byte
	// step is the number of the step that sends, from 1.
	step  int
	wants []want
}

// want is an expectation with the number of its step.
type want struct {
	step    int
	matcher *expect.Matcher
}

// rounds begins a new round with each step that sends.
func rounds(steps []Step) ([]round, error) {
	var all []round
	for i, s := range steps {
		n := i + 1
		m, err := s.Expect.Compile()
		switch {
		case err != nil:
			return nil, fmt.Errorf("step %d: %w", n, err)
		case len(s.Send) == 0 && s.Expect.IsZero():
			return nil, fmt.Errorf("step %d: nothing to send or to expect", n)
		case len(s.Send) > MaxSend:
			return nil, fmt.Errorf("step %d: %d bytes to send are more than %d", n, len(s.Send), MaxSend)
		}
		if len(s.Send) > 0 || len(all) == 0 {
			all = append(all, round{send: s.Send, step: n})
		}
		if r := &all[len(all)-1]; !s.Expect.IsZero() {
			r.wants = append(r.wants, want{step: n, matcher: m})
		}
	}
	return all, nil
}

// checker is a Check of one target.
type checker struct {
	via     healthcheck.Via
	env     healthcheck.Env
	target  netip.AddrPort
	options *tlsopt.Options
	config  *tls.Config
	rounds  []round
	steps   int
}
