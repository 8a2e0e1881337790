package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kvloom/kvloom"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes.
const (
	exitOK          = 0
	exitCheck       = 1   // the check found results outside the gate
	exitRequest     = 2   // the request is impossible or malformed
	exitFailed      = 3   // the run failed
	exitInterrupted = 130 // as shells count SIGINT
)

// Kinds of errors in JSON, besides those of kvloom.Kind.
const (
	kindConfig = "config"
	kindCheck  = "check"
)

// requestError is a request that is impossible or malformed: the flag, its value and what would
// work. Without a flag the problem says all.
type requestError struct{ flag, value, problem string }

func (e *requestError) Error() string {
	switch {
	case e.flag == "":
		return e.problem
	case e.value == "":
		return fmt.Sprintf("--%s: %s", e.flag, e.problem)
	}
	return fmt.Sprintf("--%s %s: %s", e.flag, show(e.value), e.problem)
}

func badValue(flag, value, problem string, args ...any) error {
	if value == "" {
		value = `""` // visible
	}
	return &requestError{flag: flag, value: value, problem: fmt.Sprintf(problem, args...)}
}

// notYet refuses what the command line knows and this version does not do.
func notYet(flag, value, works string) error {
	return &requestError{flag: flag, value: value, problem: "is not there yet: " + works}
}

// checkError is a run whose results lie outside the gate.
type checkError struct{ problem string }

func (e *checkError) Error() string { return e.problem }

// unwritable is a file that could not be written after the run, such as that of --out.
type unwritable struct{ err error }

func (e *unwritable) Error() string { return e.err.Error() }
func (e *unwritable) Unwrap() error { return e.err }

// advised is a failed run in the words of the command line: what the library advises is for
// programs.
type advised struct {
	err      error
	deadline time.Duration
}

func (e *advised) Error() string {
	text := strings.ReplaceAll(e.err.Error(), "open a new session",
		"run again with a longer --deadline")
	var failed *kvloom.Error
	late := errors.As(e.err, &failed) &&
		(failed.Kind == kvloom.Timeout || failed.Kind == kvloom.PeerLost)
	if late || errors.Is(e.err, context.DeadlineExceeded) {
		text += fmt.Sprintf("\n  if the ranks are slow rather than stuck, raise --deadline, which "+
			"is %v", e.deadline)
	}
	return text
}

func (e *advised) Unwrap() error { return e.err }

// interrupted is a run that the user ended.
type interrupted struct{ err error }

func (e *interrupted) Error() string { return "interrupted" }
func (e *interrupted) Unwrap() error { return e.err }

// reported is an error that the report already told of on standard output.
type reported struct{ err error }

func (e *reported) Error() string { return e.err.Error() }
func (e *reported) Unwrap() error { return e.err }

// exitCode is what an error means to a script.
func exitCode(err error) int {
	var (
		request *requestError
		check   *checkError
		stopped *interrupted
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &stopped):
		return exitInterrupted
	case errors.As(err, &request):
		return exitRequest
	case errors.As(err, &check):
		return exitCheck
	}
	return exitFailed
}

// failureJSON is an error in JSON. Rank is -1 when no rank is to blame, and absent when the run
// had not begun.
type failureJSON struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
	Rank    *int   `json:"rank,omitempty"`
	Link    string `json:"link,omitempty"`
	Op      string `json:"op,omitempty"`
}

// describe puts an error into JSON's words.
func describe(err error) *failureJSON {
	f := &failureJSON{Message: err.Error()}
	var failed *kvloom.Error
	if errors.As(err, &failed) {
		f.Kind, f.Rank, f.Link, f.Op = string(failed.Kind), &failed.Rank, failed.Link, failed.Op
	}
	switch exitCode(err) {
	case exitCheck:
		f.Kind = kindCheck
	case exitRequest:
		f.Kind = kindConfig
	case exitInterrupted:
		f.Kind = string(kvloom.Aborted)
	}
	var file *unwritable
	switch {
	case f.Kind != "":
	case errors.As(err, &file):
		// No device failed and a path is the caller's to choose. The code is that of a failed run
		// all the same: what could be known before it was checked then.
		f.Kind = kindConfig
	default:
		f.Kind = string(kvloom.Device)
	}
	return f
}

// announce tells the user of an error, if nothing has yet, and gives its exit code.
func announce(err error, json bool, std streams) int {
	var told *reported
	done := errors.As(err, &told)
	if json && !done {
		done = writeJSON(std.out, &report{Error: describe(err)}) == nil
	}
	if !done {
		fmt.Fprintln(std.err, "kvloom: "+strings.TrimPrefix(err.Error(), "kvloom: "))
	}
	return exitCode(err)
}

// stopCause turns whatever a cancelled run gave into an interruption.
func stopCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &interrupted{err}
	}
	return err
}

// explainFlagError puts the flag library's errors into the command's words.
func explainFlagError(cmd *cobra.Command, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	var (
		unknown *pflag.NotExistError
		needs   *pflag.ValueRequiredError
		invalid *pflag.InvalidValueError
		request *requestError
	)
	switch {
	case errors.As(err, &request):
		return request
	case errors.As(err, &unknown):
		return unknownFlag(cmd, unknown)
	case errors.As(err, &needs):
		f := needs.GetFlag()
		what, _ := pflag.UnquoteUsage(f)
		return &requestError{flag: f.Name, problem: fmt.Sprintf(
			"needs a value: --%s %s", f.Name, what)}
	case errors.As(err, &invalid):
		return badValue(invalid.GetFlag().Name, invalid.GetValue(), "use true or false, or leave "+
			"the value out")
	}
	return &requestError{problem: err.Error()}
}

func unknownFlag(cmd *cobra.Command, e *pflag.NotExistError) error {
	name := e.GetSpecifiedName()
	if e.GetSpecifiedShortnames() != "" {
		return &requestError{problem: fmt.Sprintf("the flag -%s is unknown: flags are spelled "+
			"out, such as --tokens; see %s --help", name, cmd.CommandPath())}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	hint := fmt.Sprintf("see %s --help", cmd.CommandPath())
	if near := nearest(name, names); near != "" {
		hint = "did you mean --" + near + "?"
	}
	return &requestError{problem: fmt.Sprintf("the flag --%s is unknown: %s", name, hint)}
}

// editDistance is Levenshtein's.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// shown is how much of a value is written.
const shown = 80

// show writes a value of the user for a message: quoted where it could be misread, and not long.
func show(s string) string {
	if len(s) > shown {
		return fmt.Sprintf("%.*q...", shown, s)
	}
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Sprintf("%q", s)
	}
	return s
}
