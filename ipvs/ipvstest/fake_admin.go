package ipvstest

import (
	"context"
	"time"

	"github.com/lbd-project/lbd/ipvs"
)

// Info returns what Debian's kernel says.
func (f *Fake) Info(ctx context.Context) (ipvs.Info, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.read(ctx, "get info"); err != nil {
		return ipvs.Info{}, err
	}
	return ipvs.Info{Version: "1.2.1", ConnTableSize: 4096}, nil
}

// Counts returns the weight and the active and inactive connections of every
// real server, those of a service together and in list order; nil if there are
// none. Persistent is 0, as in ipvs.Client.
func (f *Fake) Counts(ctx context.Context) ([]ipvs.DestinationCounts, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.read(ctx, "read counts"); err != nil {
		return nil, err
	}
	var counts []ipvs.DestinationCounts
	for _, k := range f.keys() {
		for _, d := range f.services[k].destinations {
			c := ipvs.DestinationCounts{DestinationKey: ipvs.DestinationKey{Service: k, Address: d.Address},
				Weight: d.Weight, Conns: d.conns}
			c.Conns.Persistent = 0
			counts = append(counts, c)
		}
	}
	return counts, nil
}

// Flush deletes every virtual service.
func (f *Fake) Flush(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests.Writes++
	if err := f.write(ctx, "flush"); err != nil {
		return err
	}
	for k := range f.services {
		f.deleteService(k)
	}
	return nil
}

// Timeouts returns the global timeouts.
func (f *Fake) Timeouts(ctx context.Context) (ipvs.Timeouts, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.read(ctx, "get timeouts"); err != nil {
		return ipvs.Timeouts{}, err
	}
	return f.timeouts, nil
}

// SetTimeouts changes the timeouts that are not zero.
func (f *Fake) SetTimeouts(ctx context.Context, t ipvs.Timeouts) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests.Writes++
	err := t.Validate()
	if err == nil && max(t.TCP, t.TCPFin, t.UDP) > maxTimeout {
		err = errInvalid
	}
	if err != nil {
		return &ipvs.Error{Op: "set timeouts", Err: err}
	}
	if err := f.write(ctx, "set timeouts"); err != nil {
		return err
	}
	set := func(to *time.Duration, d time.Duration) {
		if d != 0 {
			*to = d
		}
	}
	set(&f.timeouts.TCP, t.TCP)
	set(&f.timeouts.TCPFin, t.TCPFin)
	set(&f.timeouts.UDP, t.UDP)
	return nil
}

// write says whether a write other than one of Apply fails.
func (f *Fake) write(ctx context.Context, op string) error {
	if err := f.usable(ctx, op); err != nil {
		return err
	}
	if err := f.faults.fail(); err != nil {
		return &ipvs.Error{Op: op, Err: err}
	}
	return nil
}
