package userspace

import (
	"context"
	"errors"
	"fmt"

	"github.com/lbd-project/lbd/internal/conntrack"
)

// dumpTries bounds how often a dump that the kernel interrupted is begun again.
const dumpTries = 5

// remember takes in what the store has. A store that makes no sense is as good
// as none: connections go on without it, uncounted.
func (e *Engine) remember() error {
	b, err := e.opt.Store.Load()
	if err != nil {
		return fmt.Errorf("load the state: %w", err)
	}
	if len(b) == 0 {
		return nil
	}
	e.saved = b
	s, err := decodeStore(b)
	if err == nil {
		err = e.load(s)
	}
	if err != nil {
		e.log.Error("the state of the last userspace engine is of no use, so its connections go on uncounted", "err", err)
		e.forget()
	}
	return nil
}

// forget takes back what a part of a store left, but for what the host's settings
// were.
func (e *Engine) forget() {
	e.model = newModel(e.marks)
	e.timeouts, e.sysctls = defaultTimeouts, defaultSysctls
}

// restore makes the rules what the state says, and the counts and templates what
// the kernel has.
func (e *Engine) restore(ctx context.Context) error {
	if err := e.program(ctx, e.current()); err != nil {
		return err
	}
	e.noteTimeWait()
	e.mu.Lock()
	e.setTime()
	e.mu.Unlock()
	if err := e.restoreTemplates(ctx); err != nil {
		return err
	}
	e.starting = true
	defer func() { e.starting = false }()
	e.mu.Lock()
	closedErrors := e.beginDump()
	e.mu.Unlock()
	for try := 1; ; try++ {
		err := e.dump(ctx, e.restoreFlow)
		if errors.Is(err, conntrack.ErrInterrupted) && try < dumpTries {
			continue
		}
		if err != nil && !errors.Is(err, conntrack.ErrInterrupted) {
			return fmt.Errorf("count the connections that there are: %w", err)
		}
		break
	}
	var c census // of no interest: the next dump counts again
	if err := e.dumpRouted(ctx, &c); err != nil {
		return fmt.Errorf("count the connections that there are: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.endDump(closedErrors)
	return nil
}

// restoreFlow takes in a flow of the dump at the start. A mark that no state
// tells of stays unused as long as there may be flows with it.
func (e *Engine) restoreFlow(ev *conntrack.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	id := e.marks.id(ev.Mark)
	if id == 0 {
		return
	}
	if s := e.model.server(id); s != nil {
		e.seen(ev, s, true)
		return
	}
	e.model.ids.reserve(id)
}

// restoreTemplates takes in the templates that the rules kept. Marks of others stay
// unused as those of restoreFlow do.
func (e *Engine) restoreTemplates(ctx context.Context) error {
	list, err := e.rules.Templates(ctx)
	if err != nil {
		return fmt.Errorf("read persistence templates: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range list {
		id := e.marks.id(t.Mark)
		s := e.model.server(id)
		if s == nil {
			e.model.ids.reserve(id)
			continue
		}
		if s.service.id != t.Service || !s.service.persistent() || t.Expires <= 0 {
			continue
		}
		e.adoptTemplate(s, t.Client, min(t.Expires, s.service.Persistence.Timeout))
	}
	return nil
}
