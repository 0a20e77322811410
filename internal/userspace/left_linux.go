package userspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"

	"github.com/lbd-project/lbd/internal/userspace/ruleset"
)

// ClearLeft does what Clear does for an engine of which nobody knows more than the
// store, or not even that: a namespace may have its rules alone. It reports
// whether there was anything. No queue is taken, as their numbers may be of
// others by now. The error matches ErrRunning where an engine runs.
func ClearLeft(ctx context.Context, o Options) (found bool, err error) {
	if o.NetNS <= 0 {
		o.NetNS = -1
	}
	e, err := newEngine(o, rand.NewPCG(0, 0))
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	b, err := o.Store.Load()
	if err != nil {
		return false, fmt.Errorf("load the state: %w", err)
	}
	ro := ruleset.Options{NetNS: o.NetNS, Name: o.RulesName, Logger: e.log}
	left, err := ruleset.Left(ro)
	if errors.Is(err, fs.ErrPermission) && len(b) == 0 {
		e.log.Warn("rules of the userspace engine were not looked for", "err", err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !left && len(b) == 0 {
		return false, nil
	}
	if err := e.lockRules(); err != nil {
		return true, err
	}
	if len(b) > 0 {
		s, err := decodeStore(b)
		if err == nil {
			err = e.loadHost(s)
		}
		if err != nil {
			e.log.Warn("the state of the last userspace engine does not say what settings of the host were", "err", err)
		}
	}
	if e.rules, err = ruleset.Open(ctx, ro); err != nil {
		e.rules = nil
		return true, err
	}
	return true, e.Clear(ctx)
}
