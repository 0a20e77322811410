package userspace

import "github.com/lbd-project/lbd/ipvs"

// traffic are the statistics of a service or a real server, with the kernel's
// estimator of their rates (net/netfilter/ipvs/ip_vs_est.c): every two seconds
// a quarter of the difference goes into the average.
type traffic struct {
	now, before counters
	rates       rates
}

// counters are totals.
type counters struct {
	connections, packetsIn, packetsOut, bytesIn, bytesOut uint64
}

// rates are averages a second as fixed-point numbers: connections and packets
// with 10 bits of fraction, bytes with 5.
type rates struct {
	connections, packetsIn, packetsOut, bytesIn, bytesOut int64
}

// counted is what the rules counted in one direction, as last read.
type counted struct{ packets, bytes uint64 }

// readTraffic reads what the rules count of traffic by masquerading: packets pass
// them, and nothing else sees all. mu is held.
func (e *Engine) readTraffic() { e.trafficError = e.rules.Traffic(e.onTraffic) }

// counted takes in what connections of a mark sent ever, to the real server or
// back.
func (e *Engine) counted(mark uint32, back bool, packets, bytes uint64) {
	s := e.model.server(e.marks.id(mark))
	if s == nil {
		return
	}
	var c counters
	if back {
		c.packetsOut, c.bytesOut = s.back.advance(packets, bytes)
	} else {
		c.packetsIn, c.bytesIn = s.there.advance(packets, bytes)
	}
	s.traffic.now.add(&c)
	s.service.traffic.now.add(&c)
}

// advance takes in what the counter says now, and returns how much that is more.
// One that is less than it was, in either, began again.
func (c *counted) advance(packets, bytes uint64) (morePackets, moreBytes uint64) {
	if packets < c.packets || bytes < c.bytes {
		*c = counted{}
	}
	morePackets, moreBytes = packets-c.packets, bytes-c.bytes
	*c = counted{packets, bytes}
	return morePackets, moreBytes
}

func (c *counters) add(o *counters) {
	c.connections += o.connections
	c.packetsIn += o.packetsIn
	c.packetsOut += o.packetsOut
	c.bytesIn += o.bytesIn
	c.bytesOut += o.bytesOut
}

// estimate takes in what came since it was last called, two seconds ago.
func (t *traffic) estimate() {
	if t.now == t.before && t.rates == (rates{}) {
		return
	}
	average := func(avg *int64, now, before uint64, shift uint) {
		rate := int64(now-before) << shift
		*avg += (rate - *avg) >> 2
	}
	n, b, r := &t.now, &t.before, &t.rates
	average(&r.connections, n.connections, b.connections, 9)
	average(&r.packetsIn, n.packetsIn, b.packetsIn, 9)
	average(&r.packetsOut, n.packetsOut, b.packetsOut, 9)
	average(&r.bytesIn, n.bytesIn, b.bytesIn, 4)
	average(&r.bytesOut, n.bytesOut, b.bytesOut, 4)
	*b = *n
}

func (t *traffic) stats() ipvs.Stats {
	fixed := func(v int64, bits uint) uint64 { return uint64(v+(1<<(bits-1)-1)) >> bits }
	n, r := &t.now, &t.rates
	return ipvs.Stats{
		Connections: n.connections,
		PacketsIn:   n.packetsIn, PacketsOut: n.packetsOut,
		BytesIn: n.bytesIn, BytesOut: n.bytesOut,
		ConnectionRate: fixed(r.connections, 10),
		PacketRateIn:   fixed(r.packetsIn, 10), PacketRateOut: fixed(r.packetsOut, 10),
		ByteRateIn: fixed(r.bytesIn, 5), ByteRateOut: fixed(r.bytesOut, 5),
	}
}
