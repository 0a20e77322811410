package main

import (
	"github.com/spf13/cobra"
)

// shells are those that completion knows.
var shells = []string{"bash", "zsh", "fish"}

func (a *app) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print the completion script of a shell",
		Long: `Print the completion script of a shell, for a file where the shell looks for
completions.`,
		Example:           "  ipvsctl completion bash > /etc/bash_completion.d/ipvsctl",
		Args:              args(cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)),
		ValidArgs:         shells,
		ValidArgsFunction: cobra.FixedCompletions(shells, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.out, true)
			case "zsh":
				return root.GenZshCompletion(a.out)
			default:
				return root.GenFishCompletion(a.out, true)
			}
		},
	}
}
