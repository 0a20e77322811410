package checktest

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
)

// overtime is how long after its deadline a check may return on a busy machine.
const overtime = 2 * time.Second

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

// Text returns the text of an error, empty for nil.
func Text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
