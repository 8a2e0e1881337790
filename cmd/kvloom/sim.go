package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
	"github.com/kvloom/kvloom/sim"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newSim(std streams) *cobra.Command {
	f := &attendFlags{
		does:   []string{"world-seed", "replay", "trace"},
		noDemo: true, clocked: true,
	}
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "the same actors in virtual time on a modelled cluster",
		Long: "sim runs the scheduler and the ranks of attend in virtual time, on a cluster that " +
			"a topology\nfile describes, and says how long the rounds would take there. It " +
			"computes nothing unless\n--compute asks for the arithmetic, whose results are " +
			"attend's, bit for bit.\n\n" +
			"The same flags give the same run: --world-seed draws the weather.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := newSimRequest(f)
			if err != nil {
				return err
			}
			defer r.close()
			return simulate(cmd.Context(), r, std)
		},
	}
	f.bind(cmd.Flags())
	f.bindTrace(cmd.Flags())
	f.bindSim(cmd.Flags())
	cmd.Flags().SortFlags = false
	return cmd
}

// bindSim declares what sim alone has.
func (f *attendFlags) bindSim(set *pflag.FlagSet) {
	set.Lookup("topology").Usage = "the cluster: a YAML or JSON `file` (default nodes of 8 ranks " +
		"with 400 TFLOP/s each, links of 400 and 50 GB/s)"
	set.StringVar(&f.worldSeed, "world-seed", "0", "`N` draws delays; 0 is calm weather")
	set.StringVar(&f.replay, "replay", "", "as --world-seed `N`, with a trace: of --trace, or "+
		"sim-N.trace.json")
	set.BoolVar(&f.compute, "compute", false, "do the arithmetic too: digests, --check, --out")
	set.Lookup("deadline").Usage = "how `long` a rank may wait without progress, in virtual time " +
		"(default 30s and the time of all the work of a round, one thing after the other)"
}

// simRequest is what sim was asked for, checked.
type simRequest struct {
	*request
	weather uint64
	compute bool
	trace   string
	patient bool // the deadline was not given
}

// maxSimRounds bounds the book of a simulation, which is written before it begins.
const maxSimRounds = 1 << 20

func newSimRequest(f *attendFlags) (*simRequest, error) {
	f.modelled = !f.compute
	for _, x := range []struct {
		flag string
		set  bool
	}{{"check", f.set.Changed("check")}, {"out", f.set.Changed("out")}} {
		if x.set && !f.compute {
			return nil, badValue(x.flag, f.set.Lookup(x.flag).Value.String(), "there are no "+
				"results to look at: add --compute, or leave --%s out", x.flag)
		}
	}
	r, err := newRequest(f)
	if err != nil {
		return nil, err
	}
	s := &simRequest{
		request: r, compute: f.compute, trace: f.trace, patient: !f.set.Changed("deadline")}
	if err := s.readWorld(f); err != nil {
		r.close()
		return nil, err
	}
	return s, nil
}

// readWorld reads the cluster and its weather.
func (s *simRequest) readWorld(f *attendFlags) (err error) {
	if s.rounds > maxSimRounds {
		return badValue("rounds", f.rounds, "use 1 to %d", maxSimRounds)
	}
	if s.weather, err = parseSeed("world-seed", f.worldSeed); err != nil {
		return err
	}
	if f.set.Changed("replay") {
		n, err := parseSeed("replay", f.replay)
		if err != nil {
			return err
		}
		if f.set.Changed("world-seed") && n != s.weather {
			return badValue("replay", f.replay, "--world-seed %s says otherwise: leave one of "+
				"them out", f.worldSeed)
		}
		s.weather = n
		if s.trace == "" {
			s.trace = fmt.Sprintf("sim-%d.trace.json", n)
		}
	}
	return nil
}

// simulation is one run of sim.
type simulation struct {
	request  *simRequest
	plan     *plan.Plan
	book     *rank.Rounds
	costs    *sim.Modelled
	report   *simReport
	progress *progress
	trace    *traceFile
}

// simulate does what the request asks and prints it.
func simulate(ctx context.Context, r *simRequest, std streams) error {
	s := &simulation{
		request: r, report: newSimReport(r),
		progress: newProgress(!r.quiet && !r.json && std.terminal(), std.err),
	}
	listened := s.progress.tellStop(ctx, r.quiet || r.json)
	err := s.prepare(ctx)
	if err == nil {
		s.trace, err = openTrace(r.trace, r.request, func(src, dst int) string {
			return r.topology.Link(src, dst).String()
		})
	}
	if err == nil {
		if r.dtype == tensors.F64 {
			err = simulateAs[float64](ctx, s)
		} else {
			err = simulateAs[float32](ctx, s)
		}
		if late := s.trace.close(); late != nil {
			err = errors.Join(err, &unwritable{late})
		}
	}
	listened()
	s.progress.close()
	if err != nil {
		err = stopCause(ctx, err)
	}
	return s.print(err, std)
}

// prepare builds and proves the plan and writes the book of rounds.
func (s *simulation) prepare(ctx context.Context) error {
	r := s.request
	p := r.plan
	stage := s.progress.stage("plan", int64(r.mesh.Ranks()))
	defer stage.end()
	proof, err := plan.NewProof(p)
	if err != nil {
		return err
	}
	compiled, err := rank.CompilePlan(p, func(r int, programs []*plan.Program) error {
		proof.Rank(r, programs)
		stage.add(1)
		return ctx.Err()
	}, p.Seal)
	if err != nil {
		return err
	}
	report, err := proof.Finish()
	if err != nil {
		return err
	}
	if err := report.Err(); err != nil {
		return fmt.Errorf("the plan is not sound: %w", err)
	}
	s.plan, s.book = p, &rank.Rounds{}
	for range r.rounds {
		for _, pass := range r.passes() {
			s.book.Entries = append(s.book.Entries, rank.Entry{Plan: compiled, Pass: pass})
		}
	}
	s.report.PlanHash = compiled.Hash.String()
	s.costs = sim.NewModelled(r.topology, s.book, r.mesh.Ranks(), r.weather)
	return nil
}

