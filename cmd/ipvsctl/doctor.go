package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lbd-project/lbd/internal/api"
)

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Say what of this host keeps the balancer from working",
		Long: `Say what of this host would keep the balancer from working, and what it can do:
the engine and why it was chosen, how the kernel's IPVS weighs connections, and
whether userspace.overhead is the same, what the userspace engine has here,
connection tracking, addresses, routes, forwarding and rp_filter.

The exit status is 1 if something is a warning.`,
		Example:           "  ipvsctl doctor -o json | jq '.findings[] | select(.level == \"warning\")'",
		Args:              args(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := a.client().Doctor(cmd.Context())
			if err != nil {
				return err
			}
			warnings := 0
			t := table{}
			for _, f := range d.Findings {
				if f.Level == api.LevelWarning {
					warnings++
				}
				t.row(f.Level, f.Topic, f.Text)
			}
			if a.text() {
				t.write(a.out)
			}
			if warnings > 0 {
				return fmt.Errorf("%s", plural(uint64(warnings), "warning"))
			}
			return nil
		},
	}
}
