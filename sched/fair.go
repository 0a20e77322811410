package sched

// fair is weighted least connection as users of nginx and HAProxy know it: equals
// take turns by weight (ngx_http_upstream_least_conn_module). A choice costs as
// much as there are equals.
type fair struct {
	*tree
	// tied is scratch space.
	tied []*Server
}

func (f *fair) pick(p *Packet) *Server {
	s := f.peek(p)
	if len(f.tied) > 1 {
		turn(f.tied, s)
	}
	return s
}

func (f *fair) peek(*Packet) *Server {
	f.tied = f.tied[:0]
	if f.nodes[1].w == 0 {
		return nil
	}
	f.collect(1)
	return next(f.tied)
}

// collect appends the servers below node k that have the least load, in list
// order.
func (f *fair) collect(k int) {
	if f.nodes[1].less(f.nodes[k].load) {
		return
	}
	if k >= len(f.servers) {
		f.tied = append(f.tied, f.servers[f.nodes[k].leaf])
		return
	}
	f.collect(2 * k)
	f.collect(2*k + 1)
}

// next returns whose turn it is in smooth weighted round robin: everybody gains
// their weight, the richest is chosen, the first of several.
func next(servers []*Server) *Server {
	var best *Server
	for _, s := range servers {
		if best == nil || s.credit() > best.credit() {
			best = s
		}
	}
	return best
}

// turn has everybody gain their weight and the chosen pay it all.
func turn(servers []*Server, chosen *Server) {
	for _, s := range servers {
		s.current += int64(s.weight)
		chosen.current -= int64(s.weight)
	}
}

// credit is what s has to spend in this turn.
func (s *Server) credit() int64 { return s.current + int64(s.weight) }
