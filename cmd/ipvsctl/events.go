package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lbd-project/lbd/internal/api"
)

func (a *app) eventsCommand() *cobra.Command {
	var q api.EventQuery
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Tell what happened",
		Long: `Tell what happened to real servers and virtual services, what operators said,
reloads, repairs of what somebody else changed, and what checks warn of: the
last 1024 events of this lbd, the oldest first. A change of a real server is
told once the table has it. Of a weight that does not rest one change each 10 s
is told, with the number of those before that were not; failures and recoveries
are told always.

-f goes on with what is to come, and ends with status 1 when lbd stops. Events
that a slow reader missed are told of by their number. -o json prints an object
a line.`,
		Example:           "  ipvsctl events -f",
		Args:              args(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := a.client()
			if !a.text() {
				c.OnAnswer = func(line []byte) { a.out.Write(line) }
			}
			last := q.Since
			err := c.Events(cmd.Context(), q, func(e api.Event) bool {
				if a.text() {
					a.printEvent(e, last)
				}
				last = e.Seq
				return a.out.err == nil // run tells of the output
			})
			if cmd.Context().Err() != nil {
				return nil // that is how one stops following
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&q.Follow, "follow", "f", false, "go on with what is to come")
	cmd.Flags().Uint64Var(&q.Since, "since", 0, "leave out the events up to `NUMBER`")
	return cmd
}

// printEvent prints an event in a line, after one about those that are missing
// since the last.
func (a *app) printEvent(e api.Event, last uint64) {
	if n := e.Seq - last - 1; e.Seq > last && n > 0 {
		fmt.Fprintf(a.out, "%s missing: not kept any more\n", plural(n, "event"))
	}
	about := e.Service
	if e.RealServer != "" {
		about += "/" + e.RealServer
	}
	text := e.Text
	if about != "" {
		text = about + " " + text
	}
	if e.By != "" {
		text += " by " + e.By
	}
	if e.Reason != "" {
		text += ": " + strings.ReplaceAll(e.Reason, "\n", "; ")
	}
	fmt.Fprintln(a.out, printable(e.Time.Local().Format(time.DateTime)+"  "+text))
}
