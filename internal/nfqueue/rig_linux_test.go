package nfqueue

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
)

const (
	testQueue = 7
	testPort  = 5300
	patience  = 20 * time.Second
)

// rule sends packets of one protocol and destination port to queues.
type rule struct {
	ns       *netnstest.NS
	family   nftables.TableFamily // IPv4 if unset
	hook     *nftables.ChainHook  // prerouting if unset
	protocol uint8                // UDP if unset
	queues   uint16               // one if unset
	bypass   bool
	native   bool // nft's own expression instead of the xt target
	// conntrack makes the rule look at a packet's connection.
	conntrack bool
}

// add makes a table with the rule. It returns a function that deletes it.
func (r rule) add(t testing.TB) (remove func()) {
	t.Helper()
	if r.family == 0 {
		r.family = nftables.TableFamilyIPv4
	}
	if r.hook == nil {
		r.hook = nftables.ChainHookPrerouting
	}
	if r.protocol == 0 {
		r.protocol = unix.IPPROTO_UDP
	}
	r.queues = max(r.queues, 1)
	c, err := nftables.New(nftables.WithNetNSFd(r.ns.FD()))
	if err != nil {
		t.Fatalf("open nftables: %v", err)
	}
	table := c.AddTable(&nftables.Table{Family: r.family, Name: "test"})
	chain := c.AddChain(&nftables.Chain{
		Table: table, Name: "queue", Type: nftables.ChainTypeFilter,
		Hooknum: r.hook, Priority: nftables.ChainPriorityRef(-140),
	})
	exprs := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Register: 1, Data: []byte{r.protocol}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Register: 1, Data: []byte{testPort >> 8, testPort & 0xff}},
	}
	if r.conntrack {
		exprs = append(exprs, &expr.Ct{Key: expr.CtKeySTATE, Register: 1})
	}
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(exprs, r.target())})
	if err := c.Flush(); err != nil {
		t.Fatalf("add queue rule: %v", err)
	}
	return func() {
		t.Helper()
		c.DelTable(table)
		if err := c.Flush(); err != nil {
			t.Fatalf("delete queue rule: %v", err)
		}
	}
}

// keep adds an empty chain to the rule's hook, behind the rule's.
func (r rule) keep(t testing.TB) {
	t.Helper()
	c, err := nftables.New(nftables.WithNetNSFd(r.ns.FD()))
	if err != nil {
		t.Fatalf("open nftables: %v", err)
	}
	c.AddChain(&nftables.Chain{
		Table: c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "keep"}), Name: "keep",
		Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRef(0),
	})
	if err := c.Flush(); err != nil {
		t.Fatalf("add chain: %v", err)
	}
}

func (r rule) target() expr.Any {
	if r.native {
		q := &expr.Queue{Num: testQueue, Total: r.queues}
		if r.bypass {
			q.Flag = expr.QueueFlagBypass
		}
		return q
	}
	// struct xt_NFQ_info_v3: queue number, number of queues, flags, padding.
	info := []byte{0, 0, 0, 0, 0, 0, 0, 0}
	nativeEndian.PutUint16(info, testQueue)
	nativeEndian.PutUint16(info[2:], r.queues)
	if r.bypass {
		nativeEndian.PutUint16(info[4:], 1)
	}
	data := xt.Unknown(info)
	return &expr.Target{Name: "NFQUEUE", Rev: 3, Info: &data}
}

// open binds a queue of the namespace until the test ends.
func open(t testing.TB, ns *netnstest.NS, c Config) *Queue {
	t.Helper()
	c.NetNS = ns.FD()
	if c.Number == 0 {
		c.Number = testQueue
	}
	q, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return q
}

// run runs a queue until the returned function is called or the test ends.
func run(t testing.TB, q *Queue, handle func(*Packet) Verdict) (stop func()) {
	t.Helper()
	return runTicks(t, q, handle, func() bool { return false })
}

// runTicks is run with a tick.
func runTicks(t testing.TB, q *Queue, handle func(*Packet) Verdict, tick func() bool) (stop func()) {
	t.Helper()
	return runHandler(t, q, Each(handle), tick)
}

// runHandler is runTicks with a whole Handler.
func runHandler(t testing.TB, q *Queue, h Handler, tick func() bool) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx, h, tick) }()
	var stopped atomic.Bool
	stop = func() {
		if stopped.Swap(true) {
			return
		}
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Error("Run did not end")
		}
	}
	t.Cleanup(stop)
	return stop
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// udp is a receiver of datagrams that sees their marks, and a sender to it.
type udp struct {
	t    testing.TB
	recv *net.UDPConn
	send *net.UDPConn
}

// newUDP opens both sockets on addresses of lo. Sent datagrams carry mark.
func newUDP(t testing.TB, ns *netnstest.NS, addr string, mark uint32) *udp {
	t.Helper()
	at := netip.AddrPortFrom(netip.MustParseAddr(addr), testPort)
	pc := ns.ListenPacket("udp", at.String())
	u := &udp{t: t, recv: pc.(*net.UDPConn)}
	control(t, u.recv, func(fd int) error {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20); err != nil {
			return err
		}
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVMARK, 1)
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := ns.DialContext(ctx, "udp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	u.send = c.(*net.UDPConn)
	control(t, u.send, func(fd int) error {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(mark))
	})
	return u
}

func control(t testing.TB, c *net.UDPConn, f func(fd int) error) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	cerr := raw.Control(func(fd uintptr) { err = f(int(fd)) })
	if cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
}

func (u *udp) write(b []byte) {
	u.t.Helper()
	if _, err := u.send.Write(b); err != nil {
		u.t.Fatalf("send: %v", err)
	}
}

// read returns the next datagram and its mark.
func (u *udp) read() (b []byte, mark uint32) {
	u.t.Helper()
	b, mark, err := u.tryRead(patience)
	if err != nil {
		u.t.Fatalf("receive: %v", err)
	}
	return b, mark
}

func (u *udp) tryRead(d time.Duration) (b []byte, mark uint32, err error) {
	b, oob := make([]byte, 1<<16), make([]byte, 256)
	u.recv.SetReadDeadline(time.Now().Add(d))
	n, oobn, _, _, err := u.recv.ReadMsgUDP(b, oob)
	if err != nil {
		return nil, 0, err
	}
	cmsgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, 0, err
	}
	for _, m := range cmsgs {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_MARK && len(m.Data) >= 4 {
			mark = nativeEndian.Uint32(m.Data)
		}
	}
	return b[:n], mark, nil
}
