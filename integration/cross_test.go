package integration

import (
	"fmt"
	"math"
	"testing"

	kvloom "github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
	"github.com/kvloom/kvloom/ringbus"
	"github.com/kvloom/kvloom/sim"
)

// shape is a problem in which nothing is equal that need not be.
type shape struct {
	q, k, heads, kvHeads, dim, vdim int
	mask                            attn.Mask
}

func (s shape) problem() kvloom.Problem {
	return kvloom.Problem{
		Tokens: s.q, KeyTokens: s.k, Heads: s.heads, KVHeads: s.kvHeads, Dim: s.dim, VDim: s.vdim,
		Scale: 1 / math.Sqrt(float64(s.dim)), Mask: s.mask, ElemBytes: 8, AccBytes: 8,
	}
}

func (s shape) inputs(seed uint64) kvloom.Inputs[float64] {
	draw := func(name string, n int) []float64 { return tensors.Draw[float64](seed, name, n) }
	return kvloom.Inputs[float64]{
		Q: draw("q", s.q*s.heads*s.dim), K: draw("k", s.k*s.kvHeads*s.dim),
		V: draw("v", s.k*s.kvHeads*s.vdim), DO: draw("do", s.q*s.heads*s.vdim),
	}
}

// reference is the dense oracle's answer.
func (s shape) reference(seed uint64) kvloom.Outputs[float64] {
	in, p := s.inputs(seed), s.problem()
	d := &attn.Problem{
		QTokens: s.q, KTokens: s.k, QHeads: s.heads, KHeads: s.kvHeads, D: s.dim, DV: s.vdim,
		Scale: p.Scale, Mask: s.mask, Q: in.Q, K: in.K, V: in.V,
	}
	var ref kvloom.Outputs[float64]
	ref.Out, ref.LSE = attn.Dense(d, parallel)
	ref.DQ, ref.DK, ref.DV, _ = attn.DenseBackward(d, in.DO, ref.Out, ref.LSE, parallel)
	return ref
}

// layers are three problems with a mask each, as one session has them: cross-attention to fewer
// keys that all queries see, to more keys behind a diagonal, and two documents that see themselves
// only, with queries that see nothing.
func layers(heads, kvHeads int) []shape {
	return []shape{
		{q: 61, k: 23, heads: heads, kvHeads: kvHeads, dim: 8, vdim: 5, mask: attn.Full(61, 23)},
		{q: 31, k: 97, heads: heads, kvHeads: kvHeads, dim: 4, vdim: 12,
			mask: attn.Mask{{Q1: 31, K1: 97, Lo: -attn.Unbounded, Hi: 66}}},
		{q: 53, k: 47, heads: heads, kvHeads: kvHeads, dim: 8, vdim: 16, mask: attn.Mask{
			{Q1: 20, K1: 17, Lo: -attn.Unbounded, Hi: 0},
			{Q0: 20, Q1: 50, K0: 17, K1: 47, Lo: -9, Hi: 4},
		}},
	}
}

// crossing is where the layers run.
type crossing struct {
	mesh           mesh.Mesh
	layout         mesh.Layout
	ring           ringbus.Ring
	heads, kvHeads int
}

func (c crossing) String() string {
	return fmt.Sprintf("%dx%d %v %v %v heads %d/%d", c.mesh.Head, c.mesh.Ring, c.mesh.Placement,
		c.layout, c.ring, c.heads, c.kvHeads)
}

