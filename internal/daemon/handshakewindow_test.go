package daemon

import (
	"testing"
	"testing/quick"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/internal/userspace"
)

// windowSim reads once a second.
type windowSim struct {
	w        handshakeWindow
	at, zero time.Time
	window   time.Duration
}

func newWindowSim() *windowSim {
	zero := time.Unix(1_000_000, 0)
	return &windowSim{at: zero, zero: zero, window: 10 * time.Second}
}

func (s *windowSim) read(h userspace.Handshakes) {
	s.at = s.at.Add(handshakeInterval)
	s.w.begin(s.at, &h)
	s.w.end(s.at, s.window)
}

func TestHandshakeWindow(t *testing.T) {
	t.Parallel()
	none := userspace.Handshakes{}
	for _, test := range []struct {
		name  string
		reads []userspace.Handshakes
		want  fleet.Handshakes
	}{
		{"nothing", []userspace.Handshakes{none}, fleet.Handshakes{}},
		{"answered", []userspace.Handshakes{{Tried: 5, Answered: 5}}, fleet.Handshakes{Good: 5, LateGood: 5}},
		{"answered in the next second", []userspace.Handshakes{{Tried: 5}, {Answered: 5}}, fleet.Handshakes{Good: 5, LateGood: 5}},
		{"waits", []userspace.Handshakes{{Tried: 5}}, fleet.Handshakes{}},
		{"waits for long", []userspace.Handshakes{{Tried: 5}, none, none}, fleet.Handshakes{}},
		{"not answered", []userspace.Handshakes{{Tried: 5}, none, none, none}, fleet.Handshakes{Unanswered: 5, LateBad: 5}},
		{"answered too late", []userspace.Handshakes{{Tried: 5}, none, none, none, {Answered: 5}}, fleet.Handshakes{Unanswered: 5, LateBad: 5}},
		{"some answered", []userspace.Handshakes{{Tried: 5, Answered: 3}, none, none, none}, fleet.Handshakes{Good: 3, Unanswered: 2, LateGood: 3, LateBad: 2}},
		{"answered before", []userspace.Handshakes{{Tried: 5, Answered: 5}, {Tried: 2}, {Tried: 2}, none, none, none}, fleet.Handshakes{Good: 5, Unanswered: 4, LateBad: 4}},
		{"reset, unreachable", []userspace.Handshakes{{Tried: 5, Reset: 2, Unreachable: 3}}, fleet.Handshakes{Reset: 2, Unreachable: 3, LateBad: 5}},
		{"withdrawn", []userspace.Handshakes{{Tried: 5, Answered: 1}, {Withdrawn: 3}, none, none}, fleet.Handshakes{Good: 1, Unanswered: 1, LateGood: 1, LateBad: 1}},
		{"more outcomes than tries", []userspace.Handshakes{{Tried: 1, Answered: 9, Reset: 9, Unreachable: 9}}, fleet.Handshakes{Good: 1, LateGood: 1}},
		{"outcomes before tries do not count later", []userspace.Handshakes{{Answered: 9}, {Tried: 2}, none, none, none}, fleet.Handshakes{Unanswered: 2, LateBad: 2}},
		{"out of the window", []userspace.Handshakes{{Tried: 5, Answered: 5}, none, none, none, none, none, none, none, none, none, none}, fleet.Handshakes{}},
		{"datagrams", []userspace.Handshakes{{AnsweredUDP: 5}}, fleet.Handshakes{Good: 5, LateGood: 5}},
		{"datagrams refused", []userspace.Handshakes{{AnsweredUDP: 1, UnreachableUDP: 4}}, fleet.Handshakes{Good: 1, Unreachable: 4, LateGood: 1, LateBad: 4}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newWindowSim()
			for _, h := range test.reads {
				s.read(h)
			}
			if d := cmp.Diff(test.want, s.w.sum(time.Time{})); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
	s := newWindowSim()
	s.window = 2 * time.Second
	s.read(userspace.Handshakes{Tried: 1, Answered: 1})
	s.read(none)
	s.read(none)
	if want, got := (fleet.Handshakes{LateGood: 1}), s.w.sum(time.Time{}); want != got {
		t.Errorf("out of a short window, but of late: want %+v, got %+v", want, got)
	}
	s = newWindowSim()
	s.read(userspace.Handshakes{Tried: 1, Answered: 1})
	s.read(userspace.Handshakes{Tried: 2, Reset: 2})
	if want, got := (fleet.Handshakes{Reset: 2, LateBad: 2}), s.w.sum(s.zero.Add(time.Second)); want != got {
		t.Errorf("since the first reading: want %+v, got %+v", want, got)
	}
	for range 12 {
		s.read(userspace.Handshakes{})
	}
	if !s.w.empty() {
		t.Errorf("after the window: %+v", s.w)
	}
}

// Where a share fails, just as many failures are seen, however answers come.
func TestHandshakeWindowShare(t *testing.T) {
	t.Parallel()
	check := func(counts [30]uint8, late bool) bool {
		s := newWindowSim()
		s.w.past = nil
		var tried, answered, before uint64
		for _, n := range counts {
			h := userspace.Handshakes{Tried: uint64(n), Answered: uint64(n) / 3}
			tried, answered = tried+h.Tried, answered+h.Answered
			if late {
				h.Answered, before = before, h.Answered
			}
			s.at = s.at.Add(time.Second)
			s.w.begin(s.at, &h)
			s.w.end(s.at, time.Hour)
		}
		for range 5 {
			s.at = s.at.Add(time.Second)
			s.w.begin(s.at, &userspace.Handshakes{Answered: before})
			s.w.end(s.at, time.Hour)
			before = 0
		}
		h := s.w.sum(time.Time{})
		if h.Good != answered || h.Unanswered != tried-answered || h.Reset+h.Unreachable != 0 {
			t.Errorf("%v, late %v: want %d good and %d unanswered, got %+v", counts, late, answered, tried-answered, h)
			return false
		}
		return true
	}
	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
	}
}
