package integration

import (
	"fmt"
	"math"
	"testing"

	kvloom "github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
	"github.com/kvloom/kvloom/ringbus"
	"github.com/kvloom/kvloom/sim"
	"github.com/kvloom/kvloom/transport"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// problem is one drawn case.
type problem struct {
	mesh           mesh.Mesh
	layout         mesh.Layout
	tokens         int
	heads, kvHeads int
	dim            int
	full           bool
	other          *attn.Mask // in place of causal and full
	ring           ringbus.Ring
}

func (p problem) String() string {
	mask := "causal"
	switch {
	case p.other != nil:
		mask = fmt.Sprintf("%d slices", len(*p.other))
	case p.full:
		mask = "full"
	}
	return fmt.Sprintf("%dx%d %v %v %v %s S=%d heads=%d/%d D=%d", p.mesh.Head, p.mesh.Ring,
		p.mesh.Placement, p.layout, p.ring, mask, p.tokens, p.heads, p.kvHeads, p.dim)
}

func (p problem) mask() attn.Mask {
	if p.other != nil {
		return *p.other
	}
	if p.full {
		return attn.Full(p.tokens, p.tokens)
	}
	return attn.Causal(p.tokens, p.tokens)
}

func (p problem) scale() float64 { return 1 / math.Sqrt(float64(p.dim)) }

func config[T attn.Float](p problem) kvloom.Config {
	var t T
	bytes := 4
	if _, ok := any(t).(float64); ok {
		bytes = 8
	}
	return kvloom.Config{
		Mesh: p.mesh, Layout: p.layout, Ring: p.ring,
		Problems: []kvloom.Problem{{
			Tokens: p.tokens, Heads: p.heads, KVHeads: p.kvHeads, Dim: p.dim, Scale: p.scale(),
			Mask: p.mask(), ElemBytes: bytes, AccBytes: bytes,
		}},
	}
}

func inputs[T attn.Float](p problem) kvloom.Inputs[T] {
	nq, nk := p.tokens*p.heads*p.dim, p.tokens*p.kvHeads*p.dim
	return kvloom.Inputs[T]{
		Q: tensors.Draw[T](1, "q", nq), K: tensors.Draw[T](1, "k", nk),
		V: tensors.Draw[T](1, "v", nk), DO: tensors.Draw[T](1, "do", nq),
	}
}

func wide[T attn.Float](x []T) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

// reference is the dense oracle's answer on the same inputs.
func reference[T attn.Float](p problem) kvloom.Outputs[float64] {
	in := inputs[T](p)
	d := &attn.Problem{
		QTokens: p.tokens, KTokens: p.tokens, QHeads: p.heads, KHeads: p.kvHeads, D: p.dim,
		DV: p.dim, Scale: p.scale(), Mask: p.mask(), Q: wide(in.Q), K: wide(in.K), V: wide(in.V),
	}
	do := wide(in.DO)
	var ref kvloom.Outputs[float64]
	ref.Out, ref.LSE = attn.Dense(d, parallel)
	ref.DQ, ref.DK, ref.DV, _ = attn.DenseBackward(d, do, ref.Out, ref.LSE, parallel)
	return ref
}

// within checks every output against the reference; fwd bounds out and lse, bwd the gradients.
func within[T attn.Float](t *testing.T, name string, got kvloom.Outputs[T],
	ref kvloom.Outputs[float64], fwd, bwd float64) {
	t.Helper()
	for _, x := range []struct {
		name string
		got  []T
		ref  []float64
		gate float64
	}{
		{"out", got.Out, ref.Out, fwd}, {"lse", got.LSE, ref.LSE, fwd}, {"dq", got.DQ, ref.DQ, bwd},
		{"dk", got.DK, ref.DK, bwd}, {"dv", got.DV, ref.DV, bwd},
	} {
		if e := attn.Compare(x.got, x.ref); !e.OK(x.gate) {
			t.Errorf("%s: %s has a relative error of %.3g (largest %.3g), the gate is %g",
				name, x.name, e.Rel, e.MaxAbs, x.gate)
		}
	}
}

// session opens a live gang with the problem's inputs loaded; the test closes it.
func session[T attn.Float](t testing.TB, p problem, cfg kvloom.Config) *kvloom.Session[T] {
	t.Helper()
	s, err := kvloom.Open[T](t.Context(), cfg)
	if err != nil {
		t.Fatalf("%v: %v", p, err)
	}
	if err := s.Load(0, 0, inputs[T](p)); err != nil {
		t.Fatal(err)
	}
	return s
}

var both = []kvloom.Round{{Pass: plan.Forward}, {Pass: plan.Backward}}

// live runs a forward and a backward round on real actors.
func live[T attn.Float](t testing.TB, p problem) kvloom.Outputs[T] {
	t.Helper()
	s := session[T](t, p, config[T](p))
	defer closeSession(t, s)
	if err := s.Run(t.Context(), both...); err != nil {
		t.Fatalf("%v: %v", p, err)
	}
	out, err := s.Results(0, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func closeSession[T attn.Float](t testing.TB, s *kvloom.Session[T]) {
	t.Helper()
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// bookOf makes the book of a forward and a backward round.
func bookOf(t testing.TB, p *plan.Plan, entries ...rank.Entry) *rank.Rounds {
	t.Helper()
	c, err := rank.CompilePlan(p, nil, p.Seal)
	if err != nil {
		t.Fatal(err)
	}
	b := &rank.Rounds{Entries: entries}
	for i := range b.Entries {
		b.Entries[i].Plan = c
	}
	return b
}

// storeBook is the simulator's book as the store reads it.
type storeBook struct{ *rank.Rounds }

func (b storeBook) Round(r, round int32) (cpu.Round, bool) {
	e, ok := b.At(round)
	if !ok {
		return cpu.Round{}, false
	}
	s := e.Plan.Scripts[e.Pass][r]
	return cpu.Round{Header: s.Header, Program: s.Program, State: e.State}, true
}

// careful are the options of simulated memory: what a hand-over hides shows. Kernels are those of a
// live session, so that bits can be compared.
func careful(k cpu.Kernels) cpu.Options {
	return cpu.Options{Copy: true, Poison: true, Kernels: k}
}

// simulated runs the same rounds in virtual time with real arithmetic. Blocks are copied at the
// latest moment and freed slots are poisoned, so that what a hand-over hides would show.
type simulated[T attn.Float] struct {
	plan  *plan.Plan
	book  *rank.Rounds
	store *cpu.Store[T]
	meter *transport.Meter
	world *sim.World
}

func simulate[T attn.Float](t testing.TB, p problem, cfg sim.Config) (*simulated[T], sim.Result) {
	t.Helper()
	c := config[T](p)
	pl, err := c.Plan(0)
	if err != nil {
		t.Fatal(err)
	}
	b := bookOf(t, pl, rank.Entry{Pass: plan.Forward}, rank.Entry{Pass: plan.Backward})
	store := cpu.New[T](storeBook{b}, p.mesh.Ranks(), careful(cpu.Best[T]()))
	s := &simulated[T]{plan: pl, book: b, store: store}
	s.meter = transport.NewMeter(store, p.mesh.Ranks(), int(plan.NumClasses),
		func(r, round, op int32) int {
			e, _ := b.At(round)
			return int(plan.ClassOf(e.Pass, e.Plan.Scripts[e.Pass][r].Program.Ops[op].Lane))
		})
	if err := kvloom.LoadShards(store, pl, 0, inputs[T](p)); err != nil {
		t.Fatal(err)
	}
	cfg.Ranks, cfg.Book, cfg.Exec, cfg.Mover = p.mesh.Ranks(), b, store, s.meter
	if cfg.Costs == nil {
		cfg.Costs = evenCosts{ranks: p.mesh.Ranks()}
	}
	s.world = sim.New(cfg)
	res, err := s.world.Run(2)
	if err != nil {
		t.Fatalf("%v: %v", p, err)
	}
	for _, v := range res.Violations {
		t.Errorf("%v: %s", p, v)
	}
	return s, res
}

func (s *simulated[T]) results(t testing.TB) kvloom.Outputs[T] {
	t.Helper()
	out, err := kvloom.GatherShards(s.store, s.plan, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// evenCosts takes a microsecond for everything and gives each pair of ranks a link.
type evenCosts struct{ ranks int }

func (evenCosts) Op(_, _, _ int32) actors.Time { return 1000 }

func (c evenCosts) Transfer(src, dst, _, _ int32) (int, actors.Time, actors.Time) {
	return int(src)*c.ranks + int(dst), 1000, 100
}

func (evenCosts) Mail(_, _ actors.Addr) actors.Time { return 50 }

// digests name an output's bits.
func digests[T tensors.Float](o kvloom.Outputs[T]) string {
	s := ""
	for _, x := range [][]T{o.Out, o.LSE, o.DQ, o.DK, o.DV, o.DSink} {
		s += tensors.Digest(x) + "\n"
	}
	return s
}
