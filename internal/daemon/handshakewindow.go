package daemon

import (
	"slices"
	"time"

	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/internal/userspace"
)

const (
	// answerTime is how long a real server has to answer the first packet of a
	// connection, which clients send again after 1 and 3 s: what was lost on the way
	// once is no failure.
	answerTime = 3 * time.Second
	// lateTime is what counts as of late: a little longer than it takes to see that
	// nobody answers, so that clients who all wait for one real server do not let the
	// others look as if they could not be reached.
	lateTime = answerTime + 2*handshakeInterval
)

// handshakeWindow is how connections to a real server began. Outcomes are not told
// of which try they are, so each ends the oldest one that waits: as many fail as
// get no outcome in time, and a slow answer is no failure. One that is told more
// often than there are tries counts only as often as these.
type handshakeWindow struct {
	// waiting are the tries that wait.
	waiting waiting
	// past are outcomes, the oldest first.
	past []outcomes
	// now is the time of the last reading, window what matters before it.
	now    time.Time
	window time.Duration
}

// outcomes are those that became known at a time.
type outcomes struct {
	at                                   time.Time
	good, unanswered, reset, unreachable uint64
}

// tries are those of one reading.
type tries struct {
	at time.Time
	n  uint64
}

// waiting are tries, the oldest first.
type waiting []tries

func (w *waiting) add(at time.Time, n uint64) {
	if n > 0 {
		*w = append(*w, tries{at, n})
	}
}

// take ends as many as n, and returns how many there were.
func (w *waiting) take(n uint64) uint64 {
	left := n
	for len(*w) > 0 && left > 0 {
		first := &(*w)[0]
		m := min(first.n, left)
		first.n -= m
		left -= m
		if first.n == 0 {
			*w = (*w)[1:]
		}
	}
	return n - left
}

// expire ends those of before a time.
func (w *waiting) expire(before time.Time) (n uint64) {
	for len(*w) > 0 && !(*w)[0].at.After(before) {
		n += (*w)[0].n
		*w = (*w)[1:]
	}
	return n
}

// begin takes in a reading.
func (w *handshakeWindow) begin(now time.Time, h *userspace.Handshakes) {
	w.waiting.add(now, h.Tried)
	w.note(outcomes{
		at:          now,
		good:        w.waiting.take(h.Answered) + h.AnsweredUDP,
		reset:       w.waiting.take(h.Reset),
		unreachable: w.waiting.take(h.Unreachable) + h.UnreachableUDP,
	})
	w.waiting.take(h.Withdrawn)
}

// end takes in that time passes, and forgets what matters no more.
func (w *handshakeWindow) end(now time.Time, window time.Duration) {
	w.now, w.window = now, window
	w.note(outcomes{at: now, unanswered: w.waiting.expire(now.Add(-answerTime))})
	oldest := now.Add(-max(window, lateTime))
	w.past = slices.DeleteFunc(w.past, func(o outcomes) bool { return !o.at.After(oldest) })
}

func (w *handshakeWindow) note(o outcomes) {
	if o != (outcomes{at: o.at}) {
		w.past = append(w.past, o)
	}
}

func (w *handshakeWindow) empty() bool { return len(w.waiting)+len(w.past) == 0 }

// sum adds up what became known after a time.
func (w *handshakeWindow) sum(since time.Time) fleet.Handshakes {
	var h fleet.Handshakes
	first, late := w.now.Add(-w.window), w.now.Add(-lateTime)
	for _, o := range w.past {
		if !o.at.After(since) {
			continue
		}
		if o.at.After(first) {
			h.Good += o.good
			h.Unanswered += o.unanswered
			h.Reset += o.reset
			h.Unreachable += o.unreachable
		}
		if o.at.After(late) {
			h.LateGood += o.good
			h.LateBad += o.unanswered + o.reset + o.unreachable
		}
	}
	return h
}
