package simd

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern/cpu/kernel"
)

// TestStateRanges holds Finalize, FinalizeNarrow, Delta and Accumulate of a range of items against
// the portable ones, with rows of no key, sinks and NaN.
func TestStateRanges(t *testing.T) {
	eachVector(t, func(t *testing.T, p path) {
		rapid.Check(t, func(t *rapid.T) {
			dv := rapid.IntRange(1, maxDim).Draw(t, "dv")
			items := rapid.IntRange(1, 90).Draw(t, "items")
			lo := rapid.IntRange(0, items).Draw(t, "lo")
			hi := rapid.IntRange(lo, items).Draw(t, "hi")
			b := contiguous(items, 1, 1, dv, 1)
			fillBlock(b, rapid.Uint64().Draw(t, "seed"))
			var sink []float32
			if rapid.Bool().Draw(t, "sink") {
				sink = []float32{0.5, float32(math.Inf(-1)), -3}
			}
			state := func() attn.State[float32] {
				s := attn.State[float32]{
					Acc: slices.Clone(b.Q), M: slices.Clone(b.V), L: make([]float32, items),
				}
				for i, m := range s.M {
					s.L[i] = float32(i % 3)
					if i%3 == 0 {
						s.M[i] = float32(math.Inf(-1))
					}
					if m > 2 {
						s.L[i] = float32(math.NaN())
					}
				}
				return s
			}
			s, twin := state(), state()
			small, smallTwin := narrowed(s.Acc), narrowed(s.Acc)
			FinalizeNarrow(p.isa, small, s, sink, dv, lo, hi)
			kernel.FinalizeNarrow(smallTwin, twin, sink, dv, lo, hi)
			mustMatch(t, s.Acc, twin.Acc, s.M, twin.M)
			if !slices.Equal(small, smallTwin) {
				t.Fatal("out of bf16 has other bits")
			}
			Accumulate(p.isa, s.Acc, b.K, lo*dv, hi*dv)
			kernel.Accumulate(twin.Acc, b.K, lo*dv, hi*dv)
			mustMatch(t, s.Acc, twin.Acc)

			delta, deltaTwin := make([]float32, items), make([]float32, items)
			Delta(p.isa, delta, narrowed(b.Q), b.K, dv, lo, hi)
			kernel.Delta(deltaTwin, narrowed(b.Q), b.K, dv, lo, hi)
			for i, x := range delta {
				e := math.Abs(float64(x - deltaTwin[i]))
				if !(e <= 1e-6*math.Abs(float64(x))+1e-12) {
					t.Fatalf("delta %d is %v, want %v", i, x, deltaTwin[i])
				}
			}
		})
	})
}

// TestLongArrays has more floats, and more rows, than one call of a kernel takes.
func TestLongArrays(t *testing.T) {
	eachVector(t, func(t *testing.T, p path) {
		for _, dv := range []int{1, 96, 256} {
			items := 2*callFloats/dv + 5
			b := contiguous(items, 1, 1, dv, 1)
			fillBlock(b, 1)
			sum, twin := slices.Clone(b.Q), slices.Clone(b.Q)
			Accumulate(p.isa, sum, b.K, 0, len(sum))
			kernel.Accumulate(twin, b.K, 0, len(sum))
			if !sameBits(sum, twin) {
				t.Errorf("a sum of %d floats has other bits", len(sum))
			}
			delta, want := make([]float32, 2*items), make([]float32, 2*items)
			Delta(p.isa, delta[:items], b.Q, b.K, dv, 0, items)
			kernel.Delta(want[:items], b.Q, b.K, dv, 0, items)
			Delta(p.isa, delta[items:], narrowed(b.Q), b.K, dv, 0, items)
			kernel.Delta(want[items:], narrowed(b.Q), b.K, dv, 0, items)
			if e := relative(wide(delta), wide(want), 1); !(e <= 1e-6) {
				t.Errorf("delta of %d rows of %d is off by %.2g", items, dv, e)
			}
		}
	})
}

// TestNarrow holds the rounding against attn.ToBF16: all halves and their neighbours, subnormal
// numbers, infinities and NaN of every kind.
func TestNarrow(t *testing.T) {
	eachVector(t, func(t *testing.T, p path) {
		var src []float32
		for high := range uint32(1 << 16) {
			for _, low := range []uint32{0, 1, 0x7fff, 0x8000, 0x8001, 0xffff} {
				src = append(src, math.Float32frombits(high<<16|low))
			}
		}
		src = src[:len(src)-3] // a rest
		got := make([]attn.BF16, len(src))
		Narrow(p.isa, got, src)
		for i, x := range src {
			if want := attn.ToBF16(x); got[i] != want {
				t.Fatalf("%08x becomes %04x, want %04x", math.Float32bits(x), got[i], want)
			}
		}
	})
}

// TestExp holds the weights of the softmax against 2^y, where y is the argument that the kernel
// forms, x*log2(e) in float32: relative error below 1.2e-7, 0 for what is too small, NaN for NaN.
func TestExp(t *testing.T) {
	eachVector(t, func(t *testing.T, p path) {
		var s, x [8 * 48]float32
		n := 0
		check := func() {
			var m, l, alpha [48]float32
			copy(s[:], x[:])
			p.isa.softmax(&s[0], nil, 8, &m[0], &l[0], &alpha[0], panelVecs)
			for i, got := range s[:8*p.isa.lanes()] {
				y := x[i] * float32(math.Log2E)
				want := math.Exp2(float64(y))
				if y < -126 {
					want = 0
				}
				limit := 1.2e-7 * want
				if y > -127 && y < -125 {
					limit = 0x1p-126
				}
				if !(math.Abs(float64(got)-want) <= limit) && !(math.IsNaN(want) && got != got) {
					t.Fatalf("e^%v = %v, want %v", x[i], got, want)
				}
			}
			n = 0
		}
		add := func(v float32) {
			x[n] = v
			if n++; n == 8*p.isa.lanes() {
				check()
			}
		}
		for i := range 400_000 {
			add(-float32(i) * 2.5e-4)
		}
		for _, v := range []float64{0, math.Inf(-1), math.NaN(), -1e30, -1e-30, -88, -87.4, -87} {
			add(float32(v))
		}
		check()
	})
}
