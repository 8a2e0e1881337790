package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"

	kvloom "github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
	"github.com/kvloom/kvloom/sim"
	"github.com/kvloom/kvloom/transport"
)

// sent is what each rank handed to its links, by class.
type sent [][plan.NumClasses]transport.Traffic

// ran is what a task's forward and backward round gave.
type ran[T attn.Float] struct {
	kvloom.Outputs[T]
	plan *plan.Plan
	sent sent
	peak []int64 // bytes, by rank
}

// run runs a task as it says.
func run[T attn.Float](ctx context.Context, c *task, in kvloom.Inputs[T]) (*ran[T], error) {
	cfg, err := c.config()
	if err != nil {
		return nil, err
	}
	if c.live {
		return runLive(ctx, cfg, in)
	}
	return runSimulated(cfg, in, c.world)
}

func runLive[T attn.Float](ctx context.Context, cfg kvloom.Config, in kvloom.Inputs[T]) (
	r *ran[T], err error) {
	s, err := kvloom.Open[T](ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	if err := s.Load(0, 0, in); err != nil {
		return nil, err
	}
	if err := s.Run(ctx, both...); err != nil {
		return nil, err
	}
	r = &ran[T]{plan: s.Plan(0)}
	for i := range s.Ranks() {
		f := s.Figures(0, i)
		var classes [plan.NumClasses]transport.Traffic
		for k := range classes {
			classes[k] = transport.Traffic{Blocks: f.Blocks[k], Bytes: f.Bytes[k]}
		}
		r.sent, r.peak = append(r.sent, classes), append(r.peak, f.PeakBytes)
	}
	r.Outputs, err = s.Results(0, 0, true)
	return r, err
}

// planBook is the book of a plan's forward and backward round.
func planBook(p *plan.Plan) (*rank.Rounds, error) {
	c, err := rank.CompilePlan(p, nil, p.Seal)
	if err != nil {
		return nil, err
	}
	return &rank.Rounds{Entries: []rank.Entry{
		{Plan: c, Pass: plan.Forward}, {Plan: c, Pass: plan.Backward}}}, nil
}

// runSimulated runs the rounds in virtual time: blocks are copied at the latest moment and freed
// slots are poisoned, so that what a hand-over hides would show.
func runSimulated[T attn.Float](cfg kvloom.Config, in kvloom.Inputs[T], seed uint64) (
	*ran[T], error) {
	p, err := cfg.Plan(0)
	if err != nil {
		return nil, err
	}
	b, err := planBook(p)
	if err != nil {
		return nil, err
	}
	n := cfg.Mesh.Ranks()
	kernels, err := cpu.ParseKernels[T](cfg.Kernels)
	if err != nil {
		return nil, err
	}
	store := cpu.New[T](storeBook{b}, n, careful(kernels))
	defer store.Close()
	meter := transport.NewMeter(store, n, int(plan.NumClasses), func(r, round, op int32) int {
		e, _ := b.At(round)
		return int(plan.ClassOf(e.Pass, e.Plan.Scripts[e.Pass][r].Program.Ops[op].Lane))
	})
	if err := kvloom.LoadShards(store, p, 0, in); err != nil {
		return nil, err
	}
	res, err := sim.New(sim.Config{
		Ranks: n, Book: b, Costs: evenCosts{n}, Exec: store, Mover: meter, Seed: seed,
		Noise: sim.Noise{Mail: 5000, Transfer: 9000, Op: 5000},
	}).Run(2)
	if err != nil {
		return nil, err
	}
	if len(res.Violations) > 0 {
		return nil, fmt.Errorf("virtual time: %v", res.Violations)
	}
	r := &ran[T]{plan: p}
	for i := range n {
		var classes [plan.NumClasses]transport.Traffic
		for k := range classes {
			classes[k] = meter.Sent(i, k)
		}
		r.sent, r.peak = append(r.sent, classes), append(r.peak, store.Peak(int32(i)))
	}
	r.Outputs, err = kvloom.GatherShards(store, p, 0, true)
	return r, err
}

// asPlanned compares what was counted at the links, and where memory is taken, with the plan.
func (r *ran[T]) asPlanned() error {
	for i := range r.sent {
		var progs [2]*plan.Program
		var want [plan.NumClasses]transport.Traffic
		for _, pass := range r.plan.Passes() {
			prog, err := r.plan.Program(pass, i)
			if err != nil {
				return err
			}
			n := plan.Count(r.plan.Header(), prog)
			for k := range want {
				want[k].Blocks += int64(n.Sends[k])
				want[k].Bytes += n.Bytes[k]
			}
			progs[pass] = prog
		}
		for k := range want {
			if r.sent[i][k] != want[k] {
				return fmt.Errorf("rank %d: links counted %+v of %v, the plan says %+v", i,
					r.sent[i][k], plan.Class(k), want[k])
			}
		}
		if peak := peakOf(progs[plan.Forward], progs[plan.Backward]); r.peak[i] != peak {
			return fmt.Errorf("rank %d holds %d bytes, the plan says %d", i, r.peak[i], peak)
		}
	}
	return nil
}

// peakOf is the plan's peak of a rank that is given dO with the other inputs, not before the
// backward round.
func peakOf(forward, backward *plan.Program) int64 {
	early := plan.PeakBytes(forward, nil)
	for i := range backward.Slots {
		if s := &backward.Slots[i]; s.Role == plan.HomeDO {
			early += s.Bytes
		}
	}
	return max(early, plan.PeakBytes(forward, backward))
}

// check runs the task and holds it to the oracle and to its plan; cancelled is judge's.
func (c task) check(ctx context.Context) (cancelled bool, err error) {
	c = c.full()
	if c.dtype == tensors.F64 {
		return checkAs[float64](ctx, &c)
	}
	return checkAs[float32](ctx, &c)
}

func checkAs[T attn.Float](ctx context.Context, c *task) (cancelled bool, err error) {
	in := taskInputs[T](c)
	got, err := run(ctx, c, in)
	if err != nil {
		return false, err
	}
	if err := got.asPlanned(); err != nil {
		return false, err
	}
	ref, err := oracle(c, widened(in), nil)
	if err != nil {
		return false, err
	}
	return judge(c, in, got.Outputs, &ref)
}

// mustHold is check in a test of one case.
func mustHold(t *testing.T, c task) {
	t.Helper()
	if _, err := c.check(t.Context()); err != nil {
		t.Errorf("%v\n%s", err, c.full().command(nil))
	}
}
