package ipvs

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
)

var testOptions = cmp.Options{
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
	cmp.Comparer(func(a, b Netmask) bool { return a == b }),
}

func testService(port uint16) Service {
	return Service{
		ServiceKey: AddrService(TCP, netip.AddrPortFrom(netip.MustParseAddr("192.0.2.10"), port)),
		Scheduler:  "wlc",
	}
}

func testDest(n int) Destination {
	return Destination{Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 80), Weight: uint32(n)}
}

func addOps(n int) []Op {
	ops := []Op{{Kind: OpAddService, Service: testService(80)}}
	for i := range n {
		ops = append(ops, Op{Kind: OpAddDestination, Service: testService(80), Destination: testDest(i)})
	}
	return ops
}

// ack answers every request that asks for it and fails those with an entry in
// errnos, by place in the batch.
func ack(errnos map[int]syscall.Errno) func(k *fakeKernel, sent []byte) {
	return func(k *fakeKernel, sent []byte) {
		for i, r := range requests(k.t, sent) {
			if errno := errnos[i]; errno != 0 || r.flags&flagAck != 0 {
				k.reply(errorMessage(r.seq, errno))
			}
		}
	}
}

func TestApplyAsksForOneACK(t *testing.T) {
	k, c := newFakeKernel(t, ack(nil))
	if err := c.Apply(t.Context(), addOps(20)); err != nil {
		t.Fatal(err)
	}
	if len(k.sent) != 1 {
		t.Fatalf("%d sends, want 1", len(k.sent))
	}
	got := requests(t, k.sent[0])
	if len(got) != 21 {
		t.Fatalf("%d requests, want 21", len(got))
	}
	for i, r := range got {
		wantFlags, wantCmd := uint16(flagRequest), uint8(cmdNewDest)
		if i == 0 {
			wantCmd = cmdNewService
		}
		if i == 20 {
			wantFlags |= flagAck
		}
		if r.flags != wantFlags || r.cmd != wantCmd || r.seq != got[0].seq+uint32(i) {
			t.Errorf("request %d: flags %#x, command %d, number %#x; want %#x, %d, %#x", i,
				r.flags, r.cmd, r.seq, wantFlags, wantCmd, got[0].seq+uint32(i))
		}
	}
}

func TestApplySplitsBatches(t *testing.T) {
	k, c := newFakeKernel(t, ack(nil))
	k.maxOps = 8
	if err := c.Apply(t.Context(), addOps(20)); err != nil {
		t.Fatal(err)
	}
	var sizes []int
	for _, s := range k.sent {
		sizes = append(sizes, len(requests(t, s)))
	}
	if diff := cmp.Diff([]int{8, 8, 5}, sizes); diff != "" {
		t.Errorf("batch sizes (-want +got):\n%s", diff)
	}
	// By bytes.
	k, c = newFakeKernel(t, ack(nil))
	k.maxOps = 1 << 20
	if err := c.Apply(t.Context(), addOps(3000)); err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, s := range k.sent {
		if len(s) > 160<<10 {
			t.Errorf("a send of %d bytes", len(s))
		}
		total += len(requests(t, s))
	}
	if total != 3001 || len(k.sent) < 2 {
		t.Errorf("%d requests in %d sends, want 3001 in some", total, len(k.sent))
	}
}

// TestApplyUpdates pins that slow operations share fewer sends, so that a
// context can interrupt them.
func TestApplyUpdates(t *testing.T) {
	k, c := newFakeKernel(t, ack(nil))
	ops := make([]Op, 120)
	for i := range ops {
		ops[i] = Op{Kind: OpUpdateService, Service: testService(uint16(i + 1))}
	}
	if err := c.Apply(t.Context(), ops); err != nil {
		t.Fatal(err)
	}
	var sizes []int
	for _, s := range k.sent {
		sizes = append(sizes, len(requests(t, s)))
	}
	if diff := cmp.Diff([]int{50, 50, 20}, sizes); diff != "" {
		t.Errorf("batch sizes (-want +got):\n%s", diff)
	}
}

