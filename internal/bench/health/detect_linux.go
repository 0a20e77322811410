package main

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// detection is how long deaths took to be found.
type detection struct {
	// took is sorted. A death that was not found took never.
	took []time.Duration
	// mistaken is how many were called dead and were not, mistake the log line of
	// the first.
	mistaken int
	mistake  string
}

// never is longer than any measurement.
const never = time.Hour

// The log lines of a check that found its target down, and of a table that has
// the real server out.
const (
	foundLine = `msg="probe changed"`
	outLine   = `msg="real server down"`
)

// deaths are the targets that died and when.
type deaths map[netip.AddrPort]time.Time

// find compares the deaths with when the log says that the checks found them,
// and that the table had them out.
func (died deaths) find(log string) (found, out detection, err error) {
	f, o := finder{died: died}, finder{died: died}
	for line := range strings.Lines(log) {
		switch {
		case strings.Contains(line, foundLine) && field(line, "state") == "down":
			err = f.add(line, probed(line))
		case strings.Contains(line, outLine):
			err = o.add(line, field(line, "real_server"))
		}
		if err != nil {
			return detection{}, detection{}, fmt.Errorf("log line %q: %w", line, err)
		}
	}
	return f.end(), o.end(), nil
}

// probed returns the target in check="tcp 10.1.0.1:80 interval=1s …", before which
// there may be options.
func probed(line string) string {
	_, key, _ := strings.Cut(line, ` check="`)
	for f := range strings.FieldsSeq(key) {
		if _, err := netip.ParseAddrPort(f); err == nil {
			return f
		}
	}
	return ""
}

// finder takes the lines of one kind.
type finder struct {
	died  deaths
	found map[netip.AddrPort]bool
	detection
}

func (f *finder) add(line, address string) error {
	at, err := time.Parse(time.RFC3339Nano, field(line, "time"))
	if err != nil {
		return err
	}
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	death, ok := f.died[addr]
	switch {
	case !ok || at.Before(death.Truncate(time.Millisecond)):
		f.mistaken++
		f.mistake = cmp.Or(f.mistake, strings.TrimSpace(line))
	case !f.found[addr]:
		if f.found == nil {
			f.found = make(map[netip.AddrPort]bool)
		}
		f.found[addr] = true
		f.took = append(f.took, at.Sub(death))
	}
	return nil
}

// end returns the detection, with those who were not found.
func (f *finder) end() detection {
	for range len(f.died) - len(f.found) {
		f.took = append(f.took, never)
	}
	slices.Sort(f.took)
	return f.detection
}

// field returns the value of a key in a line of log/slog's text.
func field(line, key string) string {
	for f := range strings.FieldsSeq(line) {
		if v, ok := strings.CutPrefix(f, key+"="); ok {
			return v
		}
	}
	return ""
}

// quantile returns the time that a part of the deaths took at most, never where
// there were none.
func (d detection) quantile(part float64) time.Duration {
	if len(d.took) == 0 {
		return never
	}
	return d.took[min(len(d.took)-1, int(part*float64(len(d.took))))]
}

func (d detection) String() string {
	return fmt.Sprintf("%d deaths, after %v in the middle, %v the 99th of 100, %v at most",
		len(d.took), d.quantile(0.5).Round(time.Millisecond), d.quantile(0.99).Round(time.Millisecond), d.quantile(1).Round(time.Millisecond))
}
