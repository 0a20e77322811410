package daemon

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/lbd-project/lbd/ipvs"
)

// Full statistics are dumped this many times less often than the counts are
// read, but no more often than each statsMinInterval: a dump of a large table
// takes the kernel the better part of a second.
const (
	statsEvery       = 10
	statsMinInterval = 5 * time.Second
)

// counts are the connection counts of every real server at one moment. They are
// immutable.
type counts struct {
	// at is from before the reading: everything in it is that new.
	at       time.Time
	byServer map[ipvs.DestinationKey]ipvs.DestinationCounts
}

// conns returns the counts of a real server, and whether the table held it.
func (c *counts) conns(k ipvs.DestinationKey) (ipvs.DestinationCounts, bool) {
	if c == nil {
		return ipvs.DestinationCounts{}, false
	}
	d, ok := c.byServer[k]
	return d, ok
}

// stats are the whole table with its statistics at one moment. They are
// immutable.
type stats struct {
	at    time.Time
	table []ipvs.TableEntry
}

// mirror copies what the engine counts, so that nobody who only looks waits for
// the engine.
type mirror struct {
	engine Engine
	log    *slog.Logger
	// told is called after every reading, failed ones too.
	told func()

	interval atomic.Int64 // time.Duration
	refresh  chan struct{}

	counts atomic.Pointer[counts]
	stats  atomic.Pointer[stats]
	err    atomic.Pointer[error]
}

func newMirror(e Engine, log *slog.Logger, told func()) *mirror {
	return &mirror{engine: e, log: log, told: told, refresh: make(chan struct{}, 1)}
}

// setInterval changes the time between two readings and reads at once.
func (m *mirror) setInterval(d time.Duration) {
	m.interval.Store(int64(d))
	m.poke()
}

// poke asks for a reading of the counts now.
func (m *mirror) poke() { signal(m.refresh) }

// run reads until ctx is done. It skips what is missed: a slow engine is not
// asked the faster for it. Whoever asks waits for as long as the last reading took,
// so that a storm of changes takes half of a processor at most.
func (m *mirror) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var rested, next, nextStats time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-m.refresh:
		}
		interval := time.Duration(m.interval.Load())
		begun := time.Now()
		if next = earlier(next, rested); begun.Before(next) {
			timer.Reset(next.Sub(begun))
			continue
		}
		err := m.readCounts(ctx)
		if now := time.Now(); err == nil && !now.Before(nextStats) {
			if err = m.readStats(ctx); err == nil {
				nextStats = now.Add(max(statsEvery*interval, statsMinInterval))
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		m.note(err)
		m.told()
		ended := time.Now()
		next, rested = ended.Add(interval), ended.Add(ended.Sub(begun))
		timer.Reset(interval)
	}
}

func (m *mirror) readCounts(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	at := time.Now()
	list, err := m.engine.Counts(ctx)
	if err != nil {
		return err
	}
	c := &counts{at: at, byServer: make(map[ipvs.DestinationKey]ipvs.DestinationCounts, len(list))}
	for _, d := range list {
		c.byServer[d.DestinationKey] = d
	}
	m.counts.Store(c)
	return nil
}

func (m *mirror) readStats(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	at := time.Now()
	table, err := m.engine.Table(ctx)
	if err != nil {
		return err
	}
	m.stats.Store(&stats{at: at, table: table})
	return nil
}

// note keeps the error of the last reading and logs when it comes and goes.
func (m *mirror) note(err error) {
	old := m.lastErr()
	switch {
	case err != nil && old == nil:
		m.log.Warn("connection counts not read", "err", err)
	case err == nil && old != nil:
		m.log.Info("connection counts are read again")
	}
	m.err.Store(&err)
}

func (m *mirror) lastErr() error {
	if p := m.err.Load(); p != nil {
		return *p
	}
	return nil
}

// signal puts the token into c if it is not there.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
