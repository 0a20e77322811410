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

// weightNews is what a real server may still tell of its weight.
type weightNews struct {
	left int
	// since is when left was last added to.
	since time.Time
	// untold counts the changes that were not told, up to weight.
	untold int
	weight uint32
}

// tellWeight says whether a change of the weight alone may be told now, and what
// to add to it.
func (o *owner) tellWeight(k ipvs.DestinationKey, weight uint32, now time.Time) (note string, ok bool) {
	n, known := o.weightNews[k]
	if !known {
		n = weightNews{left: weightNewsAtOnce, since: now}
	}
	if more := int(now.Sub(n.since) / weightNewsEvery); more > 0 {
		n.left = min(weightNewsAtOnce, n.left+more)
		n.since = n.since.Add(time.Duration(more) * weightNewsEvery)
	}
	if n.left == 0 {
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
	n.left, n.untold = n.left-1, 0
	o.weightNews[k] = n
	return note, true
}
