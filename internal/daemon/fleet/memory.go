package fleet

import (
	"maps"
	"time"

	"github.com/lbd-project/lbd/ipvs"
)

// Memory is what one decision leaves for the next, besides Health. The zero value
// is that of a first start. Whoever gets one must not write to it.
type Memory struct {
	// Services are those of whose policies there is something to remember.
	Services map[ipvs.ServiceKey]ServiceMemory
	// Servers are those that were out, or have not been in for long.
	Servers map[ipvs.DestinationKey]ServerMemory
	// Ejections are those that are taken out for their connections, or were not long
	// ago.
	Ejections map[ipvs.DestinationKey]Ejection
}

// ServiceMemory is what is remembered of a virtual service.
type ServiceMemory struct {
	Quorum QuorumState
	// Backup says that the backup servers replaced the others, FailOpen that
	// health was ignored.
	Backup, FailOpen bool
}

// ServerMemory is what is remembered of a real server.
type ServerMemory struct {
	// Out says that it took no connections because it had failed or was
	// disabled: when that ends, its slow start begins.
	Out bool
	// Up is when that ended; zero once its slow start is over.
	Up time.Time
}

// Equal reports whether both say the same.
func (m Memory) Equal(o Memory) bool {
	return maps.Equal(m.Services, o.Services) &&
		maps.EqualFunc(m.Servers, o.Servers, func(a, b ServerMemory) bool { return a.Out == b.Out && a.Up.Equal(b.Up) }) &&
		maps.Equal(m.Ejections, o.Ejections)
}

// AlertKind is what happened to a virtual service.
type AlertKind uint8

// The kinds of alerts.
const (
	AlertQuorumHeld AlertKind = iota
	AlertQuorumLost
	AlertBackupIn
	AlertBackupOut
	AlertFailOpenBegin
	AlertFailOpenEnd
)

// String says it in words.
func (k AlertKind) String() string {
	return [...]string{
		"quorum held", "quorum lost", "backup servers in", "backup servers out",
		"health ignored", "health heeded again",
	}[k]
}

// Alert is a change of a virtual service from one decision to the next.
type Alert struct {
	Kind AlertKind
	// Service and Key are the name and the identity.
	Service string
	Key     ipvs.ServiceKey
	// First says that there was nothing to compare with: it is the first
	// decision of its kind about the service.
	First bool
	// Reason has the figures.
	Reason string
}
