package healthcheck

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestStatusAdd plays results, "+" healthy and "-" failed, and compares the
// state after each: "u" up, "d" down.
func TestStatusAdd(t *testing.T) {
	tests := []struct {
		name       string
		from       State
		rise, fall int
		results    string
		want       string
	}{
		{"first result healthy decides alone", Pending, 3, 3, "+", "u"},
		{"first result failed decides alone", Pending, 3, 3, "-", "d"},
		{"fall 1", Up, 1, 1, "-+-", "dud"},
		{"fall 3 needs three", Up, 1, 3, "---", "uud"},
		{"fall 3 not two and two", Up, 1, 3, "--+--", "uuuuu"},
		{"fall 2 after an interruption", Up, 1, 2, "-+--", "uuud"},
		{"rise 2 needs two", Down, 2, 1, "++", "du"},
		{"rise 3 starts again", Down, 3, 1, "++-+++", "dddddu"},
		{"the first result is one of fall", Pending, 1, 2, "+--", "uud"},
		{"the first result is one of rise", Pending, 2, 1, "-++", "ddu"},
		{"up stays up", Up, 1, 1, "+++", "uuu"},
		{"down stays down", Down, 1, 1, "---", "ddd"},
		{"there and back", Pending, 2, 2, "+--++--", "uudduud"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			timing := Timing{Interval: time.Second, Timeout: time.Second, Rise: tt.rise, Fall: tt.fall}
			s := Status{State: tt.from}
			now := time.Now()
			var got strings.Builder
			for _, c := range tt.results {
				before := s
				now = now.Add(time.Second)
				changed := s.add(&Probe{Timing: timing}, Result{Detail: string(c)}, resultError(c), now)
				got.WriteString(s.State.String()[:1])
				if want := s.State != before.State; changed != want {
					t.Errorf("after %d results: want changed %v, got %v", s.Checks, want, changed)
				}
				wantSince := before.Since
				if changed {
					wantSince = now
				}
				if !s.Since.Equal(wantSince) || !s.LastTime.Equal(now) || s.Last.Detail != string(c) {
					t.Errorf("after %d results: want since %v and the last result, got %+v", s.Checks, wantSince, s)
				}
			}
			if got := got.String(); got != tt.want {
				t.Errorf("want states %s, got %s", tt.want, got)
			}
			if want := uint64(strings.Count(tt.results, "-")); s.Failures != want || s.Checks != uint64(len(tt.results)) {
				t.Errorf("want %d failures of %d, got %d of %d", want, len(tt.results), s.Failures, s.Checks)
			}
		})
	}
}

// TestStatusAddExact takes every rise and fall up to 5: the change comes with
// exactly that many results, not one more or less.
func TestStatusAddExact(t *testing.T) {
	for n := 1; n <= 5; n++ {
		timing := Timing{Rise: n, Fall: n}
		for _, from := range []State{Up, Down} {
			s := Status{State: from}
			result := map[State]rune{Up: '-', Down: '+'}[from]
			results := 0
			for s.State == from && results < 10 {
				s.add(&Probe{Timing: timing}, Result{}, resultError(result), time.Time{})
				results++
			}
			if results != n || s.Streak != n {
				t.Errorf("from %v with %d: changed after %d results, streak %d", from, n, results, s.Streak)
			}
		}
	}
}

// TestStatusAddComplete plays every sequence of eight results to every rise, fall
// and start state, and compares with the definition: a state begins with as many
// equal results in a row as it needs, or the first of all where nothing is known.
func TestStatusAddComplete(t *testing.T) {
	const length = 8
	for _, start := range []State{Pending, Up, Down} {
		for rise := 1; rise <= 4; rise++ {
			for fall := 1; fall <= 4; fall++ {
				p := &Probe{Timing: Timing{Rise: rise, Fall: fall, Start: start}}
				for bits := range 1 << length {
					results := strings.NewReplacer("0", "-", "1", "+").Replace(fmt.Sprintf("%0*b", length, bits))
					s := Status{State: start}
					want := start
					for i, c := range results {
						s.add(p, Result{}, resultError(c), time.Time{})
						switch so := results[:i+1]; {
						case start == Pending && so == "+", strings.HasSuffix(so, strings.Repeat("+", rise)):
							want = Up
						case start == Pending && so == "-", strings.HasSuffix(so, strings.Repeat("-", fall)):
							want = Down
						}
						if s.State != want {
							t.Fatalf("start %v, rise %d, fall %d, %s: want %v, got %v", start, rise, fall, results[:i+1], want, s.State)
						}
						turning := map[State]rune{Up: '-', Down: '+'}[want] == c
						if s.turning() != turning {
							t.Fatalf("start %v, rise %d, fall %d, %s: want turning %v", start, rise, fall, results[:i+1], turning)
						}
					}
				}
			}
		}
	}
}

