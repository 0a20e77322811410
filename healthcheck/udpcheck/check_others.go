//go:build !linux

package udpcheck

import (
	"fmt"
	"net/netip"
	"runtime"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/expect"
)

func newChecker(Check, netip.AddrPort, healthcheck.Env, *expect.Matcher) (healthcheck.Checker, error) {
	return nil, fmt.Errorf("udp check: not supported on %s/%s", runtime.GOOS, runtime.GOARCH)
}
