package healthcheck

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

var stateNames = [...]string{Pending: "pending", Up: "up", Down: "down"}

// String prints "pending", "up", "down", or the number.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return strconv.Itoa(int(s))
}

// MarshalText implements encoding.TextMarshaler with the form of String.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the form of String.
func (s *State) UnmarshalText(text []byte) error {
	for i, name := range stateNames {
		if name == string(text) {
			*s = State(i)
			return nil
		}
	}
	return fmt.Errorf("unknown health state %q", text)
}

// check says what is wrong with the schedule.
func (t Timing) check() error {
	switch {
	case t.Interval < slack:
		return fmt.Errorf("interval %v is less than %v", t.Interval, slack)
	case t.Timeout <= 0:
		return fmt.Errorf("timeout %v is not greater than 0", t.Timeout)
	case t.Fast != 0 && t.Fast < slack:
		return fmt.Errorf("fast interval %v is less than %v", t.Fast, slack)
	case t.Fast > t.Interval:
		return fmt.Errorf("fast interval %v is greater than the interval %v", t.Fast, t.Interval)
	case t.Down != 0 && t.Down < slack:
		return fmt.Errorf("down interval %v is less than %v", t.Down, slack)
	case t.Timeout > t.Interval:
		return fmt.Errorf("timeout %v is greater than the interval %v", t.Timeout, t.Interval)
	case t.Fast != 0 && t.Timeout > t.Fast:
		return fmt.Errorf("timeout %v is greater than the fast interval %v", t.Timeout, t.Fast)
	case t.Down != 0 && t.Timeout > t.Down:
		return fmt.Errorf("timeout %v is greater than the down interval %v", t.Timeout, t.Down)
	case t.Start > Down:
		return fmt.Errorf("start state %v is not pending, up or down", t.Start)
	case t.Rise < 1:
		return fmt.Errorf("rise %d is less than 1", t.Rise)
	case t.Fall < 1:
		return fmt.Errorf("fall %d is less than 1", t.Fall)
	}
	return nil
}

// check says what is wrong with the probe, apart from its method and target.
func (p *Probe) check() error {
	if p.Advisory && p.Start == Down {
		return errors.New("an advisory probe cannot start down")
	}
	return p.Timing.check()
}

// add takes one result into the history and reports whether the state changed.
func (s *Status) add(p *Probe, r Result, err error, now time.Time) bool {
	healthy := err == nil
	if s.Streak > 0 && healthy != (s.LastErr == nil) {
		s.Streak = 0
	}
	s.Streak++
	s.Checks++
	if !healthy {
		s.Failures++
	}
	r.Detail, r.Warning, r.Advice = Printable(r.Detail), Printable(r.Warning), r.Advice.clean()
	s.Last, s.LastErr, s.LastTime = r, err, now
	s.listen(p.Advisory, healthy)

	next := s.State
	switch {
	case p.Advisory && healthy:
		next = Up
	case p.Advisory:
	case healthy && (s.State == Pending || s.Streak >= p.Rise):
		next = Up
	case !healthy && (s.State == Pending || s.Streak >= p.Fall):
		next = Down
	}
	if next == s.State {
		return false
	}
	s.State, s.Since = next, now
	return true
}

// listen takes in what the last result says beyond healthy or not.
func (s *Status) listen(advisory, healthy bool) {
	switch {
	case advisory && healthy:
		s.Advice = s.Advice.merge(s.Last.Advice)
	case advisory: // the agent is gone; what it said last holds
	case healthy:
		s.Advice = s.Last.Advice
	default:
		s.Advice = Advice{}
	}
	if healthy || s.Last.Warning != "" {
		s.Warning = s.Last.Warning
	}
}

// turning reports whether the last results disagree with the state.
func (s *Status) turning() bool {
	return s.Streak > 0 && s.State != Pending && (s.LastErr == nil) != (s.State == Up)
}

// news is the part of a Status whose changes Notify hears of.
type news struct {
	state   State
	advice  Advice
	warning string
	// known is from the first result on: a probe that starts up or down may
	// have no other change.
	known bool
}

func (s *Status) news() news {
	return news{s.State, s.Advice, s.Warning, s.Checks > 0}
}
