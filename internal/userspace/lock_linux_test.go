package userspace

import (
	"errors"
	"log/slog"
	"testing"
	"time"
)

// TestNetnsLock opens a second engine with queues of its own in the namespace of
// the first, whose rules must stay; and one after it.
func TestNetnsLock(t *testing.T) {
	l := newLab(t, 0)
	l.open()
	o := l.options()
	o.QueueBase, o.Store = 200, &fakeStore{}
	second := func() error {
		e, err := Open(t.Context(), o)
		if err == nil {
			t.Cleanup(func() { e.Close() })
		}
		return err
	}
	if err := second(); !errors.Is(err, ErrRunning) {
		t.Errorf("beside the first engine: want %v, got %v", ErrRunning, err)
	}
	if ok, err := l.engine.rules.Intact(t.Context()); !ok || err != nil {
		t.Errorf("the first engine's rules are intact: %v, %v", ok, err)
	}
	// As in a child that does not execute its program yet.
	copied, err := l.engine.lock.(rulesLock).File()
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	l.stop()
	time.AfterFunc(100*time.Millisecond, func() { copied.Close() })
	if err := second(); err != nil {
		t.Errorf("after the first engine: %v", err)
	}
	locked := &Engine{opt: o, log: slog.New(slog.DiscardHandler)}
	if err := locked.lockRules(); !errors.Is(err, ErrRunning) {
		t.Errorf("beside the engine after it: want %v, got %v", ErrRunning, err)
	}
}
