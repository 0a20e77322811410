package userspace

import (
	"context"
	"errors"
	"fmt"
)

// Close gives back queues and sockets. Rules and connections stay as they are,
// for the next engine, and new connections are balanced by the rules. Run must
// have returned.
func (e *Engine) Close() error {
	var errs []error
	for _, q := range e.queues {
		errs = append(errs, q.Close())
	}
	e.queues = nil
	if e.events != nil {
		errs = append(errs, e.events.Close())
	}
	if e.table != nil {
		errs = append(errs, e.table.Close())
	}
	if e.rules != nil {
		errs = append(errs, e.rules.Close())
	}
	if e.lock != nil {
		errs = append(errs, e.lock.Close())
	}
	return errors.Join(errs...)
}

// Clear takes back everything from the host: the rules, the settings that were
// changed, and the state in the store. Established connections end with their next
// packet, since nothing translates it, unless another program's rules have a NAT
// chain. Run must have returned.
func (e *Engine) Clear(ctx context.Context) error {
	if err := e.lockWrites(ctx); err != nil {
		return fmt.Errorf("clear userspace engine: %w", err)
	}
	defer e.unlockWrites()
	err := errors.Join(e.rules.Remove(ctx), e.restoreHost())
	if err == nil {
		e.saved = nil
		err = e.opt.Store.Save(nil)
	}
	if err != nil {
		return fmt.Errorf("clear userspace engine: %w", err)
	}
	return nil
}
