package healthcheck

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestScheduleRounds bounds the time between starts: jitter shortens by a tenth
// at most, and nothing ever lengthens.
func TestScheduleRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{})
		var fakes []*fake
		for i := range 100 {
			fakes = append(fakes, &fake{name: fmt.Sprint(i)})
		}
		set(t, m, fakes...)
		stop := run(t, m)
		time.Sleep(30 * time.Second)
		stop()
		different := make(map[time.Duration]bool)
		for _, f := range fakes {
			starts := f.started()
			for i, at := range starts[1:] {
				gap := at.Sub(starts[i])
				if gap > time.Second {
					t.Errorf("%s: run %d came %v after the one before", f.name, i+1, gap)
				}
				// The second run is at the probe's phase, so it may come soon; a
				// start may be up to slack too early.
				if i > 0 && gap < 900*time.Millisecond-slack {
					t.Errorf("%s: run %d came %v after the one before", f.name, i+1, gap)
				}
				different[gap] = true
			}
		}
		// Some start together, which makes gaps alike.
		if len(different) < 100 {
			t.Errorf("want jitter, got %d different gaps", len(different))
		}
	})
}

// TestScheduleSpread adds many probes at once and looks for herds in each
// hundredth of the interval, at first and later.
func TestScheduleSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5000
		m := New(Options{})
		begun := time.Now()
		var fakes []*fake
		for i := range n {
			fakes = append(fakes, &fake{name: fmt.Sprint(i)})
		}
		set(t, m, fakes...)
		stop := run(t, m)
		time.Sleep(4 * time.Second)
		stop()
		buckets := make([]int, 400)
		for _, f := range fakes {
			starts := f.started()
			// 5,000 probes at 100 µs.
			if first := starts[0].Sub(begun); first > 500*time.Millisecond {
				t.Errorf("%s: want the first run within 500ms, got %v", f.name, first)
			}
			for _, at := range starts {
				if b := int(at.Sub(begun) / (10 * time.Millisecond)); b < len(buckets) {
					buckets[b]++
				}
			}
		}
		for b, got := range buckets {
			// The mean is 50 to 56 a bucket, at most 80 while some probes are a
			// round ahead by jitter, 150 while first and second runs overlap.
			// The bounds are six deviations from that.
			limit := 135
			if b < 100 {
				limit = 230
			}
			if got > limit || b > 100 && got < 15 {
				t.Errorf("%d starts between %d ms and %d ms", got, b*10, b*10+10)
			}
		}
	})
}

func TestScheduleFewDecideSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{})
		f := &fake{name: "f"}
		p := probeOf(f)
		p.Interval, p.Timeout = time.Hour, time.Minute
		if err := m.Set([]Probe{p}); err != nil {
			t.Fatal(err)
		}
		run(t, m)
		time.Sleep(10 * time.Millisecond)
		if s, _ := m.Status(p.Key()); s.State != Up {
			t.Errorf("want Up within 10 ms, got %v", s.State)
		}
	})
}

// TestScheduleOutOfStep starts two monitors at the same moment with the same
// probes: they must not probe the servers in lock step.
func TestScheduleOutOfStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		var fakes [2][]*fake
		for k := range fakes {
			m := New(Options{})
			for i := range n {
				fakes[k] = append(fakes[k], &fake{name: fmt.Sprint(i)})
			}
			set(t, m, fakes[k]...)
			run(t, m)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		together := 0
		for i := range n {
			a, b := fakes[0][i].started(), fakes[1][i].started()
			if d := a[1].Sub(b[1]).Abs(); d < 10*time.Millisecond {
				together++
			}
		}
		if together > n/5 {
			t.Errorf("%d of %d probes ran at the same time in both", together, n)
		}
	})
}

// drive does the scheduler's work in the calling goroutine for d. Between two
// calls the scheduler stalls.
func drive(ctx context.Context, m *Monitor, d time.Duration) {
	end := time.Now().Add(d)
	for time.Now().Before(end) {
		time.Sleep(min(m.tick(ctx, time.Now()), time.Until(end)))
	}
	synctest.Wait()
}

// undriven returns a monitor of the fakes that waits for drive.
func undriven(t *testing.T, fakes ...*fake) *Monitor {
	t.Helper()
	m := New(Options{})
	m.started = true
	set(t, m, fakes...)
	return m
}

