package daemon

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/internal/userspace"
	"github.com/lbd-project/lbd/ipvs"
)

// handshakeSource is an engine that sees how connections to real servers begin. A
// userspace.Engine is one.
type handshakeSource interface {
	// WatchHandshakes makes these services, and none else, those that are watched.
	WatchHandshakes(ctx context.Context, services []ipvs.ServiceKey) error
	// Handshakes returns how connections of watched services began since the last
	// call.
	Handshakes() ([]userspace.Handshakes, error)
}

// handshakeInterval is how often an observer reads.
const handshakeInterval = time.Second

// observer follows how connections begin, of services with passive, and asks for a
// pass when what it sees of a real server has changed. What it saw is lost with it:
// after a restart nobody is out for his connections. The nil observer is that of an
// engine which sees nothing. Its methods are safe for concurrent use.
type observer struct {
	source handshakeSource
	log    *slog.Logger
	// changed asks for a pass.
	changed func()

	mu       sync.Mutex
	services map[ipvs.ServiceKey]config.Passive
	// watched are those that the source was told of; unsure says that it failed.
	watched []ipvs.ServiceKey
	unsure  bool
	windows map[ipvs.DestinationKey]*handshakeWindow
	// back is when servers came back, judged what the last decision went by.
	back   map[ipvs.DestinationKey]time.Time
	judged map[ipvs.DestinationKey]judgement
	// lastErr is why the last reading failed.
	lastErr string
}

// judgement is what decisions ask of a server's connections.
type judgement struct{ failing, well bool }

func newObserver(source handshakeSource, log *slog.Logger, changed func()) *observer {
	if source == nil {
		return nil
	}
	return &observer{source: source, log: log, changed: changed, windows: make(map[ipvs.DestinationKey]*handshakeWindow)}
}

// watch follows a configuration. Real servers of services that stay keep their
// windows.
func (o *observer) watch(ctx context.Context, c *config.Config) error {
	if o == nil {
		return nil
	}
	next := make(map[ipvs.ServiceKey]config.Passive)
	for i := range c.VirtualServices {
		if vs := &c.VirtualServices[i]; vs.Passive.On() {
			next[vs.ServiceKey] = vs.Passive
		}
	}
	keys := slices.SortedFunc(maps.Keys(next), ipvs.ServiceKey.Compare)
	o.mu.Lock()
	o.services = next
	maps.DeleteFunc(o.windows, func(k ipvs.DestinationKey, _ *handshakeWindow) bool { return !next[k.Service].On() })
	known := !o.unsure && slices.Equal(keys, o.watched)
	o.mu.Unlock()
	if known {
		return nil
	}
	err := o.source.WatchHandshakes(ctx, keys)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.watched, o.unsure = keys, err != nil
	return err
}

// run reads until ctx is done.
func (o *observer) run(ctx context.Context) error {
	ticker := time.NewTicker(handshakeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			o.read()
		}
	}
}

// read takes in what came since it was called last. It reads nothing while no
// service is watched.
func (o *observer) read() {
	o.mu.Lock()
	idle := o.unsure || len(o.watched) == 0
	o.mu.Unlock()
	if idle {
		return
	}
	list, err := o.source.Handshakes()
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.noteError(err)
	if err != nil {
		return
	}
	for i := range list {
		k := list[i].DestinationKey
		if o.services[k.Service].On() && o.windows[k] == nil {
			o.windows[k] = &handshakeWindow{}
		}
		if w := o.windows[k]; w != nil {
			w.begin(now, &list[i])
		}
	}
	for k, w := range o.windows {
		w.end(now, o.services[k.Service].Window)
		if w.empty() {
			delete(o.windows, k)
		}
	}
	if !maps.Equal(o.judge(), o.judged) {
		o.changed()
	}
}

// noteError logs an error once. mu is held.
func (o *observer) noteError(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != o.lastErr && err != nil {
		o.log.Warn("how connections begin cannot be read, so that passive does nothing", "err", err)
	}
	o.lastErr = text
}

// judge says what decisions would ask now. mu is held.
func (o *observer) judge() map[ipvs.DestinationKey]judgement {
	all := make(map[ipvs.DestinationKey]judgement, len(o.windows))
	for k, w := range o.windows {
		p := o.services[k.Service]
		h := w.sum(o.back[k])
		if j := (judgement{h.Failing(&p), h.Well(&p)}); j != (judgement{}) {
			all[k] = j
		}
	}
	return all
}

// handshakes returns what fleet.Input wants; nil for the nil observer.
func (o *observer) handshakes() func(ipvs.DestinationKey, time.Time) fleet.Handshakes {
	if o == nil {
		return nil
	}
	return func(k ipvs.DestinationKey, since time.Time) fleet.Handshakes {
		o.mu.Lock()
		defer o.mu.Unlock()
		if w := o.windows[k]; w != nil {
			return w.sum(since)
		}
		return fleet.Handshakes{}
	}
}

// decided notes what a decision went by and left.
func (o *observer) decided(m fleet.Memory) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.back = make(map[ipvs.DestinationKey]time.Time, len(m.Ejections))
	for k, e := range m.Ejections {
		o.back[k] = e.Back
	}
	o.judged = o.judge()
}
