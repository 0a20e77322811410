package conntrack

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

var (
	// ErrOverrun says that the kernel had events and no room for them: the flows
	// that they told of have to be read from the table.
	ErrOverrun = errors.New("conntrack events were lost")

	// ErrInterrupted says that the table changed under a dump so that entries may
	// have been left out (NLM_F_DUMP_INTR).
	ErrInterrupted = errors.New("conntrack dump was interrupted")

	// ErrUnboundFlush refuses a Delete that could reach more than marked flows.
	ErrUnboundFlush = errors.New("refused to flush conntrack entries without a mark")

	// ErrNotFound says that the flow has no entry. It matches fs.ErrNotExist.
	ErrNotFound = fmt.Errorf("no such conntrack entry: %w", fs.ErrNotExist)
)

// errMalformed is what the decoders' errors match.
var errMalformed = errors.New("malformed netlink message")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMalformed, fmt.Sprintf(format, args...))
}

// hint adds to an error what it usually means.
func hint(err error) error {
	if errors.Is(err, syscall.EPERM) {
		return fmt.Errorf("%w (needs CAP_NET_ADMIN)", err)
	}
	return err
}
