package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// once is a flag's value that can be set one time: of two that are given, one would be lost without
// a word.
type once struct {
	pflag.Value
	flag  string
	given bool
	as    string
}

// Set refuses the second value.
func (o *once) Set(value string) error {
	if o.given {
		return badValue(o.flag, value, "was given before as %s: give it once", show(o.as))
	}
	o.given, o.as = true, value
	return o.Value.Set(value)
}

// onceEach makes all flags of a command and of those below it be given at most once.
func onceEach(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		f.Value = &once{Value: f.Value, flag: f.Name}
	})
	for _, c := range cmd.Commands() {
		onceEach(c)
	}
}
