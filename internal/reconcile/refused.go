package reconcile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/lbd-project/lbd/ipvs"
)

// final says whether an error ends a pass: nothing that the pass does can help.
func final(err error) bool {
	return errors.Is(err, ipvs.ErrNotAvailable) || errors.Is(err, fs.ErrPermission) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// invalid says whether the engine will never take an operation that failed so.
func invalid(err error) bool {
	if errors.Is(err, ipvs.ErrSchedulerNotFound) {
		return true
	}
	for _, errno := range []syscall.Errno{syscall.EINVAL, syscall.ERANGE, syscall.EAFNOSUPPORT, syscall.EOPNOTSUPP} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// refusals are the operations of a pass that the engine will never take. The
// zero value has none.
type refusals struct {
	errs []error
	ops  map[refusal]struct{}
}

// refusal identifies an operation; a service that cannot be added has the zero
// address and takes its real servers with it.
type refusal struct {
	kind ipvs.OpKind
	key  ipvs.DestinationKey
}

// add notes a failed operation and reports whether it is not worth another try.
func (r *refusals) add(c *Change, err error) bool {
	if r.orphan(c) {
		return true
	}
	if !invalid(err) {
		return false
	}
	if r.ops == nil {
		r.ops = make(map[refusal]struct{})
	}
	r.ops[refusalOf(c)] = struct{}{}
	r.errs = append(r.errs, err)
	return true
}

// drop returns the changes without those that were refused before, for each of
// which it calls dropped.
func (r *refusals) drop(changes []Change, dropped func(*Change)) []Change {
	if len(r.ops) == 0 {
		return changes
	}
	var kept []Change
	for i := range changes {
		c := &changes[i]
		if _, ok := r.ops[refusalOf(c)]; !ok && !r.orphan(c) {
			kept = append(kept, *c)
		} else {
			dropped(c)
		}
	}
	return kept
}

// orphan says whether the change is of a real server whose service was refused.
func (r *refusals) orphan(c *Change) bool {
	if c.Kind != ipvs.OpAddDestination {
		return false
	}
	_, ok := r.ops[refusal{ipvs.OpAddService, ipvs.DestinationKey{Service: c.Op.Service.ServiceKey}}]
	return ok
}

func (r *refusals) err() error { return summary(r.errs) }

func refusalOf(c *Change) refusal {
	return refusal{c.Kind, ipvs.DestinationKey{Service: c.Op.Service.ServiceKey, Address: c.Destination.Address}}
}

// summary is the first of errs and how many more there were; nil for none. It
// matches what any of them matches.
func summary(errs []error) error {
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return &errorList{errs}
}

type errorList struct{ errs []error }

func (e *errorList) Error() string {
	return fmt.Sprintf("%v (and %d more)", e.errs[0], len(e.errs)-1)
}

func (e *errorList) Unwrap() []error { return e.errs }
