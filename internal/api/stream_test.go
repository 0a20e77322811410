package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/ipvs"
)

// endless is a table that never ends. It counts what was read of it, and says
// when its reader has gone.
type endless struct {
	read atomic.Int64
	gone chan error
}

func newEndless() *endless { return &endless{gone: make(chan error, 10)} }

func (e *endless) stream(ctx context.Context) iter.Seq2[Connection, error] {
	return func(yield func(Connection, error) bool) {
		defer func() { e.gone <- ctx.Err() }()
		for {
			n := e.read.Add(1)
			if !yield(Connection{Protocol: "TCP", Client: fmt.Sprint(n), State: "ESTABLISHED"}, nil) {
				return
			}
		}
	}
}

// left waits until a reader has gone.
func (e *endless) left(t *testing.T) error {
	t.Helper()
	select {
	case err := <-e.gone:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("the table is still being read")
		return nil
	}
}

func TestClientConnections(t *testing.T) {
	backend := fixture()
	c := NewClient(serve(t, backend, Options{}, defaultLimits), 20*time.Second)
	lines := 0
	c.OnAnswer = func(b []byte) {
		if lines++; !strings.HasPrefix(string(b), `{"`) || strings.Count(string(b), "\n") != 1 {
			t.Errorf("want a line, got %q", b)
		}
	}
	q := ConnectionQuery{Service: "FWM 7 IPv6", Client: endpoint("2001:db8::/32"), State: "TIME_WAIT"}
	var got []Connection
	for conn, err := range c.Connections(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, conn)
	}
	if diff := cmp.Diff(backend.conns, got); diff != "" || backend.query != q || lines != 2 {
		t.Errorf("%d lines of the query %v (-want +got):\n%s", lines, backend.query, diff)
	}

	backend.conns = nil
	for conn, err := range c.Connections(t.Context(), ConnectionQuery{}) {
		t.Errorf("want nothing, got %v, %v", conn, err)
	}
	backend.err = fmt.Errorf("virtual service: %w", ErrNotFound)
	if errs := errorsOf(c.Connections(t.Context(), ConnectionQuery{})); len(errs) != 1 || !errors.Is(errs[0], ErrNotFound) {
		t.Errorf("want ErrNotFound, got %v", errs)
	}
}

// What fails on the way cannot take the status back, and must not look like the
// end of the table.
func TestStreamFails(t *testing.T) {
	after := 0
	backend := &fakeBackend{stream: func(context.Context) iter.Seq2[Connection, error] {
		return func(yield func(Connection, error) bool) {
			for range after {
				if !yield(Connection{Protocol: "TCP"}, nil) {
					return
				}
			}
			yield(Connection{}, errors.New("read connections: ENOBUFS"))
		}
	}}
	c := NewClient(serve(t, backend, Options{}, testLimits()), 20*time.Second)
	var raw []string
	c.OnAnswer = func(b []byte) { raw = append(raw, string(b)) }
	for _, n := range []int{0, 1, 5000} {
		after, raw = n, nil
		errs := errorsOf(c.Connections(t.Context(), ConnectionQuery{}))
		if len(errs) != n+1 || errs[n] == nil || errs[n].Error() != "read connections: ENOBUFS" || len(raw) != n {
			t.Fatalf("after %d: got %d and %d lines, the last with %v", n, len(errs), len(raw), errs[len(errs)-1])
		}
		if _, ok := errors.AsType[*StatusError](errs[n]); ok != (n == 0) {
			t.Errorf("after %d: got %T", n, errs[n])
		}
	}
}

