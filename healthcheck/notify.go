package healthcheck

import "context"

// tell has Notify hear of the state of p. The caller holds mu.
func (m *Monitor) tell(p *probe) {
	if m.opts.Notify == nil || p.queued || p.status.State == p.told {
		return
	}
	p.queued = true
	m.dirty = append(m.dirty, p)
	signal(m.changed)
}

// deliver calls Notify until ctx is done. It is apart from the probes, so that a
// Notify that hangs delays no check; and each probe is in dirty once at most, so
// that the queue stays bounded.
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
			m.opts.Notify(c)
		}
	}
}

// nextChange takes the next change out of dirty.
func (m *Monitor) nextChange() (Change, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.dirty) > 0 {
		p := m.dirty[0]
		m.dirty[0] = nil
		m.dirty = m.dirty[1:]
		p.queued = false
		// A probe that went back to the state that Notify knows is no news.
		if p.removed || p.status.State == p.told {
			continue
		}
		p.told = p.status.State
		return Change{Key: p.key, Status: p.status}, true
	}
	return Change{}, false
}
