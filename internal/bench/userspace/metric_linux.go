package main

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/lbd-project/lbd/internal/bench/rig"
)

// metric is a load and the figures that come from it.
type metric struct {
	name    string
	load    rig.Load
	port    uint16
	figures []figure
	// turns is how often each contender is measured in a round.
	turns int
	// spread asks that every real server answers a fair part of the requests.
	spread bool
}

type figure struct {
	name, unit string
	of         func(*rig.Outcome) float64
}

// The figures.
const (
	figureRate = "cps"
	figureCPU  = "cpu"
	figureP50  = "p50"
	figureDown = "bulk_down"
	figureUp   = "bulk_up"
)

// The tuples of the client. Conntrack remembers each for two minutes after its
// end, and replaces it when the tuple comes back. With as few as these they come
// back within the warm-up, so that of each connection the end is measured, too,
// and not only the begin.
const (
	sources     = 1
	sourcePorts = 16384
)

func metrics(window time.Duration) []metric {
	// How fast a machine copies changes from second to second more than the
	// contenders differ: many short turns see the same of that.
	const bulkTurns = 3
	bulk := window / 2
	load := func(kind rig.Kind, connections, threads int, window time.Duration) rig.Load {
		return rig.Load{
			Kind: kind, Connections: connections, Threads: threads,
			WarmUp: window / 4, Time: window, Sources: sources, Ports: sourcePorts,
		}
	}
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	gbit := func(o *rig.Outcome) float64 { return o.BitRate() / 1e9 }
	return []metric{
		{"requests", load(rig.Requests, 64, 2, window), rig.AnswerPort, []figure{
			{figureRate, "/s", (*rig.Outcome).Rate},
			{figureCPU, "us", func(o *rig.Outcome) float64 { return us(o.CPU()) }},
		}, 1, true},
		{"latency", load(rig.Requests, 1, 1, window), rig.AnswerPort, []figure{
			{figureP50, "us", func(o *rig.Outcome) float64 { return us(o.P50) }},
		}, 1, false},
		{"down", load(rig.Down, servers, 1, bulk), rig.SourcePort, []figure{{figureDown, "Gb/s", gbit}}, bulkTurns, false},
		{"up", load(rig.Up, servers, 1, bulk), rig.DiscardPort, []figure{{figureUp, "Gb/s", gbit}}, bulkTurns, false},
	}
}

func metricNames() []string {
	var names []string
	for _, m := range metrics(time.Second) {
		names = append(names, m.name)
	}
	return names
}

// fairPart is how much of its even share each real server must get at least:
// who sends all to one does not balance.
const fairPart = 0.3

// check says what is wrong with the work of a balancer.
func (m metric) check(o *rig.Outcome) error {
	if m.load.Kind == rig.Requests && o.Done == 0 {
		return fmt.Errorf("no request was done")
	}
	if !m.spread {
		return nil
	}
	for i := range servers {
		if n := o.Servers[rig.Name(i)]; float64(n) < fairPart*float64(o.Done)/servers {
			return fmt.Errorf("real server %s got %d of %d requests", rig.Name(i), n, o.Done)
		}
	}
	return nil
}

func vip(port uint16) netip.AddrPort { return netip.AddrPortFrom(rig.VIP(), port) }
