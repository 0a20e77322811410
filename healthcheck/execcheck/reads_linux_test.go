package execcheck

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/command"
	"github.com/lbd-project/lbd/internal/filetest"
)

// withEnv is a Check that keeps the checkers that a Monitor makes of it.
type withEnv struct {
	Check
	made *[]healthcheck.Checker
}

func (m withEnv) NewChecker(target netip.AddrPort, env healthcheck.Env) (healthcheck.Checker, error) {
	c, err := m.Check.NewChecker(target, env)
	*m.made = append(*m.made, c)
	return c, err
}

// With each reload that changes the interval of a check there is another checker.
// While the file of its program does not come, all of them take one thread.
func TestCheckUnreadAgain(t *testing.T) {
	program := t.TempDir() + "/program"
	if err := os.WriteFile(program, []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	give := filetest.Withhold(t, program)
	before := filetest.Threads(t)
	const n = 40
	var checkers []healthcheck.Checker
	m := healthcheck.New(healthcheck.Options{})
	for i := range n {
		p := healthcheck.Probe{
			Method: withEnv{Check{Args: []string{program}}, &checkers},
			Target: netip.MustParseAddrPort("10.0.0.2:80"),
			Timing: healthcheck.Timing{Interval: time.Second + time.Duration(i)*time.Millisecond, Timeout: time.Second, Rise: 1, Fall: 1},
		}
		if err := m.Set([]healthcheck.Probe{p}); err != nil {
			t.Fatal(err)
		}
		err := filetest.Unread(t, command.ErrStart, func(ctx context.Context) error {
			_, err := checkers[i].Check(ctx)
			return err
		})
		if !errors.Is(err, command.ErrStart) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("want %v, got %v", command.ErrStart, err)
		}
	}
	if got := filetest.Threads(t); got > before+n/2 {
		t.Errorf("%d threads before, %d after %d reloads", before, got, n)
	}
	give()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		_, err := checkers[0].Check(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("after the file has come: %v", err)
		}
		time.Sleep(time.Millisecond)
	}
}
