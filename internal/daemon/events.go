package daemon

import (
	"strings"
	"sync"
	"time"

	"github.com/lbd-project/lbd/internal/api"
)

const (
	// maxEvents is how many events are kept, maxEventText how long each text of one
	// may be.
	maxEvents    = 1024
	maxEventText = 500
)

// eventRing keeps the last events. Adding one never waits for those who read. It is
// safe for concurrent use.
type eventRing struct {
	mu sync.Mutex
	// ring has event n at n modulo its length, where n counts from 1.
	ring [maxEvents]api.Event
	last uint64
	// more is closed when there is one more.
	more chan struct{}
	// tell is called with each, in order; it may not wait.
	tell func(api.Event)
}

func newEventRing(tell func(api.Event)) *eventRing {
	return &eventRing{more: make(chan struct{}), tell: tell}
}

// add numbers an event and keeps it in place of the oldest.
func (r *eventRing) add(e api.Event) {
	e.Time = time.Now()
	for _, text := range []*string{&e.Text, &e.Reason} {
		if len(*text) > maxEventText {
			*text = strings.ToValidUTF8((*text)[:maxEventText], "") + "…"
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	e.Seq = r.last
	r.ring[e.Seq%maxEvents] = e
	close(r.more)
	r.more = make(chan struct{})
	r.tell(e)
}

// after returns the events that are kept of those after seq, and a channel that is
// closed when there are more. A number that was not given yet is of an earlier lbd:
// after it come all.
func (r *eventRing) after(seq uint64) ([]api.Event, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if seq == r.last {
		return nil, r.more
	}
	if seq > r.last {
		seq = 0
	}
	first := seq + 1
	if r.last > maxEvents {
		first = max(first, r.last-maxEvents+1)
	}
	var list []api.Event
	for n := first; n <= r.last; n++ {
		list = append(list, r.ring[n%maxEvents])
	}
	return list, r.more
}

// Events implements api.Backend.
func (d *Daemon) Events(seq uint64) ([]api.Event, <-chan struct{}) { return d.owner.events.after(seq) }
