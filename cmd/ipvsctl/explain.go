package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lbd-project/lbd/internal/api"
)

func (a *app) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain SERVICE[/SERVER]",
		Short: "Say who would get the next connection, and why",
		Long: `Say which real server the next new client of a virtual service would get, and
why. SERVICE is a name, or the protocol and address as listed; with SERVER, as
in web/10.0.0.2:80, that real server alone is shown.

The real servers are in the order of the engine, in which the first of equals
wins. SCORE is what the scheduler compares: the least gets the connection, and a
dash means that the real server gets none. WEIGHT is the weight in the table and
the configured one; a dash means that the table does not hold the real server.

Where more than that happened to a weight, its steps follow: what an operator
said (admin), what the real server says of itself through its agent or a check
(dynamic), a slow start, which multiplies the weights of all real servers of the
service by the same number, what connections of clients say (passive), and the
gate, which is closed for a real server that failed, is disabled or stands by.

On failure says what becomes of a real server that fails its checks: quiesce is
weight 0, remove takes it out of the table; and why, where on_failure is auto.`,
		Example:           "  ipvsctl explain web",
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeServiceOrServer,
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.Contains(args[0], "/") {
				return a.explainServer(cmd.Context(), args[0])
			}
			x, err := a.client().Explain(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.text() {
				a.printExplanation(x)
			}
			return nil
		},
	}
}

// explainServer explains one real server of a service.
func (a *app) explainServer(ctx context.Context, name string) error {
	target, err := api.ParseAdminTarget(name)
	if err != nil {
		return &usageError{err}
	}
	c := a.client()
	c.OnAnswer = nil // it is more than what is asked for
	x, err := c.Explain(ctx, target.Service)
	if err != nil {
		return err
	}
	x.RealServers = slices.DeleteFunc(x.RealServers, func(s api.Standing) bool {
		address, err := netip.ParseAddrPort(s.Address)
		return err != nil || !target.Match(address)
	})
	if len(x.RealServers) == 0 {
		return fmt.Errorf("real server %q: %w", name, api.ErrNotFound)
	}
	if !a.text() {
		return a.printValue(x)
	}
	a.printExplanation(x)
	return nil
}

func (a *app) printExplanation(x api.Explanation) {
	title := x.Key + " " + x.Scheduler
	if x.Service != "" && "TCP "+x.Service != x.Key {
		title = x.Service + "  " + title
	}
	t := table{indent: "  ", right: map[int]bool{1: true, 2: true, 3: true, 4: true}}
	t.row("REAL SERVER", "WEIGHT", "ACTIVE", "INACTIVE", "SCORE", "STATE", "REASON")
	t.line(title)
	for _, r := range x.RealServers {
		programmed, score, state := "-", dash(r.Score), r.State
		if r.Present {
			programmed = strconv.FormatUint(uint64(r.ProgrammedWeight), 10)
		}
		if r.Overloaded {
			state += " overloaded"
		}
		t.row(r.Address, fmt.Sprintf("%s/%d", programmed, r.ConfiguredWeight),
			strconv.FormatUint(uint64(r.Active), 10), strconv.FormatUint(uint64(r.Inactive), 10),
			score, dash(state), dash(r.Reason))
	}
	t.write(a.out)
	for _, r := range x.RealServers {
		if len(r.Chain) > 2 {
			fmt.Fprintf(a.out, "weight of %s: %s\n", printable(r.Address), printable(chainText(r.Chain)))
		}
	}
	for _, line := range failureLines(x.RealServers) {
		fmt.Fprintln(a.out, printable(line))
	}
	if x.Compares != "" {
		fmt.Fprintf(a.out, "score: %s\n", printable(x.Compares))
	}
	next := x.Next
	if next == "" {
		next = "not certain"
		if len(x.RealServers) == 0 {
			next = "none"
		}
	}
	fmt.Fprintf(a.out, "next: %s: %s\n", printable(next), printable(x.Why))
	for _, w := range x.Warnings {
		a.printWarning(w)
	}
}

// failureLines say what a failure does: once where it does the same to all.
func failureLines(servers []api.Standing) []string {
	var lines []string
	seen := make(map[string]bool)
	for _, r := range servers {
		if what := r.OnFailure; what != "" {
			what += " (" + r.OnFailureReason + ")"
			if !seen[what] {
				lines = append(lines, "on failure: "+what)
			}
			seen[what] = true
		}
	}
	if len(lines) < 2 {
		return lines
	}
	lines = lines[:0]
	for _, r := range servers {
		if r.OnFailure != "" {
			lines = append(lines, fmt.Sprintf("on failure of %s: %s (%s)", r.Address, r.OnFailure, r.OnFailureReason))
		}
	}
	return lines
}

// chainText prints a weight chain: "configured 3, admin 0 (drained by root),
// programmed 0".
func chainText(chain []api.WeightStep) string {
	var b strings.Builder
	for i, s := range chain {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %d", s.Step, s.Weight)
		if s.Reason != "" {
			fmt.Fprintf(&b, " (%s)", s.Reason)
		}
	}
	return b.String()
}
