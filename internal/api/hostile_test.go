package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func dial(t *testing.T, socket string) *net.UnixConn {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	// A bound for the whole test, far above every limit of the server.
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return c.(*net.UnixConn)
}

// exchange sends raw bytes and returns everything up to the end of the
// connection.
func exchange(t *testing.T, c net.Conn, send string) string {
	t.Helper()
	if _, err := io.WriteString(c, send); err != nil {
		t.Fatalf("send: %v", err)
	}
	return readAll(t, c)
}

func readAll(t *testing.T, c net.Conn) string {
	t.Helper()
	b, err := io.ReadAll(c)
	if err != nil && !isReset(err) {
		t.Fatalf("receive: %v", err)
	}
	return string(b)
}

func isReset(err error) bool { return strings.Contains(err.Error(), "connection reset") }

// alive fails the test if the server no longer answers an honest client.
func alive(t *testing.T, socket string) {
	t.Helper()
	if _, err := NewClient(socket, 20*time.Second).Status(t.Context()); err != nil {
		t.Errorf("after all that: %v", err)
	}
}

func TestGarbage(t *testing.T) {
	tests := []struct{ name, send, want string }{
		{"binary", "\x00\xff\x16\x03\x01\r\n\r\n", "HTTP/1.1 400 "},
		{"no version", "GET /v1/status\r\n\r\n", "HTTP/1.1 400 "},
		{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 404 "},
		{"no host", "GET /v1/status HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
		{"two lengths", "POST /v1/reload HTTP/1.1\r\nHost: l\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", "HTTP/1.1 400 "},
		{"negative length", "POST /v1/reload HTTP/1.1\r\nHost: l\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 400 "},
		{"length and chunks", "POST /v1/reload HTTP/1.1\r\nHost: l\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "HTTP/1.1 400 "},
		{"huge header", "GET /v1/status HTTP/1.1\r\nHost: l\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n", "HTTP/1.1 431 "},
		{"one request a connection", "GET /v1/version HTTP/1.1\r\nHost: l\r\n\r\nGET /v1/version HTTP/1.1\r\nHost: l\r\n\r\n", "HTTP/1.1 200 "},
	}
	backend := fixture()
	socket := serve(t, backend, Options{}, testLimits())
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := dial(t, socket)
			// The server may answer and close before it has read everything.
			go io.WriteString(c, tt.send)
			got := readAll(t, c)
			if !strings.HasPrefix(got, tt.want) || strings.Count(got, "HTTP/1.1 ") != 1 {
				t.Errorf("want one answer %q, got %q", tt.want, got)
			}
		})
	}
	if backend.written() != 0 {
		t.Error("garbage made the backend reload")
	}
	alive(t, socket)
}

// The multiplexer would answer some of these by itself, and not in JSON.
func TestStrangePaths(t *testing.T) {
	socket := serve(t, fixture(), Options{}, testLimits())
	for _, tt := range []struct {
		request string
		code    int
	}{
		{"GET //v1/status", 404},
		{"GET /v1//status", 404},
		{"GET /v1/./status", 404},
		{"GET /v1/../v1/status", 404},
		{"GET /v1/../../etc/passwd", 404},
		{"GET /v1/status/", 404},
		{"GET http://l", 404},
		{"GET http://l?x", 404},
		{"OPTIONS *", 404},
		{"OPTIONS /v1/status", 405},
		{"CONNECT l:80", 404},
		{"CONNECT /v1/status", 405},
		{"CONNECT /v1/../x", 404},
		{"CONNECT /v1", 404},
		{"POST //v1/reload", 404},
		{"BREW /v1/reload", 405},
		{"GET /v1/services/%2e%2e", 404},
	} {
		t.Run(tt.request, func(t *testing.T) {
			answer := exchange(t, dial(t, socket), tt.request+" HTTP/1.1\r\nHost: l\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(answer)), nil)
			if err != nil {
				t.Fatalf("%v: %q", err, answer)
			}
			defer resp.Body.Close()
			var e Error
			if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || e.Error == "" {
				t.Errorf("want an error in JSON, got %v: %q", err, answer)
			}
			if ct := resp.Header.Get("Content-Type"); resp.StatusCode != tt.code || ct != "application/json" {
				t.Errorf("want status %d in application/json, got %d in %q", tt.code, resp.StatusCode, ct)
			}
		})
	}
}

func TestHugeBody(t *testing.T) {
	lim := testLimits()
	lim.body = 1 << 20
	backend := fixture()
	socket := serve(t, backend, Options{}, lim)
	fits := `{"name":"x","content":"` + strings.Repeat("y", 1<<20-25) + `"}`
	for _, tt := range []struct {
		name, body string
		code       int
	}{
		{"the largest", fits, 200},
		{"one byte more", fits + " ", 413},
		{"much more", fits + strings.Repeat(" ", 8<<20), 413},
	} {
		// Chunked, so that no length warns the server.
		c := dial(t, socket)
		go func() {
			fmt.Fprintf(c, "POST /v1/check HTTP/1.1\r\nHost: l\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
			fmt.Fprintf(c, "%x\r\n%s\r\n0\r\n\r\n", len(tt.body), tt.body)
		}()
		if got, want := readAll(t, c), fmt.Sprintf("HTTP/1.1 %d ", tt.code); !strings.HasPrefix(got, want) {
			t.Errorf("%s: want %q, got %q", tt.name, want, got)
		}
	}
	if len(backend.files) != 1 {
		t.Errorf("want 1 file at the backend, got %d", len(backend.files))
	}
	alive(t, socket)
}

// Each of these clients would hold a slot for ever.
func TestSlowClients(t *testing.T) {
	lim := testLimits()
	lim.header, lim.read = 200*time.Millisecond, 400*time.Millisecond
	socket := serve(t, fixture(), Options{}, lim)
	tests := []struct{ name, send, drip string }{
		{"says nothing", "", ""},
		{"half a header", "GET /v1/status HTTP/1.1\r\nHost:", ""},
		{"drips a header", "GET /v1/status HTTP/1.1\r\nHost: l\r\n", "X: y\r\n"},
		{"half a body", "POST /v1/check HTTP/1.1\r\nHost: l\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", ""},
		{"drips a body", "POST /v1/check HTTP/1.1\r\nHost: l\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{", " "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := dial(t, socket)
			io.WriteString(c, tt.send) // on a busy host too late, which is slow, too
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				for tt.drip != "" {
					if _, err := io.WriteString(c, tt.drip); err != nil {
						return
					}
					time.Sleep(10 * time.Millisecond)
				}
			}()
			// The deadline of dial fails the test if the server never closes.
			if got := readAll(t, c); strings.Contains(got, "HTTP/1.1 200") {
				t.Errorf("the server answered %q", got)
			}
			c.Close()
			<-stopped
		})
	}
}

