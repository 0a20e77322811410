package userspace

import (
	"errors"
	"fmt"
	"math/bits"
)

// marks turns the numbers of real servers into marks of packets and connections,
// and back. A server's number is 1 or more; all ones within the mask say that no
// real server is available.
type marks struct {
	mask  uint32
	shift int
	// last is the highest number of a server.
	last uint32
}

// newMarks returns the marks of a mask, whose bits must be contiguous.
func newMarks(mask uint32) (marks, error) {
	m := marks{mask: mask, shift: bits.TrailingZeros32(mask)}
	ones := bits.OnesCount32(mask)
	if ones < 2 || bits.Len32(mask)-m.shift != ones {
		return marks{}, fmt.Errorf("mark mask %#08x: want at least two bits without a gap", mask)
	}
	m.last = mask>>m.shift - 1
	return m, nil
}

// of returns the mark of a server.
func (m marks) of(id uint32) uint32 { return id << m.shift & m.mask }

// id returns the number of the server of a mark; 0 for none.
func (m marks) id(mark uint32) uint32 {
	id := mark & m.mask >> m.shift
	if id > m.last {
		return 0
	}
	return id
}

// refuse is the mark of a packet for which there is no real server.
func (m marks) refuse() uint32 { return m.mask }

var errNoMarks = errors.New("no mark is left for another real server: give mark_mask more bits")

// allocator hands out numbers of servers. It goes round, so that a number that
// was given back is used again as late as possible.
type allocator struct {
	last uint32
	prev uint32
	used map[uint32]bool
}

func (a *allocator) take() (uint32, error) {
	if uint32(len(a.used)) >= a.last {
		return 0, errNoMarks
	}
	for {
		a.prev = a.prev%a.last + 1
		if !a.used[a.prev] {
			a.used[a.prev] = true
			return a.prev, nil
		}
	}
}

// reserve takes a certain number and reports whether it was free.
func (a *allocator) reserve(id uint32) bool {
	if id == 0 || id > a.last || a.used[id] {
		return false
	}
	a.used[id] = true
	return true
}

func (a *allocator) give(id uint32) { delete(a.used, id) }
