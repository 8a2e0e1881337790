package tensors

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestDrawGolden compares with values computed from the formula in the package comment by a
// program in another language, with the C library's ln, sin and cos.
func TestDrawGolden(t *testing.T) {
	goldenIndex := []int64{0, 1, 2, 3, 1000003, 1<<40 + 1}

	golden := []struct {
		seed uint64
		name string
		want []float64
	}{
		{0x0, "", []float64{-2.3591438697895, 0.5720123630706737, 0.5729619903112853,
			-0.16721736118166106, -0.17301585057728258, 1.7212756035955368}},
		{0x1, "q", []float64{-1.447918968254622, -1.7830159425854422, -0.5647845862837414,
			1.4034738433871194, 0.20232788014235933, -0.10192586341669671}},
		{0x1, "k", []float64{0.6353379000096311, -0.5554026481202804, -0.01863738676995447,
			-0.609761255274532, 0.11441601155354021, -0.36856187870595947}},
		{0x2, "q", []float64{0.29440996178992473, -0.07999090876852097, 1.709249967910364,
			0.6657389904022237, -1.0148437873134173, -0.8754172403048813}},
		{math.MaxUint64, "do", []float64{-1.7601619851101642, -1.151709840240783,
			-0.23759744783683243, -2.003049196893137, -0.6210315603720614, 1.7308236728184117}},
	}
	for _, g := range golden {
		for n, index := range goldenIndex {
			i := int(index)
			if int64(i) != index {
				continue // beyond what a 32-bit machine can index
			}
			var got [1]float64
			DrawRange(g.seed, g.name, i, i+1, got[:])
			if math.Abs(got[0]-g.want[n]) > 1e-15*max(1, math.Abs(g.want[n])) {
				t.Errorf("seed %d %q value %d: %v, want %v", g.seed, g.name, i, got[0], g.want[n])
			}
			var narrow [1]float32
			DrawRange(g.seed, g.name, i, i+1, narrow[:])
			if narrow[0] != float32(got[0]) {
				t.Errorf("seed %d %q value %d: f32 %v is not f64 %v rounded once", g.seed, g.name,
					i, narrow[0], got[0])
			}
		}
	}
}

// TestDrawBits holds the bits themselves: a change of any digit of any value changes the inputs
// of every recorded run.
func TestDrawBits(t *testing.T) {
	const wantF64 = "7e01842c31c8685b5b7a18739d2d605563f5c308b59e126d7eea6b60a3d0060f"
	const wantF32 = "7d0b0f81c077541e98999393b030a0838e82eda3f6b10ad45890798cfb817468"
	if got := Digest(Draw[float64](1, "q", 100003)); got != wantF64 {
		t.Errorf("f64 digest %s, want %s", got, wantF64)
	}
	if got := Digest(Draw[float32](1, "q", 100003)); got != wantF32 {
		t.Errorf("f32 digest %s, want %s", got, wantF32)
	}
}

func TestDrawCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		name := rapid.String().Draw(t, "name")
		n := rapid.IntRange(0, 300).Draw(t, "n")
		whole := Draw[float64](seed, name, n)
		for lo := 0; lo < n; {
			hi := rapid.IntRange(lo+1, n).Draw(t, "hi")
			part := make([]float64, hi-lo)
			DrawRange(seed, name, lo, hi, part)
			for i, x := range part {
				if math.Float64bits(x) != math.Float64bits(whole[lo+i]) {
					t.Fatalf("value %d cut at [%d,%d) is %v, whole %v", lo+i, lo, hi, x,
						whole[lo+i])
				}
			}
			lo = hi
		}
	})
}

func TestDrawRefuses(t *testing.T) {
	for _, r := range []struct{ lo, hi, n int }{{-1, 0, 1}, {2, 1, 0}, {0, 4, 3}, {0, 3, 4}} {
		if !panics(func() { DrawRange(1, "q", r.lo, r.hi, make([]float32, r.n)) }) {
			t.Errorf("range [%d,%d) into %d places was taken", r.lo, r.hi, r.n)
		}
	}
}

