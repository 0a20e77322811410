package ipvs

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/mdlayher/netlink"
)

// TestErrnoMap is the whole cross product of commands and errnos: what is not in
// the table has no sentinel.
func TestErrnoMap(t *testing.T) {
	type pair struct {
		cmd   uint8
		errno syscall.Errno
	}
	want := map[pair]error{}
	add := func(errno syscall.Errno, is error, cmds ...uint8) {
		for _, c := range cmds {
			want[pair{c, errno}] = is
		}
	}
	add(syscall.EEXIST, ErrServiceExists, cmdNewService, cmdSetService, cmdDelService, cmdGetService, cmdZero)
	add(syscall.ESRCH, ErrServiceNotFound, cmdNewService, cmdSetService, cmdDelService, cmdGetService, cmdZero,
		cmdNewDest, cmdSetDest, cmdDelDest, cmdGetDest)
	add(syscall.ENOENT, ErrSchedulerNotFound, cmdNewService, cmdSetService, cmdDelService, cmdGetService, cmdZero)
	add(syscall.EEXIST, ErrDestinationExists, cmdNewDest, cmdSetDest, cmdDelDest, cmdGetDest)
	add(syscall.ENOENT, ErrDestinationNotFound, cmdNewDest, cmdSetDest, cmdDelDest, cmdGetDest)
	add(syscall.EEXIST, ErrSyncDaemonRunning, cmdNewDaemon, cmdDelDaemon, cmdGetDaemon)
	add(syscall.ESRCH, ErrSyncDaemonNotRunning, cmdNewDaemon, cmdDelDaemon, cmdGetDaemon)

	sentinels := []error{ErrServiceNotFound, ErrServiceExists, ErrDestinationNotFound, ErrDestinationExists,
		ErrSchedulerNotFound, ErrNotAvailable, ErrSyncDaemonRunning, ErrSyncDaemonNotRunning}
	errnos := []syscall.Errno{syscall.EPERM, syscall.ENOENT, syscall.ESRCH, syscall.EINTR, syscall.ENOMEM,
		syscall.EBUSY, syscall.EEXIST, syscall.ENODEV, syscall.EINVAL, syscall.ERANGE, syscall.EMSGSIZE,
		syscall.ENOPROTOOPT, syscall.EOPNOTSUPP, syscall.EAFNOSUPPORT, syscall.ENOBUFS}
	for cmd := uint8(cmdNewService); cmd <= cmdFlush; cmd++ {
		for _, errno := range errnos {
			err := fmt.Errorf("wrapped: %w", &Error{Op: "x", Err: answer{errno: errno}.error(cmd)})
			is := want[pair{cmd, errno}]
			for _, s := range sentinels {
				if got := errors.Is(err, s); got != (s == is) {
					t.Errorf("command %d, %v: errors.Is(%q, %v) is %v", cmd, errno, err, s, got)
				}
			}
			if !errors.Is(err, errno) {
				t.Errorf("command %d: %q does not unwrap to %v", cmd, err, errno)
			}
			if op, ok := errors.AsType[*netlink.OpError](err); !ok || op.Err != errno {
				t.Errorf("command %d: %q does not unwrap to a netlink error", cmd, err)
			}
			if got, want := errors.Is(err, fs.ErrNotExist), errno == syscall.ESRCH || errno == syscall.ENOENT; got != want {
				t.Errorf("command %d, %v: not-exist is %v, want %v", cmd, errno, got, want)
			}
			if got, want := errors.Is(err, fs.ErrExist), errno == syscall.EEXIST; got != want {
				t.Errorf("command %d, %v: exists is %v, want %v", cmd, errno, got, want)
			}
			if got, want := errors.Is(err, fs.ErrPermission), errno == syscall.EPERM; got != want {
				t.Errorf("command %d, %v: permission is %v, want %v", cmd, errno, got, want)
			}
		}
	}
}

func TestSentinelsAlone(t *testing.T) {
	for _, tt := range []struct {
		err   error
		is    error
		isNot error
	}{
		{ErrServiceNotFound, fs.ErrNotExist, fs.ErrExist},
		{ErrDestinationNotFound, fs.ErrNotExist, fs.ErrExist},
		{ErrServiceExists, fs.ErrExist, fs.ErrNotExist},
		{ErrDestinationExists, fs.ErrExist, fs.ErrNotExist},
		{syscall.ESRCH, fs.ErrNotExist, fs.ErrExist},
		{ErrNotAvailable, ErrNotAvailable, fs.ErrNotExist},
	} {
		err := &Error{Op: "x", Err: tt.err}
		if !errors.Is(err, tt.is) || errors.Is(err, tt.isNot) {
			t.Errorf("%v: is %v %v, is %v %v; want true, false", err, tt.is, errors.Is(err, tt.is), tt.isNot, errors.Is(err, tt.isNot))
		}
	}
}

func TestDecodeAnswer(t *testing.T) {
	build := func(flags uint16, errno int32, rest ...[]byte) message {
		b := netlinkHeader(nlmsgError, flags, 1)
		var n [4]byte
		b = append(b, n[:]...)
		setErrno(b[nlmsgHeaderLen:], errno)
		b = append(b, concat(rest...)...)
		endMessage(b, 0)
		var m message
		if _, err := m.parse(b); err != nil {
			t.Fatal(err)
		}
		return m
	}
	head := netlinkHeader(fakeFamily, flagRequest, 1)
	endMessage(head, 0)
	long := append(netlinkHeader(fakeFamily, flagRequest, 1), make([]byte, 21)...)
	endMessage(long, 0) // 37 bytes, which are padded
	msg := appendString(nil, errAttrMsg, "why")
	for _, tt := range []struct {
		name string
		m    message
		want answer
		err  bool
	}{
		{name: "ACK", m: build(0, 0, head)},
		{name: "errno", m: build(0, -3, head), want: answer{errno: syscall.ESRCH}},
		{name: "capped with words", m: build(flagCapped|flagAckTLVs, -22, head, msg), want: answer{syscall.EINVAL, "why"}},
		{name: "whole with words", m: build(flagAckTLVs, -22, long, []byte{0, 0, 0}, msg), want: answer{syscall.EINVAL, "why"}},
		{name: "words without flag", m: build(flagCapped, -22, head, msg), want: answer{errno: syscall.EINVAL}},
		{name: "empty words", m: build(flagCapped|flagAckTLVs, -22, head, attr(errAttrMsg)), want: answer{errno: syscall.EINVAL}},
		{name: "no header", m: build(0, -22), err: true},
		{name: "positive", m: build(0, 22, head), err: true},
		{name: "beyond MAX_ERRNO", m: build(0, -4096, head), err: true},
		{name: "request longer than answer", m: build(flagAckTLVs, -22, long[:nlmsgHeaderLen]), err: true},
		{name: "cut words", m: build(flagCapped|flagAckTLVs, -22, head, []byte{9, 0, 1, 0}), err: true},
	} {
		got, err := decodeAnswer(tt.m.flags, tt.m.payload)
		if got != tt.want || (err != nil) != tt.err {
			t.Errorf("%s: %+v, %v; want %+v, error %v", tt.name, got, err, tt.want, tt.err)
		}
	}
}
