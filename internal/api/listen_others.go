//go:build !linux

package api

import (
	"errors"
	"runtime"
	"syscall"
)

// closeMode fails: the server runs on Linux only.
func closeMode(_, _ string, _ syscall.RawConn) error {
	return errors.New("not supported on " + runtime.GOOS + "/" + runtime.GOARCH)
}
