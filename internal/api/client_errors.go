package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// ErrNotRunning is a socket on which nobody listens.
var ErrNotRunning = errors.New("lbd is not running")

// StatusError is an error that lbd answered.
type StatusError struct {
	// Code is the HTTP status.
	Code int
	// Message is lbd's.
	Message string
}

// Error returns the message.
func (e *StatusError) Error() string { return e.Message }

// Is matches ErrNotFound and ErrUnavailable by the status.
func (e *StatusError) Is(target error) bool {
	switch target {
	case ErrNotFound:
		return e.Code == http.StatusNotFound
	case ErrUnavailable:
		return e.Code == http.StatusServiceUnavailable
	}
	return false
}

func newStatusError(code int, body []byte) error {
	var e Error
	if err := json.Unmarshal(body, &e); err != nil || e.Error == "" {
		e.Error = fmt.Sprintf("lbd answers %d %s", code, http.StatusText(code))
	}
	return &StatusError{Code: code, Message: e.Error}
}

// unreachableError is a call that got no answer. It prints for people and keeps
// the cause for programs.
type unreachableError struct {
	text   string
	causes []error
}

func (e *unreachableError) Error() string   { return e.text }
func (e *unreachableError) Unwrap() []error { return e.causes }

// unreachable says why lbd does not answer and what to do about it.
func (c *Client) unreachable(err error) error {
	// Drop the made-up URL.
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	const start = "is it running? systemctl start lbd"
	silent := "lbd does not answer on " + c.socket
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &unreachableError{silent + ": there is no such socket; " + start, []error{ErrNotRunning, err}}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &unreachableError{silent + ": connection refused; " + start, []error{ErrNotRunning, err}}
	case errors.Is(err, fs.ErrPermission):
		return &unreachableError{"no permission to use " + c.socket + ": " + c.who(), []error{err}}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return &unreachableError{fmt.Sprintf("%s within %v; what is it doing? journalctl -u lbd", silent, c.timeout),
			[]error{context.DeadlineExceeded, err}}
	case errors.Is(err, context.Canceled):
		return err
	default:
		return &unreachableError{fmt.Sprintf("%s: %v; is it lbd's socket?", silent, err), []error{err}}
	}
}

// who says who may use the socket.
func (c *Client) who() string {
	info, err := os.Stat(c.socket)
	if err != nil {
		return "run as root"
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode().Perm()&0o060 != 0o060 || st.Gid == 0 {
		return "run as root"
	}
	gid := strconv.FormatUint(uint64(st.Gid), 10)
	group := gid
	if g, err := user.LookupGroupId(gid); err == nil {
		group = g.Name
	}
	return "run as root or as a member of the group " + group
}
