package sched

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"
)

// Errors that a caller can test for with errors.Is.
var (
	// ErrUnknown is returned for a name that no scheduler has.
	ErrUnknown = errors.New("unknown scheduler")
	// ErrOption is returned for an option that makes no sense with the
	// scheduler, or one that it needs and does not have.
	ErrOption = errors.New("option not possible")
)

// State is how a connection is counted.
type State uint8

// States of a connection.
const (
	// Uncounted is a one-packet datagram, or a connection that is gone or not
	// known yet.
	Uncounted State = iota
	// Inactive is a closing connection or a datagram flow.
	Inactive
	// Active is an opening or established connection.
	Active
)

// String returns "uncounted", "inactive" or "active".
func (s State) String() string {
	switch s {
	case Uncounted:
		return "uncounted"
	case Inactive:
		return "inactive"
	case Active:
		return "active"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Config is what the operator or a health check sets of a real server.
type Config struct {
	// Weight is the share of new connections, up to 2^31-1 as in the kernel;
	// more counts as that. 0 quiesces: no new connections, old ones live.
	Weight uint32
	// Upper is the number of connections, active and inactive, at which the
	// server is overloaded and gets no new ones. 0 is no limit.
	Upper uint32
	// Lower is the number below which an overloaded server gets connections
	// again. 0 means three quarters of Upper.
	Lower uint32
}

// Options are the settings of a table's scheduler. The zero value is what the
// kernel does where it needs no more.
type Options struct {
	// Overhead is the kernel whose idea of load and overload to follow.
	Overhead Overhead
	// Ties is who wins among servers with equal load.
	Ties Ties
	// Fallback lets sh and mh choose another server when the hashed one is not
	// available (the flags sh-fallback and mh-fallback).
	Fallback bool
	// Port lets sh, mh and ring hash the source port too (sh-port and mh-port).
	Port bool
	// Rand is the source of random numbers, for the schedulers that draw and
	// for Ties random. New refuses where it is needed and nil.
	Rand rand.Source
	// Now is a monotonic clock, for the schedulers whose memory fades. New
	// refuses where it is needed and nil.
	Now func() time.Duration
	// Expiration is how long lblc and lblcr remember an address that is not used,
	// and how long an unchanged set of lblcr lasts (lblc_expiration and
	// lblcr_expiration below net.ipv4.vs). 0 is 24 hours.
	Expiration time.Duration
}

// Packet is what a scheduler reads of the first packet of a connection. Only the
// hash and cache family reads it; for others it may be nil.
type Packet struct {
	// Src and Dst are the client's and the virtual service's addresses.
	Src, Dst netip.Addr
	// SrcPort and DstPort are in host order, 0 where the protocol has none.
	SrcPort, DstPort uint16
	// Protocol is the IP protocol number.
	Protocol uint8
}
