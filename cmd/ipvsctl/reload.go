package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) reloadCommand() *cobra.Command {
	var now bool
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Make lbd load its file again",
		Long: `Make lbd load its configuration file again, and say whether it took it.

A file that lbd refuses changes nothing; the errors are printed and the exit
status is 2. It is 1 if the file was taken and the table refused part of it;
lbd tries that again.

Real servers that left the file get no new connections, and are deleted when
they have none left, at the latest after their drain_timeout. --now deletes them
at once, with those that left before and still drain: what they have is cut.`,
		Example:           "  ipvsctl reload",
		Args:              args(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			reload := a.client().Reload
			if now {
				reload = a.client().ReloadNow
			}
			r, err := reload(cmd.Context())
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
	cmd.Flags().BoolVar(&now, "now", false, "do not drain what left the file")
	return cmd
}

// refused is the error of operations that the table refused.
func refused(errs []string) error {
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%s\nthe table refused %s; lbd tries again", strings.Join(errs, "\n"), plural(len(errs), "operation"))
}
