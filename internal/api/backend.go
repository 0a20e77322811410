package api

import (
	"context"
	"errors"
	"iter"
)

// Errors of a Backend that have their own HTTP status, and that the errors of a
// Client match.
var (
	// ErrNotFound is a name that lbd does not know: 404.
	ErrNotFound = errors.New("not found")
	// ErrUnavailable is a daemon that cannot answer now, because it starts or
	// stops: 503.
	ErrUnavailable = errors.New("not available now")
)

// Backend is what the server asks and tells. Its methods are called
// concurrently, return soon after their context ends, and leave what they
// return unchanged afterwards. A nil list is an empty one.
type Backend interface {
	Status(ctx context.Context) (Status, error)
	// Services returns every service in the table, the foreign ones last.
	Services(ctx context.Context) ([]Service, error)
	// Table reads what the engine holds now: every service by its key, with its
	// real servers in the engine's order.
	Table(ctx context.Context) ([]Service, error)
	// Connections reads the engine's connections as they are asked for, and ends
	// with an error or without. It is read by one goroutine, and holds up nobody
	// while that takes its time. The error matches ErrNotFound if there is no such
	// service.
	Connections(ctx context.Context, q ConnectionQuery) (iter.Seq2[Connection, error], error)
	// Events returns what is kept of the events after a number, all where none has
	// it, and a channel that is closed when there are more.
	Events(since uint64) (events []Event, more <-chan struct{})
	// Explain says who would get the next connection of a service, which is named
	// by its name or its key. The error matches ErrNotFound if there is none.
	Explain(ctx context.Context, service string) (Explanation, error)
	// SetAdmin changes what is said of real servers, on behalf of a peer. The
	// request is valid. The error matches ErrNotFound if there is no such real
	// server.
	SetAdmin(ctx context.Context, t AdminTarget, r AdminRequest, by Peer) (AdminResult, error)
	// Doctor looks at the host.
	Doctor(ctx context.Context) (Diagnosis, error)
	// Check says what is wrong with a configuration on this host. An unusable
	// file is a report, not an error.
	Check(ctx context.Context, f File) (CheckReport, error)
	// Diff returns what a load of the configuration would write, and writes
	// nothing.
	Diff(ctx context.Context, f File) (Plan, error)
	// Reload loads lbd's own file again. A refused file is a result, not an error.
	Reload(ctx context.Context) (ReloadResult, error)
	// ReloadNow does so and drains nothing: real servers that left the file, now or
	// before, are deleted at once.
	ReloadNow(ctx context.Context) (ReloadResult, error)
	// Reconcile makes one pass over the table now.
	Reconcile(ctx context.Context) (ReconcileResult, error)
}
