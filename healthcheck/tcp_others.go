//go:build !linux

package healthcheck

import "net/netip"

func newTCPChecker(Via, netip.AddrPort, Env) (Checker, error) {
	return nil, errSystem
}
