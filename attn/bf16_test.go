package attn

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kvloom/kvloom/mesh"
)

func TestBF16KeepsItsNumbers(t *testing.T) {
	for bits := range 1 << 16 {
		b := BF16(bits)
		got := ToBF16(b.Float32())
		if x := b.Float32(); x != x {
			if got.Float32() == got.Float32() || got|quietNaN != b|quietNaN || got&quietNaN == 0 {
				t.Fatalf("NaN %#x became %#x", bits, got)
			}
			continue
		}
		if got != b {
			t.Fatalf("%#x is %v and came back as %#x", bits, b.Float32(), got)
		}
	}
}

// nearest is x rounded to bfloat16 by its definition: of all numbers m 2^e with 8 bits of m and e
// of at least -133 the nearest, of two the even one, and infinity from 2^128 on.
func nearest(x float64) float64 {
	if x == 0 || x != x || math.IsInf(x, 0) {
		return x
	}
	_, e := math.Frexp(x) // |x| in [2^(e-1), 2^e)
	unit := math.Ldexp(1, max(e-8, -133))
	y := math.RoundToEven(x/unit) * unit
	if math.Abs(y) >= 0x1p128 {
		return math.Copysign(math.Inf(1), x)
	}
	return y
}

func TestToBF16RoundsToNearestEven(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 1))
	try := func(x float32) {
		got, want := float64(ToBF16(x).Float32()), nearest(float64(x))
		if math.Float64bits(got) != math.Float64bits(want) && !(got != got && want != want) {
			t.Fatalf("%v (%#x) became %v, want %v", x, math.Float32bits(x), got, want)
		}
	}
	for range 200000 {
		bits := rng.Uint32()
		try(math.Float32frombits(bits))
		for _, low := range []uint32{0x7fff, 0x8000, 0x8001} { // about half-way
			try(math.Float32frombits(bits&^0xffff | low))
		}
	}
	for _, x := range []float32{0, float32(math.Copysign(0, -1)), math.MaxFloat32, 0x1.fep127,
		0x1.fefffep127, 0x1.ffp127, float32(math.Inf(1)), float32(math.Inf(-1)), 0x1p-149} {
		try(x)
		try(-x)
	}
}

// TestNarrowRoundsOnce has float64 numbers that go another way when they are rounded to float32
// before.
func TestNarrowRoundsOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(32, 1))
	twice := 0
	try := func(x float64) {
		var got [1]BF16
		Narrow(got[:], []float64{x})
		y, want := float64(got[0].Float32()), nearest(x)
		if math.Float64bits(y) != math.Float64bits(want) && !(y != y && want != want) {
			t.Fatalf("%x became %x, want %x", x, y, want)
		}
		if ToBF16(float32(x)) != got[0] {
			twice++
		}
	}
	for range 100000 {
		x := math.Ldexp(rng.Float64()-0.5, rng.IntN(290)-150)
		try(x)
		half := float64(ToBF16(float32(x)).Float32()) * (1 + 0x1p-8)
		try(half)
		try(half * (1 + 0x1p-40))
		try(half * (1 - 0x1p-40))
	}
	for _, x := range []float64{0, math.Copysign(0, -1), 1e300, -1e300, 1e-300, -1e-300, math.NaN(),
		math.Inf(1), math.Inf(-1), 0x1.fefffffffp127, 0x1.ff0000001p127, 0x1.ffp127} {
		try(x)
	}
	if twice == 0 {
		t.Error("no number told one rounding from two")
	}
	single := []float32{1.00390625, -3.0078125, 0.1}
	want, got := make([]BF16, 3), make([]BF16, 3)
	for n, x := range single {
		want[n] = ToBF16(x)
	}
	Narrow(got, single)
	wide := make([]float64, 3)
	Widen(wide, got)
	for n := range want {
		if got[n] != want[n] || wide[n] != float64(got[n].Float32()) {
			t.Errorf("%v narrowed to %#x and widened to %v, want %#x", single[n], got[n], wide[n],
				want[n])
		}
	}
}

// TestWidenBlock: the block of BF16 and its widened one are the same problem.
func TestWidenBlock(t *testing.T) {
	rng := rand.New(rand.NewPCG(33, 1))
	span := mesh.Set{{Start: 3, Stride: 2, Count: 4}}
	narrow := func(n int) []BF16 {
		a := make([]BF16, n)
		Narrow(a, normal(rng, n, 1))
		return a
	}
	b := Block[BF16]{
		QSpans: span, KSpans: span, QHeads: 3, KHeads: 2, QHead0: 3, KHead0: 1, Group: 2, D: 2,
		DV: 3, Scale: 0.4, SoftCap: 0.9, Mask: Causal(20, 20),
		Q: narrow(4 * 3 * 2), K: narrow(4 * 2 * 2), V: narrow(4 * 2 * 3),
	}
	if err := b.Validate(); err != nil {
		t.Fatal(err)
	}
	w := WidenBlock[float64](&b)
	if err := w.Validate(); err != nil {
		t.Fatal(err)
	}
	back := Block[BF16]{
		QSpans: w.QSpans, KSpans: w.KSpans, QHeads: w.QHeads, KHeads: w.KHeads, QHead0: w.QHead0,
		KHead0: w.KHead0, Group: w.Group, D: w.D, DV: w.DV, Scale: w.Scale, SoftCap: w.SoftCap,
		Mask: w.Mask, Q: make([]BF16, len(w.Q)), K: make([]BF16, len(w.K)),
		V: make([]BF16, len(w.V)),
	}
	Narrow(back.Q, w.Q)
	Narrow(back.K, w.K)
	Narrow(back.V, w.V)
	same(t, b, back)
}