func crossings() []crossing {
	first := mesh.Mesh{Head: 2, Ring: 3, Placement: mesh.ContextFirst}
	return []crossing{
		{mesh.Mesh{Head: 1, Ring: 1}, mesh.Zigzag, ringbus.Ring{}, 4, 2},
		{mesh.Mesh{Head: 1, Ring: 4}, mesh.Zigzag, ringbus.Ring{}, 6, 3},
		{mesh.Mesh{Head: 1, Ring: 5}, mesh.Contiguous, ringbus.Ring{}, 4, 4},
		{mesh.Mesh{Head: 2, Ring: 3}, mesh.Contiguous, ringbus.Ring{}, 5, 5},
		{mesh.Mesh{Head: 3, Ring: 2}, mesh.Zigzag, ringbus.Ring{}, 8, 2},
		{mesh.Mesh{Head: 4, Ring: 2}, mesh.Contiguous, ringbus.Ring{}, 6, 1},
		{first, mesh.Zigzag, ringbus.Ring{}, 6, 3},
		{mesh.Mesh{Head: 1, Ring: 6}, mesh.Zigzag, ringbus.Ring{Inner: 3}, 4, 2},
		{mesh.Mesh{Head: 2, Ring: 4}, mesh.Contiguous, ringbus.Ring{Inner: 2, Lanes: 2}, 5, 5},
		{mesh.Mesh{Head: 2, Ring: 4}, mesh.Zigzag,
			ringbus.Ring{Inner: 2, DKV: ringbus.Local, Lanes: 2}, 3, 3},
	}
}

// crossRounds is every layer forward, then every layer backward, the last one first; each layer is
// a state of its own.
func crossRounds(layers int) []kvloom.Round {
	var out []kvloom.Round
	for i := range layers {
		out = append(out, kvloom.Round{Problem: i, Pass: plan.Forward, State: i})
	}
	for i := layers - 1; i >= 0; i-- {
		out = append(out, kvloom.Round{Problem: i, Pass: plan.Backward, State: i})
	}
	return out
}

// TestCrossAttention: as many queries as keys, one head size, equal heads, one mask for all layers:
// nothing relies on them. Live and in virtual time the layers give the oracle's numbers.
func TestCrossAttention(t *testing.T) {
	for n, c := range crossings() {
		t.Run(c.String(), func(t *testing.T) {
			ls := layers(c.heads, c.kvHeads)
			cfg := kvloom.Config{Mesh: c.mesh, Layout: c.layout, Ring: c.ring}
			var refs []kvloom.Outputs[float64]
			for i, l := range ls {
				cfg.Problems = append(cfg.Problems, l.problem())
				refs = append(refs, l.reference(uint64(i)))
			}
			for i, got := range crossLive(t, cfg, ls) {
				within(t, fmt.Sprintf("live, layer %d", i), got, refs[i], 1e-12, 1e-12)
			}
			for i, got := range crossSimulated(t, cfg, ls, uint64(n)) {
				within(t, fmt.Sprintf("simulated, layer %d", i), got, refs[i], 1e-12, 1e-12)
			}
		})
	}
}

