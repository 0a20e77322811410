package ipvs

import (
	"context"
	"fmt"
	"time"
)

// Info is what the kernel says about IPVS itself.
type Info struct {
	// Version is the version of the interface, "1.2.1".
	Version string
	// ConnTableSize is the number of buckets of the connection hash table.
	ConnTableSize uint32
}

// Info returns the version of IPVS and the size of its connection table.
func (c *Client) Info(ctx context.Context) (info Info, err error) {
	err = c.run(ctx, func() error {
		return c.get(ctx, cmdGetInfo, cmdSetInfo, nil, func(b []byte) (err error) {
			info, err = decodeInfo(b)
			return err
		})
	})
	if err != nil {
		return Info{}, &Error{Op: "get info", Err: err}
	}
	return info, nil
}

func decodeInfo(b []byte) (info Info, err error) {
	var seen uint32
	a := attrs{b: b}
	for a.next() {
		switch a.typ {
		case infoVersion:
			v := a.u32("version")
			info.Version = fmt.Sprintf("%d.%d.%d", v>>16&0xff, v>>8&0xff, v&0xff) // NVERSION
			seen |= 1 << infoVersion
		case infoConnTabSize:
			info.ConnTableSize = a.u32("connection table size")
			seen |= 1 << infoConnTabSize
		}
	}
	if a.err == nil {
		a.err = missing(seen, infoVersion, infoConnTabSize)
	}
	if a.err != nil {
		return Info{}, fmt.Errorf("info: %w", a.err)
	}
	return info, nil
}

// Timeouts returns the global connection timeouts. One is zero where the kernel
// is built without the protocol.
func (c *Client) Timeouts(ctx context.Context) (t Timeouts, err error) {
	err = c.run(ctx, func() error {
		return c.get(ctx, cmdGetConfig, cmdSetConfig, nil, func(b []byte) (err error) {
			t, err = decodeTimeouts(b)
			return err
		})
	})
	if err != nil {
		return Timeouts{}, &Error{Op: "get timeouts", Err: err}
	}
	return t, nil
}

func decodeTimeouts(b []byte) (t Timeouts, err error) {
	a := attrs{b: b}
	for a.next() {
		switch a.typ {
		case attrTimeoutTCP:
			t.TCP = time.Duration(a.u32("tcp timeout")) * time.Second
		case attrTimeoutTCPFin:
			t.TCPFin = time.Duration(a.u32("tcp fin timeout")) * time.Second
		case attrTimeoutUDP:
			t.UDP = time.Duration(a.u32("udp timeout")) * time.Second
		}
	}
	if a.err != nil {
		return Timeouts{}, fmt.Errorf("timeouts: %w", a.err)
	}
	return t, nil
}

// Validate says why t cannot be set, or returns nil. How long a timeout may be
// is up to the kernel's HZ; the kernel answers EINVAL beyond it.
func (t Timeouts) Validate() error {
	for _, v := range []struct {
		name string
		d    time.Duration
	}{{"tcp", t.TCP}, {"tcp fin", t.TCPFin}, {"udp", t.UDP}} {
		switch {
		case v.d < 0 || v.d/time.Second > 1<<31-1:
			return invalid("%s timeout %v is not between 0 and %d seconds", v.name, v.d, 1<<31-1)
		case v.d%time.Second != 0:
			return invalid("%s timeout %v is not in whole seconds", v.name, v.d)
		}
	}
	return nil
}

// SetTimeouts changes the global connection timeouts that are not zero. They are
// for established TCP connections, those in FIN_WAIT, and UDP; all others are
// fixed.
func (c *Client) SetTimeouts(ctx context.Context, t Timeouts) error {
	err := t.Validate()
	if err == nil {
		err = c.run(ctx, func() error {
			return c.request(ctx, cmdSetConfig, func(b []byte) []byte { return appendTimeouts(b, t) })
		})
	}
	if err != nil {
		return &Error{Op: "set timeouts", Err: err}
	}
	return nil
}

func appendTimeouts(b []byte, t Timeouts) []byte {
	b = appendU32(b, attrTimeoutTCP, uint32(t.TCP/time.Second))
	b = appendU32(b, attrTimeoutTCPFin, uint32(t.TCPFin/time.Second))
	return appendU32(b, attrTimeoutUDP, uint32(t.UDP/time.Second))
}

// Flush deletes every virtual service of the network namespace, whoever made
// it.
func (c *Client) Flush(ctx context.Context) error {
	err := c.run(ctx, func() error { return c.request(ctx, cmdFlush, nil) })
	if err != nil {
		return &Error{Op: "flush", Err: err}
	}
	return nil
}

// Zero sets the counters and rates of a service and of its real servers to
// zero. The connection counts stay. It fails with ErrServiceNotFound.
func (c *Client) Zero(ctx context.Context, k ServiceKey) error {
	err := k.check()
	if err == nil {
		err = c.run(ctx, func() error {
			return c.request(ctx, cmdZero, func(b []byte) []byte { return appendServiceKeyNest(b, k) })
		})
	}
	if err != nil {
		return &Error{Op: "zero service", Service: k, Err: err}
	}
	return nil
}

// ZeroAll does what Zero does for every service, and for the totals of
// /proc/net/ip_vs_stats.
func (c *Client) ZeroAll(ctx context.Context) error {
	err := c.run(ctx, func() error { return c.request(ctx, cmdZero, nil) })
	if err != nil {
		return &Error{Op: "zero all", Err: err}
	}
	return nil
}
