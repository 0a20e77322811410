package daemon

import (
	"fmt"
	"time"

	"github.com/lbd-project/lbd/ipvs"
)

// An agent may say another weight each second, of hundreds of real servers. They
// must not push out of the log and of the events what a person has to see: after
// weightNewsAtOnce changes of the weight alone a real server has one told each
// weightNewsEvery, with how many were not. What it is in, and whether it takes
// connections, is told always.
const (
	weightNewsAtOnce = 5
	weightNewsEvery  = 10 * time.Second
)

// allowance is how much more may be told; the zero value has all of it.
type allowance struct {
	left int
	// since is when left was last added to.
	since time.Time
}

// take takes one of atOnce, of which one comes back each every, and says whether
// there was one.
func (a *allowance) take(now time.Time, atOnce int, every time.Duration) bool {
	if a.since.IsZero() {
		*a = allowance{left: atOnce, since: now}
	}
	if more := int(now.Sub(a.since) / every); more > 0 {
		a.left = min(atOnce, a.left+more)
		a.since = a.since.Add(time.Duration(more) * every)
	}
	if a.left == 0 {
		return false
	}
	a.left--
	return true
}

// weightNews is what a real server may still tell of its weight.
type weightNews struct {
	allowance
	// untold counts the changes that were not told, up to weight.
	untold int
	weight uint32
}

// tellWeight says whether a change of the weight alone may be told now, and what
// to add to it.
func (o *owner) tellWeight(k ipvs.DestinationKey, weight uint32, now time.Time) (note string, ok bool) {
	n := o.weightNews[k]
	if !n.take(now, weightNewsAtOnce, weightNewsEvery) {
		if n.untold == 0 || n.weight != weight {
			n.untold++
		}
		n.weight = weight
		o.weightNews[k] = n
		return "", false
	}
	if n.untold > 1 || n.untold == 1 && n.weight != weight {
		note = fmt.Sprintf("; changes of the weight before that were not told: %d", n.untold)
	}
	n.untold = 0
	o.weightNews[k] = n
	return note, true
}
