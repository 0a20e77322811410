package nfqueue

import "errors"

var (
	// ErrInUse is returned by Open where another socket holds the queue's number.
	ErrInUse = errors.New("queue number in use")
	// ErrGone is returned by Run when the kernel no longer has the queue. The
	// caller opens it anew.
	ErrGone = errors.New("queue is gone")
)