// A client that goes away, or stops to read, ends the reading of the table; what
// waits for it meanwhile is little.
func TestStreamClientGoes(t *testing.T) {
	e := newEndless()
	lim := testLimits()
	lim.stall = 500 * time.Millisecond
	socket := serve(t, &fakeBackend{stream: e.stream}, Options{}, lim)
	c := NewClient(socket, 20*time.Second)
	n := 0
	for range c.Connections(t.Context(), ConnectionQuery{}) {
		if n++; n == 10 {
			break
		}
	}
	e.left(t)

	e.read.Store(0)
	conn := dial(t, socket)
	if _, err := io.WriteString(conn, "GET /v1/connections HTTP/1.1\r\nHost: l\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	e.left(t) // after lim.stall
	if n := e.read.Load(); n > 100_000 {
		t.Errorf("%d connections were read for a client that takes none", n)
	}
	alive(t, socket)
}

// The engine is not held at the pace of a slow client: all of a table that fits is
// read before the client takes its second line.
func TestStreamReadsAhead(t *testing.T) {
	const n = 50_000
	read := make(chan struct{})
	backend := &fakeBackend{stream: func(context.Context) iter.Seq2[Connection, error] {
		return func(yield func(Connection, error) bool) {
			defer close(read)
			for range n {
				if !yield(Connection{Protocol: "TCP"}, nil) {
					return
				}
			}
		}
	}}
	c := NewClient(serve(t, backend, Options{}, defaultLimits), 20*time.Second)
	got := 0
	for _, err := range c.Connections(t.Context(), ConnectionQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if got++; got > 1 {
			continue
		}
		select {
		case <-read:
		case <-time.After(20 * time.Second):
			t.Fatal("the engine is still being read")
		}
	}
	if got != n {
		t.Errorf("want %d connections, got %d", n, got)
	}
}

// A stream may take longer than any other request, and its client may be slow as
// long as it takes something.
func TestStreamTakesLong(t *testing.T) {
	// A limit is exceeded by the whole, and far from what a wait takes, also on a
	// busy host.
	const n, pause = 60, 50 * time.Millisecond
	const short = n * pause / 2
	backend := &fakeBackend{stream: func(ctx context.Context) iter.Seq2[Connection, error] {
		return func(yield func(Connection, error) bool) {
			for range n {
				select {
				case <-time.After(pause):
				case <-ctx.Done():
					yield(Connection{}, ctx.Err())
					return
				}
				if !yield(Connection{Protocol: "TCP"}, nil) {
					return
				}
			}
		}
	}}
	limited := testLimits()
	limited.header, limited.read, limited.write, limited.handle = short, short, short, short
	for _, tt := range []struct {
		name    string
		limits  limits
		timeout time.Duration
	}{
		{"server", limited, 20 * time.Second},
		// The client's timeout is for each wait, not for the whole.
		{"client", defaultLimits, short},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := NewClient(serve(t, backend, Options{}, tt.limits), tt.timeout)
			errs := errorsOf(c.Connections(t.Context(), ConnectionQuery{}))
			if len(errs) != n || errs[n-1] != nil {
				t.Errorf("want %d connections, got %d: %v", n, len(errs), errs)
			}
		})
	}
}

func TestStreamLimit(t *testing.T) {
	lim := testLimits()
	lim.stream = 300 * time.Millisecond
	socket := serve(t, &fakeBackend{stream: func(ctx context.Context) iter.Seq2[Connection, error] {
		return func(yield func(Connection, error) bool) {
			yield(Connection{Protocol: "TCP"}, nil)
			<-ctx.Done()
			yield(Connection{}, ctx.Err())
		}
	}}, Options{}, lim)
	errs := errorsOf(NewClient(socket, 20*time.Second).Connections(t.Context(), ConnectionQuery{}))
	if len(errs) != 2 || errs[1] == nil || !strings.Contains(errs[1].Error(), "within 300ms") {
		t.Errorf("want an error after the time of a stream, got %v", errs)
	}
}

