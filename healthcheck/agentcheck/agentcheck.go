package agentcheck

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/hostile"
)

// maxAnswer is the longest answer in bytes, without the end of its line.
const maxAnswer = 1024

// Check asks an agent. It implements healthcheck.Method.
type Check struct {
	// Via is how the probe leaves the host.
	Via healthcheck.Via
	// Send is sent first, as it is: an agent that reads lines needs the end of
	// one. Empty for nothing.
	Send string
}

// Key returns "agent" and every option; of Send, which may be a secret, a digest.
func (c Check) Key() string {
	key := "agent" + c.Via.Key()
	if c.Send != "" {
		key += fmt.Sprintf(" send=%x", sha256.Sum256([]byte(c.Send)))
	}
	return key
}

// NewChecker returns a checker of the agent at target, which needs a port and an
// address that Via accepts.
func (c Check) NewChecker(target netip.AddrPort, env healthcheck.Env) (healthcheck.Checker, error) {
	addr := target.Addr().Unmap()
	if !addr.IsValid() {
		return nil, errors.New("agent check without an address")
	}
	if err := c.Via.Validate(addr); err != nil {
		return nil, fmt.Errorf("agent check of %v: %w", addr, err)
	}
	if target.Port() == 0 {
		return nil, fmt.Errorf("agent check of %v: no port", addr)
	}
	return &checker{via: c.Via, send: c.Send, target: netip.AddrPortFrom(addr, target.Port()), env: env}, nil
}

type checker struct {
	via    healthcheck.Via
	send   string
	target netip.AddrPort
	env    healthcheck.Env
}

// Check implements healthcheck.Checker.
func (c *checker) Check(ctx context.Context) (healthcheck.Result, error) {
	begun := time.Now()
	line, err := c.ask(ctx)
	res := healthcheck.Result{Latency: time.Since(begun)}
	if err != nil {
		return res, err
	}
	res.Advice, res.Detail, err = parse(line)
	if err != nil {
		return res, err
	}
	return res, nil
}

// ask returns the line that the agent answers.
func (c *checker) ask(ctx context.Context) (string, error) {
	conn, err := c.via.Dial(ctx, c.env, "tcp", c.target)
	if err != nil {
		return "", err
	}
	b := hostile.Bound(ctx, conn, maxAnswer+int64(len("\r\n")))
	defer b.Close()
	if c.send != "" {
		if _, err := io.WriteString(b, c.send); err != nil {
			return "", fmt.Errorf("send: %w", err)
		}
	}
	line, err := readLine(b)
	if err != nil {
		return "", fmt.Errorf("read: %w", err)
	}
	return line, nil
}

// readLine returns the first line without its end, which may be that of the
// connection.
func readLine(r io.Reader) (string, error) {
	line, err := bufio.NewReaderSize(r, maxAnswer).ReadString('\n')
	line = strings.TrimRight(line, "\r\n")
	switch {
	case len(line) > maxAnswer, errors.Is(err, hostile.ErrTooMuch):
		return "", fmt.Errorf("%w: over %d bytes", hostile.ErrTooMuch, maxAnswer)
	case err != nil && err != io.EOF:
		return "", err
	}
	return line, nil
}