// TestScheduleTogether counts the wake-ups that a few probes take: it starts those
// together that jitter lets it, but not many, and none beside itself.
func TestScheduleTogether(t *testing.T) {
	for _, n := range []int{200, 1000} {
		synctest.Test(t, func(t *testing.T) {
			var fakes []*fake
			for i := range n {
				fakes = append(fakes, &fake{name: fmt.Sprint(i)})
			}
			m := undriven(t, fakes...)
			drive(t.Context(), m, 2*time.Second)
			starts, wakes, most := m.stats.starts, 0, uint64(0)
			for end := time.Now().Add(5 * time.Second); time.Now().Before(end); wakes++ {
				before := m.stats.starts
				wait := m.tick(t.Context(), time.Now())
				most = max(most, m.stats.starts-before)
				time.Sleep(wait)
			}
			synctest.Wait()
			starts = m.stats.starts - starts
			if each := float64(starts) / float64(wakes); each < 6 {
				t.Errorf("%d probes: want at least 6 starts a wake-up, got %.1f", n, each)
			}
			// Those that are due within slack come on top.
			if most > atOnce+atOnce/2 {
				t.Errorf("%d probes: %d started together", n, most)
			}
			if s := m.Stats(); s.Skipped > 0 || s.LagMax > 0 {
				t.Errorf("%d probes: want each start on time, got %+v", n, s)
			}
		})
	}
}

// TestScheduleAfterStall holds the scheduler up for a minute: what was missed is
// not made up for in one burst, and everybody is checked within an interval.
func TestScheduleAfterStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fakes []*fake
		for i := range 200 {
			fakes = append(fakes, &fake{name: fmt.Sprint(i)})
		}
		m := undriven(t, fakes...)
		drive(t.Context(), m, 5*time.Second)
		time.Sleep(time.Minute)
		resumed := time.Now()
		drive(t.Context(), m, 1100*time.Millisecond)
		buckets := make(map[int]int)
		for _, f := range fakes {
			var next time.Time
			for _, at := range f.started() {
				if !at.Before(resumed) {
					buckets[int(at.Sub(resumed)/(50*time.Millisecond))]++
					if next.IsZero() {
						next = at
					}
				}
			}
			if d := next.Sub(resumed); next.IsZero() || d > time.Second {
				t.Errorf("%s: want a run within an interval, got %v", f.name, d)
			}
		}
		for b, got := range buckets {
			if got > 40 { // 10 on average
				t.Errorf("%d of 200 started in the %d. 50 ms", got, b)
			}
		}
		if s := m.Stats(); s.Skipped < 200 {
			t.Errorf("want the missed starts counted, got %+v", s)
		}
	})
}

func TestScheduleSlotAfter(t *testing.T) {
	now := time.Now()
	const s = time.Second
	tests := []struct {
		name            string
		due, step, want time.Duration
	}{
		{"on time", 0, s, s},
		{"jitter", 0, 950 * time.Millisecond, 950 * time.Millisecond},
		{"late by less than an interval", -300 * time.Millisecond, s, 700 * time.Millisecond},
		{"late by more", -5300 * time.Millisecond, s, 700 * time.Millisecond},
		{"late by whole intervals", -5 * s, s, s},
		{"too early", slack, s, s},
		{"no step", 0, 0, s},
		{"long ago", -1000 * time.Hour, s, s},
	}
	for _, tt := range tests {
		got := slotAfter(now.Add(tt.due), tt.step, s, now).Sub(now)
		if got != tt.want {
			t.Errorf("%s: want %v from now, got %v", tt.name, tt.want, got)
		}
		if got < slack {
			t.Errorf("%s: %v is before the horizon: the tick would not end", tt.name, got)
		}
	}
}

func TestStatsHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{})
		if s := m.Stats(); !s.LastTick.IsZero() {
			t.Errorf("want no tick before Run, got %v", s.LastTick)
		}
		stop := run(t, m)
		for range 10 { // without a probe
			time.Sleep(700 * time.Millisecond)
			if age := time.Since(m.Stats().LastTick); age > maxIdle {
				t.Errorf("want a tick in the last %v, got %v", maxIdle, age)
			}
		}
		stop()
		time.Sleep(time.Minute)
		if age := time.Since(m.Stats().LastTick); age < 59*time.Second {
			t.Errorf("want no tick after Run, got %v ago", age)
		}
	})
}

func TestStatsLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{name: "f", check: func(context.Context) (Result, error) { return Result{}, errFake }}
		m := undriven(t, f)
		drive(t.Context(), m, 3*time.Second)
		s := m.Stats()
		if s.Probes != 1 || s.Starts != s.Checks || s.Checks != s.Failures || s.Checks < 3 || s.LagMax != 0 {
			t.Errorf("without lag: got %+v", s)
		}
		time.Sleep(time.Until(m.queue[0].due) + 300*time.Millisecond)
		drive(t.Context(), m, 100*time.Millisecond)
		if s := m.Stats(); s.LagMax != 300*time.Millisecond || s.LagTotal != s.LagMax {
			t.Errorf("want 300ms of lag, got %+v", s)
		}
		drive(t.Context(), m, 21*time.Second)
		if s := m.Stats(); s.LagMax != 0 || s.LagTotal != 300*time.Millisecond {
			t.Errorf("want the peak forgotten after 20 s, got %+v", s)
		}
	})
}
