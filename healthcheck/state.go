package healthcheck

import (
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

// add takes one result into the history and reports whether the state changed.
func (s *Status) add(t Timing, r Result, err error, now time.Time) bool {
	healthy := err == nil
	if s.Streak > 0 && healthy != (s.LastErr == nil) {
		s.Streak = 0
	}
	s.Streak++
	s.Checks++
	if !healthy {
		s.Failures++
	}
	s.Last, s.LastErr, s.LastTime = r, err, now

	next := s.State
	switch {
	case healthy && (s.State == Pending || s.Streak >= t.Rise):
		next = Up
	case !healthy && (s.State == Pending || s.Streak >= t.Fall):
		next = Down
	}
	if next == s.State {
		return false
	}
	s.State, s.Since = next, now
	return true
}
