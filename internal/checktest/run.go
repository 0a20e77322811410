package checktest

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
)

// overtime is how long after its deadline a check may return, for a machine that is
// busy with many of them.
const overtime = 20 * time.Second

// Run makes one check with a deadline, and fails the test if it returns long
// after that.
func Run(t testing.TB, m healthcheck.Method, env healthcheck.Env, target string, timeout time.Duration) (healthcheck.Result, error) {
	t.Helper()
	c, err := m.NewChecker(netip.MustParseAddrPort(target), env)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	begun := time.Now()
	r, err := c.Check(ctx)
	if took := time.Since(begun); took > timeout+overtime {
		t.Errorf("the check took %v, its deadline was %v", took, timeout)
	}
	if r.Latency <= 0 {
		t.Errorf("want a latency, got %+v", r)
	}
	return r, err
}

// RunUntil is like Run, for a check whose time may be over while it waits for
// something, in the end with the error want, of which a "*" at the end leaves the
// rest open. A busy machine may let the time be over before that: then the check has
// twice as much, up to half a minute.
func RunUntil(t testing.TB, m healthcheck.Method, env healthcheck.Env, target string, timeout time.Duration, want string) (healthcheck.Result, error) {
	t.Helper()
	begin, open := strings.CutSuffix(want, "*")
	for ; ; timeout *= 2 {
		r, err := Run(t, m, env, target, timeout)
		text := Text(err)
		if text == want || open && strings.HasPrefix(text, begin) || !errors.Is(err, context.DeadlineExceeded) || timeout > 15*time.Second {
			return r, err
		}
	}
}

// Text returns the text of an error, empty for nil.
func Text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
