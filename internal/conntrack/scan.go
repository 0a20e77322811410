package conntrack

// EventStats are totals since the socket was opened.
type EventStats struct {
	// Events were handed on; Skipped are of other protocols or zones.
	Events, Skipped uint64
	// Malformed messages did not parse, and datagrams were too large.
	Malformed uint64
	// Overruns are the times that the kernel reported lost events. How many events
	// were lost nobody counts.
	Overruns uint64
}

// scanner decodes datagrams of events into one Event.
type scanner struct {
	ev      Event
	stats   EventStats
	overrun bool
}

// scan hands on the events of a datagram.
func (s *scanner) scan(b []byte, handle func(*Event)) {
	for len(b) > 0 {
		m, rest, err := nextMessage(b)
		if err != nil {
			// Where the next message begins is unknown.
			s.stats.Malformed++
			return
		}
		b = rest
		switch m.Type {
		case msgNew, msgDelete:
			s.event(&m, handle)
		case nlmsgOverrun:
			s.overran()
		case nlmsgNoop, nlmsgDone:
		default:
			// Nothing else is sent to these groups, an NLMSG_ERROR neither, since
			// nothing was asked.
			s.stats.Malformed++
		}
	}
}

func (s *scanner) event(m *message, handle func(*Event)) {
	ok, err := decodeEvent(m, &s.ev)
	switch {
	case err != nil:
		s.stats.Malformed++
	case !ok:
		s.stats.Skipped++
	default:
		s.stats.Events++
		handle(&s.ev)
	}
}

func (s *scanner) overran() {
	s.stats.Overruns++
	s.overrun = true
}
