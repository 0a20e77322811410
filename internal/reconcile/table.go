package reconcile

import (
	"context"

	"github.com/lbd-project/lbd/ipvs"
)

// Table is an engine: virtual services, real servers and their counts. An
// ipvs.Client is one.
type Table interface {
	// Table returns everything the engine holds, services by key, real servers
	// in list order.
	Table(ctx context.Context) ([]ipvs.TableEntry, error)
	// Apply executes ops in order. A *ipvs.BatchError names those that failed,
	// all others took effect; after any other error the outcome is unknown.
	Apply(ctx context.Context, ops []ipvs.Op) error
}
