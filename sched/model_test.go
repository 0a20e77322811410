package sched

import "slices"

// A plain model of what the kernel does, written after its sources line by line
// and sharing nothing with the package: the oracle of the property tests. Names
// are the kernel's.

type kdest struct {
	id                     uint32
	weight                 int64
	active, inact, persist int64
	uThreshold, lThreshold int64
	overload               bool
	busy                   int64 // ours, for least-active
	current                int64 // nginx, for swrr
}

type kernel struct {
	old  bool     // the older kernels' overhead and overload
	list []*kdest // head first
	// rr and wrr: index in list of the last one; -1 is the head.
	cur        int
	cw, mw, di int64
}

func (k *kernel) overhead(d *kdest) int64 {
	if k.old {
		return d.active*256 + d.inact
	}
	return d.active*256 + d.active + d.inact
}

// updateOverload is ip_vs_dest_update_overload.
func (k *kernel) updateOverload(d *kdest) {
	u := d.uThreshold
	if u == 0 {
		d.overload = false
		return
	}
	conns := d.active + d.inact
	if conns >= u {
		d.overload = true
		return
	}
	l := d.lThreshold
	if l == 0 {
		l = u - (u >> 2)
	}
	if conns >= l {
		return
	}
	d.overload = false
}

func (k *kernel) bind(d *kdest, count *int64) {
	*count++
	if !k.old {
		k.updateOverload(d)
	} else if d.uThreshold != 0 && d.active+d.inact >= d.uThreshold {
		d.overload = true
	}
}

func (k *kernel) unbind(d *kdest, count *int64) {
	*count--
	if !k.old {
		if d.overload {
			k.updateOverload(d)
		}
		return
	}
	if d.lThreshold != 0 {
		if d.active+d.inact < d.lThreshold {
			d.overload = false
		}
	} else if d.uThreshold != 0 {
		if (d.active+d.inact)*4 < d.uThreshold*3 {
			d.overload = false
		}
	} else {
		d.overload = false
	}
}

// updateDest is __ip_vs_update_dest as far as it concerns us.
func (k *kernel) updateDest(d *kdest, weight, u, l int64) {
	d.weight = weight
	if k.old {
		if u == 0 || u > d.uThreshold {
			d.overload = false
		}
		d.uThreshold, d.lThreshold = u, l
		return
	}
	if d.uThreshold != u || d.lThreshold != l {
		d.uThreshold, d.lThreshold = u, l
		k.updateOverload(d)
	}
}

func (k *kernel) add(d *kdest) {
	k.list = slices.Insert(k.list, 0, d)
	if k.cur >= 0 {
		k.cur++
	}
}

func (k *kernel) del(d *kdest) {
	i := slices.Index(k.list, d)
	k.list = slices.Delete(k.list, i, i+1)
	if k.cur >= i {
		k.cur--
	}
}

func (k *kernel) lc() *kdest {
	var least *kdest
	var loh int64
	for _, d := range k.list {
		if d.overload || d.weight == 0 {
			continue
		}
		doh := k.overhead(d)
		if least == nil || doh < loh {
			least, loh = d, doh
		}
	}
	return least
}

// weighted is the common shape of wlc and sed.
func (k *kernel) weighted(overhead func(*kdest) int64) *kdest {
	for i, least := range k.list {
		if least.overload || least.weight <= 0 {
			continue
		}
		loh := overhead(least)
		for _, d := range k.list[i+1:] {
			if d.overload {
				continue
			}
			doh := overhead(d)
			if loh*d.weight > doh*least.weight {
				least, loh = d, doh
			}
		}
		return least
	}
	return nil
}

func (k *kernel) wlc() *kdest { return k.weighted(k.overhead) }

func (k *kernel) sed() *kdest {
	return k.weighted(func(d *kdest) int64 { return d.active + 1 })
}

func (k *kernel) nq() *kdest {
	var least *kdest
	var loh int64
	for _, d := range k.list {
		if d.overload || d.weight == 0 {
			continue
		}
		doh := d.active + 1
		if d.active == 0 {
			return d
		}
		if least == nil || loh*d.weight > doh*least.weight {
			least, loh = d, doh
		}
	}
	return least
}

func (k *kernel) fo() *kdest {
	var hweight *kdest
	hw := int64(0)
	for _, d := range k.list {
		if !d.overload && d.weight > hw {
			hweight, hw = d, d.weight
		}
	}
	return hweight
}

func (k *kernel) ovf() *kdest {
	var h *kdest
	hw := int64(0)
	for _, d := range k.list {
		w := d.weight
		if d.overload || d.active > w || w == 0 {
			continue
		}
		if h == nil || w > hw {
			h, hw = d, w
		}
	}
	return h
}

func (k *kernel) rr() *kdest {
	last, dest := k.cur, k.cur
	for pass := 0; ; {
		for dest++; dest < len(k.list); dest++ {
			if d := k.list[dest]; !d.overload && d.weight > 0 {
				k.cur = dest
				return d
			}
			if dest == last {
				return nil
			}
		}
		dest = -1
		pass++
		if pass >= 2 || last == -1 {
			return nil
		}
	}
}

func (k *kernel) wrrWeigh() {
	g, m := int64(0), int64(0)
	for _, d := range k.list {
		if d.weight > 0 {
			if g > 0 {
				a, b := d.weight, g
				for b != 0 {
					a, b = b, a%b
				}
				g = a
			} else {
				g = d.weight
			}
		}
		m = max(m, d.weight)
	}
	if g == 0 {
		g = 1
	}
	k.cur, k.di, k.mw = -1, g, m-(g-1)
}

func (k *kernel) wrrInit() {
	k.wrrWeigh()
	k.cw = k.mw
}

func (k *kernel) wrrChanged() {
	k.wrrWeigh()
	if k.cw > k.mw || k.cw == 0 {
		k.cw = k.mw
	} else if k.di > 1 {
		k.cw = (k.cw/k.di)*k.di + 1
	}
}

func (k *kernel) wrr() *kdest {
	const none = -2
	stop := none
	lastPass, restarted := false, false
	dest := k.cur
	if k.mw == 0 {
		return nil
	}
	last := dest
	for {
		for dest++; dest < len(k.list); dest++ {
			if d := k.list[dest]; !d.overload && d.weight >= k.cw {
				k.cur = dest
				return d
			}
			if dest == stop {
				k.cur = dest
				return nil
			}
		}
		dest = -1
		k.cw -= k.di
		if k.cw <= 0 {
			k.cw = k.mw
			if lastPass || last == -1 {
				k.cur = dest
				return nil
			}
			restarted = true
		}
		lastPass = k.cw <= k.di
		if lastPass && restarted && last != -1 {
			stop = last
		}
	}
}

// leastActive is our own: outstanding requests for the weight, among equals
// connections.
func (k *kernel) leastActive() *kdest {
	var least *kdest
	var l int64
	for _, d := range k.list {
		n := d.busy<<16 + min(d.active+d.inact, 65535)
		if d.overload || d.weight == 0 {
			continue
		}
		if least == nil || l*d.weight > n*least.weight {
			least, l = d, n
		}
	}
	return least
}

// swrr is nginx's, one after another.
func (k *kernel) swrr() *kdest {
	var best *kdest
	total := int64(0)
	for _, d := range k.list {
		if d.overload || d.weight == 0 {
			continue
		}
		d.current += d.weight
		total += d.weight
		if best == nil || d.current > best.current {
			best = d
		}
	}
	if best != nil {
		best.current -= total
	}
	return best
}
