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
