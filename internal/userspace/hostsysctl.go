package userspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Settings of conntrack that the engine needs otherwise than they may be.
const (
	// ctEvents makes events for flows: 0 for those that rules ask for.
	ctEvents = "net/netfilter/nf_conntrack_events"
	// ctAcct counts packets and bytes of flows.
	ctAcct = "net/netfilter/nf_conntrack_acct"
)

// savedSysctl is a setting of the host that the engine changed.
type savedSysctl struct {
	// Before is what it was, Set what the engine wrote.
	Before, Set string
}

// prepareHost sets what the engine needs of the host. What was there is in the
// store before it changes.
func (e *Engine) prepareHost(otherListeners bool) error {
	// Where another program listens it expects events of all flows, and 0 would
	// take them away.
	e.allEvents.Store(otherListeners)
	events := "0"
	if otherListeners {
		events = "1"
	}
	want := map[string]string{ctEvents: events, ctAcct: "1"}
	changed := false
	for name, value := range want {
		now, err := e.readHost(name)
		if err != nil {
			return err
		}
		saved, ours := e.hostSysctls[name]
		switch {
		case now == value:
			continue
		case ours && saved.Set == now:
			saved.Set = value
		default:
			// What somebody wrote since the last time counts as theirs.
			saved = savedSysctl{Before: now, Set: value}
		}
		e.hostSysctls[name] = saved
		changed = true
	}
	if !changed {
		return nil
	}
	if err := e.save(e.current()); err != nil {
		return fmt.Errorf("keep the host's settings: %w", err)
	}
	for name, value := range want {
		if err := e.writeHost(name, value); err != nil {
			return err
		}
	}
	return nil
}

// restoreHost takes back what prepareHost set, unless somebody has set something
// else since.
func (e *Engine) restoreHost() error {
	var errs []error
	for name, saved := range e.hostSysctls {
		now, err := e.readHost(name)
		if err == nil && now == saved.Set {
			err = e.writeHost(name, saved.Before)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		delete(e.hostSysctls, name)
	}
	return errors.Join(errs...)
}

func (e *Engine) readHost(name string) (string, error) {
	var b []byte
	err := e.opt.Enter(func() (err error) {
		b, err = os.ReadFile(filepath.Join("/proc/sys", name))
		return err
	})
	if err != nil {
		return "", hostError(name, err)
	}
	return strings.TrimSpace(string(b)), nil
}

func (e *Engine) writeHost(name, value string) error {
	err := e.opt.Enter(func() error {
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
	dotted := strings.ReplaceAll(name, "/", ".")
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("sysctl %s: is nf_conntrack loaded? %w", dotted, err)
	}
	return fmt.Errorf("sysctl %s: %w", dotted, err)
}
