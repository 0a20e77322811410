package daemon

import (
	"context"
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/ipvs"
)

// SetAdmin implements api.Backend.
func (d *Daemon) SetAdmin(ctx context.Context, t api.AdminTarget, r api.AdminRequest, by api.Peer) (api.AdminResult, error) {
	who := nameOf(by)
	type reply struct {
		result api.AdminResult
		err    error
	}
	done := make(chan reply, 1)
	if err := d.owner.do(ctx, d.stopped, func(ctx context.Context) {
		result, err := d.owner.setAdmin(ctx, t, r, who)
		done <- reply{result, err}
	}); err != nil {
		return api.AdminResult{}, err
	}
	out := <-done
	return out.result, out.err
}

// nameOf names a peer for people: "alice (uid 1000)".
func nameOf(p api.Peer) string {
	uid := strconv.Itoa(p.UID)
	if u, err := user.LookupId(uid); err == nil {
		return u.Username + " (uid " + uid + ")"
	}
	return "uid " + uid
}

// target is a real server of the configuration that a request names.
type target struct {
	service *config.VirtualService
	server  *config.RealServer
}

func (t target) key() ipvs.DestinationKey {
	return ipvs.DestinationKey{Service: t.service.ServiceKey, Address: t.server.Address}
}

// targets finds the real servers that a request names, in file order.
func (o *owner) targets(t api.AdminTarget) ([]target, error) {
	var found []target
	service := t.Service == ""
	for i := range o.loaded.VirtualServices {
		vs := &o.loaded.VirtualServices[i]
		if t.Service != "" && vs.Name != t.Service && vs.ServiceKey.String() != t.Service {
			continue
		}
		service = true
		for rs := range vs.Servers() {
			if t.Match(rs.Address) {
				found = append(found, target{vs, rs})
			}
		}
	}
	switch {
	case !service:
		return nil, fmt.Errorf("virtual service %q: %w in the configuration", t.Service, api.ErrNotFound)
	case len(found) == 0:
		return nil, fmt.Errorf("real server %v: %w in the configuration", t, api.ErrNotFound)
	}
	return found, nil
}

// setAdmin does what a request says: it is written down first, then the table
// follows. What could not be done is in the result and tried again by each pass:
// an operator who drains a server must not have to wait for a full disk.
func (o *owner) setAdmin(ctx context.Context, t api.AdminTarget, r api.AdminRequest, by string) (api.AdminResult, error) {
	found, err := o.targets(t)
	if err != nil {
		return api.AdminResult{}, err
	}
	now := time.Now()
	next := cloneMap(o.admin.all)
	changes := make([]api.AdminChange, len(found))
	for i, f := range found {
		key := f.key()
		was := next[key]
		is := request(was, r, f.server.Weight, now)
		changes[i] = api.AdminChange{
			Service: f.service.Name, Key: f.service.ServiceKey.String(), RealServer: f.server.Address.String(), Changed: !sameOverride(was, is),
			Change: adminWords(was, is, r, f.server.Weight, now),
		}
		if changes[i].Changed {
			is.By, is.At = by, now
		}
		if next[key] = is; is.Zero() {
			delete(next, key)
		}
		if !changes[i].Changed {
			continue
		}
		o.log.Info("admin state changed", "service", f.service.Name, "real_server", f.server.Address,
			"change", changes[i].Change, "by", by)
		o.events.add(api.Event{
			Kind: api.EventAdmin, Service: f.service.Name, Key: f.service.ServiceKey.String(), RealServer: f.server.Address.String(),
			Text: changes[i].Change, By: by,
		})
	}
	var result api.AdminResult
	o.admin.all = next
	// Also for what has not changed: whoever asks twice may want it tried again.
	if report, err := o.pass(ctx); err != nil {
		acked := report.Acknowledged()
		if slices.ContainsFunc(found, func(f target) bool { return !acked(f.key()) }) {
			result.Errors = append(result.Errors, err.Error())
		} else {
			result.Warnings = append(result.Warnings, "done, but not all else follows the configuration: "+err.Error())
		}
	}
	if err := o.admin.err; err != nil {
		result.Errors = append(result.Errors, fmt.Sprintf("not written down: %v", err))
	}
	if o.admin.store == nil && o.admin.unread != nil {
		result.Errors = append(result.Errors, fmt.Sprintf("not kept over a restart: %v", o.admin.unread))
	}
	for i, f := range found {
		o.describeChange(&changes[i], f, now)
	}
	result.RealServers = changes
	result.Warnings = append(result.Warnings, o.adminWarnings(found, r)...)
	return result, nil
}

// pruneAdmin forgets what the configuration says otherwise.
func (o *owner) pruneAdmin() {
	for _, p := range o.admin.prune(o.loaded.Config) {
		o.log.Warn("admin state changed by the configuration", "service", p.service, "real_server", p.key.Address, "change", p.what, "reason", p.why)
		o.events.add(api.Event{
			Kind: api.EventAdmin, Service: p.service, Key: p.key.Service.String(), RealServer: p.key.Address.String(),
			Text: p.what, Reason: p.why, By: "configuration",
		})
	}
}

