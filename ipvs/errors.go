package ipvs

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"syscall"
)

// Errors that a caller can test for with errors.Is. The not-found errors also
// match fs.ErrNotExist, the exists errors fs.ErrExist.
var (
	ErrServiceNotFound     = errors.New("service not found")
	ErrServiceExists       = errors.New("service exists")
	ErrDestinationNotFound = errors.New("real server not found")
	ErrDestinationExists   = errors.New("real server exists")
	ErrSchedulerNotFound   = errors.New("scheduler not found")
	ErrNotAvailable        = errors.New("IPVS not available")

	ErrSyncDaemonRunning    = errors.New("sync daemon is running already")
	ErrSyncDaemonNotRunning = errors.New("sync daemon is not running")
)

// Error is a failed operation. Err is one of the sentinels above wrapped with
// the kernel's error, or the kernel's error alone.
type Error struct {
	// Op is what failed, such as "add destination".
	Op string
	// Service is the service it was about; the zero key for none.
	Service ServiceKey
	// Destination is the real server it was about; the zero AddrPort for none.
	Destination netip.AddrPort
	// Err is the reason.
	Err error
}

// Error prints "add destination 10.0.0.1:80 to TCP 192.0.2.1:80: reason".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Destination.IsValid() {
		fmt.Fprintf(&b, " %v of", e.Destination)
	}
	if e.Service != (ServiceKey{}) {
		fmt.Fprintf(&b, " %v", e.Service)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	return b.String()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Is matches fs.ErrNotExist and fs.ErrExist for the not-found and the exists
// errors. ESRCH, with which the kernel says that a service does not exist, does
// not match fs.ErrNotExist by itself.
func (e *Error) Is(target error) bool {
	switch target {
	case fs.ErrNotExist:
		return errors.Is(e.Err, ErrServiceNotFound) || errors.Is(e.Err, ErrDestinationNotFound) ||
			errors.Is(e.Err, syscall.ESRCH)
	case fs.ErrExist:
		return errors.Is(e.Err, ErrServiceExists) || errors.Is(e.Err, ErrDestinationExists)
	}
	return false
}

// BatchError is returned by Apply when the table answered every operation and
// some failed; all others took effect.
type BatchError struct {
	// Failed lists the failed operations in ascending Index.
	Failed []FailedOp
}

// FailedOp is one failed operation of a batch.
type FailedOp struct {
	// Index is the operation's place in the slice given to Apply.
	Index int
	// Err is why.
	Err *Error
}

// Error prints the first failure and how many more there were.
func (e *BatchError) Error() string {
	if len(e.Failed) == 1 {
		return e.Failed[0].Err.Error()
	}
	return fmt.Sprintf("%v (and %d more)", e.Failed[0].Err, len(e.Failed)-1)
}

// Unwrap returns the errors of the failed operations.
func (e *BatchError) Unwrap() []error {
	errs := make([]error, len(e.Failed))
	for i, f := range e.Failed {
		errs[i] = f.Err
	}
	return errs
}