// TestStatusAddAdvisory does the same to an advisory probe: up from the first
// answer on, never down.
func TestStatusAddAdvisory(t *testing.T) {
	for _, start := range []State{Pending, Up} {
		p := &Probe{Advisory: true, Timing: Timing{Rise: 3, Fall: 1, Start: start}}
		for bits := range 1 << 6 {
			results := strings.NewReplacer("0", "-", "1", "+").Replace(fmt.Sprintf("%06b", bits))
			s := Status{State: start}
			for i, c := range results {
				s.add(p, Result{}, resultError(c), time.Time{})
				want := start
				if strings.Contains(results[:i+1], "+") {
					want = Up
				}
				if s.State != want || (s.LastErr != nil) != (c == '-') {
					t.Fatalf("start %v, %s: want %v, got %v, %v", start, results[:i+1], want, s.State, s.LastErr)
				}
			}
		}
	}
}

// TestStatusAddAdvice has a target that speaks, is silent and fails. The weight
// of a script that is killed again and again must not add up.
func TestStatusAddAdvice(t *testing.T) {
	weight := func(v uint32) Advice { return Advice{Weight: Weight{WeightAbsolute, v}} }
	type step struct {
		says   Advice
		warns  string
		failed bool
		// checked and advisory are the advice that counts then.
		checked, advisory Advice
		warning           string
	}
	steps := []step{
		{says: weight(5), checked: weight(5), advisory: weight(5)},
		{says: weight(5), checked: weight(5), advisory: weight(5)},
		{failed: true, advisory: weight(5)},
		{says: weight(9), failed: true, advisory: weight(5)},
		{says: weight(7), warns: "soon", checked: weight(7), advisory: weight(7), warning: "soon"},
		{failed: true, advisory: weight(7), warning: "soon"},
		{failed: true, warns: "now", advisory: weight(7), warning: "now"},
		{says: Advice{Admin: SaysDrain}, checked: Advice{Admin: SaysDrain}, advisory: Advice{Weight{WeightAbsolute, 7}, NoVerdict, SaysDrain, ""}},
		{says: Advice{Health: SaysDown, Reason: "disk\nfull"}, checked: Advice{Health: SaysDown, Reason: "disk full"}, advisory: Advice{Weight{WeightAbsolute, 7}, SaysDown, SaysDrain, "disk full"}},
		{advisory: Advice{Weight{WeightAbsolute, 7}, SaysDown, SaysDrain, "disk full"}},
	}
	for _, advisory := range []bool{false, true} {
		p := &Probe{Advisory: advisory, Timing: Timing{Rise: 1, Fall: 1}}
		var s Status
		for i, st := range steps {
			var err error
			if st.failed {
				err = errFake
			}
			s.add(p, Result{Advice: st.says, Warning: st.warns}, err, time.Time{})
			want := st.checked
			if advisory {
				want = st.advisory
			}
			if diff := cmp.Diff(want, s.Advice); diff != "" {
				t.Errorf("advisory %v, step %d (-want +got):\n%s", advisory, i, diff)
			}
			if s.Warning != st.warning {
				t.Errorf("advisory %v, step %d: want warning %q, got %q", advisory, i, st.warning, s.Warning)
			}
		}
	}
}

func resultError(c rune) error {
	if c == '-' {
		return errors.New("failed")
	}
	return nil
}

func TestStateText(t *testing.T) {
	for s, want := range map[State]string{Pending: "pending", Up: "up", Down: "down"} {
		text, err := s.MarshalText()
		if err != nil || string(text) != want {
			t.Errorf("want %q, got %q, %v", want, text, err)
		}
		got := State(99)
		if err := got.UnmarshalText(text); err != nil || got != s {
			t.Errorf("parse %q: want %v, got %v, %v", text, s, got, err)
		}
	}
	if got := State(7).String(); got != "7" {
		t.Errorf("want 7, got %s", got)
	}
	var s State
	if err := s.UnmarshalText([]byte("UP")); err == nil || err.Error() != `unknown health state "UP"` {
		t.Errorf("parse UP: got %v", err)
	}
}