func crossLive(t *testing.T, cfg kvloom.Config, ls []shape) []kvloom.Outputs[float64] {
	t.Helper()
	s, err := kvloom.Open[float64](t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer closeSession(t, s)
	for i, l := range ls {
		if err := s.Load(i, i, l.inputs(uint64(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Run(t.Context(), crossRounds(len(ls))...); err != nil {
		t.Fatal(err)
	}
	var out []kvloom.Outputs[float64]
	for i := range ls {
		o, err := s.Results(i, i, true)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, o)
	}
	return out
}

// crossBook is the layers' plans and the book of their rounds.
func crossBook(t *testing.T, cfg kvloom.Config) ([]*plan.Plan, *rank.Rounds) {
	t.Helper()
	var plans []*plan.Plan
	var ready []*rank.Compiled
	for i := range cfg.Problems {
		p, err := cfg.Plan(i)
		if err != nil {
			t.Fatal(err)
		}
		c, err := rank.CompilePlan(p, nil, p.Seal)
		if err != nil {
			t.Fatal(err)
		}
		plans, ready = append(plans, p), append(ready, c)
	}
	b := &rank.Rounds{}
	for _, r := range crossRounds(len(plans)) {
		b.Entries = append(b.Entries, rank.Entry{
			Plan: ready[r.Problem], Pass: r.Pass, State: int32(r.State)})
	}
	return plans, b
}

func crossSimulated(t *testing.T, cfg kvloom.Config, ls []shape,
	seed uint64) []kvloom.Outputs[float64] {
	t.Helper()
	plans, b := crossBook(t, cfg)
	n := cfg.Mesh.Ranks()
	store := cpu.New[float64](storeBook{b}, n, careful(cpu.Best[float64]()))
	defer store.Close()
	for i, l := range ls {
		if err := kvloom.LoadShards(store, plans[i], i, l.inputs(uint64(i))); err != nil {
			t.Fatal(err)
		}
	}
	res, err := sim.New(sim.Config{
		Ranks: n, Book: b, Costs: evenCosts{n}, Exec: store, Mover: store, Seed: seed,
		Noise: sim.Noise{Mail: 5000, Transfer: 9000, Op: 5000},
	}).Run(len(b.Entries))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range res.Violations {
		t.Error(v)
	}
	var out []kvloom.Outputs[float64]
	for i := range ls {
		o, err := kvloom.GatherShards(store, plans[i], i, true)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, o)
	}
	return out
}

// bytesWatch is a store that compares, while a round has begun on all ranks and no block of it has
// been handed over, what ranks hold with what there is: a block that two ranks hold counts twice
// with the ranks, once with the arena.
type bytesWatch struct {
	*cpu.Store[float64]
	t      *testing.T
	ranks  int
	round  int32
	begun  map[int32]bool // ranks, in the round at hand
	hops   int            // in the round at hand
	looks  int
	shared int // looks after a hop that found shared blocks
}

func (w *bytesWatch) look(r, round int32) {
	if w.round != round {
		w.round, w.hops, w.begun = round, 0, map[int32]bool{}
	}
	if w.begun[r] = true; len(w.begun) < w.ranks {
		return
	}
	sum := int64(0)
	for r := range w.ranks {
		now, _ := w.Used(int32(r))
		sum += now
	}
	held, _ := w.Memory().Held()
	switch {
	case w.hops > 0 && sum > held:
		w.shared++
	case w.hops == 0:
		w.looks++
		if sum != held {
			w.t.Errorf("%d ranks have begun round %d, no block has moved: they hold %d bytes, "+
				"there are %d", w.ranks, round, sum, held)
		}
	}
}

func (w *bytesWatch) Do(r, round, op int32) error {
	err := w.Store.Do(r, round, op)
	w.look(r, round)
	return err
}

func (w *bytesWatch) Post(r, round, op int32) error {
	err := w.Store.Post(r, round, op)
	w.look(r, round)
	return err
}

func (w *bytesWatch) Hop(src, dst, round, sendOp, recvOp int32) (int64, error) {
	n, err := w.Store.Hop(src, dst, round, sendOp, recvOp)
	w.hops++
	w.look(src, round)
	w.look(dst, round)
	return n, err
}

// TestRanksBeginApart: when a round begins no block is held by two ranks, whatever the rounds
// before have handed over by reference.
func TestRanksBeginApart(t *testing.T) {
	for _, m := range []mesh.Mesh{{Head: 1, Ring: 4}, {Head: 2, Ring: 2}, {Head: 4, Ring: 1}} {
		p := problem{mesh: m, tokens: 64, heads: 4, kvHeads: 4, dim: 8}
		cfg := config[float64](p)
		pl, err := cfg.Plan(0)
		if err != nil {
			t.Fatal(err)
		}
		b := bookOf(t, pl, rank.Entry{Pass: plan.Forward}, rank.Entry{Pass: plan.Backward},
			rank.Entry{Pass: plan.Forward}, rank.Entry{Pass: plan.Backward})
		store := cpu.New[float64](storeBook{b}, m.Ranks(), cpu.Options{})
		if err := kvloom.LoadShards(store, pl, 0, inputs[float64](p)); err != nil {
			t.Fatal(err)
		}
		w := &bytesWatch{Store: store, t: t, ranks: m.Ranks(), round: -1}
		world := sim.New(sim.Config{
			Ranks: m.Ranks(), Book: b, Costs: evenCosts{m.Ranks()}, Exec: w, Mover: w,
		})
		for round := range 4 {
			looks := w.looks
			if _, err := world.Run(1); err != nil {
				t.Fatal(err)
			}
			if w.looks == looks {
				t.Errorf("%dx%d: nobody looked at the beginning of round %d", m.Head, m.Ring, round)
			}
		}
		if w.shared == 0 {
			t.Errorf("%dx%d: no block was ever shared: the test shows nothing", m.Head, m.Ring)
		}
		store.Close()
	}
}
