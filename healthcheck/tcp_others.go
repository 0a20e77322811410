//go:build !linux

package healthcheck

import (
	"fmt"
	"net/netip"
	"runtime"
)

func newTCPChecker(netip.AddrPort, Env) (Checker, error) {
	return nil, fmt.Errorf("tcp check: not supported on %s/%s", runtime.GOOS, runtime.GOARCH)
}
