package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/version"
)

// versions is the JSON of the version command.
type versions struct {
	Ipvsctl api.Version  `json:"ipvsctl"`
	Lbd     *api.Version `json:"lbd,omitempty"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "version",
		Short:             "Show the versions of ipvsctl and lbd",
		Long:              "Show the version of ipvsctl, and that of lbd if it runs.",
		Example:           "  ipvsctl version",
		Args:              args(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			own := versions{Ipvsctl: api.Version{Version: version.String(), GoVersion: version.Go()}}
			lbd, err := api.NewClient(a.socket, a.timeout).Version(cmd.Context())
			if err == nil {
				own.Lbd = &lbd
			}
			if errors.Is(err, api.ErrNotRunning) {
				err = nil
			}
			if !a.text() {
				return errors.Join(a.printValue(own), err)
			}
			fmt.Fprintln(a.out, version.Banner("ipvsctl"))
			if own.Lbd != nil {
				fmt.Fprintf(a.out, "lbd %s (%s)\n", printable(lbd.Version), printable(lbd.GoVersion))
			}
			return err
		},
	}
}
