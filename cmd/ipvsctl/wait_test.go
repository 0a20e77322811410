package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/api"
)

// text is an output that is read while it is written.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *text) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *text) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// drainLab is a lbd that answers what a test says, and an ipvsctl that waits.
type drainLab struct {
	t        *testing.T
	dir      string
	stop     func()
	out, err text
	done     chan int
}

func newDrainLab(t *testing.T) *drainLab {
	d := &drainLab{t: t, dir: t.TempDir(), done: make(chan int, 1)}
	if err := installFixture(d.dir); err != nil {
		t.Fatal(err)
	}
	d.synced(true)
	d.start()
	return d
}

func (d *drainLab) start() {
	d.t.Helper()
	l, err := api.Listen(filepath.Join(d.dir, "lbd.sock"), -1)
	if err != nil {
		d.t.Fatal(err)
	}
	d.stop = serve(l, scriptBackend{dir: d.dir})
	d.t.Cleanup(d.stop)
}

// drain runs ipvsctl drain --wait.
func (d *drainLab) drain(args ...string) {
	a := newApp(strings.NewReader(""), &d.out, &d.err)
	args = append([]string{"--socket", filepath.Join(d.dir, "lbd.sock"), "drain", "10.0.0.2:80", "--wait"}, args...)
	go func() { d.done <- a.run(d.t.Context(), args) }()
}

// answer writes an answer whole, so that it is never read half.
func (d *drainLab) answer(name, content string) {
	d.t.Helper()
	tmp := filepath.Join(d.dir, "tmp")
	if err := os.WriteFile(tmp, []byte(content), 0o600); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(d.dir, name+".json")); err != nil {
		d.t.Fatal(err)
	}
}

// synced says whether lbd has had a pass since it started.
func (d *drainLab) synced(yes bool) {
	sync := ""
	if yes {
		sync = `"last_success": "2026-11-30T12:00:00Z"`
	}
	d.answer("status", `{"sync": {`+sync+`}, "mirror": {"counts_age_seconds": 0.5}}`)
}

// server says what the real server that is drained is, beside another one.
func (d *drainLab) server(protocol, mode string, weight, active, inactive int) {
	d.answer("services", fmt.Sprintf(`[{"name": "web", "key": "TCP 192.0.2.10:80", "protocol": %q, "real_servers": [
		{"address": "10.0.0.2:80", "present": true, "programmed_weight": %d, "active": %d, "inactive": %d, "admin": {"mode": %q}},
		{"address": "10.0.0.3:80", "present": true, "programmed_weight": 1, "active": 50, "admin": {"mode": "none"}}]}]`,
		protocol, weight, active, inactive, mode))
}

