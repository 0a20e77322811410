package api

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// fakeBackend answers from its fields and counts the writes.
type fakeBackend struct {
	status    Status
	services  []Service
	table     []Service
	conns     []Connection
	explained Explanation
	diagnosis Diagnosis
	admin     AdminResult
	check     CheckReport
	plan      Plan
	reload    ReloadResult
	reconcile ReconcileResult
	// err, if set, is every method's answer; hook, if set, runs in each.
	err  error
	hook func(ctx context.Context)
	// stream, if set, is what is read of the connections.
	stream func(ctx context.Context) iter.Seq2[Connection, error]

	mu     sync.Mutex
	events []Event
	more   chan struct{}
	query  ConnectionQuery // the last
	// target, request and peer are of the last SetAdmin.
	target  AdminTarget
	request AdminRequest
	peer    Peer
	files   []File
	writes  int
}

func (f *fakeBackend) call(ctx context.Context) error {
	if f.hook != nil {
		f.hook(ctx)
	}
	return f.err
}

func (f *fakeBackend) Status(ctx context.Context) (Status, error) { return f.status, f.call(ctx) }
func (f *fakeBackend) Services(ctx context.Context) ([]Service, error) {
	return f.services, f.call(ctx)
}

func (f *fakeBackend) Table(ctx context.Context) ([]Service, error) {
	return f.table, f.call(ctx)
}

func (f *fakeBackend) Connections(ctx context.Context, q ConnectionQuery) (iter.Seq2[Connection, error], error) {
	f.mu.Lock()
	f.query = q
	f.mu.Unlock()
	if err := f.call(ctx); err != nil || f.stream == nil {
		return func(yield func(Connection, error) bool) {
			for _, c := range f.conns {
				if !yield(c, nil) {
					return
				}
			}
		}, err
	}
	return f.stream(ctx), nil
}

func (f *fakeBackend) Events(since uint64) ([]Event, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.more == nil {
		f.more = make(chan struct{})
	}
	var list []Event
	for _, e := range f.events {
		if e.Seq > since {
			list = append(list, e)
		}
	}
	return list, f.more
}

// happen adds an event.
func (f *fakeBackend) happen(e Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, e)
	if f.more != nil {
		close(f.more)
	}
	f.more = make(chan struct{})
}

func (f *fakeBackend) Explain(ctx context.Context, name string) (Explanation, error) {
	if name != f.explained.Service && f.err == nil {
		return Explanation{}, fmt.Errorf("virtual service %q: %w", name, ErrNotFound)
	}
	return f.explained, f.call(ctx)
}

func (f *fakeBackend) SetAdmin(ctx context.Context, t AdminTarget, r AdminRequest, by Peer) (AdminResult, error) {
	f.mu.Lock()
	f.target, f.request, f.peer = t, r, by
	f.mu.Unlock()
	f.write()
	if t.Service == "nope" {
		return AdminResult{}, fmt.Errorf("real server %v: %w", t, ErrNotFound)
	}
	return f.admin, f.call(ctx)
}

func (f *fakeBackend) Doctor(ctx context.Context) (Diagnosis, error) {
	return f.diagnosis, f.call(ctx)
}

func (f *fakeBackend) file(file File) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.files = append(f.files, file)
}

func (f *fakeBackend) write() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes++
}

func (f *fakeBackend) written() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writes
}

func (f *fakeBackend) Check(ctx context.Context, file File) (CheckReport, error) {
	f.file(file)
	return f.check, f.call(ctx)
}

func (f *fakeBackend) Diff(ctx context.Context, file File) (Plan, error) {
	f.file(file)
	return f.plan, f.call(ctx)
}

func (f *fakeBackend) Reload(ctx context.Context) (ReloadResult, error) {
	f.write()
	return f.reload, f.call(ctx)
}

func (f *fakeBackend) ReloadNow(ctx context.Context) (ReloadResult, error) {
	f.write()
	r := f.reload
	r.Warnings = []string{"now"}
	return r, f.call(ctx)
}

func (f *fakeBackend) Reconcile(ctx context.Context) (ReconcileResult, error) {
	f.write()
	return f.reconcile, f.call(ctx)
}

// testLimits are those of a server that a test soon stops. An honest request runs
// into none of them, however busy the host is: a test makes short what it is about.
func testLimits() limits {
	l := defaultLimits
	l.header, l.read, l.write, l.handle = time.Minute, time.Minute, time.Minute, time.Minute
	l.stream, l.stall, l.ahead = time.Minute, time.Minute, 1<<20
	l.grace = 100 * time.Millisecond
	return l
}

// serve runs a server on a socket of its own until the test ends, and fails the
// test if it does not end then.
func serve(t *testing.T, b Backend, o Options, lim limits) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "lbd.sock")
	l, err := Listen(socket, -1)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(b, o)
	s.limits = lim
	s.files, s.streams = make(chan struct{}, lim.files), make(chan struct{}, lim.streams)
	s.followers = make(chan struct{}, lim.followers)
	stop := run(t, s, l)
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return socket
}

// run starts s and returns a function that stops it and returns Run's error.
func run(t *testing.T, s *Server, l net.Listener) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, l) }()
	return func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(20 * time.Second):
			return errors.New("still running 20 s after its context ended")
		}
	}
}

// logBuffer is a log that a test can read while the server writes.
type logBuffer struct {
	mu  sync.Mutex
	buf []byte
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf = append(b.buf, p...)
	return len(p), nil
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.buf)
}

func (b *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }
