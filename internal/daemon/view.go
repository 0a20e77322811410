package daemon

import (
	"fmt"
	"maps"
	"time"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/internal/reconcile"
	"github.com/lbd-project/lbd/ipvs"
)

// view is what the owner shows of itself after each pass. It is immutable, so
// that nobody who looks waits for the owner or holds it up.
type view struct {
	loaded    *loaded
	fleet     *fleet.Fleet
	since     map[ipvs.DestinationKey]since
	sync      syncState
	reloadErr string
	// admin is what operators said, adminErr why it is not written down.
	admin    fleet.Overrides
	adminErr error
	// released is when services stopped to be lbd's.
	released map[ipvs.ServiceKey]time.Time
	// mem is what lbd remembers, for the plan of a reload.
	mem *ledger
}

// since is a state of a real server with when it began.
type since struct {
	state fleet.State
	at    time.Time
}

// syncState says how well the table follows the configuration.
type syncState struct {
	lastSuccess time.Time
	// lastErr is sticky until the next full success.
	lastErr       error
	passes        uint64
	ops, failed   uint64
	drift         uint64
	lastDrift     string
	lastDriftTime time.Time
}

func (s *syncState) api(now time.Time) api.Sync {
	a := api.Sync{
		LastSuccess:   s.lastSuccess,
		AgeSeconds:    age(now, s.lastSuccess),
		Passes:        s.passes,
		Ops:           s.ops,
		FailedOps:     s.failed,
		Drift:         s.drift,
		LastDrift:     s.lastDrift,
		LastDriftTime: s.lastDriftTime,
	}
	if s.lastErr != nil {
		a.LastError = s.lastErr.Error()
	}
	return a
}

// age returns the seconds since t, -1 for the zero time.
func age(now, t time.Time) float64 {
	if t.IsZero() {
		return -1
	}
	return now.Sub(t).Seconds()
}

// maxDriftLines bounds what a pass logs of somebody's ipvsadm -C.
const maxDriftLines = 20

// finish takes the outcome of a pass: counters, the next pass, the view, logs and
// the service manager.
func (o *owner) finish(report reconcile.Report, err error) {
	now := time.Now()
	o.sync.passes++
	o.sync.ops += uint64(len(report.Changes))
	o.sync.failed += uint64(report.Failed)
	for i, d := range report.Drift {
		o.sync.drift++
		o.sync.lastDrift, o.sync.lastDriftTime = d.String(), now
		if i < maxDriftLines {
			o.log.Warn("somebody else changed the table, repaired", "drift", d.String())
			o.events.add(api.Event{Kind: api.EventDrift, Text: "repaired what somebody else changed", Reason: d.String()})
		}
	}
	if more := len(report.Drift) - maxDriftLines; more > 0 {
		o.log.Warn("somebody else changed more of the table, repaired", "changes", more)
		o.events.add(api.Event{Kind: api.EventDrift, Text: "repaired more of what somebody else changed", Reason: fmt.Sprintf("%d changes", more)})
	}
	o.noteRepairs(now)
	o.noteOutcome(err, now)
	o.noteDrains(report, now)
	if o.fleet != nil {
		o.announce(report)
		o.announceAlerts()
		o.announceWarnings(now)
		o.hooks.want(o.commands)
		o.noteStates(now)
	}
	o.publish()
	o.schedule(report, err)
	if len(report.Changes) > 0 {
		o.mirror.poke()
	}
	closeOnce(o.tried)
	if err == nil {
		closeOnce(o.synced)
	}
}

// noteRepairs adds what the engine repaired of its own, and says whether there
// was anything. It has logged it.
func (o *owner) noteRepairs(now time.Time) bool {
	if o.repairs == nil {
		return false
	}
	n := o.repairs()
	more := n > o.repaired
	if more {
		o.sync.drift += n - o.repaired
		o.sync.lastDrift, o.sync.lastDriftTime = "changed the rules of the engine", now
		o.events.add(api.Event{Kind: api.EventDrift, Text: "repaired what somebody else changed", Reason: o.sync.lastDrift})
	}
	o.repaired = n
	return more
}

