package execcheck

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/command"
)

// ownPrefix is that of the variables that lbd itself sets.
const ownPrefix = "LBD_"

// Check runs a program. It implements healthcheck.Method.
type Check struct {
	// Args are the program, by its absolute path, and its arguments. There is no
	// shell.
	Args []string
	// User and Group, each by name or number, are who the program runs as. An
	// empty User is lbd's own, an empty Group the first one of the User. They are
	// looked up once, by NewChecker.
	User, Group string
	// Env are further variables, of any name but LBD_….
	Env map[string]string
	// Dynamic makes exit status 2 to 255 a weight.
	Dynamic bool
	// NetNS is the network namespace by name or absolute path; empty for that of
	// the probes.
	NetNS string
}

// Key returns the arguments and every option. Of the variables, which may be
// secrets, it has a digest.
func (c Check) Key() string {
	var b strings.Builder
	fmt.Fprintf(&b, "exec args=%q", c.Args)
	if c.User != "" {
		fmt.Fprintf(&b, " user=%q", c.User)
	}
	if c.Group != "" {
		fmt.Fprintf(&b, " group=%q", c.Group)
	}
	if len(c.Env) > 0 {
		h := sha256.New()
		for _, v := range c.variables() {
			io.WriteString(h, v+"\x00")
		}
		fmt.Fprintf(&b, " env=%x", h.Sum(nil))
	}
	if c.Dynamic {
		b.WriteString(" dynamic")
	}
	return b.String() + healthcheck.Via{NetNS: c.NetNS}.Key()
}

// variables returns Env as the program gets it, in order.
func (c Check) variables() []string {
	var vars []string
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		vars = append(vars, name+"="+c.Env[name])
	}
	return vars
}

// NewChecker returns a checker of target, whose port may be 0. It looks up the
// user and the group.
func (c Check) NewChecker(target netip.AddrPort, env healthcheck.Env) (healthcheck.Checker, error) {
	target = netip.AddrPortFrom(target.Addr().Unmap(), target.Port())
	if !target.Addr().IsValid() {
		return nil, errors.New("exec check without an address")
	}
	// What the program makes of the address is its affair.
	if err := (healthcheck.Via{NetNS: c.NetNS}).Validate(netip.AddrFrom4([4]byte{127, 0, 0, 1})); err != nil {
		return nil, fmt.Errorf("exec check: %w", err)
	}
	for name := range c.Env {
		if strings.HasPrefix(name, ownPrefix) || strings.Contains(name, "=") {
			return nil, fmt.Errorf("exec check: environment variable %q: a name that begins with %s or has an equals sign", name, ownPrefix)
		}
	}
	cmd, err := command.New(command.Spec{
		Args:  c.Args,
		User:  c.User,
		Group: c.Group,
		Env:   c.variables(),
		Enter: enter(c.NetNS, env),
		Whole: true,
		Reads: env.Programs,
	})
	if err != nil {
		return nil, fmt.Errorf("exec check: %w", err)
	}
	return &checker{cmd: cmd, name: filepath.Base(c.Args[0]), dynamic: c.Dynamic, vars: []string{
		"LBD_ADDRESS=" + target.Addr().String(),
		fmt.Sprintf("LBD_PORT=%d", target.Port()),
		"LBD_TARGET=" + target.String(),
	}}, nil
}

type checker struct {
	cmd     *command.Command
	name    string
	dynamic bool
	vars    []string
}

// Check implements healthcheck.Checker.
func (c *checker) Check(ctx context.Context) (healthcheck.Result, error) {
	begun := time.Now()
	vars := slices.Clone(c.vars)
	if deadline, ok := ctx.Deadline(); ok {
		left := max(0, time.Until(deadline))
		left -= command.Reserve(left)
		vars = append(vars, fmt.Sprintf("LBD_CHECK_TIMEOUT=%.3f", left.Truncate(time.Millisecond).Seconds()))
	}
	r, err := c.cmd.Run(ctx, vars...)
	res, err := c.judge(r, err)
	res.Latency = time.Since(begun)
	return res, err
}

// judge turns how the program ended into a result.
func (c *checker) judge(r command.Result, err error) (healthcheck.Result, error) {
	// A program's words end up in logs.
	line := healthcheck.Printable(r.Line())
	status := fmt.Sprintf("exit status %d", r.Code)
	said := status
	if line != "" {
		said += ": " + line
	}
	res := healthcheck.Result{Detail: said}
	switch {
	case errors.Is(err, command.ErrStart):
		return healthcheck.Result{}, fmt.Errorf("%w (%w)", err, healthcheck.ErrLocal)
	case err != nil:
		// What it said until then may tell what it waits for.
		return healthcheck.Result{Detail: line}, err
	case r.Code == 0:
		return res, nil
	case r.Code >= 2 && c.dynamic:
		res.Advice.Weight = healthcheck.Weight{Kind: healthcheck.WeightAbsolute, Value: uint32(r.Code - 2)}
		return res, nil
	}
	return res, fmt.Errorf("%s: %s", c.name, said)
}
