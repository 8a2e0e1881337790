package cpu_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// sunk is a problem with a sink logit for each head, one of them none.
func sunk(tokens, heads, kvHeads int) *problem {
	p := newProblem(tokens, heads, kvHeads, 8, 6, attn.Causal(tokens, tokens))
	p.SoftCap = 5
	for h := range heads {
		p.Sink = append(p.Sink, 0.7*float64(h)-1)
	}
	p.Sink[heads-1] = math.Inf(-1)
	return p
}

// denseSink is the oracle's gradient of the sinks.
func denseSink(p *problem) []float64 {
	out, lse := attn.Dense(&p.Problem, nil)
	return attn.SinkBackward(&p.Problem, p.do, out, lse)
}

// sinkGrads adds up the ranks' shares.
func sinkGrads[T attn.Float](t *testing.T, s *cpu.Store[T], ranks, state int) []T {
	t.Helper()
	var sum []T
	for r := range ranks {
		share := s.SinkGrad(int32(r), int32(state))
		if sum == nil {
			sum = make([]T, len(share))
		}
		for h, x := range share {
			sum[h] += x
		}
	}
	return sum
}

// TestSinks runs meshes with sinks and a soft cap: results and the sinks' gradients are the
// oracle's, also when rounds are run again after an abort, and the shares do not depend on order.
func TestSinks(t *testing.T) {
	t.Run("f64", func(t *testing.T) { testSinks[float64](t, 8, 1e-12) })
	t.Run("bf16", func(t *testing.T) { testSinks[float32](t, 2, gateBF16) })
}

func testSinks[T attn.Float](t *testing.T, bytes int, gate float64) {
	for _, m := range []mesh.Mesh{
		{Head: 1, Ring: 1}, {Head: 1, Ring: 3}, {Head: 3, Ring: 2}, {Head: 4, Ring: 1},
	} {
		p := rounded(sunk(31, 6, 3))
		b := newBook(t, p, m, mesh.Zigzag, bytes)
		want, wantSink := dense(p), denseSink(p)
		var first []T
		for seed, opt := range []cpu.Options{{}, {Copy: true, Poison: true}} {
			s := cpu.New[T](b, m.Ranks(), opt)
			setInputs(t, s, b, p, 0)
			rng := rand.New(rand.NewPCG(uint64(seed), 1))
			for _, part := range []int{2, 1} { // half of each round first
				for round := range int32(2) {
					steps := schedule(t, b.programs[round], rng)
					if part == 2 && round == 1 {
						replayAll(t, s, 0, schedule(t, b.programs[0], rng))
					}
					replayAll(t, s, round, steps[:len(steps)/part])
				}
			}
			if err := compare(outputs(t, s, b, p, 0), want, gate); err != nil {
				t.Errorf("%v: %v", m, err)
			}
			got := sinkGrads(t, s, m.Ranks(), 0)
			if e := attn.Compare(got, wantSink); len(got) != 6 || !e.OK(gate) {
				t.Errorf("%v: dsink %v has error %.3g, want %v", m, got, e.Rel, wantSink)
			}
			if first == nil {
				first = got
			}
			if !slices.Equal(first, got) {
				t.Errorf("%v: dsink %v in one order, %v in another", m, first, got)
			}
			s.Forget(0)
			if x := s.SinkGrad(0, 0); x != nil {
				t.Errorf("after Forget there is a dsink of %v", x)
			}
			s.Close()
		}
	}
}

func replayAll[T attn.Float](t *testing.T, s *cpu.Store[T], round int32, steps []step) {
	t.Helper()
	if err := replay(s, round, steps); err != nil {
		t.Fatal(err)
	}
}

// TestSinkHeads takes delta of some heads, or rows, after others: each op's share is there once,
// and heads that it has not are 0.
func TestSinkHeads(t *testing.T) {
	eachStore(t, testSinkHeads[float64], testSinkHeads[float32])
}

func testSinkHeads[T attn.Float](t *testing.T, bytes int, opt cpu.Options) {
	h := oddHeader(bytes)
	h.Sink = true
	whole := handRun[T](t, h, opt, byHand()...)
	want := whole[len(whole)-1]
	// of is delta of heads [lo,hi) by way of an out and a do of their own.
	of := func(lo, hi int32) []handOp {
		return []handOp{
			do(plan.Pack, arg(rd, plan.DO, all3, lo, hi, sDO), arg(wr, plan.DO, all3, lo, hi, sA)),
			do(plan.Pack, arg(rd, plan.Out, all3, lo, hi, sOut),
				arg(wr, plan.Out, all3, lo, hi, sB)),
			do(plan.DeltaOp, arg(rd, plan.DO, all3, lo, hi, sA),
				arg(rd, plan.Out, all3, lo, hi, sB), arg(wr, plan.Delta, all3, lo, hi, sC)),
		}
	}
	first := handRun[T](t, h, opt, append(attended()[:3], of(1, 3)...)...)
	if x := first[len(first)-1]; x[0] != 0 || !slices.Equal(x[1:], want[1:]) || x[2] == 0 {
		t.Errorf("dsink of heads 1 and 2 is %v, of all %v", x, want)
	}
	both := append(append(attended()[:3], of(1, 3)...), of(0, 1)...)
	got := handRun[T](t, h, opt, both...)
	if !slices.Equal(got[len(got)-1], want) {
		t.Errorf("dsink of heads in turn is %v, of all at once %v", got[len(got)-1], want)
	}
	rows := attended()[:3]
	for _, set := range []plan.SetID{rows4, rows3} {
		rows = append(rows, do(plan.DeltaOp, part(rd, plan.DO, set, sDO),
			part(rd, plan.Out, set, sOut), part(wr, plan.Delta, set, sA)))
	}
	got = handRun[T](t, h, opt, rows...)
	near(t, "dsink of rows in turn", got[len(got)-1:], whole[len(whole)-1:], 1e-6)
}

