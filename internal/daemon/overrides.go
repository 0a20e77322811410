package daemon

import (
	"cmp"
	"fmt"
	"maps"
	"time"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/internal/memory/state"
	"github.com/lbd-project/lbd/ipvs"
)

// overrides are what operators said of real servers. They belong to the owner,
// but for what the view has of them: their maps are replaced, never written to.
type overrides struct {
	all fleet.Overrides
	// saved is what the store holds, savedAt when it was written or read; written
	// says that it was by this lbd.
	saved   fleet.Overrides
	savedAt time.Time
	written bool
	// store is nil where nothing is kept; path is its file.
	store OverrideStore
	path  string
	// writing is the result of a write under way, of pending since pendingAt; nil
	// for none.
	writing   chan error
	pending   fleet.Overrides
	pendingAt time.Time
	// unread is why it could not be opened or read at the start, err why it could
	// not be written last.
	unread, err error
}

// kept is what was kept of what operators said before this start.
type kept struct {
	// store is nil where nothing is kept, for err if that is not nil.
	store     OverrideStore
	overrides state.Overrides
	warnings  []string
	err       error
}

// newOverrides takes over what was kept.
func newOverrides(k kept, path string) *overrides {
	s := &overrides{store: k.store, path: path, unread: k.err}
	s.restore(k.overrides, time.Now())
	return s
}

// restore takes over what a store held at now.
func (s *overrides) restore(held state.Overrides, now time.Time) {
	s.all = make(fleet.Overrides, len(held))
	for k, o := range held {
		f := fleet.Override{By: o.By, At: o.At, Configured: o.Configured, Deadline: o.Deadline}
		if err := f.Mode.UnmarshalText([]byte(o.Mode)); err != nil {
			continue // of no mode that the store lets through
		}
		if w := o.Weight; w != nil {
			f.Weight = &fleet.WeightOverride{From: w.From, To: w.To, Begun: now.Add(-w.Elapsed), Over: w.Over}
		}
		s.all[k] = f
	}
	s.saved, s.savedAt = s.all, now
}

// stored returns what is written down at now.
func (s *overrides) stored(now time.Time) state.Overrides {
	out := make(state.Overrides, len(s.all))
	for k, f := range s.all {
		o := state.Override{Mode: f.Mode.String(), By: f.By, At: f.At, Configured: f.Configured, Deadline: f.Deadline}
		if w := f.Weight; w != nil {
			o.Weight = &state.Weight{From: w.From, To: w.To, Over: w.Over, Elapsed: min(max(now.Sub(w.Begun), 0), w.Over)}
		}
		out[k] = o
	}
	return out
}

// lastErr says why what was said may not outlive a restart; nil if it does.
func (s *overrides) lastErr() error { return cmp.Or(s.err, s.unread) }

// settle forgets the weights that have arrived at the configured one.
func (s *overrides) settle(now time.Time) {
	var next fleet.Overrides
	for k, o := range s.all {
		if w := o.Weight; w == nil || w.To != o.Configured || !w.Next(now).IsZero() {
			continue
		}
		if next == nil {
			next = cloneMap(s.all)
		}
		if o.Weight, o.Configured = nil, 0; o.Zero() {
			delete(next, k)
		} else {
			next[k] = o
		}
	}
	if next != nil {
		s.all = next
	}
}

// save writes down what changed, and with a maximum age of what is in force that
// lbd is alive, each tenth of it. What an earlier lbd wrote may be old already: an
// lbd that lives for less must not let it grow older. By refreshFirst the clock of a
// host that starts without one is set. After an error the next call tries again.
func (s *overrides) save(maxAge time.Duration, now time.Time) error {
	s.settle(now)
	if s.store == nil {
		return nil
	}
	if s.err == nil && equalOverrides(s.all, s.saved) {
		every := maxAge / 10
		if !s.written {
			every = min(every, refreshFirst)
		}
		if maxAge == 0 || len(s.all) == 0 || now.Sub(s.savedAt) < every {
			return nil
		}
	}
	s.write(now)
	return s.err
}

// diskPatience is how long the owner waits for the disk, with which every change of
// a weight waits.
const diskPatience = time.Second

