package state

import (
	"time"

	"github.com/lbd-project/lbd/ipvs"
)

// The modes of an Override.
const (
	ModeNone    = "none"
	ModeDrain   = "drain"
	ModeDisable = "disable"
)

// Override is what an operator said of a real server. The zero value says
// nothing.
type Override struct {
	// Mode is ModeDrain or ModeDisable; empty or ModeNone for neither.
	Mode string
	// Weight takes the place of the configured weight; nil for none.
	Weight *Weight
	// Configured is the configured weight when Weight was set.
	Configured uint32
	// By and At say who said it, and when by the wall clock, for people.
	By string
	At time.Time
	// Deadline is when a drain should be done, for people; zero for never.
	Deadline time.Time
}

// Weight is a weight, or a way from one to another.
type Weight struct {
	From, To uint32
	// Over is how long the way takes, 0 for none; Elapsed how long it has gone on:
	// at Save until then, after Load with the time since Save in the same boot.
	Over, Elapsed time.Duration
}

// Overrides are what operators said, by real server.
type Overrides map[ipvs.DestinationKey]Override

// maxWeight is the greatest weight that lbd programs.
const maxWeight = 65535

// maxText bounds the name of who said something.
const maxText = 200
