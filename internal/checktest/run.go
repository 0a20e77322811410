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

const (
	// overtime is how long after its deadline a check may return, for a machine that
	// is busy with many of them.
	overtime = 20 * time.Second
	// soon is how long after its deadline a check does return, one in lateTries also
	// on such a machine.
	soon      = time.Second
	lateTries = 5
)

// Run makes one check with a deadline, and fails the test if it returns long after
// that, or before it with the error that the time is over.
func Run(t testing.TB, m healthcheck.Method, env healthcheck.Env, target string, timeout time.Duration) (healthcheck.Result, error) {
	t.Helper()
	r, _, err := attempt(t, m, env, target, timeout)
	return r, err
}

// attempt is Run, and says how long after its deadline the check returned.
func attempt(t testing.TB, m healthcheck.Method, env healthcheck.Env, target string, timeout time.Duration) (r healthcheck.Result, late time.Duration, err error) {
	t.Helper()
	c, err := m.NewChecker(netip.MustParseAddrPort(target), env)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	r, err = c.Check(ctx)
	deadline, _ := ctx.Deadline()
	late = time.Since(deadline)
	switch {
	case late > overtime:
		t.Errorf("the check returned %v after its deadline of %v", late, timeout)
	case late < 0 && errors.Is(err, context.DeadlineExceeded):
		t.Errorf("the check returned %v before its deadline of %v: %v", -late, timeout, err)
	}
	if r.Latency <= 0 {
		t.Errorf("want a latency, got %+v", r)
	}
	return r, late, err
}

// RunUntil is like Run, for a check whose time may be over while it waits for
// something, in the end with an error that Says want. A busy machine may let the time
// be over before that: then the check has twice as much, up to half a minute. It may
// also have a check return late, but the test fails if five did, each more than a
// second after its deadline.
func RunUntil(t testing.TB, m healthcheck.Method, env healthcheck.Env, target string, timeout time.Duration, want string) (healthcheck.Result, error) {
	t.Helper()
	for tries := 0; ; {
		r, late, err := attempt(t, m, env, target, timeout)
		if !Says(err, want) && errors.Is(err, context.DeadlineExceeded) && timeout <= 15*time.Second {
			timeout *= 2
			continue
		}
		if late > soon && late <= overtime {
			if tries++; tries < lateTries {
				continue
			}
			t.Errorf("%d checks returned late, the last one %v after its deadline of %v", tries, late, timeout)
		}
		return r, err
	}
}

// Says reports whether the text of an error is want, of which a "*" at the end leaves
// the rest open.
func Says(err error, want string) bool {
	begin, open := strings.CutSuffix(want, "*")
	text := Text(err)
	return text == want || open && strings.HasPrefix(text, begin)
}

// Text returns the text of an error, empty for nil.
func Text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
