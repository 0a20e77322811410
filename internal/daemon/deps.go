package daemon

import (
	"context"
	"iter"
	"net/netip"
	"time"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/memory"
	"github.com/lbd-project/lbd/internal/memory/state"
	"github.com/lbd-project/lbd/internal/reconcile"
	"github.com/lbd-project/lbd/internal/sysnet"
	"github.com/lbd-project/lbd/ipvs"
)

// engineTimeout bounds one reading of the engine, passTimeout a whole pass. A
// call that hangs must not stop everything for ever.
const (
	engineTimeout = 20 * time.Second
	passTimeout   = 30 * time.Second
)

// Engine is a table with what the daemon needs of it besides. An ipvs.Client is
// one. Its methods are called concurrently.
type Engine interface {
	reconcile.Table
	// Counts returns the weight and the connection counts of every real server.
	Counts(ctx context.Context) ([]ipvs.DestinationCounts, error)
	// Connections streams the connection table. A slow reader holds up nothing.
	Connections(ctx context.Context) iter.Seq2[ipvs.Connection, error]
	// Timeouts returns the global timeouts, SetTimeouts changes those that are
	// not zero.
	Timeouts(ctx context.Context) (ipvs.Timeouts, error)
	SetTimeouts(ctx context.Context, t ipvs.Timeouts) error
}

// Sysctls are settings of an engine, by the last word of their names.
type Sysctls interface {
	// Sysctl reads net.ipv4.vs.NAME, SetSysctl writes it. The error matches
	// fs.ErrNotExist where there is none.
	Sysctl(name string) (int, error)
	SetSysctl(name string, value int) error
}

// Host is the machine in the network namespace of the engine: addresses and
// sysctls.
type Host interface {
	Sysctls
	// ListVIPs returns the addresses of an interface. AddVIPs and RemoveVIPs add
	// and remove host addresses and return those that they did; one that is
	// there to add, or is not there to remove, is no error.
	ListVIPs(dev string) ([]sysnet.VIP, error)
	AddVIPs(dev string, vips []netip.Addr) ([]netip.Addr, error)
	RemoveVIPs(dev string, vips []netip.Addr) ([]netip.Addr, error)
	// Conntrack returns how many connections the host tracks, and how many it may;
	// zero where nothing is tracked.
	Conntrack() (count, limit int, err error)
	// Warnings says what on the host would keep the services of a configuration
	// from working well, Errors what keeps it from being used at all.
	Warnings(c *config.Config) []string
	Errors(c *config.Config) []string
}

// Store keeps what must outlive the process but not the boot. A memory.Store is
// one.
type Store interface {
	Save(m memory.Memory) error
}

// OverrideStore keeps what operators said of real servers over restarts and
// reboots. A state.File is one.
type OverrideStore interface {
	Save(o state.Overrides) error
}

// VIP is an address on an interface.
type VIP struct {
	Interface string
	Address   netip.Addr
}
