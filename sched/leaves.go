package sched

import "math/bits"

// leaves gives servers the leaves of a binary tree, in list order from left to
// right. New servers come to the head of the list, so leaves are handed out from
// right to left; a removed server leaves a hole until the next fill. Server.slot
// is its leaf.
type leaves struct {
	// servers is who has a leaf, nil for nobody. Its length is a power of two.
	servers []*Server
	// first is the leftmost leaf that was handed out.
	first int
}

// fill lays the table's servers out afresh, without holes.
func (l *leaves) fill(t *Table) {
	size := 1 << bits.Len(uint(max(t.len, 2)-1))
	if size == len(l.servers) {
		clear(l.servers)
	} else {
		l.servers = make([]*Server, size)
	}
	l.first = size - t.len
	i := l.first
	for s := range t.Servers() {
		l.servers[i], s.slot = s, i
		i++
	}
}

// insert gives the new head of the list a leaf; false: there is none left.
func (l *leaves) insert(s *Server) bool {
	if l.first == 0 {
		return false
	}
	l.first--
	l.servers[l.first], s.slot = s, l.first
	return true
}

// remove makes the leaf of s a hole.
func (l *leaves) remove(s *Server) { l.servers[s.slot] = nil }