// request returns what an override becomes by a request, without who and when.
func request(was fleet.Override, r api.AdminRequest, configured uint32, now time.Time) fleet.Override {
	is := was
	if r.Mode != "" {
		// The request was checked.
		if err := is.Mode.UnmarshalText([]byte(r.Mode)); err != nil {
			return was
		}
		if is.Mode != was.Mode || r.DeadlineSeconds > 0 {
			is.Deadline = time.Time{}
		}
		if r.DeadlineSeconds > 0 {
			is.Deadline = now.Add(seconds(r.DeadlineSeconds))
		}
	}
	current := configured
	if was.Weight != nil {
		current = was.Weight.At(now)
	}
	var to uint32
	switch {
	case r.Weight != nil:
		to = *r.Weight
	case r.ResetWeight:
		to = configured
	default:
		return is
	}
	over := seconds(r.OverSeconds)
	if w := was.Weight; w != nil && w.To == to {
		onTheWay := w.Over == over && !w.Next(now).IsZero()
		if onTheWay || current == to && to != configured {
			return is
		}
	}
	if current == to {
		over = 0
	}
	switch {
	case over == 0 && to == configured:
		is.Weight, is.Configured = nil, 0
	case over == 0:
		is.Weight, is.Configured = &fleet.WeightOverride{From: to, To: to, Begun: now}, configured
	default:
		is.Weight, is.Configured = &fleet.WeightOverride{From: current, To: to, Begun: now, Over: over}, configured
	}
	return is
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// adminWords says what a real server is by a request: "drained", "weight 3 -> 5
// over 1m0s".
func adminWords(was, is fleet.Override, r api.AdminRequest, configured uint32, now time.Time) string {
	var words []string
	if r.Mode != "" {
		words = append(words, map[fleet.Mode]string{
			fleet.ModeNone: "resumed", fleet.ModeDrain: "drained", fleet.ModeDisable: "disabled",
		}[is.Mode])
		if is.Mode == fleet.ModeNone && r.Weight == nil && is.Weight != nil {
			words = append(words, fmt.Sprintf("weight %d stays", is.Weight.To))
		}
	}
	if r.Weight != nil || r.ResetWeight {
		from, to := weightOf(was, configured, now), weightOf(is, configured, now)
		text := fmt.Sprintf("weight %d -> %d", from, to)
		switch w := is.Weight; {
		case w != nil && !w.Next(now).IsZero():
			text = fmt.Sprintf("weight %d -> %d over %v", from, w.To, w.Over)
		case from == to:
			text = fmt.Sprintf("weight %d", to)
		}
		if is.Weight == nil {
			text += ", as configured"
		}
		words = append(words, text)
	}
	return strings.Join(words, ", ")
}

// weightOf returns the weight that an operator leaves, drained or not.
func weightOf(o fleet.Override, configured uint32, now time.Time) uint32 {
	if o.Weight == nil {
		return configured
	}
	return o.Weight.At(now)
}

// describeChange adds to a change what the last decision says.
func (o *owner) describeChange(c *api.AdminChange, t target, now time.Time) {
	c.Admin = adminOf(o.admin.all[t.key()], now)
	if conns, ok := o.mirror.counts.Load().conns(t.key()); ok {
		c.ActiveConnections, c.InactiveConnections = conns.Conns.Active, conns.Conns.Inactive
	}
	if o.fleet == nil {
		return
	}
	for i := range o.fleet.Services {
		s := &o.fleet.Services[i]
		if s.ServiceKey != t.service.ServiceKey {
			continue
		}
		for j := range s.Servers {
			if rs := &s.Servers[j]; rs.Address == t.server.Address && rs.State != fleet.Draining {
				c.State, c.Reason, c.Weight = string(rs.State), rs.Reason, rs.Weight
			}
		}
	}
}

// adminOf returns an override as the API tells it at now.
func adminOf(o fleet.Override, now time.Time) api.Admin {
	a := api.Admin{Mode: o.Mode.String(), By: o.By, Since: o.At, Deadline: o.Deadline}
	if w := o.Weight; w != nil {
		to := w.To
		a.Weight = &to
		a.RampSeconds = max(0, w.Over-now.Sub(w.Begun)).Seconds()
	}
	return a
}

// adminWarnings says what a drain does not keep away. Only with the sysctl does a
// template of persistence not send its client to a server of weight 0.
func (o *owner) adminWarnings(found []target, r api.AdminRequest) []string {
	if r.Mode != fleet.ModeDrain.String() {
		return nil
	}
	const expire = "expire_quiescent_template"
	if v, err := o.host.Sysctl(expire); err == nil && v != 0 {
		return nil
	}
	var warnings []string
	seen := make(map[string]bool)
	for _, f := range found {
		if f.service.Flags&ipvs.FlagPersistent == 0 || seen[f.service.Name] {
			continue
		}
		seen[f.service.Name] = true
		warnings = append(warnings, fmt.Sprintf("%s is persistent and %s is 0: a client that was here in the last %v still comes back, and keeps the drain from ending",
			f.service.Name, expire, f.service.Persistence.Timeout))
	}
	return warnings
}
