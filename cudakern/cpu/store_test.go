package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// run does both passes of state 0 in an order drawn from seed and gives the results.
func run[T attn.Float](t *testing.T, b *book, p *problem, opt cpu.Options, seed uint64) results[T] {
	t.Helper()
	s := cpu.New[T](b, b.header.Ranks, opt)
	setInputs(t, s, b, p, 0)
	rng := rand.New(rand.NewPCG(seed, 1))
	for pass := range b.programs {
		if err := replay(s, int32(pass), schedule(t, b.programs[pass], rng)); err != nil {
			t.Fatal(err)
		}
	}
	got := outputs(t, s, b, p, 0)
	for r := range b.header.Ranks {
		want := plan.PeakBytes(b.programs[0][r], b.programs[1][r])
		if peak := s.Peak(int32(r)); peak != want {
			t.Errorf("rank %d: peak %d bytes, the plan says %d", r, peak, want)
		}
		now, peak := s.Used(int32(r))
		if now > peak || peak > want || (peak == 0) != (want == 0) {
			t.Errorf("rank %d: used %d, at most %d bytes, of %d", r, now, peak, want)
		}
	}
	s.Forget(0)
	nothingHeld(t, s, b.header.Ranks)
	s.Close()
	return got
}

func nothingHeld[T attn.Float](t *testing.T, s *cpu.Store[T], ranks int) {
	t.Helper()
	if held, _ := s.Memory().Held(); held != 0 {
		t.Errorf("%d bytes are held at the end", held)
	}
	for r := range ranks {
		if used, _ := s.Used(int32(r)); used != 0 {
			t.Errorf("rank %d uses %d bytes at the end", r, used)
		}
	}
}

func TestResultsEqualDense(t *testing.T) {
	type heads struct{ q, kv int }
	cases := []struct {
		mesh   mesh.Mesh
		heads  []heads
		tokens []int
	}{
		{mesh.Mesh{Head: 1, Ring: 1}, []heads{{8, 2}, {5, 5}}, []int{1, 31}},
		{mesh.Mesh{Head: 1, Ring: 3}, []heads{{6, 3}}, []int{1, 2, 97}},
		{mesh.Mesh{Head: 2, Ring: 2}, []heads{{5, 5}, {8, 1}}, []int{1, 31}},
		{mesh.Mesh{Head: 4, Ring: 1}, []heads{{6, 3}, {8, 2}, {5, 5}}, []int{2, 31}},
		{mesh.Mesh{Head: 8, Ring: 1}, []heads{{8, 1}, {8, 8}}, []int{5, 31}},
		{mesh.Mesh{Head: 4, Ring: 4, Placement: mesh.ContextFirst}, []heads{{6, 3}}, []int{5, 31}},
	}
	for _, c := range cases {
		for _, h := range c.heads {
			for n, tokens := range c.tokens {
				mask, layout := attn.Causal(tokens, tokens), mesh.Zigzag
				if n%2 == 1 {
					mask, layout = attn.Full(tokens, tokens), mesh.Contiguous
				}
				name := fmt.Sprintf("%dx%d heads %d/%d tokens %d", c.mesh.Head, c.mesh.Ring, h.q,
					h.kv, tokens)
				t.Run(name, func(t *testing.T) {
					p := newProblem(tokens, h.q, h.kv, 8, 6, mask)
					b := newBook(t, p, c.mesh, layout, 8)
					want := dense(p)
					first := run[float64](t, b, p, cpu.Options{}, 1)
					if err := compare(first, want, 1e-12); err != nil {
						t.Error(err)
					}
					copied := run[float64](t, b, p, cpu.Options{Copy: true, Poison: true}, 2)
					if !same(first, copied) {
						t.Error("copied and poisoned blocks give other bits than shared ones")
					}
					twin := run[float64](t, b, p, cpu.Options{Kernels: cpu.Twin, Poison: true}, 3)
					if err := compare(twin, want, 1e-12); err != nil {
						t.Errorf("twin kernels: %v", err)
					}
				})
			}
		}
	}
}

