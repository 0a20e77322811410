package filecheck

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/checktest"
)

// envOf is a Method that keeps the Env it gets.
type envOf struct{ env *healthcheck.Env }

func (envOf) Key() string { return "env" }

func (m envOf) NewChecker(_ netip.AddrPort, env healthcheck.Env) (healthcheck.Checker, error) {
	*m.env = env
	return nil, nil
}

// A file is not read while 1000 reads of a Monitor's checks do not end, each of
// which holds a thread, and is once one of them does.
func TestCheckPlaces(t *testing.T) {
	var env healthcheck.Env
	probe := healthcheck.Probe{Method: envOf{&env}, Timing: healthcheck.Timing{Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1}}
	if err := healthcheck.New(healthcheck.Options{}).Set([]healthcheck.Probe{probe}); err != nil {
		t.Fatal(err)
	}
	path := t.TempDir() + "/weight"
	write(t, path, "42")
	c, err := Check{Path: path}.NewChecker(netip.AddrPort{}, env)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var end func()
	for i := range 1000 {
		// The file is read with one place left, and gives it back.
		if i == 999 {
			for range 3 {
				if _, err := c.Check(ctx); err != nil {
					t.Fatalf("a place is left: %v", err)
				}
			}
		}
		if end, err = env.BeginRead(ctx); err != nil {
			t.Fatalf("after %d: %v", i, err)
		}
	}
	want := "file " + path + ": not read, while 1000 reads of files do not end: context deadline exceeded (fault of this host)"
	if _, err := checktest.RunUntil(t, Check{Path: path}, env, "10.0.0.2:80", 50*time.Millisecond, want); checktest.Text(err) != want || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, healthcheck.ErrLocal) {
		t.Errorf("want %q, got %v", want, err)
	}
	end()
	if r, err := c.Check(ctx); err != nil || r.Detail != "weight 42" {
		t.Errorf("after one ended: want weight 42, got %+v, %v", r, err)
	}
}