var errDiskHangs = fmt.Errorf("the disk has not answered for %v", diskPatience)

// write writes everything down. A disk that hangs is waited for by a goroutine of
// its own, and nothing else is written meanwhile.
func (s *overrides) write(now time.Time) {
	if s.writing == nil {
		s.writing = make(chan error, 1)
		s.pending, s.pendingAt = s.all, now
		stored := s.stored(now)
		go func(done chan<- error) { done <- s.store.Save(stored) }(s.writing)
	} else if s.err == errDiskHangs && len(s.writing) == 0 {
		return // it has been waited for
	}
	patience := time.NewTimer(diskPatience)
	defer patience.Stop()
	select {
	case s.err = <-s.writing:
	case <-patience.C:
		s.err = errDiskHangs
		return
	}
	s.writing = nil
	if s.err != nil {
		return
	}
	s.saved, s.savedAt, s.written = s.pending, s.pendingAt, true
	if !equalOverrides(s.all, s.saved) {
		s.write(now) // what was said while the disk hung
	}
}

// refreshFirst is the time from the start after which lbd writes down that it is
// alive, where a tenth of the maximum age is more.
const refreshFirst = time.Minute

// prune forgets what a configuration says otherwise, and returns words about what
// that was.
func (s *overrides) prune(c *config.Config) []pruned {
	if len(s.all) == 0 {
		return nil
	}
	type server struct {
		service string
		weight  uint32
	}
	configured := make(map[ipvs.DestinationKey]server)
	names := make(map[ipvs.ServiceKey]string, len(c.VirtualServices))
	for i := range c.VirtualServices {
		vs := &c.VirtualServices[i]
		names[vs.ServiceKey] = vs.Name
		for rs := range vs.Servers() {
			configured[ipvs.DestinationKey{Service: vs.ServiceKey, Address: rs.Address}] = server{vs.Name, rs.Weight}
		}
	}
	next := make(fleet.Overrides, len(s.all))
	var gone []pruned
	for k, o := range s.all {
		in, wanted := configured[k]
		if !wanted {
			gone = append(gone, pruned{k, cmp.Or(names[k.Service], k.Service.String()), describeOverride(o) + " forgotten", "it left the configuration"})
			continue
		}
		if o.Obsolete(in.weight) {
			gone = append(gone, pruned{k, in.service, fmt.Sprintf("weight %d dropped", o.Weight.To),
				fmt.Sprintf("the configuration says %d now, and said %d when it was set", in.weight, o.Configured)})
			o.Weight, o.Configured = nil, 0
		}
		if !o.Zero() {
			next[k] = o
		}
	}
	if len(gone) > 0 {
		s.all = next
	}
	return gone
}

// pruned is an override that the configuration made obsolete.
type pruned struct {
	key ipvs.DestinationKey
	// service is its name, its key where it left the configuration.
	service string
	what    string
	why     string
}

// describeOverride says in words what an override does.
func describeOverride(o fleet.Override) string {
	text := map[fleet.Mode]string{fleet.ModeDrain: "drain", fleet.ModeDisable: "disable"}[o.Mode]
	if o.Weight == nil {
		return text
	}
	if text != "" {
		text += ", "
	}
	text += fmt.Sprintf("weight %d", o.Weight.To)
	return text
}

// equalOverrides reports whether both say the same.
func equalOverrides(a, b fleet.Overrides) bool {
	return maps.EqualFunc(a, b, func(a, b fleet.Override) bool {
		return sameOverride(a, b) && a.By == b.By && a.At.Equal(b.At) && a.Deadline.Equal(b.Deadline)
	})
}

// sameOverride reports whether both decide the same.
func sameOverride(a, b fleet.Override) bool {
	if a.Mode != b.Mode || (a.Weight == nil) != (b.Weight == nil) {
		return false
	}
	return a.Weight == nil || a.Configured == b.Configured && a.Weight.From == b.Weight.From && a.Weight.To == b.Weight.To &&
		a.Weight.Over == b.Weight.Over && a.Weight.Begun.Equal(b.Weight.Begun)
}
