package healthcheck

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestMonitorHungNotifyDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var told recorder
		m := New(Options{Notify: func(c Change) {
			<-release
			told.notify(c)
		}})
		var fakes []*fake
		for i := range 50 {
			fakes = append(fakes, &fake{name: fmt.Sprint(i), check: script("+---")})
		}
		flap := &fake{name: "flap", check: script("+---++---++")}
		set(t, m, append(fakes, flap)...)
		run(t, m)
		time.Sleep(20 * time.Second)
		for _, f := range fakes {
			if s := wantState(t, m, f, Down); s.Checks < 20 {
				t.Errorf("%s: want 20 checks in 20 s, got %d", f.name, s.Checks)
			}
		}
		close(release)
		synctest.Wait()
		// The call that hung told one probe's first state; all others are told
		// the newest only.
		for i, f := range append(fakes, flap) {
			states := told.states(f)
			want := Down
			if f == flap {
				want = Up
			}
			if len(states) == 0 || len(states) > 2 || states[len(states)-1] != want {
				t.Errorf("probe %d: want %v last and at most one before, got %v", i, want, states)
			}
		}
	})
}

func TestMonitorNotifyAfterRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var told recorder
		m := New(Options{Notify: func(c Change) {
			told.notify(c)
			<-release
		}})
		a, b := &fake{name: "a"}, &fake{name: "b"}
		set(t, m, a, b)
		run(t, m)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if len(told.changes) != 1 {
			t.Fatalf("want one call under way, got %d", len(told.changes))
		}
		set(t, m) // b, or a, was waiting to be told of.
		close(release)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if len(told.changes) != 1 {
			t.Errorf("told of a removed probe: %+v", told.changes[1:])
		}
	})
}

// TestMonitorSetInNotify would deadlock if Notify were called under a lock.
func TestMonitorSetInNotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, g := &fake{name: "f"}, &fake{name: "g"}
		var m *Monitor
		m = New(Options{Notify: func(c Change) {
			if c.Key == probeOf(f).Key() {
				if err := m.Set([]Probe{probeOf(g)}); err != nil {
					t.Error(err)
				}
			}
		}})
		set(t, m, f)
		run(t, m)
		time.Sleep(2 * time.Second)
		wantState(t, m, g, Up)
	})
}