func TestApplyNamesFailed(t *testing.T) {
	k, c := newFakeKernel(t, ack(map[int]syscall.Errno{0: syscall.EEXIST, 3: syscall.ESRCH, 4: syscall.EEXIST}))
	k.maxOps = 5
	ops := addOps(8)
	ops[2].Destination.Forward = Bypass // refused before it is sent
	err := c.Apply(t.Context(), ops)
	batch, ok := errors.AsType[*BatchError](err)
	if !ok {
		t.Fatalf("error %v, want a BatchError", err)
	}
	// The first batch has operations 0, 1, 3, 4, 5, the second 6, 7, 8.
	want := []struct {
		index int
		is    error
	}{
		{0, ErrServiceExists}, {2, syscall.EINVAL}, {4, ErrServiceNotFound}, {5, ErrDestinationExists},
		{6, ErrDestinationExists},
	}
	if len(batch.Failed) != len(want) {
		t.Fatalf("failed %v, want %d", batch.Failed, len(want))
	}
	for i, w := range want {
		f := batch.Failed[i]
		if f.Index != w.index || !errors.Is(f.Err, w.is) {
			t.Errorf("failure %d: operation %d, %v; want operation %d, %v", i, f.Index, f.Err, w.index, w.is)
		}
		if f.Index > 0 && f.Err.Destination != ops[f.Index].Destination.Address {
			t.Errorf("failure %d names %v, want %v", i, f.Err.Destination, ops[f.Index].Destination.Address)
		}
	}
}

// TestApplyAllFailed pins that a failed last request needs no ACK of its own.
func TestApplyAllFailed(t *testing.T) {
	all := map[int]syscall.Errno{}
	for i := range 21 {
		all[i] = syscall.ESRCH
	}
	_, c := newFakeKernel(t, ack(all))
	err := c.Apply(t.Context(), addOps(20))
	if batch, ok := errors.AsType[*BatchError](err); !ok || len(batch.Failed) != 21 {
		t.Errorf("error %v, want a BatchError of 21", err)
	}
}

func TestApplyRefusesAll(t *testing.T) {
	k, c := newFakeKernel(t, ack(nil))
	err := c.Apply(t.Context(), []Op{{Kind: 99}})
	if batch, ok := errors.AsType[*BatchError](err); !ok || len(batch.Failed) != 1 || !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("error %v, want a BatchError with EOPNOTSUPP", err)
	}
	if len(k.sent) != 0 {
		t.Errorf("%d sends, want none", len(k.sent))
	}
	if err := c.Apply(t.Context(), nil); err != nil {
		t.Errorf("no operations: %v", err)
	}
}

// TestFaultsReplaceSocket checks that after anything but a plain answer the
// outcome is reported as unknown and the next call has a fresh socket.
func TestFaultsReplaceSocket(t *testing.T) {
	seqOf := func(sent []byte) uint32 { return requests(t, sent)[0].seq }
	tests := []struct {
		name   string
		answer func(k *fakeKernel, sent []byte)
		is     error
	}{
		{"buffer overrun", func(k *fakeKernel, _ []byte) { k.fail(syscall.ENOBUFS) }, syscall.ENOBUFS},
		{"interrupted", func(k *fakeKernel, _ []byte) { k.fail(syscall.EINTR) }, syscall.EINTR},
		{"short header", func(k *fakeKernel, _ []byte) { k.reply([]byte{1, 2, 3}) }, errShort},
		{"length beyond datagram", func(k *fakeKernel, sent []byte) {
			b := errorMessage(seqOf(sent), 0)
			k.reply(b[:len(b)-1])
		}, errShort},
		{"length below header", func(k *fakeKernel, sent []byte) {
			b := errorMessage(seqOf(sent), 0)
			b[0] = 8
			k.reply(b)
		}, errShort},
		{"short error", func(k *fakeKernel, sent []byte) {
			b := netlinkHeader(nlmsgError, 0, seqOf(sent))
			b = append(b, 0, 0)
			endMessage(b, 0)
			k.reply(b)
		}, errShort},
		{"other number", func(k *fakeKernel, sent []byte) { k.reply(errorMessage(seqOf(sent)-1, 0)) }, errUnexpected},
		{"other type", func(k *fakeKernel, sent []byte) {
			k.reply(bodyMessage(seqOf(sent), 0, cmdNewDest, nil))
		}, errUnknownType},
		{"two answers", func(k *fakeKernel, sent []byte) {
			k.reply(errorMessage(seqOf(sent), 0), errorMessage(seqOf(sent), 0))
		}, errUnexpected},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k, c := newFakeKernel(t, tt.answer)
			err := c.AddService(t.Context(), testService(80))
			if !errors.Is(err, tt.is) {
				t.Fatalf("error %v, want %v", err, tt.is)
			}
			if err := c.Apply(t.Context(), addOps(0)); errors.As(err, new(*BatchError)) {
				t.Errorf("error %v is a BatchError: the outcome is not known", err)
			}
			k.answer = ack(nil)
			if err := c.AddService(t.Context(), testService(80)); err != nil {
				t.Errorf("after the fault: %v", err)
			}
			if k.dials != 3 || k.closes != 2 {
				t.Errorf("%d dials and %d closes, want 3 and 2", k.dials, k.closes)
			}
		})
	}
}