func TestFloat32(t *testing.T) {
	p := newProblem(130, 6, 3, 16, 16, attn.Causal(130, 130))
	for _, x := range [][]float64{p.Q, p.K, p.V, p.do} {
		for i := range x {
			x[i] = float64(float32(x[i]))
		}
	}
	b := newBook(t, p, mesh.Mesh{Head: 3, Ring: 2}, mesh.Zigzag, 4)
	if err := compare(run[float32](t, b, p, cpu.Options{}, 1), dense(p), attn.BaseF32); err != nil {
		t.Error(err)
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	for _, copied := range []bool{false, true} {
		name := fmt.Sprintf("copy %v", copied)
		opt := cpu.Options{Copy: copied}
		t.Run("f64 "+name, func(t *testing.T) { testSteadyState[float64](t, 8, opt) })
		t.Run("bf16 "+name, func(t *testing.T) { testSteadyState[float32](t, 2, opt) })
	}
	for _, k := range []cpu.Kernels{cpu.AVX2, cpu.AVX512, cpu.AVX512BF16, cpu.AMX} {
		for name, bytes := range map[string]int{"f32 ": 4, "bf16 ": 2} {
			t.Run(name+k.String(), func(t *testing.T) {
				if err := k.Supported(); err != nil {
					t.Skip(err)
				}
				testSteadyState[float32](t, bytes, cpu.Options{Kernels: k})
			})
		}
	}
}

func testSteadyState[T attn.Float](t *testing.T, bytes int, opt cpu.Options) {
	p := newProblem(67, 6, 3, 8, 8, attn.Causal(67, 67))
	p.Sink = make([]float64, 6)
	b := newBook(t, p, mesh.Mesh{Head: 2, Ring: 3}, mesh.Zigzag, bytes)
	s := cpu.New[T](b, b.header.Ranks, opt)
	rng := rand.New(rand.NewPCG(1, 1))
	forward, backward := schedule(t, b.programs[0], rng), schedule(t, b.programs[1], rng)
	sink, q, k, v, do := cast[T](p.Sink), make([][]T, 6), make([][]T, 6), make([][]T, 6),
		make([][]T, 6)
	for r := range q {
		set := b.header.Sets[b.header.HomeQ[r]]
		q[r], do[r] = rows[T](p.Q, set, 6*8), rows[T](p.do, set, 6*8)
		k[r], v[r] = rows[T](p.K, set, 3*8), rows[T](p.V, set, 3*8)
	}
	state := int32(0)
	once := func() {
		s.Expect(state, b.header)
		s.SetSink(state, sink)
		for r := range q {
			for _, err := range [...]error{
				s.SetInput(int32(r), state, plan.HomeQ, q[r]),
				s.SetInput(int32(r), state, plan.HomeKV, k[r], v[r]),
				s.SetInput(int32(r), state, plan.HomeDO, do[r]),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := replay(s, 2*state, forward); err != nil {
			t.Fatal(err)
		}
		if err := replay(s, 2*state+1, backward); err != nil {
			t.Fatal(err)
		}
		s.Forget(state)
		state++
	}
	once()
	once()
	if n := testing.AllocsPerRun(5, once); n != 0 {
		t.Errorf("%v allocations in two rounds of %d and %d steps", n, len(forward), len(backward))
	}
	nothingHeld(t, s, 6)
}

// TestRunAgain runs a round, half of it, and the round again, as after an abort.
func TestRunAgain(t *testing.T) {
	p := newProblem(29, 4, 2, 8, 8, attn.Causal(29, 29))
	b := newBook(t, p, mesh.Mesh{Head: 2, Ring: 2}, mesh.Zigzag, 8)
	s := cpu.New[float64](b, 4, cpu.Options{Poison: true})
	defer s.Close()
	setInputs(t, s, b, p, 0)
	rng := rand.New(rand.NewPCG(3, 1))
	do := func(round int32, part int) {
		steps := schedule(t, b.programs[round], rng)
		if err := replay(s, round, steps[:len(steps)/part]); err != nil {
			t.Fatal(err)
		}
	}
	do(0, 2)
	do(0, 1)
	do(1, 2)
	do(0, 3)
	do(0, 1)
	do(1, 3)
	do(1, 1)
	if err := compare(outputs(t, s, b, p, 0), dense(p), 1e-12); err != nil {
		t.Error(err)
	}
	do(0, 3)
	for r := range int32(4) {
		_, err := s.Output(r, 0, plan.HomeOut)
		wantFault(t, err, "has no home.o of state 0")
	}
}

// TestSharedBlocksAreNotWritten gives rank 0 a new input while rank 1 still reads the old one,
// which rank 0 handed over.
func TestSharedBlocksAreNotWritten(t *testing.T) {
	p := newProblem(16, 2, 2, 4, 4, attn.Full(16, 16))
	b := newBook(t, p, mesh.Mesh{Head: 1, Ring: 2}, mesh.Contiguous, 8)
	s := cpu.New[float64](b, 2, cpu.Options{Poison: true})
	defer s.Close()
	setInputs(t, s, b, p, 0)
	var later []step
	for _, st := range schedule(t, b.programs[0], rand.New(rand.NewPCG(1, 1))) {
		if st.kind != plan.Recv && st.kind != plan.Send {
			later = append(later, st)
		} else if err := replay(s, 0, []step{st}); err != nil {
			t.Fatal(err)
		}
	}
	junk := make([]float64, 8*2*4)
	if err := s.SetInput(0, 0, plan.HomeKV, junk, junk); err != nil {
		t.Fatal(err)
	}
	for _, st := range later {
		if st.rank != 1 {
			continue
		}
		if err := replay(s, 0, []step{st}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Output(1, 0, plan.HomeOut)
	if err != nil {
		t.Fatal(err)
	}
	if e := attn.Compare(got[0], dense(p)[0][8*2*4:]); !e.OK(1e-12) {
		t.Errorf("rank 1's out has error %v: the block that it shares was written", e)
	}
}

func TestFlops(t *testing.T) {
	p := newProblem(33, 6, 3, 8, 4, attn.Causal(33, 33))
	b := newBook(t, p, mesh.Mesh{Head: 3, Ring: 2}, mesh.Zigzag, 8)
	s := cpu.New[float64](b, 6, cpu.Options{})
	var sum [2]uint64
	for pass, programs := range b.programs {
		for r, prog := range programs {
			for i := range prog.Ops {
				sum[pass] += s.Flops(int32(r), int32(pass), int32(i))
			}
		}
	}
	forward := uint64(2 * (8 + 4) * 33 * 34 / 2 * 6)
	if sum[0] != forward || sum[1] != forward*5/2 {
		t.Errorf("flops %d, %d: want %d and 2.5 times that", sum[0], sum[1], forward)
	}
	if s.Flops(0, -1, 0) != 0 || s.Flops(0, 0, 9999) != 0 {
		t.Error("an unknown op has operations")
	}
}
