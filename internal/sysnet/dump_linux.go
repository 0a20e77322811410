package sysnet

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// dumpTries bounds the repetitions of a list that changed while it was read.
const dumpTries = 10

// retryDump repeats a list that changed while it was read.
func retryDump[T any](dump func() ([]T, error)) (list []T, err error) {
	for range dumpTries {
		list, err = dump()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return list, err
		}
	}
	return nil, err
}
