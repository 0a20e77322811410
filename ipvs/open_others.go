//go:build !linux

package ipvs

import (
	"fmt"
	"runtime"
)

// Open fails: only Linux has IPVS.
func Open(...Option) (*Client, error) {
	return nil, &Error{Op: "open", Err: fmt.Errorf("%w on %s/%s", ErrNotAvailable, runtime.GOOS, runtime.GOARCH)}
}
