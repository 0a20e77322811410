package ipvs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/netip"
	"os"
	"strconv"
	"time"
)

// Connection is an entry of the kernel's connection table: a connection, or a
// template of persistence.
type Connection struct {
	// Protocol is zero for a template of a firewall mark service.
	Protocol Protocol
	// Client is where the connection comes from. The port of a template is 0,
	// its address masked by the service's netmask.
	Client netip.AddrPort
	// Virtual is the VIP. In a template of a firewall mark service the address
	// is the mark, as 32 bits.
	Virtual netip.AddrPort
	// Server is the real server.
	Server netip.AddrPort
	// State is the kernel's name of the state: ESTABLISHED, FIN_WAIT, UDP, NONE.
	State string
	// Expires is the time left, in whole seconds, unless a packet comes; zero
	// for an entry that is about to be deleted.
	Expires time.Duration
	// Engine and EngineData are the persistence engine's, empty for none. The
	// data of sip is the call's id, as the peer sent it.
	Engine, EngineData string
}

// maxConnectionLine bounds a line: 150 bytes at most for an IPv6 connection,
// and 16 + 255 of a persistence engine (IP_VS_PENAME_MAXLEN, IP_VS_PEDATA_MAXLEN).
const maxConnectionLine = 1024

const headingConnections = "Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData"

// Connections streams the connection table from /proc/net/ip_vs_conn, in no
// order. An error ends it. It is not a snapshot: entries that come and go
// meanwhile may be missed or come twice. The client can be used in the loop.
func (c *Client) Connections(ctx context.Context) iter.Seq2[Connection, error] {
	return func(yield func(Connection, error) bool) {
		fail := func(err error) { yield(Connection{}, &Error{Op: "read connections", Err: err}) }
		f, err := c.proc.open(connectionsFile)
		if errors.Is(err, os.ErrNotExist) {
			err = &kernelError{sentinel: ErrNotAvailable, hint: "is ip_vs loaded?", cause: err}
		}
		if err != nil {
			fail(err)
			return
		}
		defer f.Close()
		stopped := false
		err = readConnections(ctx, f, func(conn Connection) bool {
			stopped = !yield(conn, nil)
			return !stopped
		})
		if err != nil && !stopped {
			fail(err)
		}
	}
}

// readConnections reads the file a buffer at a time and calls visit for each
// entry until it returns false.
func readConnections(ctx context.Context, f io.ReaderAt, visit func(Connection) bool) error {
	buf := make([]byte, 64<<10)
	var at int64
	kept := 0 // bytes at the start of buf: the line that the last read cut
	for n := 1; ; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		m, err := f.ReadAt(buf[kept:], at)
		at += int64(m)
		if err != nil && err != io.EOF {
			return err
		}
		text := buf[:kept+m]
		for {
			line, rest, whole := bytes.Cut(text, []byte{'\n'})
			if !whole && len(line) <= maxConnectionLine && err == nil {
				break
			}
			if !whole && len(line) == 0 {
				return nil // at the end
			}
			conn, perr := parseConnection(n, line)
			switch {
			case !whole || len(line) > maxConnectionLine:
				perr = errors.New("line is cut short or too long")
			case n == 1 && string(line) != headingConnections:
				perr = errHeading
			}
			if perr != nil {
				const most = 160
				return fmt.Errorf("/proc/net/ip_vs_conn line %d %q: %w", n, line[:min(most, len(line))], perr)
			}
			if n > 1 && !visit(conn) {
				return nil
			}
			text = rest
			n++
		}
		kept = copy(buf, text)
	}
}

// parseConnection parses a line of ip_vs_conn_seq_show
// (net/netfilter/ipvs/ip_vs_conn.c); line 1 is the heading and is not parsed.
func parseConnection(n int, line []byte) (c Connection, err error) {
	if n == 1 {
		return c, nil
	}
	proto, rest := field(line)
	if c.Protocol, err = parseProtocol(proto); err != nil {
		return Connection{}, err
	}
	for _, to := range []*netip.AddrPort{&c.Client, &c.Virtual, &c.Server} {
		var addr, port []byte
		addr, rest = field(rest)
		port, rest = field(rest)
		a, ok := hexAddr(addr)
		p, ok2 := parseHex(port, 4)
		if !ok || !ok2 {
			return Connection{}, errAddress
		}
		*to = netip.AddrPortFrom(a, uint16(p))
	}
	state, rest := field(rest)
	if len(state) == 0 {
		return Connection{}, errors.New("no state")
	}
	c.State = stateName(state)
	expires, rest := field(rest)
	seconds, err := strconv.ParseUint(string(expires), 10, 64)
	if err != nil {
		return Connection{}, errors.New("expiry is not a 64-bit number")
	}
	// The kernel subtracts unsigned numbers: an entry that is about to be
	// deleted has a huge one.
	if seconds <= math.MaxInt32 {
		c.Expires = time.Duration(seconds) * time.Second
	}
	if len(rest) == 0 {
		return c, nil
	}
	engine, data := field(rest)
	c.Engine = string(engine)
	if len(data) > 0 {
		c.EngineData = string(data[1:]) // what it says after one space
	}
	return c, nil
}

// stateName returns a state's name without making a string for each connection.
func stateName(b []byte) string {
	switch string(b) {
	case "ESTABLISHED":
		return "ESTABLISHED"
	case "FIN_WAIT":
		return "FIN_WAIT"
	case "TIME_WAIT":
		return "TIME_WAIT"
	case "CLOSE":
		return "CLOSE"
	case "SYN_RECV":
		return "SYN_RECV"
	case "UDP":
		return "UDP"
	case "NONE":
		return "NONE"
	}
	return string(b)
}
