package sched

// The upper threshold marks a server overloaded, the lower one frees it. Which
// events look at them, and how, is the kernel's: ip_vs_bind_dest and
// ip_vs_unbind_dest in net/netfilter/ipvs/ip_vs_conn.c, __ip_vs_update_dest in
// ip_vs_ctl.c, before and after "ipvs: properly update the overload flag on dest
// edit" (2026), whose ip_vs_dest_update_overload is follow.

// bound looks at the thresholds after a connection or template of s began.
func (t *Table) bound(s *Server) {
	if s.config.Upper == 0 && !s.overloaded {
		return
	}
	if t.opt.Overhead == OverheadTotal {
		s.follow()
		return
	}
	if s.config.Upper != 0 && s.connections() >= uint64(s.config.Upper) {
		s.overloaded = true
	}
}

// unbound looks at the thresholds after a connection or template of s ended.
func (t *Table) unbound(s *Server) {
	if !s.overloaded {
		return
	}
	if t.opt.Overhead == OverheadTotal {
		s.follow()
		return
	}
	c, u, l := s.connections(), uint64(s.config.Upper), uint64(s.config.Lower)
	switch {
	case l != 0:
		s.overloaded = c >= l
	case u != 0:
		s.overloaded = c*4 >= u*3
	default:
		s.overloaded = false
	}
}

// reweigh sets the config of s. An older kernel frees a server whose upper
// threshold is lifted or raised, whatever its connections, and does not mark one
// whose threshold falls below them.
func (t *Table) reweigh(s *Server, c Config) {
	lifted := c.Upper == 0 || c.Upper > s.config.Upper
	s.configure(c)
	switch {
	case t.opt.Overhead == OverheadTotal:
		s.follow()
	case lifted:
		s.overloaded = false
	}
}

// follow recomputes overload from the counts. Between the thresholds it stays as
// it was. The lower one is by default three quarters of the upper one, rounded
// up: u - u/4, which frees at the same counts as the older conns*4 < u*3.
func (s *Server) follow() {
	c, u, l := s.connections(), s.config.Upper, s.config.Lower
	if l == 0 {
		l = u - u>>2
	}
	switch {
	case u == 0:
		s.overloaded = false
	case c >= uint64(u):
		s.overloaded = true
	case c < uint64(l):
		s.overloaded = false
	}
}
