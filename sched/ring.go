package sched

import "slices"

const (
	// ringNodes is the number of virtual nodes a unit of weight.
	ringNodes = 128
	// ringSize bounds the points on the ring. Where the weights ask for more, each
	// server gets its share of this many, one at least.
	ringSize = 1 << 16
)

// A point of the ring is the upper bits of its hash, then the number of its
// server in the list.
const (
	ringIndexBits = 20
	ringIndexMask = 1<<ringIndexBits - 1
)

// ring is a consistent hash (Karger and others, STOC 1997): each server has
// points on a circle, and a client belongs to the next point. A point depends on
// the server's address and on nothing else, so a server that leaves moves only
// its own clients. Like maglev, a server that failed keeps its points, and its
// clients go on to the next point's server while it takes none.
type ring struct {
	points  []uint64
	servers []*Server
}

// fill places the points of the servers of the list.
func (r *ring) fill(list []*Server) {
	r.points = r.points[:0]
	r.servers = append(r.servers[:0], list[:min(len(list), ringIndexMask+1)]...)
	var total uint64
	for _, s := range r.servers {
		total += uint64(s.lastWeight)
	}
	for i, s := range r.servers {
		seed := addressHash(s.addr.Addr(), s.addr.Port())
		for n := range ringPoints(uint64(s.lastWeight), total) {
			point := mix64(seed + n*0x9e3779b97f4a7c15)
			r.points = append(r.points, point&^ringIndexMask|uint64(i))
		}
	}
	slices.Sort(r.points)
}

// ringPoints is how many points a weight gets of all.
func ringPoints(weight, total uint64) uint64 {
	switch {
	case weight == 0:
		return 0
	case total <= ringSize/ringNodes:
		return weight * ringNodes
	}
	return max(weight*ringSize/total, 1)
}

func (r *ring) share(s *Server) uint32 { return s.lastWeight }

// get returns the server of the first point at or after the client's hash that
// is available.
func (r *ring) get(p *Packet, o *Options) *Server {
	hash := addressHash(p.Src, clientPort(p, o.Port))
	at, _ := slices.BinarySearch(r.points, hash&^ringIndexMask)
	for range r.points {
		if at == len(r.points) {
			at = 0
		}
		if s := r.servers[r.points[at]&ringIndexMask]; s.available() {
			return s
		}
		at++
	}
	return nil
}
