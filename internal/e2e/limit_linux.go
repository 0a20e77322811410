package e2e

import "slices"

// arrivalsCounted is how many of the last connections a limit looks at.
const arrivalsCounted = 10

// Limit lets a server fall, as Kill does it, whenever it gets more than most of
// the last 10 connections that came to all servers' HTTPPort; 0 is no limit. For
// clients that connect ten times a second that is a server that stands so many new
// connections a second, on a host of any speed.
func (s *Server) Limit(most int) {
	s.limit.Lock()
	defer s.limit.Unlock()
	s.limit.most, s.limit.fell = most, 0
}

// Fell returns how often the server fell since Limit was called.
func (s *Server) Fell() int {
	s.limit.Lock()
	defer s.limit.Unlock()
	return s.limit.fell
}

// arrived counts a new connection.
func (s *Server) arrived() {
	n := s.lab.arrived(s.Name)
	s.limit.Lock()
	falls := s.limit.most > 0 && n > s.limit.most
	if falls {
		s.limit.fell++
	}
	s.limit.Unlock()
	if falls {
		go s.Kill() // which waits for the caller
	}
}

// arrived notes a new connection and returns how many of the last ones were the
// server's.
func (l *Lab) arrived(server string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.arrivals = append(l.arrivals, server); len(l.arrivals) > arrivalsCounted {
		l.arrivals = slices.Delete(l.arrivals, 0, len(l.arrivals)-arrivalsCounted)
	}
	n := 0
	for _, name := range l.arrivals {
		if name == server {
			n++
		}
	}
	return n
}
