package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/lbd-project/lbd/ipvs"
)

// maxWarnings bounds the warnings about one file.
const maxWarnings = 20

// decoder reads a file. What it cannot understand it ignores, with a warning.
type decoder struct {
	overrides Overrides
	warnings  []string
	// elapsed is the time since the file was written in the same boot.
	elapsed time.Duration
}

func (d *decoder) warn(format string, args ...any) {
	switch n := len(d.warnings); {
	case n < maxWarnings-1:
		d.warnings = append(d.warnings, fmt.Sprintf(format, args...))
	case n == maxWarnings-1:
		d.warnings = append(d.warnings, "more of this kind")
	}
}

// into unmarshals and says whether that went well.
func into[T any](d *decoder, what string, raw json.RawMessage) (v T, ok bool) {
	if err := json.Unmarshal(raw, &v); err != nil {
		d.warn("%s is ignored: %v", what, err)
		return v, false
	}
	return v, true
}

// decode reads a file and returns how old it is. An error means that it is none of
// lbd's.
func (d *decoder) decode(b []byte, c clock) (age time.Duration, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(b, &fields); err != nil {
		return 0, err
	}
	overrides, ok := fields["overrides"]
	if !ok {
		return 0, errors.New("no overrides in it")
	}
	var h document
	for name, read := range map[string]func(json.RawMessage){
		"version":  func(raw json.RawMessage) { h.Version, _ = into[int](d, "version", raw) },
		"saved":    func(raw json.RawMessage) { h.Saved, _ = into[time.Time](d, "saved", raw) },
		"boot_id":  func(raw json.RawMessage) { h.BootID, _ = into[string](d, "boot_id", raw) },
		"saved_ms": func(raw json.RawMessage) { h.SavedMS, _ = into[int64](d, "saved_ms", raw) },
	} {
		if raw, ok := fields[name]; ok {
			read(raw)
		}
		delete(fields, name)
	}
	delete(fields, "overrides")
	d.unknown("", fields)
	if h.Version > version {
		d.warn("written in format %d by a newer lbd, read as format %d", h.Version, version)
	}
	age = d.age(h, c)
	services, _ := into[map[string]json.RawMessage](d, "overrides", overrides)
	d.overrides = make(Overrides)
	for _, text := range slices.Sorted(maps.Keys(services)) {
		d.service(text, services[text])
	}
	return age, nil
}

// age returns how long ago the file was written: by the clock of the boot in the
// same one, else by the wall clock. One that goes wrong, or says nothing, makes
// the file as old as can be, unless it only went back.
func (d *decoder) age(h document, c clock) time.Duration {
	if h.BootID != "" && h.BootID == c.bootID {
		d.elapsed = max(c.uptime()-milliseconds(h.SavedMS), 0)
		return d.elapsed
	}
	if h.Saved.IsZero() {
		return math.MaxInt64
	}
	return max(c.now().Sub(h.Saved), 0)
}

// unknown warns of fields that nobody has read.
func (d *decoder) unknown(where string, fields map[string]json.RawMessage) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		d.warn("%sunknown field %.40q is ignored", where, name)
	}
}

func (d *decoder) service(text string, raw json.RawMessage) {
	k, err := ipvs.ParseServiceKey(text)
	if err != nil {
		d.warn("virtual service %.80q is ignored: %v", text, err)
		return
	}
	servers, _ := into[map[string]json.RawMessage](d, text, raw)
	for _, address := range slices.Sorted(maps.Keys(servers)) {
		a, err := netip.ParseAddrPort(address)
		if err != nil {
			d.warn("real server %.80q of %s is ignored: %v", address, text, err)
			continue
		}
		key := ipvs.DestinationKey{Service: k, Address: a}
		if o, ok := d.override(text+" "+address+": ", servers[address]); ok {
			d.overrides[key] = o
		}
	}
}

// override reads the fields one by one. Nothing that is in force is no override.
func (d *decoder) override(where string, raw json.RawMessage) (o Override, ok bool) {
	fields, ok := into[map[string]json.RawMessage](d, where, raw)
	if !ok {
		return o, false
	}
	configured := false
	for name, read := range map[string]func(json.RawMessage){
		"mode": func(raw json.RawMessage) { o.Mode = d.mode(where, raw) },
		"weight": func(raw json.RawMessage) {
			o.Weight = d.weight(where, raw)
		},
		"configured": func(raw json.RawMessage) { o.Configured, configured = into[uint32](d, where+"configured", raw) },
		"by": func(raw json.RawMessage) {
			o.By, _ = into[string](d, where+"by", raw)
			o.By = fmt.Sprintf("%.*s", maxText, o.By)
		},
		"at":       func(raw json.RawMessage) { o.At, _ = into[time.Time](d, where+"at", raw) },
		"deadline": func(raw json.RawMessage) { o.Deadline, _ = into[time.Time](d, where+"deadline", raw) },
	} {
		if raw, ok := fields[name]; ok && string(raw) != "null" {
			read(raw)
		}
		delete(fields, name)
	}
	d.unknown(where, fields)
	if o.Weight != nil && !configured {
		// Whether the configuration has changed since is not known.
		d.warn("%sweight is ignored: no configured weight beside it", where)
		o.Weight = nil
	}
	if o.Weight == nil {
		o.Configured = 0
	}
	return o, o.Mode != "" || o.Weight != nil
}

func (d *decoder) mode(where string, raw json.RawMessage) string {
	switch mode, ok := into[string](d, where+"mode", raw); {
	case !ok, mode == "", mode == ModeNone:
	case mode == ModeDrain, mode == ModeDisable:
		return mode
	default:
		d.warn("%smode %.40q is ignored", where, mode)
	}
	return ""
}

func (d *decoder) weight(where string, raw json.RawMessage) *Weight {
	j, ok := into[weightJSON](d, where+"weight", raw)
	switch {
	case !ok:
		return nil
	case j.To == nil || *j.To > maxWeight || j.From != nil && *j.From > maxWeight:
		d.warn("%sweight is ignored: want from and to of 0 to %d", where, maxWeight)
		return nil
	case j.From == nil:
		j.From = j.To
	}
	w := &Weight{From: *j.From, To: *j.To, Over: milliseconds(j.OverMS), Elapsed: milliseconds(j.ElapsedMS)}
	w.Elapsed = min(w.Elapsed+d.elapsed, w.Over)
	return w
}

// milliseconds returns a duration that is neither negative nor so long that two of
// them overflow.
func milliseconds(ms int64) time.Duration {
	const most = int64(math.MaxInt64 / 4 / time.Millisecond)
	return time.Duration(min(max(ms, 0), most)) * time.Millisecond
}