func TestAnsweredErrorKeepsSocket(t *testing.T) {
	k, c := newFakeKernel(t, ack(map[int]syscall.Errno{0: syscall.EEXIST}))
	for range 3 {
		if err := c.AddService(t.Context(), testService(80)); !errors.Is(err, ErrServiceExists) {
			t.Fatalf("error %v, want %v", err, ErrServiceExists)
		}
	}
	if k.dials != 1 {
		t.Errorf("%d dials, want 1", k.dials)
	}
}

func TestContextInterruptsReceive(t *testing.T) {
	k, c := newFakeKernel(t, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	k.answer = func(*fakeKernel, []byte) { cancel(cause) }
	_, err := c.Services(ctx)
	if !errors.Is(err, cause) {
		t.Errorf("error %v, want %v", err, cause)
	}
	if k.closes != 1 {
		t.Errorf("%d closes, want 1: an answer may still come", k.closes)
	}
	// While another call holds the client.
	c.lock <- struct{}{}
	defer func() { <-c.lock }()
	ctx, cancelWait := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancelWait()
	if _, err := c.Services(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want %v", err, context.DeadlineExceeded)
	}
}

// TestSilentKernel never answers: a call fails after a while, and the socket is
// replaced.
func TestSilentKernel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, c := newFakeKernel(t, nil)
		start := time.Now()
		_, err := c.Table(t.Context())
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != callTimeout {
			t.Errorf("after %v: %v, want %v after %v", time.Since(start), err, os.ErrDeadlineExceeded, callTimeout)
		}
		if k.closes != 1 {
			t.Errorf("%d closes, want 1", k.closes)
		}
	})
}

// TestConcurrent is for the race detector, and for answers that reach the wrong
// caller.
func TestConcurrent(t *testing.T) {
	_, c := newFakeKernel(t, func(k *fakeKernel, sent []byte) {
		for _, r := range requests(t, sent) {
			switch {
			case r.cmd == cmdGetService:
				// The service that was asked for.
				key, err := nested(r.payload, attrService)
				if err != nil {
					t.Error(err)
				}
				other := testService(9)
				s := appendService(nil, &other)[attrHeaderLen:]
				k.reply(bodyMessage(r.seq, 0, cmdNewService, nest(attrService, s, key))) // the last of a kind counts
			case r.flags&flagAck != 0:
				k.reply(errorMessage(r.seq, 0))
			}
		}
	})
	c.counts.proc = fakeProc{countsFile: countsText}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 20 {
				s := testService(uint16(100*i + n + 1))
				if got, err := c.Service(t.Context(), s.ServiceKey); err != nil || got.ServiceKey != s.ServiceKey {
					t.Errorf("asked for %v, got %v, %v", s.ServiceKey, got.ServiceKey, err)
				}
				if err := c.AddService(t.Context(), s); err != nil {
					t.Error(err)
				}
				if _, err := c.Counts(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestFamilyMoved(t *testing.T) {
	k, c := newFakeKernel(t, nil)
	now := uint16(fakeFamily - 1)
	var done []uint32 // the requests that reached the family
	k.resolve = func() (uint16, error) { return now, nil }
	k.answer = func(k *fakeKernel, sent []byte) {
		rest := sent
		for len(rest) > 0 {
			var m message
			var err error
			if rest, err = m.parse(rest); err != nil {
				t.Fatal(err)
			}
			if m.typ == fakeFamily {
				done = append(done, m.seq)
			}
			switch {
			case m.typ != fakeFamily:
				now = fakeFamily
				k.reply(errorMessage(m.seq, syscall.ENOENT))
			case m.flags&flagAck != 0:
				k.reply(errorMessage(m.seq, 0))
			case m.flags&flagDump == flagDump:
				k.reply(doneMessage(m.seq, 0))
			}
		}
	}
	// In two batches, with one operation that is refused before.
	k.maxOps = 4
	ops := addOps(6)
	ops[1].Destination.Forward = Bypass
	err := c.Apply(t.Context(), ops)
	if batch, ok := errors.AsType[*BatchError](err); !ok || len(batch.Failed) != 1 || batch.Failed[0].Index != 1 {
		t.Errorf("Apply: %v, want operation 1 alone to fail", err)
	}
	if len(done) != len(ops)-1 {
		t.Errorf("%d requests reached the family, want %d", len(done), len(ops)-1)
	}
	now = fakeFamily - 1
	c.drop()
	if _, err := c.Services(t.Context()); err != nil {
		t.Errorf("Services: %v", err)
	}
	now = fakeFamily - 1
	c.drop()
	if err := c.Flush(t.Context()); err != nil {
		t.Errorf("Flush: %v", err)
	}
}

func TestFamilyGone(t *testing.T) {
	k, c := newFakeKernel(t, nil)
	gone := false
	k.resolve = func() (uint16, error) {
		if gone {
			return 0, &netlink.OpError{Op: "receive", Err: syscall.ENOENT}
		}
		return fakeFamily, nil
	}
	k.answer = func(k *fakeKernel, sent []byte) {
		gone = true
		for _, r := range requests(t, sent) {
			k.reply(errorMessage(r.seq, syscall.ENOENT))
		}
	}
	check := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, ErrNotAvailable) || errors.As(err, new(*BatchError)) {
			t.Errorf("%s: error %v, want %v", what, err, ErrNotAvailable)
		}
		if errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: error %v says that the object does not exist", what, err)
		}
		gone = false
	}
	check("Apply", c.Apply(t.Context(), addOps(3)))
	check("AddService", c.AddService(t.Context(), testService(80)))
	_, err := c.Services(t.Context())
	check("Services", err)
	_, err = c.Service(t.Context(), testService(80).ServiceKey)
	check("Service", err)
	gone = true
	c.drop()
	_, err = c.Services(t.Context())
	check("Services, gone before", err)
}

