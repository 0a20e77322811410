package sched

// Count moves a connection of s from one state to another: from Uncounted when
// it begins, to Uncounted when it is gone. It returns false where no connection
// is left to take from the first state; that is a leak elsewhere. The count is
// then held at 0, and the connection counts in its new state nevertheless, so
// that its end is not missing one too. s may be out of the table.
func (t *Table) Count(s *Server, from, to State) bool {
	if from == to {
		return true
	}
	ok := true
	switch from {
	case Active:
		ok = take(&s.active, 1)
	case Inactive:
		ok = take(&s.inactive, 1)
	case Uncounted:
		t.Begin(s, to, 1)
		return true
	}
	switch to {
	case Active:
		s.active++
	case Inactive:
		s.inactive++
	case Uncounted:
		// The kernel looks at thresholds when a connection begins and ends, not
		// when it changes between active and inactive.
		t.unbound(s)
	}
	t.changed(s)
	return ok
}

// Begin counts n connections of s that are there already as st, which is not
// Uncounted. It is n calls of Count from Uncounted, in one step.
func (t *Table) Begin(s *Server, st State, n uint32) {
	if n == 0 || st == Uncounted {
		return
	}
	if st == Active {
		s.active += n
	} else {
		s.inactive += n
	}
	t.bound(s)
	t.changed(s)
}

// Persist changes the number of persistence templates of s. It returns false
// where that would go below 0, and holds it there. Templates are not measured
// against the thresholds, but the kernel looks at these when one begins or ends.
func (t *Table) Persist(s *Server, delta int) bool {
	ok := add(&s.persistent, delta)
	switch {
	case delta > 0:
		t.bound(s)
	case delta < 0:
		t.unbound(s)
	}
	t.changed(s)
	return ok
}

// Request changes the number of outstanding requests of s. It returns false
// where that would go below 0, and holds it there.
func (t *Table) Request(s *Server, delta int) bool {
	ok := add(&s.busy, delta)
	t.changed(s)
	return ok
}

func add(n *uint32, delta int) bool {
	if delta < 0 {
		return take(n, uint64(-delta))
	}
	*n += uint32(delta)
	return true
}

// take lowers *n by d, or to 0 and returns false.
func take(n *uint32, d uint64) bool {
	if uint64(*n) < d {
		*n = 0
		return false
	}
	*n -= uint32(d)
	return true
}
