package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// rounded rounds a problem's data to BF16.
func rounded(p *problem) *problem {
	for _, x := range [][]float64{p.Q, p.K, p.V, p.do} {
		short := make([]attn.BF16, len(x))
		attn.Narrow(short, x)
		attn.Widen(x, short)
	}
	return p
}

// isBF16 tells whether all numbers are BF16 ones.
func isBF16(x []float32) bool {
	for _, v := range x {
		if attn.ToBF16(v).Float32() != v {
			return false
		}
	}
	return true
}

// gateBF16 bounds the errors of results that are rounded to BF16 once, 1/2^9 at most for each
// number, and of gradients in which such an out is.
const gateBF16 = 1.0 / 256

// TestNarrow runs both passes with elements of BF16: odd numbers of them, all ways of hand-over.
func TestNarrow(t *testing.T) {
	for _, c := range []struct {
		mesh      mesh.Mesh
		tokens    int
		heads, kv int
	}{
		{mesh.Mesh{Head: 1, Ring: 1}, 1, 1, 1},
		{mesh.Mesh{Head: 1, Ring: 3}, 31, 3, 1},
		{mesh.Mesh{Head: 3, Ring: 2}, 67, 5, 5},
		{mesh.Mesh{Head: 4, Ring: 1}, 29, 6, 3},
	} {
		t.Run(fmt.Sprintf("%dx%d", c.mesh.Head, c.mesh.Ring), func(t *testing.T) {
			p := newProblem(c.tokens, c.heads, c.kv, 7, 5, attn.Causal(c.tokens, c.tokens))
			p.SoftCap = 4
			b := newBook(t, p, c.mesh, mesh.Zigzag, 2)
			first := run[float32](t, b, p, cpu.Options{}, 1) // rounds what it is given
			want := dense(rounded(p))
			if err := compare(first, want, gateBF16); err != nil {
				t.Error(err)
			}
			for _, i := range []int{0, 2, 3, 4} {
				if !isBF16(first[i]) {
					t.Errorf("result %d is not rounded to BF16", i)
				}
			}
			if c.tokens > 1 && isBF16(first[1]) {
				t.Error("lse is rounded to BF16")
			}
			copied := run[float32](t, b, p, cpu.Options{Copy: true, Poison: true}, 2)
			if !same(first, copied) {
				t.Error("copied and poisoned blocks give other bits than shared ones")
			}
			twin := run[float32](t, b, p, cpu.Options{Kernels: cpu.Twin, Poison: true}, 3)
			if err := compare(twin, want, gateBF16); err != nil {
				t.Errorf("twin kernels: %v", err)
			}
		})
	}
}

// TestSumsAreNotNarrow: with elements of BF16 an error does not grow with the ring, since nothing
// but elements and results is rounded.
func TestSumsAreNotNarrow(t *testing.T) {
	p := rounded(newProblem(128, 2, 1, 8, 8, attn.Causal(128, 128)))
	want := dense(p)
	var base [5]float64
	for _, ring := range []int{1, 2, 4, 8} {
		b := newBook(t, p, mesh.Mesh{Head: 1, Ring: ring}, mesh.Zigzag, 2)
		got := run[float32](t, b, p, cpu.Options{}, 1)
		for i := range got {
			e := attn.Compare(got[i], want[i]).Rel
			if ring == 1 {
				base[i] = e
			}
			if e > 1.25*base[i]+1e-4 {
				t.Errorf("ring of %d: result %d has error %.3g, a ring of 1 %.3g", ring, i, e,
					base[i])
			}
		}
	}
}

// TestNarrowInputs gives inputs without, before and after the plan that says their width.
func TestNarrowInputs(t *testing.T) {
	p := newProblem(9, 2, 2, 3, 3, attn.Causal(9, 9))
	b := newBook(t, p, mesh.Mesh{Head: 1, Ring: 1}, mesh.Zigzag, 2)
	s := cpu.New[float32](b, 1, cpu.Options{})
	defer s.Close()
	give := func(state int32) {
		t.Helper()
		for _, err := range []error{
			s.SetInput(0, state, plan.HomeQ, cast[float32](p.Q)),
			s.SetInput(0, state, plan.HomeKV, cast[float32](p.K), cast[float32](p.V)),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	give(0)
	wantFault(t, s.Do(0, 0, 0), "state 0", "have 2 bytes", "(Expect) before the inputs")
	s.Expect(0, b.header)
	wantFault(t, s.Do(0, 0, 0), "(Expect) before the inputs")
	give(0)
	if err := s.Do(0, 0, 0); err != nil {
		t.Error(err)
	}
	if now, _ := s.Used(0); now != b.programs[0][0].PeakBytes() {
		t.Errorf("%d bytes are used, the plan says %d", now, b.programs[0][0].PeakBytes())
	}
	s.Forget(0)
	give(0)
	wantFault(t, s.Do(0, 0, 0), "(Expect) before the inputs")
	wide := newBook(t, p, mesh.Mesh{Head: 1, Ring: 1}, mesh.Zigzag, 4)
	other := cpu.New[float64](b, 1, cpu.Options{})
	wantFault(t, other.Do(0, 0, 0), "elements have 2 bytes and accumulators 4, this store's have 8")
	mixed := &mixedBook{wide, b}
	m := cpu.New[float32](mixed, 1, cpu.Options{})
	defer m.Close()
	setInputs(t, m, wide, p, 0)
	if err := replay(m, 0, schedule(t, wide.programs[0], rand.New(rand.NewPCG(1, 1)))); err != nil {
		t.Fatal(err)
	}
	m.Expect(0, b.header)
	if err := m.SetInput(0, 0, plan.HomeDO, cast[float32](p.do)); err != nil {
		t.Fatal(err)
	}
	wantFault(t, m.Do(0, 1, 0), "both rounds of a state must be of one plan")
}

// TestNarrowNumbers: what is no ordinary number stays what it is on the way in and out.
func TestNarrowNumbers(t *testing.T) {
	h := oddHeader(2)
	inf := float32(math.Inf(1))
	ties := []float32{1 + 1.0/256, 1 + 3.0/256, -inf, inf, 0, 3e38, float32(math.NaN())}
	prog := hand(do(plan.Zero, arg(plan.Write, plan.DQ, all3, 0, 3, 1)))
	prog.Slots[0] = plan.Slot{Role: plan.HomeQ, In: true, Keep: true, Tensor: plan.Q, Set: all3,
		Heads: mesh.Heads{Hi: 3}, Bytes: 4096}
	s := cpu.New[float32](&book{h, [2][]*plan.Program{{prog}}}, 1, cpu.Options{})
	defer s.Close()
	s.Expect(0, h)
	in := make([]float32, 63)
	copy(in, ties)
	if err := s.SetInput(0, 0, plan.HomeQ, in); err != nil {
		t.Fatal(err)
	}
	if err := s.Do(0, 0, 0); err != nil {
		t.Fatal(err)
	}
	parts, err := s.Output(0, 0, plan.HomeQ)
	if err != nil {
		t.Fatal(err)
	}
	got, near := parts[0][:6], attn.ToBF16(3e38).Float32()
	if want := []float32{1, 1 + 4.0/256, -inf, inf, 0, near}; !slices.Equal(got, want) {
		t.Errorf("%v went in, %v came out, want %v", ties, got, want)
	}
	if x := parts[0][6]; x == x {
		t.Errorf("NaN went in, %v came out", x)
	}
}
