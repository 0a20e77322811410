package main

import (
	"bufio"
	"context"
	"encoding"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lbd-project/lbd/internal/api"
)

func (a *app) connectionsCommand() *cobra.Command {
	var direct bool
	var q api.ConnectionQuery
	cmd := &cobra.Command{
		Use:     "connections [SERVICE]",
		Aliases: []string{"conns"},
		Short:   "List connections",
		Long: `List the connections that the engine has now, or those of one virtual service:
a line each as they are read, in no order. Templates of persistence have the
client's port 0. STATE is the kernel's, with either engine; EXPIRES is what is
left unless a packet comes. -o wide adds persistence engines, -o json prints an
object a line.

The filters take an address, an address with a port, or a prefix. SERVICE is a
name, or the protocol and address as listed; of a firewall mark service all are
listed that go to its real servers and to no other service's address.

--direct reads the kernel's IPVS of this network namespace and needs no lbd.`,
		Example:           "  ipvsctl connections web --client 192.0.2.0/24 --state established",
		Args:              args(cobra.MaximumNArgs(1)),
		ValidArgsFunction: a.completeService,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				q.Service = args[0]
			}
			out := bufio.NewWriter(a.out)
			if direct {
				return a.connectionsDirect(cmd.Context(), out, q)
			}
			c := a.client()
			if !a.text() {
				c.OnAnswer = func(line []byte) { out.Write(line) }
			}
			return a.printConnections(out, c.Connections(cmd.Context(), q))
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&direct, "direct", false, "look at the kernel, without lbd")
	flags.Var(filter{&q.Client}, "client", "those of `CLIENTS` only")
	flags.Var(filter{&q.Server}, "server", "those of `SERVERS` only")
	flags.Var(filter{&q.State}, "state", "those in `STATE` only, such as ESTABLISHED")
	complete := cobra.FixedCompletions(api.ConnectionStates, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc("state", complete); err != nil {
		panic(err) // the option is not there
	}
	return cmd
}

// connectionsDirect lists the connections of the kernel's table past lbd.
func (a *app) connectionsDirect(ctx context.Context, out *bufio.Writer, q api.ConnectionQuery) error {
	table, err := a.openKernel()
	if err != nil {
		return fmt.Errorf("look at the kernel: %w", err)
	}
	defer table.Close()
	entries, err := a.readTable(ctx, table)
	if err != nil {
		return err
	}
	var owners api.Owners
	for _, e := range entries {
		owners.AddEntry(e)
	}
	conns, err := owners.Select(table.Connections(ctx), q)
	if err != nil {
		return fmt.Errorf("%w in the kernel", err)
	}
	lines := json.NewEncoder(out)
	return a.printConnections(out, func(yield func(api.Connection, error) bool) {
		for c, err := range conns {
			switch {
			case err != nil:
				err = fmt.Errorf("look at the kernel: %w", err)
			case !a.text():
				err = lines.Encode(c)
			}
			if !yield(c, err) {
				return
			}
		}
	})
}

// Connections are printed when there are connectionRows more of them, or after
// connectionDelay, which for the first ones begins when they come: the columns are
// made for those that come together.
const (
	connectionRows  = 256
	connectionDelay = 200 * time.Millisecond
)

// printConnections prints connections as they come, for people; with -o json they
// are in out already.
func (a *app) printConnections(out *bufio.Writer, conns iter.Seq2[api.Connection, error]) error {
	t := table{right: map[int]bool{5: true}}
	titles := []string{"PROTO", "CLIENT", "VIRTUAL", "REAL SERVER", "STATE", "EXPIRES", "SERVICE"}
	if a.output == formatWide {
		titles = append(titles, "PE", "PE DATA")
	}
	print := func() {
		t.write(out)
		out.Flush()
	}
	defer print()
	n := 0
	var printed time.Time
	for c, err := range conns {
		if err != nil || a.out.err != nil {
			return err // run tells of the output
		}
		if n++; n == 1 {
			printed = time.Now()
		}
		if a.text() {
			if n == 1 {
				t.row(titles...)
			}
			cells := []string{c.Protocol, c.Client, c.Virtual, c.RealServer, c.State, wholeSpan(c.ExpiresSeconds), dash(c.Service)}
			if a.output == formatWide {
				cells = append(cells, dash(c.PersistenceEngine), dash(c.PersistenceData))
			}
			t.row(cells...)
		}
		if n%connectionRows == 0 || time.Since(printed) > connectionDelay {
			print()
			printed = time.Now()
		}
	}
	if n == 0 && a.text() {
		t.line("no connections")
	}
	return nil
}

// filter is an option that has no value at first.
type filter struct {
	value interface {
		encoding.TextMarshaler
		encoding.TextUnmarshaler
	}
}

var _ pflag.Value = filter{}

func (f filter) String() string {
	if f.value == nil {
		return ""
	}
	b, err := f.value.MarshalText()
	if err != nil {
		return ""
	}
	return string(b)
}

func (f filter) Set(s string) error { return f.value.UnmarshalText([]byte(s)) }
func (filter) Type() string         { return "string" }
