package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lbd-project/lbd/internal/api"
)

// serverHelp says how real servers are named.
const serverHelp = `SERVER is SERVICE/ADDRESS:PORT, as in web/10.0.0.2:80. ADDRESS:PORT alone is
that real server in every service, and an address alone all of its ports. What
is said lasts over restarts of lbd and reboots, until it is taken back or the
real server leaves the file.`

func (a *app) drainCommand() *cobra.Command {
	var wait, inactive bool
	var deadline time.Duration
	cmd := &cobra.Command{
		Use:   "drain SERVER",
		Short: "Give a real server no new connections",
		Long: `Set the weight of a real server to 0: it gets no new connections, and those
that it has go on.

` + serverHelp + `

--wait returns when no connection is active (with UDP and firewall marks when
there is none at all, after their time-out), and shows how many are left. With
--inactive it waits for those that are closing or were closed a moment ago, too.
It goes on while lbd restarts. At the --deadline it gives up with status 1. The
real server stays drained in any case, until ipvsctl resume.

Clients of a persistent service go elsewhere with their next connection, unless
sysctls sets expire_quiescent_template to 0: then they come back to the drained
real server, which a warning says.`,
		Example:           "  ipvsctl drain web/10.0.0.2:80 --wait --deadline 10m",
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeServer,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case deadline < 0:
				return usagef("--deadline must not be negative")
			case deadline > api.MaxAdminTime:
				return usagef("--deadline: want at most %v, got %v", api.MaxAdminTime, deadline)
			case deadline > 0 && !wait:
				return usagef("--deadline needs --wait: a drain by itself has no end")
			case inactive && !wait:
				return usagef("--inactive needs --wait: it says what is waited for")
			}
			until := time.Now().Add(deadline)
			result, err := a.admin(cmd, args[0], api.AdminRequest{Mode: "drain", DeadlineSeconds: deadline.Seconds()})
			if err != nil || !wait {
				return err
			}
			w := newWaiter(a, result)
			w.inactive = inactive
			if deadline > 0 {
				w.until = until
			}
			return w.wait(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "return when it has no connections left")
	cmd.Flags().BoolVar(&inactive, "inactive", false, "with --wait: for inactive connections, too")
	cmd.Flags().DurationVar(&deadline, "deadline", 0, "with --wait: for `DURATION`; 0 is for ever")
	return cmd
}

func (a *app) resumeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "resume SERVER",
		Short: "End a drain or a disable",
		Long: `Let a real server have connections again that was drained or disabled. If a
check fails it stays out until that passes. A weight of ipvsctl weight stays.

` + serverHelp,
		Example:           "  ipvsctl resume 10.0.0.2",
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeServer,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := a.admin(cmd, args[0], api.AdminRequest{Mode: "none"})
			return err
		},
	}
}

func (a *app) disableCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "disable SERVER",
		Short: "Take a real server out of the table",
		Long: `Take a real server out of the table. The connections that it has are cut; its
checks go on. Use ipvsctl drain first where that matters, and ipvsctl resume to
bring it back.

` + serverHelp,
		Example:           "  ipvsctl disable web/10.0.0.2:80",
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeServer,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := a.admin(cmd, args[0], api.AdminRequest{Mode: "disable"})
			return err
		},
	}
}

// reset is the weight that is the configured one.
const reset = "reset"

func (a *app) weightCommand() *cobra.Command {
	var over time.Duration
	cmd := &cobra.Command{
		Use:   "weight SERVER N|reset",
		Short: "Give a real server another weight",
		Long: `Give a real server a weight of 0 to 65535 in place of the configured one, or
that one again with reset. Once the file says another weight, that counts.

` + serverHelp,
		Example: "  ipvsctl weight web/10.0.0.2:80 10 --over 5m",
		Args:    args(cobra.ExactArgs(2)),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return []string{reset}, cobra.ShellCompDirectiveNoFileComp
			}
			return a.completeServer(cmd, args, toComplete)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case over < 0:
				return usagef("--over must not be negative")
			case over > api.MaxAdminTime:
				return usagef("--over: want at most %v, got %v", api.MaxAdminTime, over)
			}
			r := api.AdminRequest{OverSeconds: over.Seconds()}
			if args[1] == reset {
				r.ResetWeight = true
			} else {
				n, err := strconv.ParseUint(args[1], 10, 16)
				if err != nil {
					return noWeight(args[1])
				}
				weight := uint32(n)
				r.Weight = &weight
			}
			_, err := a.admin(cmd, args[0], r)
			return err
		},
	}
	cmd.Flags().DurationVar(&over, "over", 0, "get there in even steps over `DURATION`")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		// A negative number looks like an option.
		if e := (*pflag.NotExistError)(nil); errors.As(err, &e) {
			if text := e.GetSpecifiedShortnames(); text != "" && '0' <= text[0] && text[0] <= '9' {
				return noWeight("-" + text)
			}
		}
		return cmd.Root().FlagErrorFunc()(cmd, err)
	})
	return cmd
}

// noWeight says that an argument is no weight.
func noWeight(text string) error {
	return usagef("weight: want 0 to 65535 or %s, got %q", reset, text)
}

// admin makes a request and prints what came of it.
func (a *app) admin(cmd *cobra.Command, server string, r api.AdminRequest) (api.AdminResult, error) {
	target, err := api.ParseAdminTarget(server)
	if err != nil {
		return api.AdminResult{}, &usageError{err}
	}
	result, err := a.client().SetAdmin(cmd.Context(), target, r)
	if err != nil {
		return result, err
	}
	if a.text() {
		for _, s := range result.RealServers {
			fmt.Fprintln(a.out, printable(changeLine(s)))
		}
	}
	a.warn(result.Warnings)
	if len(result.Errors) > 0 {
		return result, errors.New(strings.Join(append(result.Errors, "done as far as possible; lbd tries the rest again"), "\n"))
	}
	return result, nil
}

// changeLine prints "web/10.0.0.2:80 drained, 3 active connections".
func changeLine(s api.AdminChange) string {
	text := s.Service + "/" + s.RealServer + " " + s.Change
	if !s.Changed {
		text += " already"
	}
	if s.Admin.Mode == "drain" || s.Admin.Mode == "disable" {
		n, what := int(s.ActiveConnections), "active connection"
		if protocol, _, _ := strings.Cut(s.Key, " "); quiet(protocol) {
			n, what = n+int(s.InactiveConnections), "connection"
		}
		text += ", " + plural(n, what)
	}
	if s.State == "down" {
		text += "; it is down: " + s.Reason
	}
	return text
}

// completeServer completes the names of real servers.
func (a *app) completeServer(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, args, serverNames)
}

// serverNames returns the names of the real servers of a virtual service for a
// completion.
func serverNames(s *api.Service) (names []string) {
	if s.Foreign {
		return nil
	}
	for _, r := range s.RealServers {
		if r.State != "draining" {
			names = append(names, s.Name+"/"+r.Address+"\t"+r.State)
		}
	}
	return names
}
