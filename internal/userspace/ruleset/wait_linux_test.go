package ruleset

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestNetnsWait waits for changes of others, and not for those of lbd.
func TestNetnsWait(t *testing.T) {
	r := openEmpty(t, Options{FailOpen: true})
	spec := persistent()
	look := func() {
		t.Helper()
		if err := r.Apply(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		if ok, err := r.Intact(t.Context()); err != nil || !ok {
			t.Fatalf("intact: want true, got %v, %v", ok, err)
		}
	}
	look()
	for _, change := range []string{"flush ruleset", "delete table ip6 lbd", "add table ip other"} {
		changed := make(chan error)
		go func() { changed <- r.Wait(t.Context()) }()
		nft(t, r, change)
		select {
		case err := <-changed:
			if err != nil {
				t.Errorf("%s: %v", change, err)
			}
		case <-time.After(waitTime):
			t.Fatalf("%s: not heard", change)
		}
		if _, err := r.Intact(t.Context()); err != nil {
			t.Fatal(err)
		}
		look()
	}
	// What lbd writes itself, and that others were heard, wakes nobody.
	spec.Dead = []uint32{mark4}
	look()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errEnough)
	defer cancel()
	if err := r.Wait(ctx); !errors.Is(err, errEnough) {
		t.Errorf("want %v, got %v", errEnough, err)
	}
}

var errEnough = errors.New("enough")