// TestSinksMustFit refuses rounds whose plan and sinks are not of one kind.
func TestSinksMustFit(t *testing.T) {
	p := sunk(9, 4, 2)
	m := mesh.Mesh{Head: 1, Ring: 1}
	b := newBook(t, p, m, mesh.Zigzag, 8)
	s := cpu.New[float64](b, 1, cpu.Options{})
	defer s.Close()
	setInputs(t, s, b, p, 0)
	for _, x := range []struct {
		sink []float64
		want string
	}{
		{nil, "state 0: 0 sink logits were given, the plan has one for each of 4 query heads"},
		{make([]float64, 3), "3 sink logits were given"},
		{[]float64{0, math.NaN(), 0, 0}, "the sink logit of head 1 is NaN"},
		{[]float64{0, 0, 0, math.Inf(1)}, "the sink logit of head 3 is +Inf"},
	} {
		s.SetSink(0, x.sink)
		wantFault(t, s.Do(0, 0, 0), x.want)
	}
	p.Sink = nil
	plain := newBook(t, p, m, mesh.Zigzag, 8)
	s = cpu.New[float64](plain, 1, cpu.Options{})
	setInputs(t, s, plain, p, 0)
	s.SetSink(0, make([]float64, 4))
	wantFault(t, s.Do(0, 0, 0), "4 sink logits were given, and the plan has none")
	s.Close()
}

// TestSinkGradStartsAtNothing: of a state whose backward round has only begun it is 0, though the
// memory was that of another's.
func TestSinkGradStartsAtNothing(t *testing.T) {
	p := sunk(9, 4, 2)
	b := newBook(t, p, mesh.Mesh{Head: 1, Ring: 1}, mesh.Zigzag, 8)
	s := cpu.New[float64](b, 1, cpu.Options{})
	defer s.Close()
	rng := rand.New(rand.NewPCG(1, 1))
	for state := range int32(2) {
		setInputs(t, s, b, p, state)
		replayAll(t, s, 2*state, schedule(t, b.programs[0], rng))
		for _, st := range schedule(t, b.programs[1], rng) {
			if state == 0 || st.kind == plan.Zero {
				replayAll(t, s, 2*state+1, []step{st})
			}
		}
		got := s.SinkGrad(0, state)
		if zero := slices.Equal(got, make([]float64, 4)); len(got) != 4 || zero != (state == 1) {
			t.Errorf("state %d: dsink is %v", state, got)
		}
		s.Forget(state)
	}
}

// TestSinkOfRowsWithoutKeys: what dO holds in a row that sees no key reaches no gradient.
func TestSinkOfRowsWithoutKeys(t *testing.T) {
	t.Run("f64", func(t *testing.T) { testKeyless[float64](t, 8, 1e-12) })
	t.Run("bf16", func(t *testing.T) { testKeyless[float32](t, 2, gateBF16) })
}

func testKeyless[T attn.Float](t *testing.T, bytes int, gate float64) {
	p := rounded(sunk(13, 4, 2))
	p.Mask[0].Q0 = 2
	want := denseSink(p)
	for i := range 2 * 4 * 6 {
		p.do[i] = math.NaN()
	}
	b := newBook(t, p, mesh.Mesh{Head: 2, Ring: 2}, mesh.Zigzag, bytes)
	s := cpu.New[T](b, 4, cpu.Options{})
	defer s.Close()
	setInputs(t, s, b, p, 0)
	rng := rand.New(rand.NewPCG(1, 1))
	for round := range int32(2) {
		replayAll(t, s, round, schedule(t, b.programs[round], rng))
	}
	got := sinkGrads(t, s, 4, 0)
	if e := attn.Compare(got, want); !e.OK(gate) {
		t.Errorf("dsink %v, want %v", got, want)
	}
	all := outputs(t, s, b, p, 0)
	for i, x := range all[2:] {
		for _, v := range x {
			if v != v {
				t.Fatalf("gradient %d has a NaN", i)
			}
		}
	}
}
