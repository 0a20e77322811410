package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/userspace/ruleset"
)

// Engine is what schedules for an LBD. The zero value is the kernel's IPVS.
type Engine string

// The engines, by the words of lbd's configuration.
const (
	KernelEngine    Engine = "kernel"
	UserspaceEngine Engine = "userspace"
)

// kept is the last that a userspace engine said of its table.
type kept struct {
	table Table
	// rules are those of then.
	rules string
	// err is why it is not known.
	err error
}

// Table reads what the engine holds. Of the kernel that is its own text. The
// userspace engine is asked through lbd's control socket; once lbd has ended, the
// table is what it said last, as long as the rules in the kernel are the same as
// then, and an empty one when there are none.
func (d *LBD) Table() (Table, error) {
	switch {
	case d.Engine != UserspaceEngine:
		return ReadTable(d.Holds)
	case d.Running():
		return readAPI(d.Socket)
	}
	rules, err := d.Rules()
	d.mu.Lock()
	last := d.kept
	d.mu.Unlock()
	switch {
	case err != nil:
		return nil, err
	case rules == "":
		return nil, nil
	case last.err != nil:
		return nil, last.err
	case rules != last.rules:
		return nil, fmt.Errorf("the rules changed since lbd ended (-then +now)\n%s", cmp.Diff(last.rules, rules))
	}
	return last.table, nil
}

// keep notes the table of a userspace engine that is about to end.
func (d *LBD) keep() {
	if d.Engine != UserspaceEngine || !d.Running() {
		return
	}
	k := kept{err: errors.New("the rules changed all the time before lbd ended")}
	for range 20 {
		var table Table
		before, err := d.Rules()
		if err == nil {
			table, err = readAPI(d.Socket)
		}
		after, errAfter := d.Rules()
		if before == after {
			k = kept{table, after, errors.Join(err, errAfter)}
			break
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kept = k
}

// Rules returns what of the table is in the kernel, as text to compare: IPVS's
// table, or the nftables rules of the userspace engine, without what traffic
// changes.
func (d *LBD) Rules() (string, error) {
	if d.Engine != UserspaceEngine {
		t, err := ReadTable(d.Holds)
		return t.String(), err
	}
	for deadline := time.Now().Add(startTimeout); ; {
		before, err := ruleset.Generation(d.Holds.FD())
		if err != nil {
			return "", err
		}
		// Without the first option counters and times would be there, too. One call
		// for all tables: to start nft takes longer than to list them.
		text, err := d.nft("--stateless", "--numeric", "list", "ruleset")
		if err != nil {
			return "", err
		}
		after, err := ruleset.Generation(d.Holds.FD())
		switch {
		case err != nil:
			return "", err
		case before == after:
			return withoutLearned(tablesOf(text, "lbd")), nil
		case time.Now().After(deadline):
			return "", fmt.Errorf("the rules changed all the time for %v", startTimeout)
		}
		// nft begins anew when the rules change while it reads them, and lists some twice.
	}
}

// tablesOf returns the tables of a name, of every family, from nft's list of a
// rule set.
func tablesOf(text, name string) string {
	var b strings.Builder
	ours := false
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 3 && f[0] == "table" && !strings.HasPrefix(line, "\t") {
			ours = f[2] == name
		}
		if ours {
			b.WriteString(line)
		}
	}
	return b.String()
}

func (d *LBD) nft(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	out, err := d.Holds.Run(exec.CommandContext(ctx, "nft", args...))
	if err != nil {
		return "", fmt.Errorf("nft %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

// withoutLearned leaves out the elements of sets and maps that packets fill.
func withoutLearned(text string) string {
	var b bytes.Buffer
	learned, inElements := false, false
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "set "), strings.HasPrefix(trimmed, "map "):
			learned = false
		case strings.HasPrefix(trimmed, "flags ") && (strings.Contains(trimmed, "dynamic") || strings.Contains(trimmed, "timeout")):
			learned = true
		case strings.HasPrefix(trimmed, "elements = {"):
			inElements = learned
		}
		if !inElements {
			b.WriteString(line)
		}
		if strings.HasSuffix(trimmed, "}") {
			inElements = false
		}
	}
	return b.String()
}

// readAPI asks an lbd for the table of its engine.
func readAPI(socket string) (Table, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	services, err := api.NewClient(socket, 0).Table(ctx)
	if err != nil {
		return nil, err
	}
	var t Table
	for _, s := range services {
		svc := TableService{Name: strings.TrimSuffix(s.Key, " IPv6"), Scheduler: apiScheduler(s)}
		for _, r := range s.RealServers {
			ap, err := netip.ParseAddrPort(r.Address)
			if err != nil {
				return nil, err
			}
			svc.Servers = append(svc.Servers, TableServer{
				Address: ap, Forward: r.Forward, Weight: int(r.ProgrammedWeight),
				Active: int(r.Active), Inactive: int(r.Inactive),
			})
		}
		t = append(t, svc)
	}
	slices.SortFunc(t, func(a, b TableService) int { return strings.Compare(a.Name, b.Name) })
	return t, nil
}

// apiScheduler prints what schedulerText does. A mask is printed as it is.
func apiScheduler(s api.Service) string {
	out := s.Scheduler
	if slices.Contains(s.Flags, "ops") {
		out += " ops"
	}
	if s.PersistenceSeconds > 0 {
		out += " persistent"
		if s.Netmask != "255.255.255.255" && s.Netmask != "128" {
			out += " " + s.Netmask
		}
	}
	return out
}

// WatchRules sees all the time that the rules stay as they are, until the
// returned function is called, which returns how often it looked and the first
// difference.
func (d *LBD) WatchRules() (stop func() (looks int, err error), err error) {
	want, err := d.Rules()
	if err != nil {
		return nil, err
	}
	pause := 5 * time.Millisecond
	if d.Engine == UserspaceEngine {
		pause = 50 * time.Millisecond // nft takes longer to start than /proc to read
	}
	quit := make(chan struct{})
	var done sync.WaitGroup
	var looks int
	var watchErr error
	look := func() {
		var got string
		if got, watchErr = d.Rules(); watchErr == nil && got != want {
			watchErr = fmt.Errorf("the table changed (-then +now)\n%s", cmp.Diff(want, got))
		}
		looks++
	}
	done.Go(func() {
		for watchErr == nil {
			begin := time.Now()
			look()
			// A slow machine shall not look all the time.
			rest := max(pause, 2*time.Since(begin))
			select {
			case <-time.After(rest):
			case <-quit:
				return
			}
		}
	})
	return func() (int, error) {
		close(quit)
		done.Wait()
		if watchErr == nil {
			look()
		}
		return looks, watchErr
	}, nil
}
