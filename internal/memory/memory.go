package memory

import (
	"net/netip"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/ipvs"
)

// Memory is what lbd knows. The zero value knows nothing.
type Memory struct {
	// NetNS is the network namespace that everything below is in, as in the
	// configuration; empty for lbd's own.
	NetNS string
	// Engine is the engine that holds the services, as in the configuration;
	// empty for the kernel, which an lbd before the userspace engine used.
	Engine string
	// Marks are those that the userspace engine's rules use; zero for another
	// engine.
	Marks Marks
	// Owned are the services that lbd has called its own.
	Owned map[ipvs.ServiceKey]struct{}
	// Health is the last decision about each checked real server: true for down,
	// false for up. DownFor is for how long those that are down have been so: at
	// Save until then, after Load with the time since Save.
	Health  map[ipvs.DestinationKey]bool
	DownFor map[ipvs.DestinationKey]time.Duration
	// Advice is what checks last heard of real servers beside their health, without
	// the reasons, by a name of what each check looks at.
	Advice map[string]healthcheck.Advice
	// Policies are what the policies of virtual services came to.
	Policies map[ipvs.ServiceKey]Policy
	// Returns are the real servers that took no connections for a while, or come
	// back from that.
	Returns map[ipvs.DestinationKey]Return
	// Order is the list order of the real servers of a service, the newest
	// first, where it is not that of the configuration.
	Order map[ipvs.ServiceKey][]netip.AddrPort
	// Drains are the real servers that left the configuration and still have
	// connections, in the order in which they left.
	Drains []Drain
	// Sysctls are the values of net.ipv4.vs.* before lbd changed them, by their
	// last word.
	Sysctls map[string]int
	// Timeouts are the engine's before lbd changed them; zero where it did not.
	Timeouts ipvs.Timeouts
	// VIPs are the addresses that lbd added.
	VIPs map[VIP]struct{}
	// Paths says that lbd made rules for checks through services.
	Paths bool
}

// Marks are the bits of packet and connection marks that an engine writes, and
// the queues that its rules name.
type Marks struct {
	// Mask names a real server, State is of connection marks alone.
	Mask, State uint32
	// Queue is the number of the first queue, Queues how many there are.
	Queue  uint16
	Queues int
}

// Policy is what the policies of a virtual service came to.
type Policy struct {
	// Quorum is QuorumHeld or QuorumLost; empty while it is not known.
	Quorum string
	// Backup says that the backup servers replaced the others, FailOpen that
	// health was ignored.
	Backup, FailOpen bool
}

// The states of a quorum.
const (
	QuorumHeld = "held"
	QuorumLost = "lost"
)

// Return is a real server that took no connections because it had failed or was
// disabled, or that comes back from that.
type Return struct {
	// Out says that it takes none, Back that it came back.
	Out, Back bool
	// For is how long it has been back, counted as DownFor; 0 unless Back.
	For time.Duration
}

// Drain is a real server that drains.
type Drain struct {
	// Name is the service's in the configuration that the server left.
	Name string
	// Service is the service as it was then.
	Service ipvs.Service
	// Destination is the server with its weight of then.
	Destination ipvs.Destination
	// Remaining is the time until the drain ends whatever is connected, at least
	// 0: at Save from then on, after Load without the time since Save.
	Remaining time.Duration
}

// VIP is an address on an interface.
type VIP struct {
	Interface string
	// Prefix is the address with its prefix length, such as 192.0.2.10/32.
	Prefix netip.Prefix
}
