package main

import (
	"github.com/spf13/cobra"

	"github.com/lbd-project/lbd/internal/api"
)

func (a *app) listCommand() *cobra.Command {
	var direct, table bool
	cmd := &cobra.Command{
		Use:     "list [SERVICE]",
		Aliases: []string{"ls"},
		Short:   "List virtual services and real servers",
		Long: `List virtual services with their real servers, or one of them.

WEIGHT is the weight in the table and the configured one; a dash means that the
table does not hold the real server. SERVICE is a name, or the protocol and
address as listed. -o wide adds limits, rates and the reason of the weight.
There is a column MARKS where something has one: backup servers, what operators
said with drain, disable and weight, slow starts, where health is ignored, and
where a check warns, such as of a certificate: explain says of what. Scripts
should read -o json.

--table has lbd read its engine now, instead of telling what it saw last.
--direct reads the kernel's IPVS of this network namespace and needs no lbd.
Both show the real servers in the engine's order, and know neither names nor
configured weights nor health.`,
		Example:           `  ipvsctl list "TCP 192.0.2.10:80"`,
		Args:              args(cobra.MaximumNArgs(1)),
		ValidArgsFunction: a.completeService,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case direct && table:
				return usagef("--direct and --table exclude each other")
			case direct:
				return a.listDirect(cmd.Context(), args)
			case table:
				return a.listTable(cmd.Context(), args)
			}
			var services []api.Service
			var err error
			if len(args) == 0 {
				services, err = a.client().Services(cmd.Context())
			} else {
				services = make([]api.Service, 1)
				services[0], err = a.client().Service(cmd.Context(), args[0])
			}
			if err != nil {
				return err
			}
			if a.text() {
				a.printServices(services, false)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&direct, "direct", false, "look at the kernel, without lbd")
	cmd.Flags().BoolVar(&table, "table", false, "read the engine's table now")
	return cmd
}

// completeService completes the name of a virtual service.
func (a *app) completeService(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, args, serviceNames)
}

// serviceNames returns the name of a virtual service for a completion.
func serviceNames(s *api.Service) []string {
	if s.Name == "" {
		return nil
	}
	return []string{s.Name + "\t" + s.Key}
}

// completeServiceOrServer completes the name of a virtual service or of one of its
// real servers.
func (a *app) completeServiceOrServer(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, args, func(s *api.Service) []string { return append(serviceNames(s), serverNames(s)...) })
}

// complete completes the first argument with the names that each virtual service
// gives.
func (a *app) complete(cmd *cobra.Command, args []string, names func(*api.Service) []string) (all []string, _ cobra.ShellCompDirective) {
	if len(args) == 0 {
		a.output = formatTable // nothing but names may be printed
		services, err := a.client().Services(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for i := range services {
			all = append(all, names(&services[i])...)
		}
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}
