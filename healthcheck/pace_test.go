package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPaceWanted has every state, last result and kind of probe.
func TestPaceWanted(t *testing.T) {
	const interval, fast, down = 10 * time.Second, time.Second, time.Minute
	tests := []struct {
		state  State
		failed bool
		want   time.Duration
	}{
		{Pending, false, interval},
		{Up, false, interval},
		{Up, true, fast},
		{Down, true, down},
		{Down, false, fast},
	}
	for _, tt := range tests {
		for _, streak := range []int{0, 1, 5} {
			for _, advisory := range []bool{false, true} {
				for _, with := range []string{"", "fast", "down", "fast, down"} {
					p := probe{Probe: Probe{Advisory: advisory, Timing: Timing{Interval: interval}}}
					p.status = Status{State: tt.state, Streak: streak}
					if tt.failed {
						p.status.LastErr = errFake
					}
					want := tt.want
					if streak == 0 && want == fast { // nothing disagrees yet
						want = map[State]time.Duration{Up: interval, Down: down}[tt.state]
					}
					if with == "fast" || with == "fast, down" {
						p.Fast = fast
					} else if want == fast {
						want = interval
					}
					if with == "down" || with == "fast, down" {
						p.Timing.Down = down
					} else if want == down {
						want = interval
					}
					if advisory {
						want = interval
					}
					if got := p.wanted(); got != want {
						t.Errorf("%v, failed %v, streak %d, advisory %v, with %s: want %v, got %v", tt.state, tt.failed, streak, advisory, with, want, got)
					}
				}
			}
		}
	}
}

// TestPaceRounds asserts the time of every run on the way down and up, and that
// Fall results are Fall runs and not one more.
func TestPaceRounds(t *testing.T) {
	const s = time.Second
	timing := Timing{Interval: 10 * s, Timeout: s, Rise: 2, Fall: 3}
	with := func(edit func(*Timing)) Timing {
		t := timing
		edit(&t)
		return t
	}
	tests := []struct {
		name    string
		timing  Timing
		results string
		// want are the times between the second run and the third, and so on:
		// the first gap brings the probe to its phase.
		want []time.Duration
	}{
		{"plain", timing, "++---++++", []time.Duration{10 * s, 10 * s, 10 * s, 10 * s, 10 * s, 10 * s}},
		{
			"fast", with(func(t *Timing) { t.Fast = s }), "++---++++",
			[]time.Duration{10 * s, s, s, 10 * s, s, 10 * s, 10 * s},
		},
		{
			"down", with(func(t *Timing) { t.Down = 30 * s }), "++----++++",
			[]time.Duration{10 * s, 10 * s, 10 * s, 30 * s, 30 * s, 10 * s, 10 * s},
		},
		{
			"fast and down", with(func(t *Timing) { t.Fast, t.Down = s, 30*s }), "++----++++",
			[]time.Duration{10 * s, s, s, 30 * s, 30 * s, s, 10 * s},
		},
		{
			"short down", with(func(t *Timing) { t.Down = 2 * s }), "++----++++",
			[]time.Duration{10 * s, 10 * s, 10 * s, 2 * s, 2 * s, 10 * s, 10 * s},
		},
		{
			"a blip", with(func(t *Timing) { t.Fast = s }), "++-+--+++",
			[]time.Duration{10 * s, s, 10 * s, s, s, 10 * s},
		},
		{
			"a failure on the way up", with(func(t *Timing) { t.Fast, t.Down = s, 30*s }), "--+-+++",
			[]time.Duration{30 * s, s, 30 * s, s, 10 * s},
		},
		{
			"start down", with(func(t *Timing) { t.Start, t.Down = Down, 30*s }), "---++++",
			[]time.Duration{30 * s, 30 * s, 10 * s, 10 * s},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := New(Options{})
				m.random = func() float64 { return 0 }
				f := &fake{name: "f", check: script(tt.results)}
				p := probeOf(f)
				p.Timing = tt.timing
				if err := m.Set([]Probe{p}); err != nil {
					t.Fatal(err)
				}
				run(t, m)
				time.Sleep(5 * time.Minute)
				var got []time.Duration
				starts := f.started()
				for i := 2; i < len(starts) && len(got) < len(tt.want); i++ {
					got = append(got, starts[i].Sub(starts[i-1]))
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestPaceSlowAnswer has checks that end later than the next start would be: it
// comes at once, and never beside the run before.
func TestPaceSlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const fast = time.Second
		m := New(Options{})
		f := &fake{name: "f", check: hang}
		p := probeOf(f)
		p.Timing = Timing{Interval: 1500 * time.Millisecond, Fast: fast, Timeout: fast, Rise: 1, Fall: 3, Start: Up}
		if err := m.Set([]Probe{p}); err != nil {
			t.Fatal(err)
		}
		run(t, m)
		time.Sleep(10 * time.Second)
		starts := f.started()
		for i := 1; i < 3; i++ {
			if gap := starts[i].Sub(starts[i-1]); gap != fast {
				t.Errorf("run %d: want it after %v, got %v", i+1, fast, gap)
			}
		}
		if s, _ := m.Status(p.Key()); s.State != Down || s.Since.Sub(starts[0]) != 3*fast {
			t.Errorf("want Down after %v, got %v after %v", 3*fast, s.State, s.Since.Sub(starts[0]))
		}
		if got := f.peak(); got != 1 {
			t.Errorf("want one run at a time, got %d", got)
		}
	})
}

// TestPaceSpread has a thousand targets fail together: on the fast interval and
// in the down interval their checks must not stay together.
func TestPaceSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		m := New(Options{})
		var fakes []*fake
		var probes []Probe
		for i := range n {
			f := &fake{name: fmt.Sprint(i), check: script("-")}
			p := probeOf(f)
			p.Timing = Timing{Interval: time.Second, Timeout: time.Second, Down: 10 * time.Second, Rise: 1, Fall: 1}
			fakes, probes = append(fakes, f), append(probes, p)
		}
		if err := m.Set(probes); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		stop := run(t, m)
		time.Sleep(30 * time.Second)
		stop()
		// Within the first 100 ms each has failed; from the second round on they
		// have ten seconds to fill.
		buckets := make([]int, 30)
		for _, f := range fakes {
			for _, at := range f.started() {
				if b := int(at.Sub(begun) / time.Second); b < len(buckets) {
					buckets[b]++
				}
			}
		}
		for b, got := range buckets[2:] {
			// 105 on average, a few where one round meets the next.
			if got < 5 || got > 180 {
				t.Errorf("%d of %d probes in second %d", got, n, b+2)
			}
		}
	})
}

