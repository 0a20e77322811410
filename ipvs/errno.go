package ipvs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/mdlayher/netlink"
)

// errNoScheduler is what an empty scheduler name gives, in the kernel too.
var errNoScheduler = &kernelError{sentinel: ErrSchedulerNotFound, cause: syscall.ENOENT}

// kernelError is an answer of the kernel. It unwraps to the sentinel, if there
// is one, and to the netlink error and its errno.
type kernelError struct {
	// sentinel is what a caller tests for, nil for none.
	sentinel error
	// hint is what to do about it, or empty.
	hint  string
	cause error
}

func (e *kernelError) Error() string {
	var text string
	if e.sentinel != nil {
		text = e.sentinel.Error()
	} else {
		text = errnoText(e.cause)
	}
	if e.hint != "" {
		text += " (" + e.hint + ")"
	}
	if op, ok := errors.AsType[*netlink.OpError](e.cause); ok && op.Message != "" {
		text += ": " + op.Message
	}
	return text
}

func (e *kernelError) Unwrap() []error {
	// A missing family is ENOENT, which would make it match fs.ErrNotExist: then
	// everything would look deleted because nothing can be asked.
	switch {
	case e.sentinel == ErrNotAvailable:
		return []error{e.sentinel}
	case e.sentinel != nil:
		return []error{e.sentinel, e.cause}
	}
	return []error{e.cause}
}

// errnoText returns the text of the errno alone: the netlink package's text
// repeats what this package's errors say already.
func errnoText(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return err.Error()
}

// mapErrno makes the error of an errno that a command was answered with. What an
// errno means depends on the command: ENOENT is "no scheduler" for a service and
// "no real server" for a real server (ip_vs_ctl.c; ipvsadm's libipvs.c has the
// same table).
func mapErrno(cmd uint8, cause error) error {
	errno, _ := errors.AsType[syscall.Errno](cause)
	e := &kernelError{cause: cause}
	switch errno {
	case syscall.EPERM:
		e.hint = "needs CAP_NET_ADMIN"
		return e
	case syscall.EAFNOSUPPORT:
		e.hint = "is IPv6 enabled?"
		return e
	case syscall.EOPNOTSUPP:
		e.hint = "this kernel's ip_vs does not know the command"
		return e
	}
	switch cmd {
	case cmdNewService, cmdSetService, cmdDelService, cmdGetService, cmdZero:
		e.hint, e.sentinel = serviceErrno(errno)
	case cmdNewDest, cmdSetDest, cmdDelDest, cmdGetDest:
		e.hint, e.sentinel = destErrno(errno)
	case cmdNewDaemon, cmdDelDaemon, cmdGetDaemon:
		e.hint, e.sentinel = daemonErrno(errno)
	case cmdSetConfig:
		if errno == syscall.EINVAL {
			e.hint = "a timeout is too large"
		}
	}
	return e
}

func serviceErrno(errno syscall.Errno) (hint string, sentinel error) {
	switch errno {
	case syscall.EEXIST:
		return "", ErrServiceExists
	case syscall.ESRCH:
		return "", ErrServiceNotFound
	case syscall.ENOENT:
		// ip_vs_add_service answers so for an unknown persistence engine too.
		return "", ErrSchedulerNotFound
	case syscall.EINVAL:
		return "check the netmask or prefix length and the names of scheduler and persistence engine", nil
	case syscall.ENOPROTOOPT:
		return "the ip_vs module is being unloaded", nil
	}
	return "", nil
}

func destErrno(errno syscall.Errno) (hint string, sentinel error) {
	switch errno {
	case syscall.EEXIST:
		return "", ErrDestinationExists
	case syscall.ESRCH:
		return "", ErrServiceNotFound
	case syscall.ENOENT:
		return "", ErrDestinationNotFound
	case syscall.ERANGE:
		return "the weight is negative or the lower threshold above the upper", nil
	case syscall.EINVAL:
		return "the address must be a host's that this one can route to; another family than the service's" +
			" needs the Tunnel method and no running sync daemon; gue needs a port", nil
	}
	return "", nil
}

func daemonErrno(errno syscall.Errno) (hint string, sentinel error) {
	switch errno {
	case syscall.EEXIST:
		return "", ErrSyncDaemonRunning
	case syscall.ESRCH:
		return "", ErrSyncDaemonNotRunning
	case syscall.ENODEV:
		return "the multicast interface does not exist", nil
	case syscall.EINVAL:
		return "check the multicast group; real servers of another family than their service exclude sync daemons", nil
	}
	return "", nil
}

// Faults of an exchange, after which nobody knows what the kernel did or will
// still send: the socket is replaced.
var (
	errShort       = errors.New("message is cut short")
	errUnexpected  = errors.New("reply to another request")
	errUnknownType = errors.New("reply of an unknown type")
	errInterrupted = errors.New("table changed during the dump")
)

// answer is a decoded NLMSG_ERROR or NLMSG_DONE message.
type answer struct {
	errno   syscall.Errno // 0 for success
	message string        // the kernel's own words, mostly empty
}

// decodeAnswer decodes the payload of an NLMSG_ERROR message: a negative errno,
// the header of the request and, where the flags say so, attributes.
func decodeAnswer(flags uint16, payload []byte) (answer, error) {
	if len(payload) < 4+nlmsgHeaderLen {
		return answer{}, errShort
	}
	ans, err := decodeErrno(payload)
	if err != nil || flags&flagAckTLVs == 0 || ans.errno == 0 {
		return ans, err
	}
	// The request's payload lies between its header and the attributes unless
	// the answer is capped.
	rest := payload[4:]
	skip := uint32(nlmsgHeaderLen)
	if flags&flagCapped == 0 {
		skip = binary.NativeEndian.Uint32(rest)
	}
	if skip < nlmsgHeaderLen || uint64(skip) > uint64(len(rest)) {
		return answer{}, errShort
	}
	a := attrs{b: rest[min((int(skip)+3)&^3, len(rest)):]}
	for a.next() {
		if a.typ == errAttrMsg && len(a.val) > 0 {
			ans.message = string(a.val[:len(a.val)-1])
		}
	}
	if a.err != nil {
		return answer{}, a.err
	}
	return ans, nil
}

// decodeErrno decodes the number that NLMSG_ERROR and NLMSG_DONE begin with.
func decodeErrno(payload []byte) (answer, error) {
	if len(payload) < 4 {
		return answer{}, errShort
	}
	n := int32(binary.NativeEndian.Uint32(payload))
	if n > 0 || n < -4095 { // MAX_ERRNO
		return answer{}, fmt.Errorf("reply has the impossible errno %d", -int64(n))
	}
	return answer{errno: syscall.Errno(-n)}, nil
}

// error returns the error of an answer that is a failure.
func (a answer) error(cmd uint8) error {
	return mapErrno(cmd, &netlink.OpError{Op: "receive", Err: a.errno, Message: a.message})
}