// simulateAs runs the rounds, with arithmetic in the element type T if that is asked for.
func simulateAs[T attn.Float](ctx context.Context, s *simulation) error {
	r, cfg := s.request, s.config(ctx)
	if !r.compute {
		r.close()
		return s.run(cfg)
	}
	in, err := loadInputs[T](r.request)
	if err != nil {
		return err
	}
	r.close()
	store := cpu.New[T](storeBook{s.book}, r.mesh.Ranks(), cpu.Options{Copy: true, Poison: true,
		Kernels: r.kernels})
	defer store.Close()
	if err := kvloom.LoadShards(store, s.plan, 0, in); err != nil {
		return err
	}
	cfg.Exec, cfg.Mover = store, store
	if err := s.run(cfg); err != nil {
		return err
	}
	out, err := kvloom.GatherShards(store, s.plan, 0, r.backward)
	if err != nil {
		return err
	}
	s.report.Kernels = r.kernels.String()
	s.report.Digests = digestsOf(r.dtype, out)
	if err := saveOutputs(r.request, out, s.report.PlanHash); err != nil || r.check == "" {
		return err
	}
	stage := s.progress.stage("check", 0)
	s.report.Check, err = checkResults(ctx, r.request, in, out, parallel(ctx, stage))
	stage.end()
	if err != nil {
		return err
	}
	return s.report.Check.problem()
}

// storeBook is the book as a store of blocks reads it.
type storeBook struct{ *rank.Rounds }

// Round is cpu.Book's.
func (b storeBook) Round(r, round int32) (cpu.Round, bool) {
	e, ok := b.At(round)
	if !ok {
		return cpu.Round{}, false
	}
	s := e.Plan.Scripts[e.Pass][r]
	return cpu.Round{Header: s.Header, Program: s.Program, State: e.State}, true
}

// config is the world of the request, without arithmetic.
func (s *simulation) config(ctx context.Context) sim.Config {
	cfg := sim.Config{
		Ranks: s.request.mesh.Ranks(), Seed: s.request.weather, Book: s.book, Costs: s.costs,
		Noise: s.costs.Noise(), Deadline: actors.Time(s.request.deadline),
		MaxEvents: math.MaxInt64, // the deadline ends what does not end
		Stop:      ctx.Err,
	}
	if s.request.patient {
		cfg.Deadline = s.patience()
	}
	if s.trace != nil {
		cfg.Spans = s.draw
	}
	return cfg
}

// patience is the deadline when none is asked for: the usual one, and the time of all the work of
// the longest round, one thing after the other. No wait of a run without faults is longer.
func (s *simulation) patience() actors.Time {
	const most = actors.Time(1) << 60
	longest := actors.Time(0)
	for i := range s.request.passes() {
		all := actors.Time(0)
		for r := range s.request.mesh.Ranks() {
			w := s.costs.Work(int32(r), int32(i))
			all = min(all+2*(w.Device+w.Links), most) // twice: the weather
		}
		longest = max(longest, all)
	}
	return actors.Time(kvloom.DefaultDeadline) + longest
}

// draw hands a span of virtual time on to the trace.
func (s *simulation) draw(x sim.Span) {
	e := kvloom.TraceEvent{
		Round: int(x.Round), Asked: time.Duration(x.Asked), Begin: time.Duration(x.Begin),
		End: time.Duration(x.End), Over: time.Duration(x.Over),
	}
	e.Describe(s.book.Script(x.Rank, x.Round), x.Op)
	s.trace.event(e)
}

// run lets the world run and fills in what it was.
func (s *simulation) run(cfg sim.Config) error {
	rounds := len(s.book.Entries)
	stage := s.progress.stage(rankPasses, int64(rounds*cfg.Ranks))
	defer stage.end()
	cfg.Progress = func(int32, int32) { stage.add(1) }
	begin := time.Now()
	w := sim.New(cfg)
	res, err := w.Run(rounds)
	s.report.account(s, w, res, time.Since(begin))
	var failed *sim.Failure
	if errors.As(err, &failed) {
		return s.explain(failed)
	}
	if err != nil {
		return err
	}
	if n := len(res.Violations); n > 0 {
		return &checkError{fmt.Sprintf("%d violations, the first: %s", n, res.Violations[0])}
	}
	return nil
}

// explain puts a verdict into the words of a live run.
func (s *simulation) explain(f *sim.Failure) error {
	e := &kvloom.Error{
		Kind: kvloom.KindOf(f.Fault), Rank: int(f.Rank), Round: int(f.Round), Notes: f.Notes}
	if f.Reporter < 0 || f.Op < 0 {
		return e
	}
	script := s.book.Script(f.Reporter, f.Round)
	e.Op = fmt.Sprintf("op %s of rank %d", script.Describe(f.Op), f.Reporter)
	switch {
	case f.Peer >= 0 && script.Sends(f.Op):
		e.Link = fmt.Sprintf("%d->%d", f.Reporter, f.Peer)
	case f.Peer >= 0:
		e.Link = fmt.Sprintf("%d->%d", f.Peer, f.Reporter)
	}
	return e
}