// TestPaceBound has targets die and recover at random, answering badly or not at
// all, and holds the package's promise at every moment: who has been dead for
// Fall x Interval + Timeout is Down.
func TestPaceBound(t *testing.T) {
	const ms = time.Millisecond
	for _, timing := range []Timing{
		{Interval: 1000 * ms, Timeout: 1000 * ms, Rise: 1, Fall: 2},
		{Interval: 1000 * ms, Timeout: 300 * ms, Rise: 2, Fall: 3, Fast: 300 * ms},
		{Interval: 1000 * ms, Timeout: 900 * ms, Rise: 2, Fall: 3, Fast: 900 * ms, Start: Up},
		{Interval: 500 * ms, Timeout: 500 * ms, Rise: 2, Fall: 1, Down: 20000 * ms, Start: Down},
		{Interval: 2000 * ms, Timeout: 100 * ms, Rise: 3, Fall: 4, Fast: 100 * ms, Down: 150 * ms},
	} {
		t.Run(fmt.Sprintf("%+v", timing), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bound := time.Duration(timing.Fall)*timing.Interval + timing.Timeout
				m := New(Options{})
				rng := rand.New(rand.NewPCG(1, 2))
				type mortal struct {
					key    string
					dead   atomic.Bool
					since  time.Time
					silent bool
				}
				var mortals []*mortal
				var probes []Probe
				for i := range 60 {
					o := &mortal{since: time.Now(), silent: i%2 == 0}
					p := probeOf(&fake{name: fmt.Sprint(i), check: func(ctx context.Context) (Result, error) {
						switch {
						case o.dead.Load() && o.silent:
							return hang(ctx)
						case o.dead.Load():
							return Result{}, errFake
						}
						return Result{}, nil
					}})
					p.Timing = timing
					o.key = p.Key()
					mortals, probes = append(mortals, o), append(probes, p)
				}
				if err := m.Set(probes); err != nil {
					t.Fatal(err)
				}
				run(t, m)
				downs := 0
				for range 20 * 60 * 2 {
					time.Sleep(50 * ms)
					synctest.Wait()
					for _, o := range mortals {
						age := time.Since(o.since)
						s, _ := m.Status(o.key)
						if o.dead.Load() && age >= bound {
							downs++
							if s.State != Down {
								t.Fatalf("%s: dead for %v, want Down within %v, got %+v", o.key, age, bound, s)
							}
						}
						if rng.IntN(int(2*bound/(50*ms))) == 0 {
							o.dead.Store(!o.dead.Load())
							o.since = time.Now()
						}
					}
				}
				if downs < 1000 {
					t.Errorf("want the promise put to the test, got %d times", downs)
				}
			})
		})
	}
}

