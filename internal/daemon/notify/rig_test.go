package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/config"
)

// rig is a Set whose hooks go to fake senders. It is for one synctest bubble.
type rig struct {
	t   *testing.T
	set *Set
	log logBuffer
	seq uint64

	mu     sync.Mutex
	ends   map[string]*fakeEnd
	noMore chan struct{}
	stop   context.CancelFunc
	done   chan struct{}
}

// fakeEnd is the other end of the hooks of one name.
type fakeEnd struct {
	mu sync.Mutex
	// got is what arrived and what was tried, a line each.
	got []string
	// takes is how long an attempt takes, err what comes of it, once again says
	// whether it may be tried again.
	takes time.Duration
	err   error
	again bool
	// most is how many events are told at once, 1 for 0.
	most int
	// running and atOnce count attempts at the same time.
	running, atOnce int
}

func (f *fakeEnd) send(ctx context.Context, n api.Notification) (again bool, err error) {
	f.mu.Lock()
	f.running++
	f.atOnce = max(f.atOnce, f.running)
	takes, err, again := f.takes, f.err, f.again
	f.mu.Unlock()
	pause(ctx, nil, takes)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running--
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	var texts []string
	for _, e := range n.Events {
		texts = append(texts, e.Text)
	}
	line := strings.Join(texts, " ")
	if n.Lost > 0 {
		line = fmt.Sprintf("(%d lost) %s", n.Lost, line)
	}
	if err != nil {
		line += ": " + err.Error()
	}
	f.got = append(f.got, line)
	return again, err
}

// set changes what happens from now on.
func (f *fakeEnd) set(takes time.Duration, err error, again bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.takes, f.err, f.again = takes, err, again
}

// newRig starts a Set with hooks of these names.
func newRig(t *testing.T, names ...string) *rig {
	r := &rig{t: t, ends: map[string]*fakeEnd{}, noMore: make(chan struct{}), done: make(chan struct{})}
	r.set = New(slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})), nil)
	r.set.make = func(spec config.Hook, log *slog.Logger) *hook {
		h := newHook(spec, log, nil)
		end := r.end(spec.Name)
		h.sender, h.most = end, max(1, end.most)
		return h
	}
	r.set.Change(specs(names...))
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() {
		defer close(r.done)
		if err := r.set.Run(ctx, r.noMore); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { r.shut() })
	return r
}

// shut stops the set and returns how long that took.
func (r *rig) shut() time.Duration {
	begun := time.Now()
	r.stop()
	select {
	case <-r.noMore:
	default:
		close(r.noMore)
	}
	<-r.done
	return time.Since(begun)
}

func (r *rig) end(name string) *fakeEnd {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ends[name] == nil {
		r.ends[name] = &fakeEnd{}
	}
	return r.ends[name]
}

func spec(name string) config.Hook {
	return config.Hook{Name: name, Timeout: 10 * time.Second, MaxAge: 5 * time.Minute, Exec: &config.ExecHook{Args: []string{"/" + name}}}
}

func specs(names ...string) []config.Hook {
	var list []config.Hook
	for _, n := range names {
		list = append(list, spec(n))
	}
	return list
}

// tell tells of events with these texts.
func (r *rig) tell(texts ...string) {
	for _, text := range texts {
		r.seq++
		kind, text, ok := strings.Cut(text, "/")
		if !ok {
			kind, text = api.EventServer, kind
		}
		r.set.Tell(api.Event{Seq: r.seq, Time: time.Now(), Kind: kind, Text: text})
	}
}

// want waits until everything is idle and compares what a hook got since the last
// time.
func (r *rig) want(name string, want ...string) {
	r.t.Helper()
	synctest.Wait()
	f := r.end(name)
	f.mu.Lock()
	got := f.got
	f.got = nil
	f.mu.Unlock()
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// wantLog compares what was logged since the last time.
func (r *rig) wantLog(want ...string) {
	r.t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, r.log.lines()); diff != "" {
		r.t.Errorf("log (-want +got):\n%s", diff)
	}
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
	// hold, if not nil, is what each line waits for. It is set before the first.
	hold chan struct{}
}

func (l *logBuffer) Write(p []byte) (int, error) {
	if l.hold != nil {
		<-l.hold
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.b.Reset()
	if l.b.Len() == 0 {
		return nil
	}
	return strings.Split(strings.TrimSpace(l.b.String()), "\n")
}

// after lets time pass.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

var errBroken = errors.New("broken")
