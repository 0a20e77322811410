//go:build !linux

package command

import (
	"context"
	"fmt"
	"runtime"
	"syscall"
)

func supported() error {
	return fmt.Errorf("not supported on %s/%s", runtime.GOOS, runtime.GOARCH)
}

// Exposed returns an error.
func Exposed(Spec) error { return supported() }

func currentUmask() int { return umask }

func signalGroup(int, syscall.Signal) error { return supported() }

func (c *Command) run(context.Context, []string) (Result, error) { return Result{}, supported() }
