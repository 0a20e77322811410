//go:build !linux

package filecheck

import (
	"fmt"
	"runtime"
)

func read(string, int) ([]byte, error) {
	return nil, fmt.Errorf("file checks are not supported on %s/%s", runtime.GOOS, runtime.GOARCH)
}
