package icmpcheck

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/lbd-project/lbd/healthcheck"
)

// The limits of Size: the random bytes that mark a request, and what an IPv4
// packet can have besides its header and that of ICMP.
const (
	MinSize     = nonceLen
	MaxSize     = 1<<16 - 1 - 20 - headerLen
	DefaultSize = 56
)

// Check sends one echo request. The zero value is that of ping(8): 56 bytes.
type Check struct {
	// Via is how the request leaves.
	Via healthcheck.Via
	// Size is how many bytes follow the ICMP header, MinSize to MaxSize; 0 is
	// DefaultSize. Where they need fragments, the packets may be fragmented.
	Size int
}

// Key returns a text of every option.
func (c Check) Key() string {
	return "icmp size=" + strconv.Itoa(c.size()) + c.Via.Key()
}

func (c Check) size() int {
	if c.Size == 0 {
		return DefaultSize
	}
	return c.Size
}

// NewChecker returns a checker of the host at target, whose port is ignored. It
// returns an error on systems other than Linux.
func (c Check) NewChecker(target netip.AddrPort, env healthcheck.Env) (healthcheck.Checker, error) {
	addr := target.Addr().Unmap()
	if err := c.Via.Validate(addr); err != nil {
		return nil, fmt.Errorf("icmp check: %w", err)
	}
	if size := c.size(); size < MinSize || size > MaxSize {
		return nil, fmt.Errorf("icmp check: size %d is not within %d and %d", size, MinSize, MaxSize)
	}
	return newChecker(c.Via, env, addr, c.size())
}