func TestClosed(t *testing.T) {
	_, c := newFakeKernel(t, ack(nil))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if _, err := c.Services(t.Context()); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Services: %v, want %v", err, fs.ErrClosed)
	}
	if _, err := c.Counts(t.Context()); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Counts: %v, want %v", err, fs.ErrClosed)
	}
}

func fullStats(n uint64) Stats {
	return Stats{n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, n + 7, n + 8, n + 9, n + 10}
}

func TestTable(t *testing.T) {
	big := uint64(math.MaxUint32) + 1
	web, mark := testService(80), Service{ServiceKey: MarkService(IPv6, 0x12345), Scheduler: "rr",
		Flags: FlagPersistent, Persistence: Persistence{Timeout: time.Minute, Netmask: NetmaskV6(64), Engine: "sip"}}
	dests := []DestinationStatus{
		{Destination: testDest(2), Conns: Conns{1, 2, 3}, Stats: fullStats(big)},
		{Destination: testDest(1)},
	}
	v6 := DestinationStatus{Destination: Destination{Address: netip.MustParseAddrPort("[2001:db8::2]:80"), Weight: 3,
		Forward: Tunnel, Tunnel: TunnelOptions{Type: TunnelGUE, Port: 6080, Checksum: ChecksumRemote}}}
	want := []TableEntry{
		{ServiceStatus: ServiceStatus{Service: web, Stats: fullStats(big)}, Destinations: dests},
		{ServiceStatus: ServiceStatus{Service: mark}, Destinations: []DestinationStatus{v6}},
	}
	gone := testService(81)
	interrupts := 2
	_, c := newFakeKernel(t, func(k *fakeKernel, sent []byte) {
		r := requests(t, sent)[0]
		switch {
		case r.cmd == cmdGetService && r.flags == flagRequest|flagDump:
			flags := uint16(flagMulti)
			if interrupts > 0 {
				flags |= flagDumpIntr
				interrupts--
			}
			// Not sorted, and one of them twice.
			k.reply(bodyMessage(r.seq, flags, cmdNewService, appendServiceStatus(nil, want[1].ServiceStatus)),
				bodyMessage(r.seq, flagMulti, cmdNewService, appendServiceStatus(nil, want[0].ServiceStatus)))
			k.reply(bodyMessage(r.seq, flagMulti, cmdNewService, appendServiceStatus(nil, ServiceStatus{Service: gone})),
				bodyMessage(r.seq, flagMulti, cmdNewService, appendServiceStatus(nil, want[1].ServiceStatus)))
			k.reply(doneMessage(r.seq, 0))
		case r.cmd == cmdGetDest && r.flags == flagRequest|flagDump:
			switch string(r.payload) {
			case string(appendServiceKeyNest(nil, web.ServiceKey)):
				k.reply(bodyMessage(r.seq, flagMulti, cmdNewDest, appendDestStatus(nil, dests[0])))
				k.reply(bodyMessage(r.seq, flagMulti, cmdNewDest, appendDestStatus(nil, dests[0])),
					bodyMessage(r.seq, flagMulti, cmdNewDest, appendDestStatus(nil, dests[1])))
			case string(appendServiceKeyNest(nil, mark.ServiceKey)):
				k.reply(bodyMessage(r.seq, flagMulti, cmdNewDest, appendDestStatus(nil, v6)))
			}
			k.reply(doneMessage(r.seq, 0))
		case r.cmd == cmdGetService && r.flags == flagRequest:
			k.reply(errorMessage(r.seq, syscall.ESRCH))
		default:
			t.Errorf("request %d with flags %#x", r.cmd, r.flags)
			k.fail(syscall.EPROTO)
		}
	})
	got, err := c.Table(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, testOptions); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	if interrupts != 0 {
		t.Errorf("%d interrupted dumps left", interrupts)
	}
}

