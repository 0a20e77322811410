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
	// spread asks that every real server answers a fair part of the requests.
	spread bool
	// turns is how often each contender is measured in a round.
	turns int
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
// back soon, so that of each connection the end is measured, too, and not only
// the begin.
const (
	sources     = 1
	sourcePorts = 16384
)

// The connections of the requests, and the client's threads for them.
const (
	parallel = 64
	threads  = 2
)

// How fast a machine is changes from second to second more than the contenders
// differ: many short turns see the same of that. A round's time is that of turns.
// Requests have four times as many, since in these the contenders differ least.
const (
	turns        = 8
	requestTurns = 4 * turns
)

func request(connections, threads int) rig.Load {
	return rig.Load{Kind: rig.Requests, Connections: connections, Threads: threads, Sources: sources, Ports: sourcePorts}
}

func metrics(round time.Duration) []metric {
	load := func(l rig.Load) rig.Load {
		l.Time = round / turns
		l.WarmUp = l.Time / 4
		return l
	}
	bulk := func(kind rig.Kind) rig.Load {
		return load(rig.Load{Kind: kind, Connections: servers, Threads: 1, Sources: sources, Ports: sourcePorts})
	}
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	gbit := func(o *rig.Outcome) float64 { return o.BitRate() / 1e9 }
	return []metric{
		{name: "requests", load: load(request(parallel, threads)), port: rig.AnswerPort, turns: requestTurns, spread: true, figures: []figure{
			{figureRate, "/s", (*rig.Outcome).Rate},
			{figureCPU, "us", func(o *rig.Outcome) float64 { return us(o.CPU()) }},
		}},
		{name: "latency", load: load(request(1, 1)), port: rig.AnswerPort, turns: turns, figures: []figure{
			{figureP50, "us", func(o *rig.Outcome) float64 { return us(o.P50) }},
		}},
		{name: "down", load: bulk(rig.Down), port: rig.SourcePort, turns: turns, figures: []figure{{figureDown, "Gb/s", gbit}}},
		{name: "up", load: bulk(rig.Up), port: rig.DiscardPort, turns: turns, figures: []figure{{figureUp, "Gb/s", gbit}}},
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
