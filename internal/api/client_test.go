package api

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/version"
)

func TestClient(t *testing.T) {
	backend := fixture()
	c := NewClient(serve(t, backend, Options{}, defaultLimits), 20*time.Second)
	var answers []string
	c.OnAnswer = func(b []byte) { answers = append(answers, string(b)) }
	ctx := t.Context()
	file := File{Name: "n", Content: "c: é\n"}
	check := func(name string, want, got any, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	v, err := c.Version(ctx)
	check("version", Version{Version: version.String(), GoVersion: version.Go()}, v, err)
	status, err := c.Status(ctx)
	check("status", backend.status, status, err)
	services, err := c.Services(ctx)
	check("services", fillServices(backend.services), services, err)
	table, err := c.Table(ctx)
	check("table", fillServices(backend.table), table, err)
	explained, err := c.Explain(ctx, "web")
	check("explain", backend.explained, explained, err)
	diagnosis, err := c.Doctor(ctx)
	check("doctor", backend.diagnosis, diagnosis, err)
	for _, want := range backend.services {
		name := want.Name
		if name == "" {
			name = want.Key
		}
		svc, err := c.Service(ctx, name)
		check("service "+name, want.fill(), svc, err)
	}
	zero := uint32(0)
	target := AdminTarget{Service: "a/b%2F é", Address: netip.MustParseAddr("fd00::2"), Port: 80, HasPort: true}
	request := AdminRequest{Mode: "none", Weight: &zero, OverSeconds: 1.5}
	admin, err := c.SetAdmin(ctx, target, request)
	check("admin", backend.admin, admin, err)
	check("admin target", target.String(), backend.target.String(), nil)
	check("admin request", request, backend.request, nil)
	check("admin peer", os.Getuid(), backend.peer.UID, nil)
	report, err := c.Check(ctx, file)
	check("check", backend.check, report, err)
	plan, err := c.Diff(ctx, file)
	check("diff", backend.plan, plan, err)
	reload, err := c.Reload(ctx)
	check("reload", backend.reload, reload, err)
	now, err := c.ReloadNow(ctx)
	check("reload now", []string{"now"}, now.Warnings, err)
	reconcile, err := c.Reconcile(ctx)
	check("reconcile", backend.reconcile, reconcile, err)

	check("files", []File{file, file}, backend.files, nil)
	if len(answers) != 16 || !strings.HasPrefix(answers[1], `{"version":"v1.2.3",`) {
		t.Errorf("want 16 raw answers, got %d: %q", len(answers), answers)
	}
}

func TestClientNotFound(t *testing.T) {
	c := NewClient(serve(t, fixture(), Options{}, defaultLimits), 20*time.Second)
	for _, name := range []string{"nope", "", ".", "..", "web/", "../status"} {
		_, err := c.Service(t.Context(), name)
		if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "virtual service") {
			t.Errorf("%q: want ErrNotFound with the name, got %v", name, err)
		}
	}
}

func TestClientStatusErrors(t *testing.T) {
	c := NewClient(serve(t, &fakeBackend{err: ErrUnavailable}, Options{}, defaultLimits), 20*time.Second)
	_, err := c.Reload(t.Context())
	var se *StatusError
	if !errors.As(err, &se) || se.Code != 503 || !errors.Is(err, ErrUnavailable) || err.Error() != "not available now" {
		t.Errorf("want ErrUnavailable, got %v", err)
	}
}

func TestClientAgainstADeadDaemon(t *testing.T) {
	dir := t.TempDir()
	dead := filepath.Join(dir, "dead.sock")
	deadSocket(t, dead)
	absent := filepath.Join(dir, "absent.sock")

	_, err := NewClient(dead, 20*time.Second).Status(t.Context())
	if want := "lbd does not answer on " + dead + ": connection refused; is it running? systemctl start lbd"; err == nil || err.Error() != want {
		t.Errorf("want %s\ngot %v", want, err)
	}
	if !errors.Is(err, ErrNotRunning) {
		t.Error("a refused connection does not match ErrNotRunning")
	}

	_, err = NewClient(absent, 20*time.Second).Status(t.Context())
	if want := "lbd does not answer on " + absent + ": there is no such socket; is it running? systemctl start lbd"; err == nil || err.Error() != want {
		t.Errorf("want %s\ngot %v", want, err)
	}
	if !errors.Is(err, ErrNotRunning) {
		t.Error("an absent socket does not match ErrNotRunning")
	}
}

func TestClientTimeout(t *testing.T) {
	// It accepts and never answers.
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = NewClient(socket, 50*time.Millisecond).Status(t.Context())
	want := "lbd does not answer on " + socket + " within 50ms; what is it doing? journalctl -u lbd"
	if err == nil || err.Error() != want || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrNotRunning) {
		t.Errorf("want %s\ngot %v", want, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := NewClient(socket, time.Minute).Status(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("want context.Canceled, got %v", err)
	}
}

// The socket may belong to something else, or to an lbd that breaks.
func TestClientAgainstStrangers(t *testing.T) {
	tests := []struct{ name, answer, want string }{
		{"not HTTP", "220 mail.example ESMTP\r\n", "is it lbd's socket?"},
		{"closes", "", "is it lbd's socket?"},
		{"cut", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "unexpected EOF"},
		{"not JSON", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "the answer is not lbd's"},
		{"other JSON", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", "the answer is not lbd's"},
		{"error without JSON", "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 5\r\n\r\nhello", "lbd answers 502 Bad Gateway"},
		{"redirect", "HTTP/1.1 302 Found\r\nLocation: http://example.com/\r\nContent-Length: 0\r\n\r\n", "lbd answers 302 Found"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			l, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					http.ReadRequest(bufio.NewReader(c))
					io.WriteString(c, tt.answer)
					c.Close()
				}
			}()
			if _, err := NewClient(socket, 20*time.Second).Status(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("want %q, got %v", tt.want, err)
			}
		})
	}
}

// A newer lbd may answer more than this client knows.
func TestClientIgnoresNewFields(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"version":"v9","moon":"full"}`)
	})}
	go srv.Serve(l)
	defer srv.Close()
	got, err := NewClient(socket, 20*time.Second).Version(t.Context())
	if err != nil || got.Version != "v9" {
		t.Errorf("want v9, got %+v, %v", got, err)
	}
}
