package main

import (
	"github.com/spf13/cobra"
)

// newHelp is the library's help command, but for a topic that does not exist, which is an error.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "help about a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil {
				return &requestError{problem: err.Error()}
			}
			if len(rest) > 0 {
				return unknownTopic(about, rest)
			}
			about.InitDefaultHelpFlag() // so that help names it
			return about.Help()
		},
	}
}

// unknownTopic says what is wrong with the words after a command's name.
func unknownTopic(about *cobra.Command, rest []string) error {
	if err := about.ValidateArgs(rest); err != nil {
		return err
	}
	return &requestError{problem: "there is no help about " + show(rest[0]) + " of " +
		about.CommandPath() + ": see kvloom help " + about.Name()}
}

// strictCompletion makes the library's command completion refuse shells that it does not know.
func strictCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		c.Args = knownShell
		c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		for _, shell := range c.Commands() {
			shell.Args = noArguments
		}
	}
}

func knownShell(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "use bash, zsh, fish or powershell"
	if near := nearestCommand(cmd, args[0]); near != "" {
		hint = "did you mean " + near + "?"
	}
	return &requestError{problem: "the shell " + show(args[0]) + " is unknown: " + hint}
}

// nearestCommand is the subcommand that word was likely meant to be, or empty.
func nearestCommand(cmd *cobra.Command, word string) string {
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	return nearest(word, names)
}

// nearest is the name that word was likely meant to be: at most a third of its letters are wrong.
// It is empty when no name is that near.
func nearest(word string, names []string) string {
	best, cost := "", len(word)/3+1
	for _, name := range names {
		if d := editDistance(word, name); d < cost {
			best, cost = name, d
		}
	}
	return best
}
