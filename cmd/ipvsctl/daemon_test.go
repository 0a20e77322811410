package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/lbd-project/lbd/internal/api"
)

// serve runs an API server and returns a function that ends it.
func serve(l net.Listener, b api.Backend) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		api.NewServer(b, api.Options{}).Run(ctx, l)
	}()
	return sync.OnceFunc(func() {
		cancel()
		<-done
	})
}

// scriptBackend answers from JSON files; an answer with a field "fail" is an
// error. What it was sent is in the file "received".
type scriptBackend struct{ dir string }

func answer[T any](b scriptBackend, name string) (v T, err error) {
	data, err := os.ReadFile(filepath.Join(b.dir, name+".json"))
	if err != nil {
		return v, err
	}
	var failure struct{ Fail string }
	if json.Unmarshal(data, &failure); failure.Fail != "" {
		return v, errors.New(failure.Fail)
	}
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.DisallowUnknownFields()
	return v, d.Decode(&v)
}

func (b scriptBackend) Status(context.Context) (api.Status, error) {
	return answer[api.Status](b, "status")
}

func (b scriptBackend) Services(context.Context) ([]api.Service, error) {
	return answer[[]api.Service](b, "services")
}

func (b scriptBackend) Table(context.Context) ([]api.Service, error) {
	return answer[[]api.Service](b, "table")
}

// Connections answers those of connections.json, and fails after them if "fail"
// is the state of the last. The query is in the file "received".
func (b scriptBackend) Connections(_ context.Context, q api.ConnectionQuery) (iter.Seq2[api.Connection, error], error) {
	if q.Service == "nope" {
		return nil, fmt.Errorf("virtual service %q: %w", q.Service, api.ErrNotFound)
	}
	list, err := answer[[]api.Connection](b, "connections")
	b.receive(api.File{Name: q.Service, Content: fmt.Sprintf("%v|%v|%v\n", q.Client, q.Server, q.State)})
	return func(yield func(api.Connection, error) bool) {
		for _, c := range list {
			var err error
			if c.State == "fail" {
				err = errors.New("read connections: ENOBUFS")
			}
			if !yield(c, err) {
				return
			}
		}
	}, err
}

// Events answers those of events.json that are wanted, and no more.
func (b scriptBackend) Events(since uint64) ([]api.Event, <-chan struct{}) {
	all, err := answer[[]api.Event](b, "events")
	if err != nil {
		all = []api.Event{{Seq: since + 1, Text: err.Error()}}
	}
	return slices.DeleteFunc(all, func(e api.Event) bool { return e.Seq <= since }), make(chan struct{})
}

func (b scriptBackend) Explain(_ context.Context, name string) (api.Explanation, error) {
	x, err := answer[api.Explanation](b, "explain")
	if err == nil && name != x.Service && name != x.Key {
		err = fmt.Errorf("virtual service %q: %w", name, api.ErrNotFound)
	}
	return x, err
}

// SetAdmin answers admin.json. The request is in the file "received".
func (b scriptBackend) SetAdmin(_ context.Context, t api.AdminTarget, r api.AdminRequest, _ api.Peer) (api.AdminResult, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return api.AdminResult{}, err
	}
	b.receive(api.File{Name: t.String(), Content: string(body) + "\n"})
	if t.Service == "nope" {
		return api.AdminResult{}, fmt.Errorf("virtual service %q: %w in the configuration", t.Service, api.ErrNotFound)
	}
	return answer[api.AdminResult](b, "admin")
}

func (b scriptBackend) Doctor(context.Context) (api.Diagnosis, error) {
	return answer[api.Diagnosis](b, "doctor")
}

func (b scriptBackend) Check(_ context.Context, f api.File) (api.CheckReport, error) {
	b.receive(f)
	return answer[api.CheckReport](b, "check")
}

func (b scriptBackend) Diff(_ context.Context, f api.File) (api.Plan, error) {
	b.receive(f)
	return answer[api.Plan](b, "diff")
}

func (b scriptBackend) Reload(context.Context) (api.ReloadResult, error) {
	return answer[api.ReloadResult](b, "reload")
}

// ReloadNow answers now.json.
func (b scriptBackend) ReloadNow(context.Context) (api.ReloadResult, error) {
	return answer[api.ReloadResult](b, "now")
}

func (b scriptBackend) Reconcile(context.Context) (api.ReconcileResult, error) {
	return answer[api.ReconcileResult](b, "reconcile")
}

func (b scriptBackend) receive(f api.File) {
	os.WriteFile(filepath.Join(b.dir, "received"), []byte(f.Name+"\n"+f.Content), 0o644)
}