func TestTimingCheck(t *testing.T) {
	good := Timing{Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1}
	tests := []struct {
		name string
		edit func(*Timing)
		want string
	}{
		{"good", func(*Timing) {}, ""},
		{"zero interval", func(t *Timing) { t.Interval = 0 }, "interval 0s is less than 1ms"},
		{"zero timeout", func(t *Timing) { t.Timeout = 0 }, "timeout 0s is not greater than 0"},
		{"long timeout", func(t *Timing) { t.Timeout = 2 * time.Second }, "timeout 2s is greater than the interval 1s"},
		{"fast", func(t *Timing) { t.Fast = t.Interval }, ""},
		{"short fast", func(t *Timing) { t.Fast = 1 }, "fast interval 1ns is less than 1ms"},
		{"negative fast", func(t *Timing) { t.Fast = -time.Second }, "fast interval -1s is less than 1ms"},
		{"long fast", func(t *Timing) { t.Fast = 2 * time.Second }, "fast interval 2s is greater than the interval 1s"},
		{"timeout above fast", func(t *Timing) { t.Fast = time.Second / 2 }, "timeout 1s is greater than the fast interval 500ms"},
		{"timeout below fast", func(t *Timing) { t.Timeout, t.Fast = time.Second/4, time.Second/2 }, ""},
		{"down", func(t *Timing) { t.Down = time.Minute }, ""},
		{"short down", func(t *Timing) { t.Down = 1 }, "down interval 1ns is less than 1ms"},
		{"negative down", func(t *Timing) { t.Down = -time.Second }, "down interval -1s is less than 1ms"},
		{"timeout above down", func(t *Timing) { t.Down = time.Second / 2 }, "timeout 1s is greater than the down interval 500ms"},
		{"start", func(t *Timing) { t.Start = Down }, ""},
		{"bad start", func(t *Timing) { t.Start = 7 }, "start state 7 is not pending, up or down"},
		{"rise", func(t *Timing) { t.Rise = 0 }, "rise 0 is less than 1"},
		{"fall", func(t *Timing) { t.Fall = -1 }, "fall -1 is less than 1"},
	}
	for _, tt := range tests {
		timing := good
		tt.edit(&timing)
		got := ""
		if err := timing.check(); err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestProbeKey(t *testing.T) {
	p := Probe{
		Method: TCP{}, Target: netip.MustParseAddrPort("[2001:db8::1]:80"),
		Timing: Timing{Interval: 90 * time.Second, Timeout: 1500 * time.Millisecond, Rise: 2, Fall: 3},
	}
	want := "tcp [2001:db8::1]:80 interval=1m30s timeout=1.5s rise=2 fall=3"
	if got := p.Key(); got != want {
		t.Errorf("want %q, got %q", want, got)
	}
	full := p
	full.Fast, full.Down, full.Start, full.Advisory = 2*time.Second, 5*time.Minute, Down, true
	if got, want := full.Key(), want+" fast=2s down=5m0s start=down advisory"; got != want {
		t.Errorf("want %q, got %q", want, got)
	}
	// Every part is part of the identity.
	for name, change := range map[string]func(*Probe){
		"method":   func(p *Probe) { p.Method = &fake{name: "other"} },
		"address":  func(p *Probe) { p.Target = netip.MustParseAddrPort("[2001:db8::2]:80") },
		"port":     func(p *Probe) { p.Target = netip.MustParseAddrPort("[2001:db8::1]:81") },
		"interval": func(p *Probe) { p.Interval++ },
		"timeout":  func(p *Probe) { p.Timeout++ },
		"rise":     func(p *Probe) { p.Rise++ },
		"fall":     func(p *Probe) { p.Fall++ },
		"fast":     func(p *Probe) { p.Fast++ },
		"down":     func(p *Probe) { p.Timing.Down++ },
		"start":    func(p *Probe) { p.Start = Up },
		"advisory": func(p *Probe) { p.Advisory = true },
	} {
		other := p
		change(&other)
		if other.Key() == want {
			t.Errorf("another %s has the same key", name)
		}
	}
}
