package healthcheck

import "time"

// lagWindow is how long the largest lag is remembered at least.
const lagWindow = 10 * time.Second

// Stats says how the Monitor itself is doing.
type Stats struct {
	// Probes is how many there are, Running how many checkers run now and
	// Waiting how many wait for a place (Options.Parallel).
	Probes, Running, Waiting int
	// Overdue is how many checkers still run a second after their deadline, or
	// after Set removed their probe. They are none of Running.
	Overdue int
	// Starts, Checks and Failures count runs begun, results and failed results
	// since Run began. Skipped counts starts that were left out because the
	// Monitor was more than an interval late, or the probe still waited.
	Starts, Checks, Failures, Skipped uint64
	// LagTotal is the sum, over Starts, of how late each began. LagMax is the
	// largest of the last 10 to 20 seconds.
	LagTotal, LagMax time.Duration
	// LastTick is when the scheduler last looked at its queue, at least once a
	// second while Run runs; zero before. A watchdog compares it with now.
	LastTick time.Time
}

// Stats returns the Monitor's own figures.
func (m *Monitor) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &m.stats
	c.roll(time.Now())
	return Stats{
		Probes: len(m.probes), Running: c.running, Waiting: len(m.ready), Overdue: c.overdue.total,
		Starts: c.starts, Checks: c.checks, Failures: c.failures, Skipped: c.skipped,
		LagTotal: c.lagTotal, LagMax: max(c.lagMax, c.lagMaxBefore), LastTick: c.lastTick,
	}
}

// counters are the figures behind Stats.
type counters struct {
	running                           int
	overdue                           overdue
	starts, checks, failures, skipped uint64
	lagTotal                          time.Duration
	// lagMax is the largest lag since window, lagMaxBefore of the window before.
	lagMax, lagMaxBefore time.Duration
	window               time.Time
	lastTick             time.Time
}

// start counts a run that begins at now, late by lag.
func (c *counters) start(lag time.Duration, now time.Time) {
	c.roll(now)
	c.starts++
	// A start that is early is not late.
	lag = max(lag, 0)
	c.lagTotal += lag
	c.lagMax = max(c.lagMax, lag)
}

// roll begins a new window when the current one is over.
func (c *counters) roll(now time.Time) {
	age := now.Sub(c.window)
	if age < lagWindow {
		return
	}
	c.lagMaxBefore = c.lagMax
	if age >= 2*lagWindow {
		c.lagMaxBefore = 0
	}
	c.lagMax, c.window = 0, now
}
