package healthcheck

import (
	"context"
	"time"
)

// tell has Notify hear of what is new about p. The caller holds mu.
func (m *Monitor) tell(p *probe) {
	if p.queued || p.status.news() == p.told && !p.complaint {
		return
	}
	p.queued = true
	m.dirty = append(m.dirty, p)
	signal(m.changed)
}

// deliver logs and calls Notify until ctx is done. It is apart from the probes, so
// that a Notify or a log that hangs delays no check; and each probe is in dirty
// once at most, so that the queue stays bounded.
func (m *Monitor) deliver(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.changed:
		}
		for ctx.Err() == nil {
			c, ok := m.nextChange()
			if !ok {
				break
			}
			if c.complaint {
				m.log.Error("checker ignores its deadline", "check", c.Key, "timeout", c.timeout)
			}
			if !c.changed {
				continue
			}
			m.log.Debug("probe changed", "check", c.Key, "state", c.State, "err", c.LastErr)
			if m.opts.Notify != nil {
				m.opts.Notify(c.Change)
			}
		}
	}
}

// delivery is a Change, if something changed, and what the log is to say.
type delivery struct {
	Change
	changed, complaint bool
	timeout            time.Duration
}

// nextChange takes the next change out of dirty.
func (m *Monitor) nextChange() (delivery, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.dirty) > 0 {
		p := m.dirty[0]
		m.dirty[0] = nil
		m.dirty = m.dirty[1:]
		p.queued = false
		// A probe that went back to what Notify knows is no news, nor is one that
		// is gone.
		d := delivery{changed: !p.removed && p.status.news() != p.told, complaint: p.complaint}
		if !d.changed && !d.complaint {
			continue
		}
		p.told, p.complaint = p.status.news(), false
		d.Change = Change{Key: p.key, Status: p.status}
		d.timeout = p.Timeout
		return d, true
	}
	return delivery{}, false
}