// noteOutcome keeps the error and logs when it comes, changes and goes.
func (o *owner) noteOutcome(err error, now time.Time) {
	last := o.sync.lastErr
	switch {
	case err == nil:
		o.sync.lastSuccess = now
		if last != nil {
			o.log.Info("the table follows the configuration again")
			o.events.add(api.Event{Kind: api.EventSync, State: api.StateFollows, Text: "the table follows the configuration again"})
		}
	case last == nil || last.Error() != err.Error():
		o.log.Error("the table does not follow the configuration, trying again", "err", err)
		o.events.add(api.Event{Kind: api.EventSync, State: api.StateFails, Text: "the table does not follow the configuration, trying again", Reason: err.Error()})
	}
	o.sync.lastErr = err
}

// noteDrains notes since when the table has had the weight 0 of each draining
// server.
func (o *owner) noteDrains(report reconcile.Report, now time.Time) {
	drained := make(map[ipvs.DestinationKey]time.Time, len(o.mem.drains))
	acked := report.Acknowledged()
	for _, d := range o.mem.drains {
		k := d.Key()
		if at, ok := o.drained[k]; ok {
			drained[k] = at
		} else if acked(k) {
			drained[k] = now
		}
	}
	o.drained = drained
}

// noteStates notes since when each server has been in its state.
func (o *owner) noteStates(now time.Time) {
	changed, known := make(map[ipvs.DestinationKey]since), 0
	for i := range o.fleet.Services {
		s := &o.fleet.Services[i]
		for j := range s.Servers {
			k := ipvs.DestinationKey{Service: s.ServiceKey, Address: s.Servers[j].Address}
			was, ok := o.since[k]
			if ok {
				known++
			}
			if !ok || was.state != s.Servers[j].State {
				changed[k] = since{s.Servers[j].State, now}
			}
		}
	}
	if len(changed) == 0 && known == len(o.since) {
		return
	}
	next := maps.Clone(o.since) // views have the old one
	if known < len(o.since) {
		next = o.withoutLeft()
	}
	maps.Copy(next, changed)
	o.since = next
}

// withoutLeft returns since when the servers of the fleet are in their states, as far
// as that is known.
func (o *owner) withoutLeft() map[ipvs.DestinationKey]since {
	kept := make(map[ipvs.DestinationKey]since, len(o.since))
	for i := range o.fleet.Services {
		s := &o.fleet.Services[i]
		for j := range s.Servers {
			k := ipvs.DestinationKey{Service: s.ServiceKey, Address: s.Servers[j].Address}
			if was, ok := o.since[k]; ok {
				kept[k] = was
			}
		}
	}
	return kept
}

// publish shows the present state to everybody.
func (o *owner) publish() {
	o.forgetReleased()
	v := &view{
		loaded:    o.loaded,
		fleet:     o.fleet,
		since:     o.since,
		sync:      o.sync,
		reloadErr: o.reloadErr,
		admin:     o.admin.all,
		adminErr:  o.admin.lastErr(),
		released:  o.released,
		mem:       o.mem.clone(),
	}
	o.view.Store(v)
	o.notifier.say(v.status())
}

// forgetReleased forgets those services that are no more lbd's of which newer
// statistics tell how they are.
func (o *owner) forgetReleased() {
	st := o.mirror.stats.Load()
	if len(o.released) == 0 || st == nil {
		return
	}
	released := cloneMap(o.released) // a view has the old one
	maps.DeleteFunc(released, func(_ ipvs.ServiceKey, at time.Time) bool { return st.at.After(at) })
	o.released = released
}

// status is the state in one line, for the service manager.
func (v *view) status() string {
	switch {
	case v.fleet == nil && v.sync.lastErr == nil:
		return "starting"
	case v.fleet == nil:
		return fmt.Sprintf("starting: %v", v.sync.lastErr)
	}
	_, servers := v.counts()
	text := fmt.Sprintf("%d virtual services, %d real servers, %d down, %d draining",
		len(v.fleet.Services), servers.Total, servers.Down, servers.Draining)
	if n := servers.Drained + servers.Disabled; n > 0 {
		text += fmt.Sprintf(", %d drained or disabled", n)
	}
	if v.sync.lastErr != nil {
		text += "; the table does not follow: " + v.sync.lastErr.Error()
	}
	if v.reloadErr != "" {
		text += "; last reload refused"
	}
	return text
}

func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}
