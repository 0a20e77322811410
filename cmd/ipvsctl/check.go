package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/config"
)

func (a *app) checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration file",
		Long: `Check a configuration file, and ask lbd what this host cannot do of it. If lbd
does not run, or not for you, only the file itself is checked, as lbd --check
does, and a note says so.

FILE may be - for standard input. Findings are printed one a line, after their
position; the exit status is 2 if one of them is an error.`,
		Example:           "  ipvsctl check new.yaml && ipvsctl diff new.yaml",
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: completeFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := a.readFile(args[0])
			if err != nil {
				return err
			}
			r, err := a.check(cmd.Context(), file)
			if err != nil {
				return err
			}
			a.warn(r.Warnings)
			errs := append(r.Errors, r.HostErrors...)
			a.findings(errs)
			if len(errs) > 0 {
				return usagef("%s: cannot be loaded", file.Name)
			}
			if a.text() {
				fmt.Fprintf(a.out, "%s: ok\n", printable(file.Name))
			}
			return nil
		},
	}
}

// check checks the file here first, so that a broken one needs no lbd.
func (a *app) check(ctx context.Context, file api.File) (api.CheckReport, error) {
	local := checkFile(file)
	if len(local.Errors) == 0 {
		r, err := a.client().Check(ctx, file)
		if !errors.Is(err, api.ErrNotRunning) && !errors.Is(err, fs.ErrPermission) {
			return r, err
		}
		a.complain(err.Error() + "\nnote: only the file itself was checked, not whether this host can do it")
	}
	if !a.text() {
		return local, a.printValue(local)
	}
	return local, nil
}

// checkFile does what needs neither lbd nor its host.
func checkFile(file api.File) api.CheckReport {
	r := api.CheckReport{Errors: []string{}, HostErrors: []string{}, Warnings: []string{}}
	c, err := config.Parse(file.Name, []byte(file.Content))
	if err != nil {
		r.Errors = strings.Split(err.Error(), "\n")
		return r
	}
	r.Warnings = append(r.Warnings, c.Warnings...)
	return r
}
