package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"
)

// heavy is an error that holds on to something.
type heavy struct{ weight *[1 << 20]byte }

func (heavy) Error() string { return "x509: not trusted" }

// What a checker's error holds on to is free once the check is over: the
// certificates of ten thousand servers are not kept until the next one.
func TestMonitorKeepsText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{})
		held := make(chan weak.Pointer[[1 << 20]byte], 100)
		f := &fake{name: "f", check: func(context.Context) (Result, error) {
			w := new([1 << 20]byte)
			held <- weak.Make(w)
			return Result{}, fmt.Errorf("TLS: %w (%w)", heavy{w}, ErrLocal)
		}}
		set(t, m, f)
		stop := run(t, m)
		time.Sleep(100 * time.Millisecond)
		s := wantState(t, m, f, Down)
		stop()
		if want := "TLS: x509: not trusted (fault of this host)"; s.LastErr == nil || s.LastErr.Error() != want {
			t.Errorf("want %q, got %v", want, s.LastErr)
		}
		if !errors.Is(s.LastErr, ErrLocal) || errors.Is(s.LastErr, context.DeadlineExceeded) {
			t.Errorf("want the chain to have ErrLocal alone, got %#v", s.LastErr)
		}
		runtime.GC()
		close(held)
		for w := range held {
			if w.Value() != nil {
				t.Error("the status holds on to what the error had")
			}
		}
		runtime.KeepAlive(m)
	})
}