// TestDrawIsNormal bounds each statistic by five of its standard deviations.
func TestDrawIsNormal(t *testing.T) {
	const n = 1 << 19
	root := math.Sqrt(n)
	for _, name := range []string{"q", "k", "v", "do"} {
		x := Draw[float64](1, name, n)
		var m1, m2, m3, m4, lag1, lag2, tail float64
		for i, v := range x {
			m1 += v / n
			m2 += v * v / n
			m3 += v * v * v / n
			m4 += v * v * v * v / n
			if math.Abs(v) > 3 {
				tail += 1.0 / n
			}
			lag1 += v * x[(i+1)%n] / n
			lag2 += v * x[(i+2)%n] / n
		}
		p3 := math.Erfc(3 / math.Sqrt2)
		for _, s := range []struct {
			what                 string
			got, want, deviation float64
		}{
			{"mean", m1, 0, 1}, {"variance", m2, 1, math.Sqrt(2)}, {"skew", m3, 0, math.Sqrt(15)},
			{"kurtosis", m4, 3, math.Sqrt(96)}, {"share beyond 3", tail, p3, math.Sqrt(p3)},
			{"correlation at lag 1", lag1, 0, 1}, {"correlation at lag 2", lag2, 0, 1},
		} {
			if math.Abs(s.got-s.want) > 5*s.deviation/root {
				t.Errorf("%s: %s is %v, want %v within %v", name, s.what, s.got, s.want,
					5*s.deviation/root)
			}
		}
	}
}

func TestDrawTensorsAreIndependent(t *testing.T) {
	const n = 1 << 16
	q := Draw[float64](1, "q", n)
	for _, other := range [][]float64{
		Draw[float64](1, "k", n), Draw[float64](1, "Q", n), Draw[float64](2, "q", n),
		Draw[float64](1<<63+1, "q", n),
	} {
		var c float64
		for i := range q {
			c += q[i] * other[i] / n
		}
		if math.Abs(c) > 5/math.Sqrt(n) {
			t.Errorf("correlation %v over %d values", c, n)
		}
	}
}

func TestLogAndSinCos(t *testing.T) {
	words := []uint64{0, 1, 2, 1<<50 - 1, 1 << 50, 1<<51 - 1, 1 << 51, 3 << 50, 1 << 52, 1<<53 - 1}
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.OneOf(rapid.SampledFrom(words), rapid.Uint64Range(0, 1<<53-1)).Draw(t, "k")
		u := float64(k+1) * 0x1p-53
		if got, want := logUnit(u), math.Log(u); math.Abs(got-want) > 4e-16*math.Abs(want) {
			t.Fatalf("ln %v is %v, want %v", u, got, want)
		}
		sin, cos := sinCosTurn(k)
		wantSin, wantCos := math.Sincos(2 * math.Pi * (float64(k) * 0x1p-53))
		if math.Abs(sin-wantSin) > 1e-15 || math.Abs(cos-wantCos) > 1e-15 {
			t.Fatalf("turn %d/2^53: sin %v cos %v, want %v %v", k, sin, cos, wantSin, wantCos)
		}
		if k%(1<<51) == 0 && min(math.Abs(sin), math.Abs(cos)) != 0 {
			t.Fatalf("quarter turn %d/2^53: sin %v cos %v", k, sin, cos)
		}
	})
}

func BenchmarkDrawF32(b *testing.B) { benchmarkDraw[float32](b) }
func BenchmarkDrawF64(b *testing.B) { benchmarkDraw[float64](b) }

func benchmarkDraw[T Float](b *testing.B) {
	dst := make([]T, 1<<16)
	for b.Loop() {
		DrawRange(1, "q", 1, 1+len(dst), dst)
	}
	b.ReportMetric(float64(len(dst))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mvalues/s")
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}
