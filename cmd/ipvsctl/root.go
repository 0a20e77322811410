package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/version"
)

// rootCommand returns the whole command line. It is the source of the help, the
// man page and the completions.
func (a *app) rootCommand() *cobra.Command {
	var showVersion bool
	root := &cobra.Command{
		Use:           "ipvsctl",
		Short:         "Manage the load balancer lbd",
		Long:          "Manage the load balancer lbd.",
		Example:       "  ipvsctl list web",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case showVersion:
				fmt.Fprintln(a.out, version.Banner("ipvsctl"))
				return nil
			case len(args) == 0:
				help(a.err, cmd)
				return usagef("a command is missing")
			}
			return unknownCommand(cmd, args[0])
		},
	}
	a.output = formatTable
	flags := root.PersistentFlags()
	flags.VarP(&a.output, "output", "o", "output format: table, wide or json")
	flags.StringVar(&a.socket, "socket", api.DefaultSocket, "`PATH` of the control socket")
	flags.DurationVar(&a.timeout, "timeout", 30*time.Second, "give up after `DURATION`")
	flags.BoolP("help", "h", false, "show help")
	root.Flags().BoolVar(&showVersion, "version", false, "show the version of ipvsctl")
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { help(cmd.OutOrStdout(), cmd) })
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usagef("%w\n%s", err, seeHelp(cmd)) })
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if a.timeout <= 0 {
			return usagef("--timeout must be greater than 0")
		}
		return nil
	}
	root.CompletionOptions.DisableDefaultCmd = true
	if err := root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the option is not there
	}
	root.AddCommand(
		a.statusCommand(),
		a.listCommand(),
		a.connectionsCommand(),
		a.explainCommand(),
		a.drainCommand(),
		a.resumeCommand(),
		a.disableCommand(),
		a.weightCommand(),
		a.eventsCommand(),
		a.doctorCommand(),
		a.checkCommand(),
		a.diffCommand(),
		a.reloadCommand(),
		a.reconcileCommand(),
		a.versionCommand(),
		a.completionCommand(),
	)
	h := helpCommand()
	root.AddCommand(h)
	root.SetHelpCommand(h)
	return root
}

// args wraps an argument check, whose errors are usage errors.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usagef("%s\n%s", takes(cmd, args), seeHelp(cmd))
		}
		return nil
	}
}

// takes says which arguments a command takes, where cobra counts them.
func takes(cmd *cobra.Command, args []string) string {
	_, want, ok := strings.Cut(cmd.Use, " ")
	if !ok {
		want = "no argument"
	}
	text := cmd.Name() + " takes " + want
	if len(args) > 0 {
		text += ", got"
	}
	for _, arg := range args {
		text += fmt.Sprintf(" %q", arg)
	}
	return text
}

func seeHelp(cmd *cobra.Command) string { return "see " + cmd.CommandPath() + " --help" }

// unknownCommand says so and what might have been meant.
func unknownCommand(root *cobra.Command, name string) error {
	text := fmt.Sprintf("unknown command %q", name)
	// Within how many edits a command is suggested.
	root.SuggestionsMinimumDistance = 2
	if s := root.SuggestionsFor(name); len(s) > 0 {
		text += "; did you mean " + strings.Join(s, " or ") + "?"
	}
	return &usageError{errors.New(text + "\n" + seeHelp(root))}
}
