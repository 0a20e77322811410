package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lbd-project/lbd/ipvs"
)

const (
	// maxRounds bounds how often a pass reads and writes the table.
	maxRounds = 5
	// maxBatch bounds the operations given to the table at once, so that a pass
	// can be cancelled and a lost answer leaves little unknown.
	maxBatch = 5000
	// firstBackoff is the longest wait before the second round; it doubles.
	firstBackoff = 10 * time.Millisecond
)

// Reconciler keeps a table as desired and remembers what it last knew of it, to
// tell somebody else's changes from its own. The zero value is ready. It is not
// safe for concurrent use.
type Reconciler struct {
	// Claim is called with the keys of the wanted services that are not in
	// Desired.Owned, before a pass writes to the table, to write them down as
	// lbd's own; services that need no write are among them. After an error the
	// pass leaves them alone and fails, but what is owned already follows: a full
	// disk must not keep the weight of a dead server. Nil claims nothing.
	Claim func(keys []ipvs.ServiceKey) error
	// Logger gets retried faults; nil discards.
	Logger *slog.Logger

	belief belief
}

// Report is what a pass did.
type Report struct {
	// Changes are the operations that the table acknowledged, in order.
	Changes []Change
	// Failed counts operations that the table answered with an error, retries
	// included.
	Failed int
	// Drift are the changes by others that the pass found.
	Drift []Drift
	// Released are the owned services that are neither wanted nor in the table
	// any more, so they need not be remembered. Empty unless the table answered
	// every operation.
	Released []ipvs.ServiceKey
	// Rounds counts how often the table was read and compared, at least 1 for a
	// Pass and 0 for an Ahead. Edits and deletes of real servers may have been
	// written before that.
	Rounds int

	// complete says that the last round got through: the table was read, or of an
	// Ahead believed to be as it was, and all that was missing was written but for
	// lacking, which has the zero address for whole services.
	complete bool
	lacking  map[ipvs.DestinationKey]struct{}
}

// After returns a report of what was done before, and then of r.
func (r Report) After(before Report) Report {
	if len(before.Changes) > 0 { // of a first programming r's are megabytes
		r.Changes = slices.Concat(before.Changes, r.Changes)
	}
	r.Failed += before.Failed
	return r
}

// Ops counts the changes by kind.
func (r Report) Ops() map[ipvs.OpKind]int {
	ops := make(map[ipvs.OpKind]int)
	for _, c := range r.Changes {
		ops[c.Kind]++
	}
	return ops
}

// Pass makes the table as desired. Operations that fail because somebody else
// changed the table, or for a passing fault, are tried again from a fresh read,
// at most five rounds; what the table refuses as invalid is not, and does not
// keep the rest from being written.
//
// A nil error means that the table acknowledged all that was missing. An error
// that matches ipvs.ErrNotAvailable, fs.ErrPermission or the context's ends the
// pass at once. The report is valid in every case.
func (r *Reconciler) Pass(ctx context.Context, table Table, desired Desired) (Report, error) {
	p := pass{Reconciler: r, table: table, desired: desired}
	if err := desired.check(); err != nil {
		return p.report, err
	}
	var claimErr error
	if keys := desired.unclaimed(); len(keys) > 0 && r.Claim != nil {
		if err := r.Claim(keys); err != nil {
			claimErr = fmt.Errorf("record %d virtual services as owned: %w", len(keys), err)
			p.desired, p.unclaimed = desired.claimed(), keys
		}
	}
	err := errors.Join(claimErr, p.run(ctx))
	return p.report, err
}

// Ahead writes what is missing by what was known after the last pass, without a
// reading of the table: that of a large one takes long. It reports whether the table
// acknowledged all of it. If not, a Pass is due: some services need something else
// than edits and deletes of real servers, nothing is known of the table, or it has
// changed since. What others did meanwhile only a Pass finds. The report is valid in
// every case; nothing is released.
func (r *Reconciler) Ahead(ctx context.Context, table Table, desired Desired) (report Report, done bool) {
	p := pass{Reconciler: r, table: table, desired: desired}
	if desired.check() != nil || len(desired.unclaimed()) > 0 {
		return p.report, false
	}
	p.report.complete = p.ahead(ctx)
	return p.report, p.report.complete
}

// pass is one run of Pass.
type pass struct {
	*Reconciler
	table   Table
	desired Desired
	// unclaimed are the services that are left alone.
	unclaimed []ipvs.ServiceKey
	report    Report
	refused   refusals
	// ops is reused from batch to batch.
	ops []ipvs.Op
}

func (p *pass) run(ctx context.Context) error {
	p.ahead(ctx)
	for {
		p.report.Rounds++
		err := p.round(ctx)
		switch {
		case err == nil:
			return p.refused.err()
		case final(err):
			return err
		case p.report.Rounds == maxRounds:
			return errors.Join(p.refused.err(), fmt.Errorf("table is not as wanted after %d rounds: %w", maxRounds, err))
		}
		p.logger().Warn("table not yet as wanted, trying again", "round", p.report.Rounds, "err", err)
		if err := p.backoff(ctx); err != nil {
			return err
		}
	}
}

