package sched

import "fmt"

// Overhead is the way in which a kernel weighs the connections of a real server
// in lc, wlc, twos, lblc and lblcr, and when it marks it overloaded. The kernel
// changed both in the middle of 2026 ("ipvs: add totalconns for dest", "ipvs:
// properly update the overload flag on dest edit"), in stable releases too.
type Overhead uint8

// Kernels' ways.
const (
	// OverheadTotal is 256 times the active connections plus all connections;
	// overload follows the thresholds at every change. Linux 6.1.187,
	// 6.12.105 and newer.
	OverheadTotal Overhead = iota
	// OverheadInactive is 256 times the active connections plus the inactive
	// ones; an edit can end overload, never begin it. Linux up to 6.1.176 and
	// others of that age.
	OverheadInactive
)

// Ties is who gets a connection among real servers with equal load.
type Ties uint8

// Tie rules.
const (
	// TiesFirst is the first in the list, which is the newest. As the kernel.
	TiesFirst Ties = iota
	// TiesRandom is any of them, all alike.
	TiesRandom
	// TiesRoundRobin is the one that was chosen least recently.
	TiesRoundRobin
)

// Names are what people write, in the order of the values.
var (
	overheadNames = [...]string{"total", "inactive"}
	tiesNames     = [...]string{"first", "random", "round-robin"}
)

// String returns "total" or "inactive".
func (o Overhead) String() string { return name(overheadNames[:], uint8(o), "Overhead") }

// MarshalText is String, or an error for a value that has no name.
func (o Overhead) MarshalText() ([]byte, error) {
	return marshal(overheadNames[:], uint8(o), "overhead")
}

// UnmarshalText reads "total" or "inactive".
func (o *Overhead) UnmarshalText(b []byte) error {
	return unmarshal(overheadNames[:], (*uint8)(o), b, "overhead")
}

// String returns "first", "random" or "round-robin".
func (t Ties) String() string { return name(tiesNames[:], uint8(t), "Ties") }

// MarshalText is String, or an error for a value that has no name.
func (t Ties) MarshalText() ([]byte, error) { return marshal(tiesNames[:], uint8(t), "tie rule") }

// UnmarshalText reads "first", "random" or "round-robin".
func (t *Ties) UnmarshalText(b []byte) error {
	return unmarshal(tiesNames[:], (*uint8)(t), b, "tie rule")
}

func name(names []string, v uint8, kind string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", kind, v)
}

func marshal(names []string, v uint8, kind string) ([]byte, error) {
	if int(v) < len(names) {
		return []byte(names[v]), nil
	}
	return nil, fmt.Errorf("no %s %d", kind, v)
}

func unmarshal(names []string, v *uint8, b []byte, kind string) error {
	for i, n := range names {
		if n == string(b) {
			*v = uint8(i)
			return nil
		}
	}
	return fmt.Errorf("no %s %q, want one of %q", kind, b, names)
}
