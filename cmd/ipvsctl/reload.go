package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) reloadCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Make lbd load its file again",
		Long: `Make lbd load its configuration file again, and say whether it took it.

A file that lbd refuses changes nothing; the errors are printed and the exit
status is 2. It is 1 if the file was taken and the table refused part of it;
lbd tries that again.`,
		Example:           "  ipvsctl reload",
		Args:              args(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := a.client().Reload(cmd.Context())
			if err != nil {
				return err
			}
			a.warn(r.Warnings)
			switch {
			case !r.Reloaded:
				return usagef("%s", strings.Join(append(r.Errors, "not reloaded: the file was refused, nothing has changed"), "\n"))
			case a.text():
				fmt.Fprintf(a.out, "reloaded, %s\n", plural(r.Ops, "operation"))
			}
			return refused(r.Errors)
		},
	}
}

// refused is the error of operations that the table refused.
func refused(errs []string) error {
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%s\nthe table refused %s; lbd tries again", strings.Join(errs, "\n"), plural(len(errs), "operation"))
}
