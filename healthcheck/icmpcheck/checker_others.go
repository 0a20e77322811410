//go:build !linux

package icmpcheck

import (
	"fmt"
	"net/netip"
	"runtime"

	"github.com/lbd-project/lbd/healthcheck"
)

func newChecker(healthcheck.Via, healthcheck.Env, netip.Addr, int) (healthcheck.Checker, error) {
	return nil, fmt.Errorf("icmp check: not supported on %s/%s", runtime.GOOS, runtime.GOARCH)
}
