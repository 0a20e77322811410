package state

import (
	"encoding/json"
	"fmt"
	"time"
)

// version is that of the format. It changes only when a field changes its
// meaning.
const version = 1

// document is the file. Keys are the printed forms of services and real servers,
// durations are milliseconds.
type document struct {
	Version int `json:"version"`
	// Saved is when the file was written, for people and from one boot to another;
	// in the same boot SavedMS counts, the time from boot.
	Saved     time.Time                          `json:"saved"`
	BootID    string                             `json:"boot_id"`
	SavedMS   int64                              `json:"saved_ms"`
	Overrides map[string]map[string]overrideJSON `json:"overrides"`
}

type overrideJSON struct {
	Mode       string      `json:"mode"`
	Weight     *weightJSON `json:"weight,omitempty"`
	Configured *uint32     `json:"configured,omitempty"`
	By         string      `json:"by"`
	At         time.Time   `json:"at,omitzero"`
	Deadline   time.Time   `json:"deadline,omitzero"`
}

// weightJSON has everything always: 0 is a weight.
type weightJSON struct {
	From      *uint32 `json:"from"`
	To        *uint32 `json:"to"`
	OverMS    int64   `json:"over_ms"`
	ElapsedMS int64   `json:"elapsed_ms"`
}

func encode(o Overrides, c clock) ([]byte, error) {
	d := document{
		Version: version, Saved: c.now().UTC().Truncate(time.Millisecond), BootID: c.bootID, SavedMS: c.uptime().Milliseconds(),
		Overrides: make(map[string]map[string]overrideJSON),
	}
	for k, v := range o {
		j := overrideJSON{Mode: v.Mode, By: v.By, At: v.At.UTC(), Deadline: v.Deadline.UTC()}
		if j.Mode == "" {
			j.Mode = ModeNone
		}
		if w := v.Weight; w != nil {
			j.Weight = &weightJSON{From: &w.From, To: &w.To, OverMS: w.Over.Milliseconds(), ElapsedMS: w.Elapsed.Milliseconds()}
			j.Configured = &v.Configured
		}
		s := k.Service.String()
		if d.Overrides[s] == nil {
			d.Overrides[s] = make(map[string]overrideJSON)
		}
		d.Overrides[s][k.Address.String()] = j
	}
	b, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return append(b, '\n'), nil
}
