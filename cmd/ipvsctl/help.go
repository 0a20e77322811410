package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",
		Long:  "Show the help of a command, or of ipvsctl.",
		Args:  args(cobra.MaximumNArgs(1)),
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, c := range cmd.Root().Commands() {
				names = append(names, c.Name()+"\t"+c.Short)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			if len(args) == 0 {
				help(cmd.OutOrStdout(), root)
				return nil
			}
			c, _, err := root.Find(args)
			if err != nil || c == root {
				return unknownCommand(root, args[0])
			}
			help(cmd.OutOrStdout(), c)
			return nil
		},
	}
}

// help prints the help of a command: what it does, usage, options and an
// example.
func help(w io.Writer, cmd *cobra.Command) {
	fmt.Fprintf(w, "%s\n\nUsage:\n  %s\n", cmd.Long, usageLine(cmd))
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(w, "\nAlias:\n  %s\n", strings.Join(cmd.Aliases, ", "))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprint(w, "\nCommands:\n")
		t := table{indent: "  "}
		for _, c := range cmd.Commands() {
			if !c.Hidden {
				t.row(c.Name(), c.Short)
			}
		}
		t.write(w)
	}
	section := func(title, text string) {
		if text != "" {
			fmt.Fprintf(w, "\n%s:\n%s\n", title, strings.TrimRight(text, "\n"))
		}
	}
	section("Options", options(cmd.LocalFlags()))
	section("Global options", options(cmd.InheritedFlags()))
	section("Example", cmd.Example)
	if !cmd.HasParent() {
		section("Exit status", "  "+exitStatuses)
	}
}

// options aligns the options of a set.
func options(set *pflag.FlagSet) string {
	t := table{indent: "  "}
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		short := "   "
		if f.Shorthand != "" {
			short = "-" + f.Shorthand + ","
		}
		value, usage := optionText(f)
		t.row(strings.TrimRight(short+" --"+f.Name+" "+value, " "), usage)
	})
	var b strings.Builder
	t.write(&b)
	return b.String()
}

// optionText returns the placeholder of an option's value, empty for a switch,
// and what it does, with its default.
func optionText(f *pflag.Flag) (value, usage string) {
	value, usage = pflag.UnquoteUsage(f)
	if f.Value.Type() == "bool" {
		return "", usage
	}
	if f.DefValue == "" {
		return value, usage
	}
	return value, fmt.Sprintf("%s (default %s)", usage, f.DefValue)
}

// usageLine is "ipvsctl list [OPTION...] [SERVICE]".
func usageLine(cmd *cobra.Command) string {
	if !cmd.HasParent() {
		return cmd.Name() + " [OPTION...] COMMAND [ARGUMENT...]"
	}
	name, arguments, _ := strings.Cut(cmd.Use, " ")
	return strings.TrimSpace(cmd.Parent().CommandPath() + " " + name + " [OPTION...] " + arguments)
}
