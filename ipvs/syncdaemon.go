package ipvs

import (
	"context"
	"fmt"
	"net/netip"
)

// SyncState is the role of a connection sync daemon. Both can run at once.
type SyncState uint8

// The roles.
const (
	SyncMaster SyncState = 1 // IP_VS_STATE_MASTER: sends its connections
	SyncBackup SyncState = 2 // IP_VS_STATE_BACKUP: receives another's
)

var syncStates = enum[SyncState]{"sync daemon state", map[SyncState]string{SyncMaster: "master", SyncBackup: "backup"}}

// String prints "master" or "backup".
func (s SyncState) String() string { return syncStates.string(s) }

// MarshalText implements encoding.TextMarshaler with the form of String.
func (s SyncState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the form of String.
func (s *SyncState) UnmarshalText(b []byte) (err error) { *s, err = syncStates.parse(b); return err }

// SyncDaemon is a kernel thread that sends connections to, or receives them
// from, other hosts by multicast. Zero values of the last four fields let the
// kernel choose; what it has chosen is read back. They need Linux 4.3.
type SyncDaemon struct {
	// State is the role.
	State SyncState
	// Interface is the network device of the multicasts; 1 to 15 bytes.
	Interface string
	// SyncID tells groups of hosts apart, 0 to 255. A backup with 0 takes the
	// connections of every group.
	SyncID uint8
	// MaxLen is the most payload of a packet, in bytes; 0 for what the
	// interface's MTU allows.
	MaxLen uint16
	// Group is the multicast group, IPv4 or IPv6; zero for 224.0.0.81.
	Group netip.Addr
	// Port is the UDP port; 0 for 8848.
	Port uint16
	// TTL is the time to live of the packets; 0 for 1.
	TTL uint8
}

// Validate says why d cannot be started, or returns nil.
func (d SyncDaemon) Validate() error {
	switch {
	case d.State != SyncMaster && d.State != SyncBackup:
		return invalid("sync daemon state %v is neither master nor backup", d.State)
	case d.Interface == "":
		return invalid("a sync daemon needs an interface")
	case d.Group.IsValid() && !d.Group.IsMulticast():
		return invalid("%v is not a multicast group", d.Group)
	}
	if d.Group.Zone() != "" {
		return invalid("group %v has a zone; the interface is given by its name", d.Group)
	}
	if err := checkMapped(d.Group); err != nil {
		return err
	}
	return checkName("interface", d.Interface)
}

// SyncDaemons returns the sync daemons that run, the master first; nil for none.
func (c *Client) SyncDaemons(ctx context.Context) (list []SyncDaemon, err error) {
	err = c.run(ctx, func() error {
		return c.dumpWhole(ctx, cmdGetDaemon, cmdNewDaemon, nil,
			func() { list = nil },
			func(b []byte) error {
				d, err := decodeSyncDaemon(b)
				if err == nil {
					list = append(list, d)
				}
				return err
			})
	})
	if err != nil {
		return nil, &Error{Op: "list sync daemons", Err: err}
	}
	return list, nil
}

// StartSyncDaemon starts a sync daemon. It fails with ErrSyncDaemonRunning if
// one of that state runs. The kernel refuses it while a service has real servers
// of another family than its own.
func (c *Client) StartSyncDaemon(ctx context.Context, d SyncDaemon) error {
	err := d.Validate()
	if err == nil {
		err = c.run(ctx, func() error {
			return c.request(ctx, cmdNewDaemon, func(b []byte) []byte { return appendSyncDaemon(b, d) })
		})
	}
	if err != nil {
		return &Error{Op: "start sync daemon", Err: err}
	}
	return nil
}

// StopSyncDaemon stops the sync daemon of a state. It fails with
// ErrSyncDaemonNotRunning.
func (c *Client) StopSyncDaemon(ctx context.Context, s SyncState) error {
	err := c.run(ctx, func() error { return c.stopSyncDaemon(ctx, s) })
	if err != nil {
		return &Error{Op: "stop sync daemon", Err: err}
	}
	return nil
}

// stopSyncDaemon sends the request with a second message that does nothing and
// waits for the answer to that. The kernel answers in order, but not at all to a
// request whose result is EINTR (netlink_rcv_skb), and that is the result of
// stopping a thread that has not run yet (kthread), as right after the start on
// a busy host: the daemon is stopped all the same.
func (c *Client) stopSyncDaemon(ctx context.Context, s SyncState) error {
	seq := c.begin(cmdDelDaemon, flagRequest|flagAck, func(b []byte) []byte {
		start := len(b)
		b = appendU32(beginNested(b, attrDaemon), daemonState, uint32(s))
		endNested(b, start)
		return b
	})
	last := c.link.nextSeq(1)
	c.wbuf = appendNoop(c.wbuf, flagAck, last)
	if err := c.link.conn.send(c.wbuf); err != nil {
		return err
	}
	var kernel error
	err := c.receive(ctx, func(m *message) (bool, error) {
		if m.seq != seq && m.seq != last {
			return false, errUnexpected
		}
		if m.typ != nlmsgError {
			return false, errUnknownType
		}
		ans, err := decodeAnswer(m.flags, m.payload)
		if err == nil && ans.errno != 0 {
			kernel = ans.error(cmdDelDaemon)
		}
		return m.seq == last, err
	})
	if err != nil {
		return err
	}
	return kernel
}

func appendSyncDaemon(b []byte, d SyncDaemon) []byte {
	start := len(b)
	b = appendU32(beginNested(b, attrDaemon), daemonState, uint32(d.State))
	b = appendString(b, daemonMcastIfn, d.Interface)
	b = appendU32(b, daemonSyncID, uint32(d.SyncID))
	if d.MaxLen != 0 {
		b = appendU16(b, daemonSyncMaxLen, d.MaxLen)
	}
	switch {
	case d.Group.Is4():
		a := d.Group.As4()
		b = append(appendHeader(b, daemonMcastGroup, len(a)), a[:]...)
	case d.Group.Is6():
		b = appendAddr(b, daemonMcastGroup6, d.Group)
	}
	if d.Port != 0 {
		b = appendU16(b, daemonMcastPort, d.Port)
	}
	if d.TTL != 0 {
		b = appendU8(b, daemonMcastTTL, d.TTL)
	}
	endNested(b, start)
	return b
}

func decodeSyncDaemon(payload []byte) (d SyncDaemon, err error) {
	nest, err := nested(payload, attrDaemon)
	if err == nil {
		d, err = decodeSyncDaemonNest(nest)
	}
	if err != nil {
		return SyncDaemon{}, fmt.Errorf("sync daemon: %w", err)
	}
	return d, nil
}

func decodeSyncDaemonNest(b []byte) (d SyncDaemon, err error) {
	var seen, state, id uint32
	a := attrs{b: b}
	for a.next() {
		if a.typ < 32 {
			seen |= 1 << a.typ
		}
		switch a.typ {
		case daemonState:
			state = a.u32("state")
		case daemonMcastIfn:
			d.Interface = string(a.text("interface"))
		case daemonSyncID:
			id = a.u32("sync id")
		case daemonSyncMaxLen:
			d.MaxLen = a.u16("payload size")
		case daemonMcastGroup:
			if a.fixed("group", 4) {
				d.Group = netip.AddrFrom4([4]byte(a.val))
			}
		case daemonMcastGroup6:
			if a.fixed("group", 16) {
				d.Group = netip.AddrFrom16([16]byte(a.val))
			}
		case daemonMcastPort:
			d.Port = a.u16("port")
		case daemonMcastTTL:
			d.TTL = a.u8("ttl")
		}
	}
	if a.err == nil {
		a.err = missing(seen, daemonState, daemonMcastIfn, daemonSyncID)
	}
	switch {
	case a.err != nil:
		return SyncDaemon{}, a.err
	case state > 255:
		return SyncDaemon{}, fmt.Errorf("state %d is unknown", state)
	case id > 255:
		return SyncDaemon{}, fmt.Errorf("sync id %d is above 255", id)
	}
	d.State, d.SyncID = SyncState(state), uint8(id)
	return d, nil
}
