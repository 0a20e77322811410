package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/lbd-project/lbd/internal/api"
)

const (
	// waitPause is the time between two looks, waitTell the longest without a line
	// of progress where it is no terminal.
	waitPause = 500 * time.Millisecond
	waitTell  = 30 * time.Second
)

// waiter waits until real servers that are drained have no connections.
type waiter struct {
	a *app
	// servers are those that are waited for, by the key of the service, which it
	// keeps when it is renamed, and address.
	servers map[[2]string]bool
	// what is counted: connections where one may be of UDP.
	what string
	// inactive says that those that are closing are waited for, too.
	inactive bool
	// until is the deadline; zero for none.
	until time.Time
	// silent is since when lbd has not answered; zero if it has.
	silent time.Time
	// live says that progress is one line of a terminal, told when the last line
	// was printed, and last what it said.
	live bool
	told time.Time
	last string
}

func newWaiter(a *app, r api.AdminResult) *waiter {
	w := &waiter{a: a, servers: make(map[[2]string]bool, len(r.RealServers)), live: isTerminal(a.err)}
	for _, s := range r.RealServers {
		w.servers[[2]string{s.Key, s.RealServer}] = true
	}
	return w
}

// wait returns when nothing is left, or with an error that says what is.
func (w *waiter) wait(ctx context.Context) error {
	defer w.endLine()
	for {
		left, why, err := w.look(ctx)
		switch {
		case err != nil:
			return err
		case why == "" && left == 0:
			w.endLine()
			if w.a.text() {
				fmt.Fprintln(w.a.out, "no connection is left")
			}
			return nil
		case why == "":
			why = plural(left, w.what) + " left"
		}
		if !w.until.IsZero() && time.Now().After(w.until) {
			return fmt.Errorf("the deadline is over: %s; what was drained stays drained", why)
		}
		w.progress(why)
		select {
		case <-ctx.Done():
			return errors.New("interrupted: " + why + "; what was drained stays drained")
		case <-time.After(waitPause):
		}
	}
}

// look counts the connections that are left. why is not empty where they are not
// known yet. A lbd that restarts is waited for, for as long as --timeout.
func (w *waiter) look(ctx context.Context) (left int, why string, err error) {
	c := api.NewClient(w.a.socket, w.a.timeout)
	// First whether there was a good pass, so that the services are those after it.
	status, err := c.Status(ctx)
	var services []api.Service
	if err == nil {
		services, err = c.Services(ctx)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return 0, "lbd was asked", nil
	case errors.Is(err, os.ErrPermission):
		return 0, "", err
	case err != nil:
		if w.silent.IsZero() {
			w.silent = time.Now()
		}
		if time.Since(w.silent) > w.a.timeout {
			return 0, "", err
		}
		return 0, "lbd does not answer, waiting for it", nil
	}
	w.silent = time.Time{}
	const starts = "lbd starts, waiting for it"
	if status.Mirror.CountsAgeSeconds < 0 {
		return 0, starts, nil
	}
	w.what = "active connection"
	seen := 0
	for _, s := range services {
		for _, r := range s.RealServers {
			// Of a foreign service it is not known yet that it is lbd's, if it is.
			if s.Foreign || !w.servers[[2]string{s.Key, r.Address}] {
				continue
			}
			seen++
			all := w.inactive || quiet(s.Protocol)
			if all {
				w.what = "connection"
			}
			n, known, err := remaining(s, r, all)
			if err != nil {
				return 0, "", err
			}
			if left += n; !known {
				why = "the table is being changed"
			}
		}
	}
	if seen < len(w.servers) && status.Sync.LastSuccess.IsZero() {
		why = starts // the others have left the file, or were not decided about yet
	}
	return left, why, nil
}

// remaining counts the connections that a drain waits for. They are known once the
// counts were read with weight 0 in force: what was read before says nothing of
// what came after. A server that is not in the table has none.
// all counts those that are inactive, too.
func remaining(s api.Service, r api.RealServer, all bool) (n int, known bool, err error) {
	// Whoever left the file drains by itself.
	if r.Admin.Mode != "drain" && r.Admin.Mode != "disable" && r.State != "draining" {
		return 0, false, fmt.Errorf("%s/%s is not drained any more: somebody resumed it", s.Name, r.Address)
	}
	switch {
	case !r.Present:
		return 0, true, nil
	case r.ProgrammedWeight != 0:
		return 0, false, nil
	case all:
		return int(r.Active + r.Inactive), true, nil
	}
	return int(r.Active), true, nil
}

// quiet reports whether a service of a protocol may have UDP, all of whose
// connections are inactive until they have been quiet for long enough.
func quiet(protocol string) bool { return protocol == "UDP" || protocol == "FWM" }

// progress shows what is waited for: in one line of a terminal, else when it
// changes and now and then.
func (w *waiter) progress(text string) {
	if !w.until.IsZero() {
		text += ", " + span(max(0, time.Until(w.until).Seconds())) + " to the deadline"
	}
	switch {
	case w.live:
		pad := strings.Repeat(" ", max(0, len(w.last)-len(text)))
		fmt.Fprint(w.a.err, "\r"+text+pad)
	case key(text) != key(w.last) || time.Since(w.told) > waitTell:
		w.a.complain(text)
		w.told = time.Now()
	default:
		return
	}
	w.last = text
}

// key is the part of a line of progress that is news.
func key(text string) string {
	text, _, _ = strings.Cut(text, ",")
	return text
}

// endLine leaves the line of progress.
func (w *waiter) endLine() {
	if w.live && w.last != "" {
		fmt.Fprintln(w.a.err)
		w.last = ""
	}
}
