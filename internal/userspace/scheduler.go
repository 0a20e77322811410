package userspace

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// tiesSeparator is between the name of a scheduler and what breaks its ties:
// "wlc:random".
const tiesSeparator = ":"

// schedulerName returns the name alone.
func schedulerName(s ipvs.Scheduler) ipvs.Scheduler {
	name, _, _ := strings.Cut(string(s), tiesSeparator)
	return ipvs.Scheduler(name)
}

// newTable returns the empty scheduler of a service.
func (e *Engine) newTable(s *ipvs.Service) (*sched.Table, error) {
	name, o, err := e.scheduler(s)
	if err != nil {
		return nil, err
	}
	t, err := sched.New(name, o)
	if err != nil {
		return nil, noScheduler(err)
	}
	return t, nil
}

// scheduler returns what a service asks for.
func (e *Engine) scheduler(s *ipvs.Service) (string, sched.Options, error) {
	o := sched.Options{Overhead: e.opt.Overhead, Rand: e.rand, Now: e.clock}
	name, ties, found := strings.Cut(string(s.Scheduler), tiesSeparator)
	if found {
		if err := o.Ties.UnmarshalText([]byte(ties)); err != nil {
			return "", o, noScheduler(err)
		}
	}
	// sh and mh have the same bits.
	if name == "sh" || name == "mh" {
		o.Fallback = s.Flags&ipvs.FlagSHFallback != 0
		o.Port = s.Flags&ipvs.FlagSHPort != 0
	}
	return name, o, nil
}

// sameScheduler says whether two configurations of a service schedule alike, so
// that cursors and caches may stay.
func sameScheduler(a, b *ipvs.Service) bool {
	const flags = ipvs.FlagSched1 | ipvs.FlagSched2 | ipvs.FlagSched3
	return a.Scheduler == b.Scheduler && a.Flags&flags == b.Flags&flags
}

// readsSignals says whether a scheduler needs requests and response times.
func readsSignals(s ipvs.Scheduler) bool {
	name := string(schedulerName(s))
	for _, info := range sched.Schedulers() {
		if info.Name == name {
			return info.Signals
		}
	}
	return false
}

func noScheduler(err error) error {
	if errors.Is(err, sched.ErrUnknown) {
		err = errors.New("the userspace engine has none of that name")
	}
	return fmt.Errorf("%w (%w): %w", ipvs.ErrSchedulerNotFound, err, syscall.ENOENT)
}