// ahead writes what is missing by what was known after the last pass, before the
// table is read: a failed server gets new connections meanwhile. It edits and
// deletes real servers alone. Of a service with anything else to do, the order of
// Diff counts, and the first round does it all. What goes wrong here, because the
// table has changed since, the first round finds. It reports whether nothing is
// missing any more, as far as is known.
func (p *pass) ahead(ctx context.Context) (done bool) {
	if p.belief == nil {
		return false
	}
	changes := Plan(p.belief.unlike(p.desired))
	later := make(map[ipvs.ServiceKey]bool)
	for i := range changes {
		if k := changes[i].Kind; k != ipvs.OpUpdateDestination && k != ipvs.OpDeleteDestination {
			later[changes[i].key().Service] = true
		}
	}
	changes = slices.DeleteFunc(changes, func(c Change) bool { return later[c.key().Service] })
	for batch := range slices.Chunk(changes, maxBatch) {
		if _, err := p.write(ctx, batch); err != nil {
			return false
		}
	}
	return len(later) == 0 && p.report.Failed == 0
}

// round reads the table and writes what is missing. Nil means that the table
// acknowledged everything but what it refused for good.
func (p *pass) round(ctx context.Context) error {
	p.report.complete = false
	actual, err := p.read(ctx)
	if err != nil {
		return err
	}
	p.report.lacking = nil
	p.report.lackAll(p.unclaimed)
	changes := p.refused.drop(Plan(p.desired, actual), p.report.lack)
	if len(p.report.Changes) == 0 {
		// What is acknowledged moves up in place: a first programming is megabytes.
		p.report.Changes = changes[:0]
	}
	p.ops = slices.Grow(p.ops, min(len(changes), maxBatch))
	var failed []error
	for batch := range slices.Chunk(changes, maxBatch) {
		retry, err := p.write(ctx, batch)
		if err != nil {
			return err
		}
		failed = append(failed, retry...)
	}
	p.report.complete = true
	if len(failed) == 0 {
		p.release()
	}
	return summary(failed)
}

// read reads the table and notes drift. A dump that the table changes under may
// miss entries, and a service that vanishes in the middle looks empty, so what
// is missing counts only when a second read misses it too.
func (p *pass) read(ctx context.Context) ([]ipvs.TableEntry, error) {
	actual, err := p.table.Table(ctx)
	if err != nil {
		return nil, fmt.Errorf("read table: %w", err)
	}
	now := readBelief(actual)
	if p.missing(now) {
		if actual, err = p.table.Table(ctx); err != nil {
			return nil, fmt.Errorf("read table again: %w", err)
		}
		now = readBelief(actual)
	}
	p.report.Drift = append(p.report.Drift, p.belief.drift(p.desired, now)...)
	p.belief = now
	return actual, nil
}

// missing says whether the table lacks anything that it is believed to hold, or
// a service that would be released for that, or holds a wanted service without
// any of its real servers.
func (p *pass) missing(now belief) bool {
	for _, s := range p.desired.Services {
		k := canonicalKey(s.ServiceKey)
		is, found := now[k]
		was, known := p.belief[k]
		if known && !found {
			return true
		}
		if found && len(is.destinations) == 0 && len(s.Destinations) > 0 {
			return true
		}
		if known && missing(was, is) {
			return true
		}
	}
	return len(p.gone(now)) > 0
}

// gone returns the owned services that are neither wanted nor in the table.
func (p *pass) gone(table belief) []ipvs.ServiceKey {
	var absent []ipvs.ServiceKey
	for k := range p.desired.Owned {
		if _, exists := table[k]; !exists {
			absent = append(absent, k)
		}
	}
	if len(absent) == 0 {
		return nil
	}
	wanted := make(map[ipvs.ServiceKey]struct{}, len(p.desired.Services))
	for _, s := range p.desired.Services {
		wanted[canonicalKey(s.ServiceKey)] = struct{}{}
	}
	return slices.DeleteFunc(absent, func(k ipvs.ServiceKey) bool {
		_, keep := wanted[k]
		return keep
	})
}

// write applies one batch and returns the errors of the operations that are
// worth another try. An error means that the pass cannot go on from here.
func (p *pass) write(ctx context.Context, changes []Change) (retry []error, err error) {
	p.ops = p.ops[:0]
	for i := range changes {
		p.ops = append(p.ops, changes[i].Op)
	}
	err = p.table.Apply(ctx, p.ops)
	var batch *ipvs.BatchError
	if err != nil && !errors.As(err, &batch) {
		p.belief.unknown(p.ops)
		return nil, fmt.Errorf("write table: %w", err)
	}
	failed := make(map[int]*ipvs.Error)
	if batch != nil {
		for _, f := range batch.Failed {
			failed[f.Index] = f.Err
		}
	}
	p.report.Failed += len(failed)
	for i := range changes {
		c := &changes[i]
		ferr := failed[i]
		if ferr == nil {
			p.belief.applied(&c.Op)
			p.report.Changes = append(p.report.Changes, *c)
			continue
		}
		p.report.lack(c)
		if !p.refused.add(c, ferr) {
			retry = append(retry, ferr)
		}
	}
	if final(err) {
		return nil, err
	}
	return retry, nil
}

// release notes the owned services that are gone for good.
func (p *pass) release() {
	p.report.Released = p.gone(p.belief)
	slices.SortFunc(p.report.Released, ipvs.ServiceKey.Compare)
}

func (p *pass) backoff(ctx context.Context) error {
	longest := firstBackoff << (p.report.Rounds - 1)
	t := time.NewTimer(longest/2 + rand.N(longest/2))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func (p *pass) logger() *slog.Logger {
	if p.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return p.Logger
}