// until waits for a line of progress.
func (d *drainLab) until(want string) {
	d.t.Helper()
	for range 1000 {
		if strings.Contains(d.err.String(), want) {
			return
		}
		select {
		case code := <-d.done:
			d.t.Fatalf("no %q: ended with %d:\n%s%s", want, code, &d.out, &d.err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	d.t.Fatalf("no %q in\n%s", want, &d.err)
}

// ends waits for the end.
func (d *drainLab) ends(status int, out, errOut string) {
	d.t.Helper()
	select {
	case got := <-d.done:
		if got != status || !strings.Contains(d.out.String(), out) || !strings.Contains(d.err.String(), errOut) {
			d.t.Errorf("want status %d with %q and %q, got %d:\n%s%s", status, out, errOut, got, &d.out, &d.err)
		}
	case <-time.After(20 * time.Second):
		d.t.Fatalf("still waiting:\n%s%s", &d.out, &d.err)
	}
}

// What is left is shown when it changes; a lbd that restarts is waited for, and
// what it knew before weight 0 was in force is not believed.
func TestDrainWait(t *testing.T) {
	t.Parallel()
	d := newDrainLab(t)
	d.server("TCP", "drain", 0, 3, 9)
	d.drain("--deadline", "1h")
	d.until("3 active connections left, ")
	d.stop()
	d.until("lbd does not answer, waiting for it")
	d.synced(false)
	d.answer("services", "[]")
	d.start()
	d.until("lbd starts, waiting for it")
	d.server("TCP", "drain", 0, 1, 9)
	d.synced(true)
	d.until("1 active connection left, ")
	d.server("TCP", "drain", 3, 0, 9)
	d.until("the table is being changed")
	d.server("TCP", "drain", 0, 0, 9)
	d.ends(exitDone, "no connection is left\n", "")
}

// Before the first good pass of a lbd that restarted, nothing is known of a server
// that it does not tell of: all it tells may be somebody else's services, one with
// the drained server among them, or its own that were taken for such.
func TestDrainWaitAfterFailingStart(t *testing.T) {
	t.Parallel()
	d := newDrainLab(t)
	d.answer("admin", drained)
	d.server("TCP", "drain", 0, 3, 9)
	d.drain()
	d.until("3 active connections left")
	d.stop()
	d.until("lbd does not answer, waiting for it")
	d.synced(false)
	d.answer("services", `[
		{"key": "TCP 192.0.2.10:80", "foreign": true, "real_servers": [{"address": "10.0.0.2:80", "present": true, "active": 3}]},
		{"key": "TCP 192.0.2.11:80", "foreign": true, "real_servers": [{"address": "10.0.0.9:80", "present": true}]}]`)
	d.start()
	d.until("lbd starts, waiting for it")
	d.server("TCP", "drain", 0, 1, 9) // before the pass is told of: lbd may be asked in between
	d.synced(true)
	d.until("1 active connection left")
	d.server("TCP", "drain", 0, 0, 9)
	d.ends(exitDone, "no connection is left\n", "")
}

// A service with another name is the same one.
func TestDrainWaitRenamed(t *testing.T) {
	t.Parallel()
	d := newDrainLab(t)
	d.answer("admin", drained)
	d.server("TCP", "drain", 0, 3, 9)
	d.drain()
	d.until("3 active connections left")
	d.answer("services", `[{"name": "www", "key": "TCP 192.0.2.10:80", "protocol": "TCP", "real_servers": [
		{"address": "10.0.0.2:80", "present": true, "active": 2, "admin": {"mode": "drain"}}]}]`)
	d.until("2 active connections left")
	d.server("TCP", "drain", 0, 0, 9)
	d.ends(exitDone, "no connection is left\n", "")
}

// drained is the answer to a drain of one real server.
const drained = `{"real_servers": [{"service": "web", "key": "TCP 192.0.2.10:80", "real_server": "10.0.0.2:80", "changed": true, "change": "drained", "admin": {"mode": "drain"}}]}`

func TestDrainWaitEnds(t *testing.T) {
	for _, tt := range []struct {
		name     string
		prepare  func(*drainLab)
		args     []string
		during   func(*drainLab)
		status   int
		out, err string
	}{
		{"at the deadline", func(d *drainLab) { d.server("TCP", "drain", 0, 3, 9) }, []string{"--deadline", "10ms"}, nil,
			exitFailed, "drained", "the deadline is over: 3 active connections left; what was drained stays drained"},
		{"UDP has no active ones", func(d *drainLab) { d.server("UDP", "drain", 0, 0, 2) }, []string{"--deadline", "10ms"}, nil,
			exitFailed, "drained", "the deadline is over: 2 connections left"},
		{"inactive ones are ignored", func(d *drainLab) { d.server("TCP", "drain", 0, 0, 9) }, nil, nil, exitDone, "no connection is left", ""},
		{"inactive ones are wanted", func(d *drainLab) { d.server("TCP", "drain", 0, 1, 9) }, []string{"--inactive", "--deadline", "10ms"}, nil,
			exitFailed, "drained", "the deadline is over: 10 connections left"},
		{"UDP was quiet", func(d *drainLab) { d.server("UDP", "drain", 0, 0, 0) }, nil, nil, exitDone, "no connection is left", ""},
		{"somebody resumes it", func(d *drainLab) { d.server("TCP", "none", 1, 3, 9) }, nil, nil,
			exitFailed, "drained", "web/10.0.0.2:80 is not drained any more: somebody resumed it"},
		{"it leaves the file", func(d *drainLab) { d.answer("services", "[]") }, nil, nil, exitDone, "no connection is left", ""},
		{"lbd does not come back", func(d *drainLab) { d.server("TCP", "drain", 0, 3, 9) }, []string{"--timeout", "1s", "-o", "json"},
			func(d *drainLab) {
				d.until("3 active connections left")
				d.stop()
			}, exitFailed, `"changed": true`, "is it running?"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newDrainLab(t)
			d.answer("admin", drained)
			tt.prepare(d)
			d.drain(tt.args...)
			if tt.during != nil {
				tt.during(d)
			}
			d.ends(tt.status, tt.out, tt.err)
		})
	}
}
