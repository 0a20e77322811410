package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lbd-project/lbd/internal/api"
)

func (a *app) diffCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "diff FILE",
		Short: "Show what loading a file would change",
		Long: `Show what loading a configuration file would change in the table, with the live
connections that each step cuts or drains. Nothing is changed.

FILE may be - for standard input. The exit status is 0 whether there is a
difference or not.`,
		Example:           "  ipvsctl diff new.yaml",
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: completeFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := a.readFile(args[0])
			if err != nil {
				return err
			}
			plan, err := a.client().Diff(cmd.Context(), file)
			if err != nil {
				return err
			}
			a.warn(plan.Warnings)
			if len(plan.Errors) > 0 {
				a.findings(plan.Errors)
				return usagef("%s: cannot be loaded", file.Name)
			}
			if a.text() {
				a.printPlan(plan.Steps)
			}
			return nil
		},
	}
}

func (a *app) printPlan(steps []api.Step) {
	if len(steps) == 0 {
		fmt.Fprintln(a.out, "nothing would change")
		return
	}
	a.printSteps(steps)
	var conns uint64
	for _, s := range steps {
		conns += uint64(s.ActiveConnections)
	}
	fmt.Fprintf(a.out, "%s, %s affected\n", plural(len(steps), "step"), plural(conns, "active connection"))
}

func (a *app) printSteps(steps []api.Step) {
	t := table{right: map[int]bool{3: true}}
	t.row("STEP", "SERVICE", "REAL SERVER", "ACTIVE", "CHANGE")
	for _, s := range steps {
		t.row(s.Op, s.Service, dash(s.RealServer), fmt.Sprint(s.ActiveConnections), s.Change)
	}
	t.write(a.out)
}

// findings prints what is wrong with a file. That is what the caller asked for:
// it goes to standard output, one a line, and starts with the position for an
// editor to jump to.
func (a *app) findings(lines []string) {
	if a.text() {
		for _, l := range lines {
			fmt.Fprintln(a.out, printable(l))
		}
	}
}

// warn prints warnings about a file to standard error; with -o json they are in
// the answer.
func (a *app) warn(warnings []string) {
	if a.text() {
		for _, w := range warnings {
			a.complain("warning: " + w)
		}
	}
}

// completeFile completes the one argument of a command that takes a
// configuration file.
func completeFile(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}
