package userspace

import (
	"context"
	"fmt"

	"github.com/lbd-project/lbd/ipvs"
)

// Apply executes ops in order. A *ipvs.BatchError names those that failed, all
// others took effect. After any other error none of them did, unless the next
// reading of the table says otherwise.
//
// What was decided is in the store before the rules change, and rules change
// before a new real server gets its first connection; one that goes gets none
// from the beginning, unless only new ones take its place.
func (e *Engine) Apply(ctx context.Context, ops []ipvs.Op) error {
	if len(ops) == 0 {
		return nil
	}
	if err := e.lockWrites(ctx); err != nil {
		return &ipvs.Error{Op: "apply", Err: err}
	}
	defer e.unlockWrites()
	p := e.newPlan()
	var failed []ipvs.FailedOp
	for i := range ops {
		if err := p.execute(&ops[i]); err != nil {
			failed = append(failed, failure(i, &ops[i], err))
		}
	}
	if err := e.carryOut(ctx, p); err != nil {
		return &ipvs.Error{Op: "apply", Err: err}
	}
	if len(failed) > 0 {
		return &ipvs.BatchError{Failed: failed}
	}
	return nil
}

// Flush deletes every virtual service.
func (e *Engine) Flush(ctx context.Context) error {
	err := e.lockWrites(ctx)
	if err == nil {
		defer e.unlockWrites()
		p := e.newPlan()
		for k := range e.model.services {
			p.draft(k).drop()
			p.changed = true
		}
		err = e.carryOut(ctx, p)
	}
	if err != nil {
		return &ipvs.Error{Op: "flush", Err: err}
	}
	return nil
}

// lockWrites takes the write lock, unless ctx is done first.
func (e *Engine) lockWrites(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case e.writes <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (e *Engine) unlockWrites() { <-e.writes }

// carryOut makes a plan true: in the store, in the rules, and in the model.
func (e *Engine) carryOut(ctx context.Context, p *plan) error {
	if !p.changed {
		return nil
	}
	if err := p.number(); err != nil {
		p.unnumber()
		return err
	}
	st := p.state()
	e.hold(p, true)
	write := e.program
	if len(p.servers)+len(p.services) > 0 {
		write = e.programKept
	}
	if err := write(ctx, &st); err != nil {
		e.hold(p, false)
		p.unnumber()
		// The old rules may be there or not, and the store has what is not true.
		e.stale = true
		e.keep(e.current())
		return err
	}
	e.mu.Lock()
	if p.revives() {
		e.readTraffic() // what they sent until now is not in their new statistics
	}
	e.install(p)
	e.mu.Unlock()
	e.tidy(ctx)
	return nil
}

// revives says whether deleted real servers come back.
func (p *plan) revives() bool {
	for _, d := range p.order {
		for _, s := range d.servers {
			if s.revived != nil && !s.deleted {
				return true
			}
		}
	}
	return false
}

// programKept is program for a state with numbers that the store does not have, or
// without some that others may get then: the next engine must not take a flow for
// one of another real server.
func (e *Engine) programKept(ctx context.Context, st *state) error {
	if e.keep(st); e.unkept != nil {
		return fmt.Errorf("keep the state: %w", e.unkept)
	}
	return e.program(ctx, st)
}

// program writes a state to the store, and then to the host and the rules. A store
// that cannot be written must not keep the weight of a failed real server: all
// numbers are known to it, and what else the next engine finds there is put right
// by who tells it what the table should be.
func (e *Engine) program(ctx context.Context, st *state) error {
	e.allEvents = e.others.Load()
	change, err := e.noteHost(e.wantHost(st))
	if err != nil {
		return err
	}
	if e.keep(st); e.unkept != nil && len(change) > 0 {
		return fmt.Errorf("keep settings of the host: %w", e.unkept)
	}
	if err := e.changeHost(change); err != nil {
		return err
	}
	spec := e.spec(st)
	if e.rules.Renews(&spec) {
		e.mu.Lock()
		e.readCounters()
		e.mu.Unlock()
	}
	if err := e.rules.Apply(ctx, spec); err != nil {
		return fmt.Errorf("change the rules: %w", err)
	}
	e.stale = false
	return nil
}

// keep writes a state to the store, and tells when that begins to fail and works
// again. The write lock is held.
func (e *Engine) keep(st *state) {
	err := e.save(st)
	switch {
	case err != nil && e.unkept == nil:
		e.log.Error("the state of the userspace engine is not kept, trying again: real servers can be changed and removed, and none added", "err", err)
	case err == nil && e.unkept != nil:
		e.log.Info("the state of the userspace engine is kept again")
	}
	e.unkept = err
}

// current returns the state of the model.
func (e *Engine) current() *state {
	st := e.newPlan().state()
	return &st
}

// number gives services and real servers that are new their numbers.
func (p *plan) number() (err error) {
	m := &p.engine.model
	for _, d := range p.order {
		if !d.exists {
			continue
		}
		if d.id, err = p.serviceID(d); err != nil {
			return err
		}
		for _, s := range d.servers {
			switch {
			case s.deleted:
			case s.was != nil:
				s.id = s.was.id
			case s.revived != nil:
				s.id = s.revived.id
			default:
				if s.id, err = m.ids.take(); err != nil {
					return err
				}
				p.servers = append(p.servers, s.id)
			}
		}
	}
	return nil
}

// serviceID returns the number of a service: that of the same service before,
// also where only deleted real servers are left of it.
func (p *plan) serviceID(d *draft) (uint32, error) {
	m := &p.engine.model
	if s := m.services[d.ServiceKey]; s != nil {
		return s.id, nil
	}
	for k, s := range m.dead {
		if k.Service == d.ServiceKey {
			return s.service.id, nil
		}
	}
	id, err := m.serviceIDs.take()
	if err == nil {
		p.services = append(p.services, id)
	}
	return id, err
}

// unnumber gives the numbers back.
func (p *plan) unnumber() {
	for _, id := range p.servers {
		p.engine.model.ids.give(id)
	}
	for _, id := range p.services {
		p.engine.model.serviceIDs.give(id)
	}
}

// hold keeps new connections from real servers that the plan deletes or
// quiesces, and lets those have some that it raises from weight 0; or takes that
// back. Where only new real servers will get connections, which need their rules
// first, the old ones have them until then: a service that has a server before and
// after has one all the time.
func (e *Engine) hold(p *plan, hold bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, d := range p.order {
		replaced := d.replaced()
		for _, s := range d.servers {
			if s.was == nil {
				continue
			}
			c := schedConfig(&s.was.Destination)
			switch {
			case !hold:
			case !s.deleted && s.Weight != 0:
				c.Weight = s.Weight
			case !replaced:
				c.Weight = 0
			}
			if s.was.sched.Config() != c {
				s.was.service.table.Update(s.was.sched, c)
			}
		}
	}
}

// replaced says whether all real servers of the service that will get connections
// are new.
func (d *draft) replaced() bool {
	some := false
	for _, s := range d.servers {
		if !d.exists || s.deleted || s.Weight == 0 {
			continue
		}
		if s.was != nil {
			return false
		}
		some = true
	}
	return some
}
