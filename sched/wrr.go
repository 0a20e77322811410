package sched

// weightedRoundRobin is net/netfilter/ipvs/ip_vs_wrr.c: passes over the list, in
// each of which every server with at least the current weight gets one
// connection; the current weight falls from the greatest by the greatest common
// divisor of all weights.
type weightedRoundRobin struct {
	unhooked
	t *Table
	wrrState
	// mw is the greatest weight lowered by di-1, so that the last pass is for
	// weight 1; di the step. They are computed at edits.
	mw, di int64
}

// wrrState is what a pick changes.
type wrrState struct {
	// at is the last server chosen, or the head of the list.
	at *Server
	// cw is the weight that the current pass asks for.
	cw int64
}

func (w *weightedRoundRobin) pick(*Packet) *Server {
	st, s := w.next()
	w.wrrState = st
	return s
}

func (w *weightedRoundRobin) peek(*Packet) *Server {
	_, s := w.next()
	return s
}

// next finds the server and the state after it. As in the kernel a failed search
// moves the state too.
func (w *weightedRoundRobin) next() (wrrState, *Server) {
	root := &w.t.root
	st := w.wrrState
	if w.mw == 0 {
		return st, nil
	}
	var stop *Server
	last, s := st.at, st.at
	lastPass, restarted := false, false
	greatest := int64(-1)
	for {
		for s = s.next; s != root; s = s.next {
			if !s.overloaded && int64(s.weight) >= st.cw {
				return wrrState{at: s, cw: st.cw}, s
			}
			if s == stop {
				return wrrState{at: s, cw: st.cw}, nil
			}
		}
		st.cw -= w.di
		if st.cw <= 0 {
			st.cw = w.mw
			if lastPass || last == root {
				return wrrState{at: root, cw: st.cw}, nil
			}
			restarted = true
		}
		// Where the greatest weights are overloaded, the kernel goes on one
		// step a pass until others come into reach: up to 65,535 passes over
		// the list for one pick. Passes that can find nobody only lower cw, so
		// skip to the first that can, or to the last.
		if greatest < 0 {
			greatest = w.greatest()
		}
		if over := st.cw - max(greatest, w.di); over > 0 {
			st.cw -= (over + w.di - 1) / w.di * w.di
		}
		lastPass = st.cw <= w.di
		if lastPass && restarted && last != root {
			stop = last
		}
	}
}

// greatest returns the greatest weight that may be chosen now.
func (w *weightedRoundRobin) greatest() int64 {
	g := int64(0)
	for s := range w.t.Servers() {
		if !s.overloaded {
			g = max(g, int64(s.weight))
		}
	}
	return g
}

// weigh computes mw and di and goes back to the head of the list.
func (w *weightedRoundRobin) weigh() {
	w.at, w.mw, w.di = &w.t.root, 0, 0
	for s := range w.t.Servers() {
		if s.weight > 0 {
			w.di = gcd(int64(s.weight), w.di)
			w.mw = max(w.mw, int64(s.weight))
		}
	}
	w.di = max(w.di, 1)
	w.mw -= w.di - 1
}

// changed is ip_vs_wrr_dest_changed: the pass goes on from the head of the list,
// with a weight that a pass of the new step could ask for.
func (w *weightedRoundRobin) changed() {
	w.weigh()
	switch {
	case w.cw > w.mw || w.cw == 0:
		w.cw = w.mw
	case w.di > 1:
		w.cw = w.cw/w.di*w.di + 1
	}
}

func (w *weightedRoundRobin) added(*Server)   { w.changed() }
func (w *weightedRoundRobin) removed(*Server) { w.changed() }
func (w *weightedRoundRobin) updated(*Server) { w.changed() }

// gcd returns the greatest common divisor; that of a and 0 is a.
func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
