package notify

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/command"
	"github.com/lbd-project/lbd/internal/config"
)

// slowAfter is how long an event may wait for a hook before that is a warning.
const slowAfter = 15 * time.Second

// Set is all hooks. Its methods are safe for concurrent use.
type Set struct {
	log *slog.Logger
	// make makes a hook; tests replace it.
	make func(config.Hook, *slog.Logger) *hook
	// changed holds a token when there are hooks to start.
	changed chan struct{}

	mu    sync.Mutex
	hooks []*hook
	// waiting are hooks that Run has to start.
	waiting []*hook
}

// New returns a Set without hooks. The programs of hooks are read by reads, which
// may be nil.
func New(log *slog.Logger, reads *command.Reads) *Set {
	s := &Set{log: log, changed: make(chan struct{}, 1)}
	s.make = func(spec config.Hook, log *slog.Logger) *hook { return newHook(spec, log, reads) }
	return s
}

// Change makes list the hooks, each with a name of its own. Those that are equal
// to one before go on. One that is not, but has the name of one before, takes over
// what that has not told. The others have Grace to tell what waits for them.
// Events that are told from now on are for the new hooks alone.
func (s *Set) Change(list []config.Hook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	former := make(map[string]*hook, len(s.hooks))
	for _, h := range s.hooks {
		former[h.spec.Name] = h
	}
	next := make([]*hook, len(list))
	for i, spec := range list {
		old := former[spec.Name]
		delete(former, spec.Name)
		if old != nil && old.spec.Equal(spec) {
			next[i] = old
			continue
		}
		h := s.make(spec, s.log)
		if old != nil {
			h.former = old
			old.finish(h)
		}
		next[i] = h
		s.waiting = append(s.waiting, h)
	}
	for _, h := range former {
		h.finish(nil)
	}
	s.hooks = next
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Tell tells all hooks of an event, which has its time from time.Now. It never
// waits for them.
func (s *Set) Tell(e api.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.hooks {
		h.add(e)
	}
}

// Run runs the hooks. Once ctx is done it waits for noMore to be closed, after
// which nobody tells of an event, and returns when all hooks have told what they
// could within Grace, and the program that was running then has been killed.
func (s *Set) Run(ctx context.Context, noMore <-chan struct{}) error {
	working := context.WithoutCancel(ctx)
	var wg sync.WaitGroup
	start := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, h := range s.waiting {
			wg.Go(func() { h.run(working) })
		}
		s.waiting = nil
	}
	for ctx.Err() == nil {
		start()
		select {
		case <-s.changed:
		case <-ctx.Done():
		}
	}
	<-noMore
	start()
	s.Change(nil)
	wg.Wait()
	return nil
}

// Status returns the state of each hook, in the order of the configuration.
func (s *Set) Status() []api.Hook {
	s.mu.Lock()
	hooks := slices.Clone(s.hooks)
	s.mu.Unlock()
	list, now := make([]api.Hook, len(hooks)), time.Now()
	for i, h := range hooks {
		list[i] = h.status(now)
	}
	return list
}

// Warnings says which hooks fail or are slow.
func Warnings(list []api.Hook) []string {
	var warnings []string
	for _, h := range list {
		switch {
		case h.Failures > 0:
			warnings = append(warnings, fmt.Sprintf("notify: %s %s fails: %s; failures in a row: %d, events waiting: %d, lost: %d",
				h.Kind, h.Name, h.LastError, h.Failures, h.Waiting, h.Lost))
		case h.WaitingSeconds > slowAfter.Seconds():
			warnings = append(warnings, fmt.Sprintf("notify: %s %s is slow: events waiting: %d, the oldest for %.0f s, lost: %d",
				h.Kind, h.Name, h.Waiting, h.WaitingSeconds, h.Lost))
		}
	}
	return warnings
}