// TestPaceAhead has a probe begin ahead of its time, together with another one, and
// want another interval: the next start is no more than that away.
func TestPaceAhead(t *testing.T) {
	const fast, interval = 5 * time.Second, 10 * time.Second
	for _, tt := range []struct {
		name         string
		err          error
		before, want time.Duration
	}{
		{"fine again", nil, fast, interval},
		{"about to fail", errFake, interval, fast},
	} {
		m := New(Options{})
		m.random = func() float64 { return 0 }
		begun := time.Now()
		p := &probe{Probe: Probe{Timing: Timing{Interval: interval, Fast: fast}}, interval: tt.before, begun: begun}
		p.status = Status{State: Up, Streak: 1, LastErr: tt.err}
		p.scheduled = begun.Add(tt.before / ahead)
		p.due = begun.Add(interval)
		m.queue = queue{p}
		m.pace(p, begun.Add(time.Millisecond))
		if got := p.due.Sub(begun); got != tt.want {
			t.Errorf("%s: want the next start %v after the last, got %v", tt.name, tt.want, got)
		}
	}
}

// TestMonitorStart has probes that start up or down, and what Notify hears.
func TestMonitorStart(t *testing.T) {
	tests := []struct {
		start   State
		results string
		// at first, after one result, in the end
		first, one, last State
		told             []State
	}{
		{Pending, "+", Pending, Up, Up, []State{Up}},
		{Pending, "-", Pending, Down, Down, []State{Down}},
		{Up, "+", Up, Up, Up, []State{Up}},
		{Up, "-", Up, Up, Down, []State{Up, Down}},
		{Up, "--+", Up, Up, Up, []State{Up}},
		{Down, "+", Down, Down, Up, []State{Down, Up}},
		{Down, "+-", Down, Down, Down, []State{Down}},
		{Down, "-", Down, Down, Down, []State{Down}},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.start, tt.results), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told recorder
				m := New(Options{Notify: told.notify})
				p := probeOf(&fake{name: "f", check: script(tt.results)})
				p.Start = tt.start
				if err := m.Set([]Probe{p}); err != nil {
					t.Fatal(err)
				}
				status := func(want State) Status {
					t.Helper()
					synctest.Wait()
					s, _ := m.Status(p.Key())
					if s.State != want {
						t.Errorf("want %v, got %v after %d checks", want, s.State, s.Checks)
					}
					return s
				}
				begun := time.Now()
				if s := status(tt.first); s.Checks != 0 || !s.Since.Equal(begun) {
					t.Errorf("want no check, since the beginning, got %+v", s)
				}
				run(t, m)
				time.Sleep(time.Millisecond)
				status(tt.one)
				time.Sleep(10 * time.Second)
				status(tt.last)
				var got []State
				for _, c := range told.changes {
					got = append(got, c.State)
				}
				if diff := cmp.Diff(tt.told, got); diff != "" {
					t.Errorf("notified (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestMonitorStartInherited edits a probe that starts down: what is known beats
// the start state, and a start state beats another one.
func TestMonitorStartInherited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{})
		p := probeOf(&fake{name: "f"})
		states := func(want State) {
			t.Helper()
			synctest.Wait()
			if s, _ := m.Status(p.Key()); s.State != want {
				t.Errorf("want %v, got %v after %d checks", want, s.State, s.Checks)
			}
		}
		edit := func(start State, timeout time.Duration) {
			t.Helper()
			p.Start, p.Timeout = start, timeout
			if err := m.Set([]Probe{p}); err != nil {
				t.Fatal(err)
			}
		}
		edit(Up, time.Second)
		states(Up)
		edit(Down, time.Second)
		states(Down)
		run(t, m)
		time.Sleep(5 * time.Second)
		states(Up)
		edit(Down, time.Second/2)
		states(Up)
	})
}