func TestInterruptedDumpIsBounded(t *testing.T) {
	k, c := newFakeKernel(t, func(k *fakeKernel, sent []byte) {
		r := requests(k.t, sent)[0]
		b := doneMessage(r.seq, 0)
		setFlags(b, flagMulti|flagDumpIntr)
		k.reply(b)
	})
	if _, err := c.Services(t.Context()); !errors.Is(err, errInterrupted) {
		t.Errorf("error %v, want %v", err, errInterrupted)
	}
	if len(k.sent) != maxDumps {
		t.Errorf("%d dumps, want %d", len(k.sent), maxDumps)
	}
}

func TestDumpErrors(t *testing.T) {
	for _, tt := range []struct {
		name  string
		reply func(seq uint32) []byte
		is    error
	}{
		{"refused", func(seq uint32) []byte { return errorMessage(seq, syscall.EPERM) }, syscall.EPERM},
		{"ended by an error", func(seq uint32) []byte { return doneMessage(seq, syscall.ENOMEM) }, syscall.ENOMEM},
		{"acknowledged", func(seq uint32) []byte { return errorMessage(seq, 0) }, errUnexpected},
		{"other command", func(seq uint32) []byte { return bodyMessage(seq, flagMulti, cmdNewDest, nil) }, errUnexpected},
		{"no command", func(seq uint32) []byte {
			b := netlinkHeader(fakeFamily, flagMulti, seq)
			endMessage(b, 0)
			return b
		}, errShort},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, c := newFakeKernel(t, func(k *fakeKernel, sent []byte) { k.reply(tt.reply(requests(t, sent)[0].seq)) })
			list, err := c.Services(t.Context())
			if !errors.Is(err, tt.is) || list != nil {
				t.Errorf("Services: %v, %v; want %v", list, err, tt.is)
			}
		})
	}
}

func TestErrorTexts(t *testing.T) {
	s := testService(80)
	ext := errorMessage(7, syscall.EINVAL)
	setFlags(ext, flagCapped|flagAckTLVs)
	ext = appendString(ext, errAttrMsg, "no room")
	endMessage(ext, 0)
	var m message
	if _, err := m.parse(ext); err != nil {
		t.Fatal(err)
	}
	ans, err := decodeAnswer(m.flags, m.payload)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{mapErrno(cmdGetService, syscall.EPERM), "operation not permitted (needs CAP_NET_ADMIN)"},
		{ans.error(cmdFlush), "invalid argument: no room"},
		{(&Op{Kind: OpAddDestination, Service: s, Destination: testDest(2)}).failure(0, mapErrno(cmdNewDest, syscall.EEXIST)).Err,
			"add destination 10.0.0.2:80 of TCP 192.0.2.10:80: real server exists"},
		{&kernelError{sentinel: ErrNotAvailable, hint: "is ip_vs loaded?"}, "IPVS not available (is ip_vs loaded?)"},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("error text %q, want %q", got, tt.want)
		}
	}
	if op, ok := errors.AsType[*netlink.OpError](ans.error(cmdFlush)); !ok || op.Message != "no room" {
		t.Errorf("netlink error %v, want one with the kernel's words", op)
	}
}
