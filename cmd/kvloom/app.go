package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// streams are where a command writes. err is looked at for being a terminal.
type streams struct{ out, err io.Writer }

// terminal tells whether a person watches the errors' end, on a terminal that can draw lines anew.
func (s streams) terminal() bool {
	return columns(s.err) > 0 && os.Getenv("TERM") != "dumb"
}

// run is the whole command: it reads args, does what they ask and gives the exit code.
func run(ctx context.Context, args []string, std streams) int {
	root := newRoot(std)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	return announce(err, asksJSON(args), std)
}

func newRoot(std streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "kvloom",
		Short: "exact attention over sequences too long for one device",
		Long: "kvloom runs exact attention over sequences too long for one device, on a mesh of " +
			"ranks:\nKV blocks go round rings, heads are exchanged all to all.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownCommand,

		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(std.out)
	root.SetErr(std.err)
	root.SetFlagErrorFunc(explainFlagError)
	root.AddCommand(newAttend(std))
	root.AddCommand(newPlan(std))
	root.AddCommand(newSim(std))
	root.AddCommand(newBench(std))
	for _, c := range laterCommands() {
		root.AddCommand(newLater(c[0], c[1], thereNow))
	}
	root.SetHelpCommand(newHelp())
	strictCompletion(root)
	onceEach(root)
	return root
}

// laterCommands are the commands of coming versions: name and duty.
func laterCommands() [][2]string {
	return [][2]string{
		{"train", "trains a model on text with 2D attention"},
		{"launch", "starts rank processes on this node"},
		{"chaos", "runs fault scenarios and prints a scorecard"},
		{"doctor", "says what this machine can do, and what is wrong"},
		{"status", "a live run's ranks, rounds and scores"},
	}
}

// thereNow and benchNow are the commands that work, of the program and of bench.
const (
	thereNow = "attend, plan, sim and bench"
	benchNow = "bench kernels and bench ring"
)

// newLater is a command that says that it is not there yet, and which ones are.
func newLater(name, duty, works string) *cobra.Command {
	words := strings.Fields(name)
	return &cobra.Command{
		Use:                words[len(words)-1],
		Short:              duty + " (not there yet)",
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return &requestError{problem: fmt.Sprintf(
				"the command %s is not there yet: this version has %s", name, works)}
		},
	}
}

// knownCommand refuses what is neither a command nor a flag.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := fmt.Sprintf("use %s, or see kvloom --help", strings.Replace(thereNow, "and", "or", 1))
	name := show(args[0])
	if cmd.HasParent() {
		name = cmd.Name() + " " + name
		hint = fmt.Sprintf("see %s --help", cmd.CommandPath())
	}
	if near := nearestCommand(cmd, args[0]); near != "" {
		hint = "did you mean " + near + "?"
	}
	return &requestError{problem: fmt.Sprintf("the command %s is unknown: %s", name, hint)}
}

// asksJSON looks for --json by itself, for errors met before all flags are read. As with all flags
// that are given twice the last one counts.
func asksJSON(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	asks := false
	for _, a := range args {
		if a == "--json" {
			asks = true
		} else if value, ok := strings.CutPrefix(a, "--json="); ok {
			if on, err := strconv.ParseBool(value); err == nil {
				asks = on
			}
		}
	}
	return asks
}
