//go:build !linux

package healthcheck

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
)

var errSystem = fmt.Errorf("checks: not supported on %s/%s", runtime.GOOS, runtime.GOARCH)

// Socket needs Linux.
func (v Via) Socket(Env, int, int, int) (int, error) { return -1, errSystem }

// Bind needs Linux.
func (v Via) Bind(int) error { return errSystem }

// Dial needs Linux.
func (v Via) Dial(context.Context, Env, string, netip.AddrPort) (net.Conn, error) {
	return nil, errSystem
}
