package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/kvloom/kvloom/plan"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newAttend(std streams) *cobra.Command {
	f := &attendFlags{does: []string{"trace"}}
	cmd := &cobra.Command{
		Use:   "attend",
		Short: "one attention problem on a mesh of ranks",
		Long: "attend runs one attention problem on a mesh of ranks, forward and with --backward " +
			"the\ngradients, and compares it with a float64 oracle with --check.\n\n" +
			"Without flags it is a demonstration: 8 ranks as 2x4, 1K tokens, 8 query and 2 KV " +
			"heads,\nbackward, checked. --json, --quiet, --log, --deadline and --trace leave it " +
			"one.\n\n" +
			"The environment variable KVLOOM_KERNELS names the CPU kernels: portable, avx2, " +
			"avx512,\navx512bf16, amx, or auto for the fastest of this machine.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := newRequest(f)
			if err != nil {
				return err
			}
			defer r.close()
			return attend(cmd.Context(), r, f.trace, std)
		},
	}
	f.bind(cmd.Flags())
	f.bindTrace(cmd.Flags())
	cmd.Flags().SortFlags = false
	return cmd
}

// noArguments refuses words that belong to no flag. The usual reason is a value after a flag whose
// value may be left out, and which therefore takes one after an equals sign only.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var fits []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch _, err := strconv.ParseBool(args[0]); {
		case f.NoOptDefVal == "":
		case f.Name == "check" && (args[0] == checkAuto || args[0] == checkFull),
			f.Name == "log" && slices.Contains(logLevels(), args[0]),
			f.Value.Type() == "bool" && err == nil:
			fits = append(fits, f.Name)
		}
	})
	switch len(fits) {
	case 0:
		name := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
		return &requestError{problem: fmt.Sprintf("%s takes flags only, so %s has no meaning: see "+
			"%s --help", name, show(args[0]), cmd.CommandPath())}
	case 1:
		return badValue(fits[0], args[0], "write --%s=%s, with an equals sign", fits[0], args[0])
	}
	return &requestError{problem: fmt.Sprintf("%s is the value of no flag: write it with an "+
		"equals sign, --%s=%[1]s", args[0], strings.Join(fits, "="+args[0]+" or --"))}
}

// attend does what the request asks and prints it.
func attend(ctx context.Context, r *request, tracePath string, std streams) error {
	log, flush := newLog(r.log, std.err)
	cfg := r.config()
	cfg.Logger = log
	to, err := openTrace(tracePath, r, func(int, int) string { return "inproc" })
	if err != nil {
		return err
	}
	if to != nil {
		cfg.Trace = to.event
	}
	a := &attendance{
		request: r, config: cfg, report: newReport(r),
		progress: newProgress(!r.quiet && !r.json && r.log == "" && std.terminal(), std.err),
	}
	listened := a.progress.tellStop(ctx, r.quiet || r.json)
	if r.dtype == tensors.F64 {
		err = attendAs[float64](ctx, a)
	} else {
		err = attendAs[float32](ctx, a)
	}
	listened()
	a.progress.close()
	if late := to.close(); late != nil {
		err = errors.Join(err, &unwritable{late})
	}
	if err != nil {
		err = stopCause(ctx, err)
	}
	if exitCode(err) == exitFailed {
		flush()
		err = &advised{err, r.deadline}
	}
	return a.print(err, std)
}

// attendance is one run of attend.
type attendance struct {
	request  *request
	config   kvloom.Config
	report   *report
	progress *progress
}

// print shows what is known, whatever the run came to, and gives the error that is left to tell. A
// request that was refused on the way has nothing to show.
func (a *attendance) print(err error, std streams) error {
	switch code := exitCode(err); {
	case code == exitRequest:
		return err
	case a.request.json:
		a.report.OK = err == nil
		if err != nil {
			a.report.Error = describe(err)
			err = &reported{err}
		}
		return errors.Join(err, writeJSON(std.out, a.report))
	case code > exitCheck:
		return err
	}
	return errors.Join(err, writeTable(std.out, a.request, a.report, err))
}

// attendAs runs the request in the element type T and fills the report.
func attendAs[T attn.Float](ctx context.Context, a *attendance) error {
	in, err := loadInputs[T](a.request)
	if err != nil {
		return err
	}
	a.request.close()
	out, err := runRounds(ctx, a, in)
	if err != nil {
		return err
	}
	a.report.Digests = digestsOf(a.request.dtype, out)
	if err := saveOutputs(a.request, out, a.report.PlanHash); err != nil {
		return err
	}
	if a.request.check == "" {
		return nil
	}
	stage := a.progress.stage("check", 0)
	a.report.Check, err = checkResults(ctx, a.request, in, out, parallel(ctx, stage))
	stage.end()
	if err != nil {
		return err
	}
	return a.report.Check.problem()
}

// runRounds opens a session, runs the rounds in it and closes it: its memory is given back before
// the oracle starts.
func runRounds[T attn.Float](ctx context.Context, a *attendance, in kvloom.Inputs[T]) (
	out kvloom.Outputs[T], err error,
) {
	r, cfg := a.request, a.config
	stage := a.progress.stage(rankPasses, int64(r.rounds*len(r.passes())*r.mesh.Ranks()))
	defer stage.end()
	cfg.Progress = func(int32, int32) { stage.add(1) }
	s, err := kvloom.Open[T](ctx, cfg)
	if err != nil {
		return out, err
	}
	defer func() {
		// An interrupted run is closed in order too.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.deadline)
		defer cancel()
		err = errors.Join(err, s.Close(ctx))
	}()
	a.report.PlanHash = s.PlanHash(0).String()
	if err := s.Load(0, 0, in); err != nil {
		return out, err
	}
	cfg.Logger.Info("ranks are ready")
	var spent [2]time.Duration
	for range r.rounds {
		for _, pass := range r.passes() {
			begin := time.Now()
			err := s.Run(ctx, kvloom.Round{Pass: pass})
			spent[pass] += time.Since(begin)
			if err != nil {
				return out, err
			}
		}
	}
	if out, err = s.Results(0, 0, r.backward); err != nil {
		return out, err
	}
	figures := make([]kvloom.Figures, r.mesh.Ranks())
	for i := range figures {
		figures[i] = s.Figures(0, i)
	}
	a.report.Links = s.Links()
	return out, a.report.account(s.Plan(0), r, figures, spent)
}

// passes are those of one round, in order.
func (r *request) passes() []plan.Pass {
	if r.backward {
		return []plan.Pass{plan.Forward, plan.Backward}
	}
	return []plan.Pass{plan.Forward}
}
