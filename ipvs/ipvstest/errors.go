package ipvstest

import (
	"fmt"
	"syscall"

	"github.com/lbd-project/lbd/ipvs"
)

// The errors of the table: the kernel's errno, with the sentinel that a caller
// tests for where there is one.
var (
	errNoService         = fmt.Errorf("%w: %w", ipvs.ErrServiceNotFound, syscall.ESRCH)
	errServiceExists     = fmt.Errorf("%w: %w", ipvs.ErrServiceExists, syscall.EEXIST)
	errNoDestination     = fmt.Errorf("%w: %w", ipvs.ErrDestinationNotFound, syscall.ENOENT)
	errDestinationExists = fmt.Errorf("%w: %w", ipvs.ErrDestinationExists, syscall.EEXIST)
	errNoScheduler       = fmt.Errorf("%w: %w", ipvs.ErrSchedulerNotFound, syscall.ENOENT)
	// The kernel answers an unknown persistence engine as it does an unknown
	// scheduler, so nobody can tell the two apart.
	errNoEngine = errNoScheduler
	errGone     = fmt.Errorf("%w: %w", ipvs.ErrNotAvailable, syscall.ENOENT)
)

// Errors for which there is no sentinel.
const (
	errInvalid = syscall.EINVAL
	errRange   = syscall.ERANGE
	errFamily  = syscall.EAFNOSUPPORT
	errCommand = syscall.EOPNOTSUPP
	errLost    = syscall.ENOBUFS
)

// opError names the operation that failed.
func opError(op ipvs.Op, err error) *ipvs.Error {
	e := &ipvs.Error{Op: op.Kind.String(), Service: op.Service.ServiceKey, Err: err}
	switch op.Kind {
	case ipvs.OpAddDestination, ipvs.OpUpdateDestination, ipvs.OpDeleteDestination:
		e.Destination = op.Destination.Address
	}
	return e
}
