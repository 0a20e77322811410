package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) reconcileCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reconcile",
		Short: "Compare and repair the table now",
		Long: `Compare the table with what lbd wants and repair it now, without waiting for the
next pass. The operations written are listed.`,
		Example:           "  ipvsctl reconcile",
		Args:              args(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := a.client().Reconcile(cmd.Context())
			if err != nil {
				return err
			}
			if a.text() && len(r.Steps) > 0 {
				a.printSteps(r.Steps)
			}
			if a.text() && len(r.Errors) == 0 {
				fmt.Fprintf(a.out, "the table is right, %s\n", plural(len(r.Steps), "operation"))
			}
			return refused(r.Errors)
		},
	}
}