// Slow readers of connections leave the rest of the API alone.
func TestFewStreamsAtOnce(t *testing.T) {
	e := newEndless()
	lim := testLimits()
	lim.streams = 2
	socket := serve(t, &fakeBackend{stream: e.stream}, Options{}, lim)
	c := NewClient(socket, 20*time.Second)
	var ends []func()
	for range 2 {
		next, stop := iter.Pull2(c.Connections(t.Context(), ConnectionQuery{}))
		if _, err, ok := next(); err != nil || !ok {
			t.Fatal(err)
		}
		ends = append(ends, stop)
	}
	errs := errorsOf(c.Connections(t.Context(), ConnectionQuery{}))
	if len(errs) != 1 || !errors.Is(errs[0], ErrUnavailable) || !strings.Contains(errs[0].Error(), "2 others") {
		t.Errorf("want ErrUnavailable, got %v", errs)
	}
	alive(t, socket)
	ends[0]()
	e.left(t)
	// The slot is free a moment later.
	for deadline := time.Now().Add(20 * time.Second); ; {
		next, stop := iter.Pull2(c.Connections(t.Context(), ConnectionQuery{}))
		_, err, _ := next()
		stop()
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	ends[1]()
}

// A stop ends streams, and their clients learn that the list is cut.
func TestStreamStopped(t *testing.T) {
	e := newEndless()
	socket := filepath.Join(t.TempDir(), "lbd.sock")
	l, err := Listen(socket, -1)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(&fakeBackend{stream: e.stream}, Options{})
	s.limits.grace = 50 * time.Millisecond
	stop := run(t, s, l)
	next, end := iter.Pull2(NewClient(socket, 20*time.Second).Connections(t.Context(), ConnectionQuery{}))
	defer end()
	if _, err, _ := next(); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	e.left(t)
	for {
		_, err, ok := next()
		if !ok {
			t.Fatal("want an error, got an end")
		}
		if err != nil {
			break
		}
	}
}

// The socket may belong to something else, or to an lbd that breaks.
func TestStreamOfStrangers(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, tt := range []struct{ name, answer, want string }{
		{"not HTTP", "220 mail.example ESMTP\r\n", "is it lbd's socket?"},
		{"cut", head + "3\r\n{}\n\r\n", "before its end"},
		{"cut in a line", head + "3\r\n{\"a\r\n0\r\n\r\n", "before its end"},
		{"not JSON", head + "6\r\nhello\n\r\n0\r\n\r\n", "a line is not lbd's"},
		{"long line", head + fmt.Sprintf("%x\r\n", 2*maxLine) + strings.Repeat("x", 2*maxLine) + "\r\n", "too long"},
		{"error without JSON", "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 5\r\n\r\nhello", "lbd answers 502 Bad Gateway"},
		{"silent", "", "within 100ms"},
		{"silent later", head, "within 100ms"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			l, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			done := make(chan struct{})
			defer close(done)
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				http.ReadRequest(bufio.NewReader(c))
				io.WriteString(c, tt.answer)
				if strings.HasPrefix(tt.name, "silent") {
					<-done
				}
			}()
			limit := 20 * time.Second
			if strings.HasPrefix(tt.name, "silent") {
				limit = 100 * time.Millisecond
			}
			errs := errorsOf(NewClient(socket, limit).Connections(t.Context(), ConnectionQuery{}))
			if last := errs[len(errs)-1]; last == nil || !strings.Contains(last.Error(), tt.want) {
				t.Errorf("want %q, got %v", tt.want, errs)
			}
		})
	}
}

// A panic in the middle of a stream must not look like its end.
func TestStreamPanics(t *testing.T) {
	backend := &fakeBackend{stream: func(context.Context) iter.Seq2[Connection, error] {
		return func(yield func(Connection, error) bool) {
			for range 1000 { // more than a chunk
				yield(Connection{Protocol: "TCP"}, nil)
			}
			panic("index out of range")
		}
	}}
	socket := serve(t, backend, Options{}, testLimits())
	errs := errorsOf(NewClient(socket, 20*time.Second).Connections(t.Context(), ConnectionQuery{}))
	if last := errs[len(errs)-1]; last == nil || !strings.Contains(last.Error(), "index out of range") {
		t.Errorf("want the panic, got %v", last)
	}
	if code, _, _ := request(t, socket, http.MethodGet, "/v1/version", "", ""); code != 200 {
		t.Errorf("after the panic: want 200, got %d", code)
	}
}

// BenchmarkStream is a connection, from the engine to a client that reads on.
func BenchmarkStream(b *testing.B) {
	var owners Owners
	vip := netip.MustParseAddrPort("192.0.2.10:80")
	owners.Add(ipvs.AddrService(ipvs.TCP, vip), "web", nil)
	conn := ipvs.Connection{
		Protocol: ipvs.TCP, Client: netip.MustParseAddrPort("198.51.100.1:40000"), Virtual: vip,
		Server: netip.MustParseAddrPort("10.0.0.2:80"), State: "ESTABLISHED", Expires: 15 * time.Minute,
	}
	backend := &fakeBackend{stream: func(context.Context) iter.Seq2[Connection, error] {
		conns, err := owners.Select(func(yield func(ipvs.Connection, error) bool) {
			for range b.N {
				if !yield(conn, nil) {
					return
				}
			}
		}, ConnectionQuery{})
		if err != nil {
			b.Error(err)
		}
		return conns
	}}
	socket := filepath.Join(b.TempDir(), "lbd.sock")
	l, err := Listen(socket, -1)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- NewServer(backend, Options{}).Run(ctx, l) }()
	b.ReportAllocs()
	n, err := io.Copy(io.Discard, rawStream(b, socket))
	if err != nil {
		b.Error(err)
	}
	b.SetBytes(n / int64(b.N))
	cancel()
	if err := <-done; err != nil {
		b.Error(err)
	}
}

// rawStream asks for all connections.
func rawStream(b *testing.B, socket string) io.Reader {
	b.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, "GET /v1/connections HTTP/1.1\r\nHost: l\r\n\r\n"); err != nil {
		b.Fatal(err)
	}
	return c
}