// A client that asks and never reads must not keep its connection.
func TestClientThatDoesNotRead(t *testing.T) {
	lim := testLimits()
	lim.conns, lim.write = 1, 2*time.Second
	backend := fixture()
	backend.services = make([]Service, 5000) // far more than a socket's buffer
	socket := serve(t, backend, Options{}, lim)
	c := dial(t, socket)
	if _, err := io.WriteString(c, "GET /v1/services HTTP/1.1\r\nHost: l\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	alive(t, socket) // with the only slot, after the write timeout
}

func TestHalfClosed(t *testing.T) {
	socket := serve(t, fixture(), Options{}, testLimits())
	c := dial(t, socket)
	if _, err := io.WriteString(c, "GET /v1/version HTTP/1.1\r\nHost: l\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, c); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
		t.Errorf("want an answer, got %q", got)
	}
	c = dial(t, socket)
	io.WriteString(c, "POST /v1/check HTTP/1.1\r\nHost: l\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	c.CloseWrite()
	if got := readAll(t, c); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
		t.Errorf("want 400 for a cut body, got %q", got)
	}
	alive(t, socket)
}

func TestManyConnections(t *testing.T) {
	lim := testLimits()
	lim.conns, lim.header = 4, time.Second
	var now, most atomic.Int64
	backend := fixture()
	backend.hook = func(context.Context) {
		n := now.Add(1)
		defer now.Add(-1)
		for {
			m := most.Load()
			if n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
	socket := serve(t, backend, Options{}, lim)
	// Idle ones fill every slot; the honest wait for the header timeout.
	for range 2 * lim.conns {
		dial(t, socket)
	}
	errs := make(chan error)
	for range 100 {
		go func() {
			_, err := NewClient(socket, 20*time.Second).Status(context.Background())
			errs <- err
		}()
	}
	for range 100 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if m := most.Load(); m > 4 {
		t.Errorf("want at most 4 requests at once, got %d", m)
	}
}

func TestPanic(t *testing.T) {
	var log logBuffer
	backend := fixture()
	backend.hook = func(context.Context) { panic("index out of range") }
	socket := serve(t, backend, Options{Logger: log.logger()}, testLimits())
	code, _, body := request(t, socket, "GET", "/v1/status", "", "")
	if code != 500 || body != `{"error":"internal error: index out of range"}`+"\n" {
		t.Errorf("want 500 with the panic, got %d %s", code, body)
	}
	if got := log.String(); !strings.Contains(got, "level=ERROR") || !strings.Contains(got, "hostile_test.go") {
		t.Errorf("want the stack in the log, got %s", got)
	}
	code, _, _ = request(t, socket, "GET", "/v1/version", "", "")
	if code != 200 {
		t.Errorf("after the panic: want 200, got %d", code)
	}
}

func TestSlowBackend(t *testing.T) {
	backend := fixture()
	backend.err = context.DeadlineExceeded
	backend.hook = func(ctx context.Context) { <-ctx.Done() }
	lim := testLimits()
	lim.handle = 100 * time.Millisecond
	socket := serve(t, backend, Options{}, lim)
	if code, _, body := request(t, socket, "GET", "/v1/status", "", ""); code != 504 {
		t.Errorf("want 504, got %d %s", code, body)
	}
}

// Run must not return before its last request has, nor wait for ever for it.
func TestRunWaitsForRequests(t *testing.T) {
	backend := fixture()
	entered := make(chan struct{})
	var left atomic.Bool
	backend.hook = func(ctx context.Context) {
		close(entered)
		<-ctx.Done()
		time.Sleep(50 * time.Millisecond)
		left.Store(true)
	}
	socket := t.TempDir() + "/lbd.sock"
	l, err := Listen(socket, -1)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(backend, Options{})
	s.limits = testLimits()
	s.limits.handle = time.Hour
	stop := run(t, s, l)
	go NewClient(socket, 0).Status(context.Background())
	<-entered
	dial(t, socket) // and one that says nothing
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if !left.Load() {
		t.Error("Run returned while a request was in the backend")
	}
	if _, err := net.Dial("unix", socket); err == nil {
		t.Error("somebody still listens")
	}
}

// A request in flight gets its answer although the server stops.
func TestGrace(t *testing.T) {
	backend := fixture()
	entered, release := make(chan struct{}), make(chan struct{})
	backend.hook = func(context.Context) {
		close(entered)
		<-release
	}
	socket := t.TempDir() + "/lbd.sock"
	l, err := Listen(socket, -1)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(backend, Options{})
	s.limits.grace = 20 * time.Second
	stop := run(t, s, l)
	answer := make(chan error, 1)
	go func() {
		_, err := NewClient(socket, 20*time.Second).Status(context.Background())
		answer <- err
	}()
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	waitClosed(t, socket)
	close(release)
	if err := <-answer; err != nil {
		t.Errorf("the request in flight: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// waitClosed waits until nobody listens.
func waitClosed(t *testing.T, socket string) {
	t.Helper()
	for range 2000 {
		c, err := net.Dial("unix", socket)
		if err != nil {
			return
		}
		c.Close()
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the server still listens")
}

// Run must report a listener that broke, not wait for its context.
func TestRunReportsABrokenListener(t *testing.T) {
	l, err := Listen(t.TempDir()+"/lbd.sock", -1)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	done := make(chan error, 1)
	go func() { done <- NewServer(fixture(), Options{}).Run(context.Background(), l) }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("want an error")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("still running")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"name":"x","content":"y"}`))
	f.Add([]byte(`{"name":"x"}{}`))
	f.Add([]byte("{\"name\":\"\xff\"}"))
	f.Fuzz(func(t *testing.T, body []byte) {
		r := newFileRequest(body)
		var file File
		if err := decode(r, &file); err != nil {
			if code := statusOf(err); code != 400 {
				t.Errorf("want 400, got %d: %v", code, err)
			}
			return
		}
		if bytes.ContainsRune([]byte(file.Name), 0xfffd) && !bytes.Contains(body, []byte("\ufffd")) && !bytes.Contains(body, []byte(`\u`)) {
			t.Errorf("%q was changed to %q", body, file.Name)
		}
	})
}

func newFileRequest(body []byte) *http.Request {
	r := httptest.NewRequest("POST", "/v1/check", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return r
}

// Reading a file costs the daemon many times the file's size: few are read at
// once, and that holds up nobody else.
func TestFewFilesAtOnce(t *testing.T) {
	t.Parallel()
	const clients = 8
	var running, most atomic.Int32
	full := make(chan struct{}, clients)
	b := &fakeBackend{hook: func(ctx context.Context) {
		n := running.Add(1)
		defer running.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		full <- struct{}{}
		time.Sleep(50 * time.Millisecond) // a chance for one too many
	}}
	lim := defaultLimits
	socket := serve(t, b, Options{}, lim)
	done := make(chan error, clients)
	for i := range clients {
		go func() {
			c := NewClient(socket, 20*time.Second)
			var err error
			if i%2 == 0 {
				_, err = c.Check(t.Context(), File{Name: "a", Content: "b"})
			} else {
				_, err = c.Diff(t.Context(), File{Name: "a", Content: "b"})
			}
			done <- err
		}()
	}
	<-full
	if _, err := NewClient(socket, 20*time.Second).Version(t.Context()); err != nil {
		t.Error(err)
	}
	for range clients {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if got := int(most.Load()); got > lim.files {
		t.Errorf("files at once: want at most %d, got %d", lim.files, got)
	}
}

// broken is a listener that fails after one connection.
type broken struct{ conns chan net.Conn }

func (l broken) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	default:
		return nil, net.ErrClosed
	}
}

func (broken) Close() error { return nil }

func (broken) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// A stop that comes while Run waits for the last connections of a listener that
// broke does not keep it from returning.
func TestRunStoppedWhileItEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		client, server := net.Pipe()
		defer client.Close()
		l := broken{make(chan net.Conn, 1)}
		l.conns <- server
		s := NewServer(fixture(), Options{})
		time.AfterFunc(s.limits.grace/2, cancel)
		if err := s.Run(ctx, l); err != nil {
			t.Errorf("want no error after a stop, got %v", err)
		}
		if ctx.Err() == nil {
			t.Error("Run did not wait for the connection")
		}
	})
}
