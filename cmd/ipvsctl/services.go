package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lbd-project/lbd/internal/api"
)

// column is one column of the list of real servers.
type column struct {
	title string
	right bool
	text  func(s api.Service, r api.RealServer) string
}

// stateColumn is coloured.
const stateColumn = "STATE"

func number[N uint32 | uint64](f func(r api.RealServer) N) func(api.Service, api.RealServer) string {
	return func(_ api.Service, r api.RealServer) string { return strconv.FormatUint(uint64(f(r)), 10) }
}

// columns returns the columns of a list; direct leaves out what only lbd knows.
func columns(wide, direct bool) []column {
	cols := []column{
		{"REAL SERVER", false, func(_ api.Service, r api.RealServer) string { return r.Address }},
		{"FORWARD", false, forwardText},
		{"WEIGHT", true, weightText},
		{"ACTIVE", true, number(func(r api.RealServer) uint32 { return r.Active })},
		{"INACTIVE", true, number(func(r api.RealServer) uint32 { return r.Inactive })},
	}
	if direct {
		cols[2].text = number(func(r api.RealServer) uint32 { return r.ProgrammedWeight })
	}
	if wide {
		cols = append(cols, []column{
			{"PERSISTENT", true, number(func(r api.RealServer) uint32 { return r.Persistent })},
			{"LIMITS", true, limitsText},
			{"CONN/S", true, number(func(r api.RealServer) uint64 { return r.Stats.ConnectionRate })},
			{"PKT/S IN", true, number(func(r api.RealServer) uint64 { return r.Stats.PacketRateIn })},
			{"PKT/S OUT", true, number(func(r api.RealServer) uint64 { return r.Stats.PacketRateOut })},
			{"B/S IN", true, number(func(r api.RealServer) uint64 { return r.Stats.ByteRateIn })},
			{"B/S OUT", true, number(func(r api.RealServer) uint64 { return r.Stats.ByteRateOut })},
		}...)
	}
	if direct {
		return cols
	}
	cols = append(cols, column{stateColumn, false, stateText}, column{"LAST CHECK", false, checkText})
	if wide {
		cols = append(cols, column{"REASON", false, func(_ api.Service, r api.RealServer) string { return dash(r.Reason) }})
	}
	return cols
}

// printServices prints each service on a line of its own and its real servers
// below, aligned over all services.
func (a *app) printServices(services []api.Service, direct bool) {
	if len(services) == 0 {
		fmt.Fprintln(a.out, "no virtual services")
		return
	}
	cols := columns(a.output == formatWide, direct)
	if anyMarked(services) {
		at := slices.IndexFunc(cols, func(c column) bool { return c.title == stateColumn })
		cols = slices.Insert(cols, at+1, column{"MARKS", false, marksText})
	}
	t := table{indent: "  ", right: map[int]bool{}}
	titles := make([]string, len(cols))
	for i, c := range cols {
		titles[i] = c.title
		t.right[i] = c.right
	}
	t.paint = func(i int, text string) string {
		if cols[i].title == stateColumn {
			return a.paintState(text)
		}
		return text
	}
	t.row(titles...)
	for _, s := range services {
		t.line(serviceLine(s))
		if len(s.RealServers) == 0 {
			t.line("  no real servers: connections are refused")
		}
		for _, r := range s.RealServers {
			cells := make([]string, len(cols))
			for i, c := range cols {
				cells[i] = c.text(s, r)
			}
			t.row(cells...)
		}
	}
	t.write(a.out)
}

// serviceLine prints a service in ipvsadm's words after its name:
// "web  TCP 192.0.2.10:80 wlc persistent 300".
func serviceLine(s api.Service) string {
	var b strings.Builder
	switch s.Name {
	case "", s.Address:
	default:
		b.WriteString(s.Name + "  ")
	}
	b.WriteString(s.Key + " " + s.Scheduler)
	for _, f := range s.Flags {
		b.WriteString(" " + f)
	}
	if s.PersistenceSeconds > 0 {
		fmt.Fprintf(&b, " persistent %d", s.PersistenceSeconds)
		if s.Netmask != "" && s.Netmask != "255.255.255.255" && s.Netmask != "128" {
			b.WriteString(" mask " + s.Netmask)
		}
	}
	if s.PersistenceEngine != "" {
		b.WriteString(" pe " + s.PersistenceEngine)
	}
	if s.Foreign {
		b.WriteString(" (foreign: not lbd's)")
	}
	switch {
	case s.BackupIn:
		b.WriteString(" (quorum lost: on backup servers)")
	case s.Quorum == "lost":
		b.WriteString(" (quorum lost)")
	}
	if s.HealthIgnored {
		b.WriteString(" (health ignored)")
	}
	return b.String()
}

