package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/ipvs"
)

// probeMark is the fwmark of the service that is made, and taken away again, to
// learn whether the kernel has a scheduler. No packet carries it by chance:
// "lbd?" in ASCII.
const probeMark = 0x6c62643f

// maxSchedulers bounds how many schedulers are looked for: the kernel runs
// modprobe for each that it does not have, and the owner waits for it.
const maxSchedulers = 32

// The time between two looks at the host is adviceInterval: what somebody switches
// off under a running lbd is to be seen soon. A look asks the kernel for the way to
// each address, so that where one takes long it is adviceShare times as long as
// that, and maxAdviceInterval at most.
const (
	adviceInterval    = 10 * time.Second
	adviceShare       = 1000
	maxAdviceInterval = 10 * time.Minute
)

// adviser looks, now and then, for what on the host would keep the services from
// working well. It is no business of the owner: nothing in the table depends on
// it, and it may take a while.
type adviser struct {
	host Host
	log  *slog.Logger

	// mu admits one look at a time.
	mu       sync.Mutex
	looked   time.Time
	took     time.Duration
	warnings atomic.Pointer[[]string]
}

// look looks now, logs what it did not find the last time, and returns
// everything.
func (a *adviser) look(c *config.Config) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	start := time.Now()
	old, now := a.last(), a.host.Warnings(c)
	for _, w := range now {
		if !slices.Contains(old, w) {
			a.log.Warn(w)
		}
	}
	a.warnings.Store(&now)
	a.looked = time.Now()
	a.took = a.looked.Sub(start)
	return now
}

// due returns the time until the next look is due.
func (a *adviser) due() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Until(a.looked.Add(min(max(adviceInterval, adviceShare*a.took), maxAdviceInterval)))
}

// last returns what the last look found.
func (a *adviser) last() []string {
	if p := a.warnings.Load(); p != nil {
		return *p
	}
	return nil
}

// runAdvice looks when nobody has for as long as it must, until ctx is done; a
// reload looks, too.
func (d *Daemon) runAdvice(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		due := d.adviser.due()
		if due <= 0 {
			d.adviser.look(d.configuration())
			due = d.adviser.due()
		}
		timer.Reset(due)
	}
}

// hostErrors says what this host cannot do of a configuration. The kernel is
// asked for the schedulers; another engine knows its own.
func (d *Daemon) hostErrors(ctx context.Context, c *config.Config) ([]string, error) {
	errs := d.host.Errors(c)
	if d.check != nil {
		return append(errs, d.check(c)...), nil
	}
	var names []ipvs.Scheduler
	for i := range c.VirtualServices {
		names = append(names, c.VirtualServices[i].Scheduler)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > maxSchedulers {
		errs = append(errs, fmt.Sprintf("%d schedulers: only %d of them were looked for in this kernel", len(names), maxSchedulers))
		names = names[:maxSchedulers]
	}
	answer := make(chan []string, 1)
	err := d.owner.do(ctx, d.stopped, func(ctx context.Context) {
		answer <- d.owner.missingSchedulers(ctx, names)
	})
	if err != nil {
		return nil, err
	}
	return append(errs, <-answer...), nil
}

// missingSchedulers says which schedulers the kernel does not have. Only the
// kernel knows, and only a service that uses one makes it tell.
func (o *owner) missingSchedulers(ctx context.Context, names []ipvs.Scheduler) []string {
	key := ipvs.MarkService(ipvs.IPv4, probeMark)
	if err := o.own([]ipvs.ServiceKey{key}); err != nil {
		return []string{err.Error()}
	}
	var errs []string
	gone := true // the service is known not to be in the table
	for _, name := range names {
		s := ipvs.Service{ServiceKey: key, Scheduler: name}
		err := o.engine.Apply(ctx, []ipvs.Op{{Kind: ipvs.OpAddService, Service: s}})
		switch {
		case errors.Is(err, ipvs.ErrSchedulerNotFound):
			errs = append(errs, fmt.Sprintf("scheduler %s: not in this kernel", name))
			continue
		case err != nil:
			errs = append(errs, fmt.Sprintf("scheduler %s: %v", name, err))
			gone = false
			continue
		}
		if err := o.engine.Apply(ctx, []ipvs.Op{{Kind: ipvs.OpDeleteService, Service: s}}); err != nil {
			errs = append(errs, fmt.Sprintf("scheduler %s: %v", name, err))
			gone = false
		}
	}
	// What is left of it is owned and not wanted: the next pass deletes it.
	if gone {
		o.disown([]ipvs.ServiceKey{key})
		if err := o.remember(); err != nil {
			errs = append(errs, err.Error())
		}
	}
	return errs
}
