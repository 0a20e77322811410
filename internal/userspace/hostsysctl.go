package userspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lbd-project/lbd/internal/userspace/ruleset"
)

// Settings of conntrack that the engine needs otherwise than they may be.
const (
	// ctEvents makes events for flows: 0 for those that rules ask for.
	ctEvents = "net/netfilter/nf_conntrack_events"
	// ctAcct counts packets and bytes of flows. Older engines set it, and a store of
	// theirs says what it was before.
	ctAcct = "net/netfilter/nf_conntrack_acct"
	// ctTimestamp tells when an event was made, since Linux 6.14.
	ctTimestamp = "net/netfilter/nf_conntrack_timestamp"
)

// savedSysctl is a setting of the host that the engine changed.
type savedSysctl struct {
	// Before is what it was, Set what the engine wrote.
	Before, Set string
}

// host has settings, by their paths below /proc/sys.
type host interface {
	read(name string) (string, error)
	write(name, value string) error
}

// wantHost returns what a state needs of the host.
func (e *Engine) wantHost(st *state) map[string]string {
	want := map[string]string{ctEvents: "0"}
	if e.allEvents {
		// Another program expects events of all flows, which 0 would take away.
		want[ctEvents] = "1"
	}
	for i := range st.services {
		if readsSignals(st.services[i].Scheduler) {
			want[ctTimestamp] = "1"
		}
	}
	return want
}

// noteHost notes what settings are before they are changed, and returns those
// that must be. Each is looked at once, and again when lookHost found it changed.
func (e *Engine) noteHost(want map[string]string) (change map[string]string, err error) {
	for name, value := range want {
		done, known := e.hostDone[name]
		if done == value && !e.hostChanged[name] {
			continue
		}
		now, err := e.host.read(name)
		if name == ctTimestamp && errors.Is(err, fs.ErrNotExist) {
			e.hostDone[name] = value // the engine's own clock has to do
			continue
		}
		if err != nil {
			return nil, err
		}
		if now == value {
			e.hostDone[name] = value
			delete(e.hostChanged, name)
			continue
		}
		saved, ours := e.hostSysctls[name]
		switch {
		case known && !ours:
			saved.Before = done // it was right as it was found
		case !known && (!ours || saved.Set != now):
			// What somebody wrote while no engine ran counts as theirs.
			saved.Before = now
		}
		saved.Set = value
		e.hostSysctls[name] = saved
		if change == nil {
			change = make(map[string]string)
		}
		change[name] = value
	}
	return change, nil
}

// changeHost writes settings that noteHost returned.
func (e *Engine) changeHost(change map[string]string) error {
	for name, value := range change {
		if err := e.host.write(name, value); err != nil {
			return err
		}
		e.hostDone[name] = value
		delete(e.hostChanged, name)
	}
	return nil
}

// lookHost finds settings that somebody changed after the engine had seen to
// them, and has maintain write them again.
func (e *Engine) lookHost(ctx context.Context) error {
	if err := e.lockWrites(ctx); err != nil {
		return err
	}
	defer e.unlockWrites()
	for name, value := range e.hostDone {
		if name == ctTimestamp && !e.model.signals || e.hostChanged[name] {
			continue
		}
		now, err := e.host.read(name)
		if name == ctTimestamp && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if now == value {
			continue
		}
		e.log.Warn("somebody changed a setting of the host that the userspace engine needs: it is written again",
			"sysctl", dotted(name), "value", value, "found", now)
		e.hostChanged[name] = true
		e.hostChanges++
		e.repairs.Add(1)
		e.stale = true
	}
	return nil
}

// noteTimeWait looks how long conntrack keeps a connection that has closed.
func (e *Engine) noteTimeWait() {
	d := ruleset.TimeWait
	if e.rules.Abilities().CTTimeout != nil {
		text, err := e.host.read(ctTimeWait)
		n, numberErr := strconv.ParseUint(text, 10, 31)
		if err != nil || numberErr != nil {
			return // dumps tell
		}
		d = time.Duration(n) * time.Second
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.timeWait = d
}

// restoreHost takes back what changeHost set, unless somebody has set something
// else since.
func (e *Engine) restoreHost() error {
	var errs []error
	clear(e.hostDone)
	clear(e.hostChanged)
	for name, saved := range e.hostSysctls {
		now, err := e.host.read(name)
		if err == nil && now == saved.Set {
			err = e.host.write(name, saved.Before)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		delete(e.hostSysctls, name)
	}
	return errors.Join(errs...)
}

// procSys is /proc/sys, in the namespace that enter calls a function in.
type procSys struct{ enter func(func() error) error }

func (p procSys) read(name string) (string, error) {
	var b []byte
	err := p.enter(func() (err error) {
		b, err = os.ReadFile(filepath.Join("/proc/sys", name))
		return err
	})
	if err != nil {
		return "", hostError(name, err)
	}
	return strings.TrimSpace(string(b)), nil
}

func (p procSys) write(name, value string) error {
	err := p.enter(func() error {
		f, err := os.OpenFile(filepath.Join("/proc/sys", name), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(value + "\n")
		return errors.Join(err, f.Close())
	})
	if err != nil {
		return hostError(name, err)
	}
	return nil
}

func hostError(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("sysctl %s: is nf_conntrack loaded? %w", dotted(name), err)
	}
	return fmt.Errorf("sysctl %s: %w", dotted(name), err)
}

// dotted is a path below /proc/sys as people write it.
func dotted(name string) string { return strings.ReplaceAll(name, "/", ".") }