func forwardText(_ api.Service, r api.RealServer) string {
	if r.Tunnel == "" || r.Tunnel == "ipip" {
		return r.Forward
	}
	return r.Forward + " " + r.Tunnel
}

// weightText prints programmed/configured; nobody has configured a foreign
// service.
func weightText(s api.Service, r api.RealServer) string {
	programmed := "-"
	if r.Present {
		programmed = strconv.FormatUint(uint64(r.ProgrammedWeight), 10)
	}
	if s.Foreign {
		return programmed
	}
	return programmed + "/" + strconv.FormatUint(uint64(r.ConfiguredWeight), 10)
}

func limitsText(_ api.Service, r api.RealServer) string {
	if r.UpperThreshold == 0 {
		return "-"
	}
	if r.LowerThreshold == 0 {
		return strconv.FormatUint(uint64(r.UpperThreshold), 10)
	}
	return fmt.Sprintf("%d..%d", r.LowerThreshold, r.UpperThreshold)
}

func stateText(s api.Service, r api.RealServer) string {
	switch {
	case s.Foreign:
		return "-"
	case r.State == "unchecked":
		return r.State
	}
	return r.State + " " + span(r.StateSeconds)
}

// marksText says what else there is to a real server than its state: what an
// operator said, and whose tier and which policy it has to do with.
func marksText(_ api.Service, r api.RealServer) string {
	var marks []string
	if r.Backup {
		marks = append(marks, "backup")
	}
	if text := adminText(r.Admin); text != "" {
		marks = append(marks, text)
	}
	if r.Ramping && r.Admin.RampSeconds == 0 {
		marks = append(marks, "slow start")
	}
	if r.HealthIgnored {
		marks = append(marks, "health ignored")
	}
	if slices.ContainsFunc(r.Checks, func(c api.Check) bool { return c.Warning != "" }) {
		marks = append(marks, "check warns")
	}
	return dash(strings.Join(marks, ", "))
}

// adminText prints what an operator said: "drain, weight 7 in 25s by alice".
func adminText(a api.Admin) string {
	var words []string
	if a.Mode == "drain" || a.Mode == "disable" {
		words = append(words, a.Mode)
	}
	if a.Weight != nil {
		text := fmt.Sprintf("weight %d", *a.Weight)
		if a.RampSeconds > 0 {
			text += " in " + span(a.RampSeconds)
		}
		words = append(words, text)
	}
	if len(words) == 0 {
		return ""
	}
	by, _, _ := strings.Cut(a.By, " (")
	return strings.Join(words, ", ") + " by " + by
}

// anyMarked says whether a real server has marks: most lists do without.
func anyMarked(services []api.Service) bool {
	for _, s := range services {
		for _, r := range s.RealServers {
			if marksText(s, r) != "-" {
				return true
			}
		}
	}
	return false
}

// checkText prints the last result of the check that tells most: one that
// fails, then one that has no result, then the first.
func checkText(_ api.Service, r api.RealServer) string {
	if len(r.Checks) == 0 {
		return "-"
	}
	told := r.Checks[0]
	for _, state := range []string{"pending", "down"} {
		for _, c := range r.Checks {
			if c.State == state {
				told = c
				break
			}
		}
	}
	var text string
	if told.AgeSeconds < 0 {
		text = "no result yet"
	} else {
		text = fmt.Sprintf("%s, %s, %s ago", dash(told.Detail), latency(told.LatencySeconds), span(told.AgeSeconds))
	}
	if len(r.Checks) > 1 {
		text = fmt.Sprintf("%s: %s (one of %d)", told.Probe, text, len(r.Checks))
	}
	return text
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