// TestMonitorAdvisory has an agent that comes late and goes away, beside a check
// of the same method and target.
func TestMonitorAdvisory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told recorder
		m := New(Options{Notify: told.notify})
		f := &fake{name: "f", check: script("-")}
		agent, checked := probeOf(f), probeOf(f)
		agent.Advisory = true
		agent.Fast, agent.Timing.Down = 500*time.Millisecond, 500*time.Millisecond
		if err := m.Set([]Probe{agent, checked}); err != nil {
			t.Fatal(err)
		}
		run(t, m)
		want := func(s State, a Advice) Status {
			t.Helper()
			time.Sleep(5 * time.Second)
			synctest.Wait()
			got, _ := m.Status(agent.Key())
			if got.State != s || got.Advice != a {
				t.Errorf("agent: want %v and %v, got %+v", s, a, got)
			}
			return got
		}
		if s := want(Pending, Advice{}); s.LastErr == nil || s.LastErr.Error() != errFake.Error() {
			t.Errorf("want the error of the agent, got %+v", s)
		}
		if s, _ := m.Status(checked.Key()); s.State != Down {
			t.Errorf("checked: want Down, got %+v", s)
		}
		half := Advice{Weight: Weight{WeightPercent, 50}}
		f.become(func(context.Context) (Result, error) { return Result{Advice: half}, nil })
		want(Up, half)
		f.become(hang)
		s := want(Up, half)
		if !errors.Is(s.LastErr, context.DeadlineExceeded) {
			t.Errorf("want the error of the agent, got %+v", s)
		}
		// 15 s at 1 s, whatever happened.
		if s.Checks > 18 {
			t.Errorf("want the plain interval, got %d checks", s.Checks)
		}
		var got []Advice
		for _, c := range told.changes {
			if c.Key == agent.Key() {
				got = append(got, c.Advice)
			}
		}
		if diff := cmp.Diff([]Advice{{}, half}, got); diff != "" {
			t.Errorf("notified (-want +got):\n%s", diff)
		}
		down := agent
		down.Start = Down
		if err := m.Set([]Probe{down}); err == nil {
			t.Error("an advisory probe that starts down: no error")
		}
	})
}

// TestMonitorAdviceNotified has every change of words told, and nothing twice.
func TestMonitorAdviceNotified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told recorder
		m := New(Options{Notify: told.notify})
		f := &fake{name: "f"}
		p := probeOf(f)
		p.Fall = 10
		says := func(r Result, err error) {
			f.become(func(context.Context) (Result, error) { return r, err })
			time.Sleep(2 * time.Second)
			synctest.Wait()
		}
		if err := m.Set([]Probe{p}); err != nil {
			t.Fatal(err)
		}
		run(t, m)
		says(Result{Detail: "a", Advice: Advice{Weight: Weight{WeightAbsolute, 3}}}, nil)
		says(Result{Detail: "b", Advice: Advice{Weight: Weight{WeightAbsolute, 3}}}, nil)
		says(Result{Advice: Advice{Weight: Weight{WeightAbsolute, 4}}, Warning: "certificate\texpires"}, nil)
		says(Result{}, errFake)
		says(Result{}, nil)
		type heard struct {
			State   State
			Weight  string
			Warning string
		}
		want := []heard{{Up, "3", ""}, {Up, "4", "certificate expires"}, {Up, "", "certificate expires"}, {Up, "", ""}}
		var got []heard
		for _, c := range told.changes {
			got = append(got, heard{c.State, c.Advice.Weight.String(), c.Warning})
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("notified (-want +got):\n%s", diff)
		}
	})
}
