package userspace

import (
	"errors"
	"testing"
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
	l.stop()
	if err := second(); err != nil {
		t.Errorf("after the first engine: %v", err)
	}
}
