package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern/cpu/kernel"
)

// capTests are caps from the least to the largest that is served.
var capTests = [...]float64{minCap, 1e-3, 0.3, 1, math.Pi, 30, 50, 1e4, 1e9, maxCap}

// bent is cap and bend of scores, as many as a panel of 8 keys has: the capped scores, and the
// slopes, to which gradients of 3 less a delta of 2 become.
func (p path) bent(t *testing.T, limit float64, scores []float32) (capped, slopes []float32) {
	t.Helper()
	sc, c := &Scratch{}, newCurve(limit)
	n := len(scores) / p.isa.lanes()
	sc.fitBackward(p.isa, 1, 1, 1)
	copy(sc.s, scores)
	sc.bow(p.isa, &c, n)
	capped = append(capped, sc.s[:len(scores)]...)
	var delta [maxLanes]float32
	fill(delta[:], 2)
	copy(sc.s, scores)
	fill(sc.dp[:len(scores)], 3)
	if rest := sc.bend(p.isa, &c, n, &delta); *rest != 0 {
		t.Errorf("slopes are to take a delta of %v", *rest)
	}
	for i, x := range sc.s[:len(scores)] {
		// They are rounded in another order.
		if e := math.Abs(float64(x - capped[i])); !(e <= 2.5e-7*math.Abs(float64(x))) && x == x {
			t.Errorf("cap %v: %v becomes %v and, in backward, %v", limit, scores[i], capped[i], x)
		}
	}
	return capped, sc.dp[:len(scores)]
}

// TestCap holds capped scores and their slopes against float64, over the range of each cap: from
// subnormal scores to those at which no slope is left.
func TestCap(t *testing.T) {
	const bound, slopeBound = 3e-7, 3e-7
	eachVector(t, func(t *testing.T, p path) {
		rng, worst, worstSlope := rand.New(rand.NewPCG(1, 2)), 0.0, 0.0
		scores := make([]float32, 8*p.isa.lanes())
		for round := range 4000 {
			limit := capTests[round%len(capTests)]
			for i := range scores {
				x := limit * math.Exp2(8*rng.Float64()-6) // about where tanh bends
				if i%4 == 0 {
					x = math.Exp2(160*rng.Float64() - 149)
				}
				scores[i] = float32(math.Copysign(x, rng.Float64()-0.5))
			}
			capped, slopes := p.bent(t, limit, scores)
			for i, s := range scores {
				x := float64(s) / limit
				want := limit * math.Tanh(x)
				e := math.Abs(float64(capped[i])-want) / max(math.Abs(want), 0x1p-126)
				worst = max(worst, e)
				want = attn.Cap(limit).Slope(float64(s))
				// 2|s|/cap is rounded to 24 bits before it is an exponent.
				left := math.Abs(float64(slopes[i])-want) / max(want, 0x1p-100) / (1 + math.Abs(x))
				worstSlope = max(worstSlope, left)
				if !(e <= bound) || !(left <= slopeBound) {
					t.Fatalf("cap %v: %v becomes %v, off by %.3g, slope %v, by %.3g", limit, s,
						capped[i], e, slopes[i], left)
				}
			}
		}
		t.Logf("relative errors: %.3g, and of slopes, by 1 + |s/cap|, %.3g", worst, worstSlope)
	})
}

// TestCapEdges: infinities, NaN, both zeros and the least numbers.
func TestCapEdges(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	odd := math.Float32frombits(0xff812345) // a signalling NaN
	eachVector(t, func(t *testing.T, p path) {
		for _, limit := range capTests {
			top := float32(limit)
			most := float32(limit * math.Tanh(math.MaxFloat32/limit))
			scores := make([]float32, p.isa.lanes())
			copy(scores, []float32{inf, -inf, nan, 0, float32(math.Copysign(0, -1)), 0x1p-149,
				-0x1p-149, 0x1p-126, odd, math.MaxFloat32, -math.MaxFloat32})
			capped, slopes := p.bent(t, limit, scores)
			want := []float32{top, -top, nan, 0, scores[4], 0x1p-149, -0x1p-149, 0x1p-126, nan,
				most, -most}
			slope := []float32{0, 0, nan, 1, 1, 1, 1, 1, nan, 0, 0}
			for i, w := range want {
				x := capped[i]
				if limit == minCap && i == 7 { // 2^-126 is bent by 2^-133
					continue
				}
				if w != w && x == x || w == w && math.Float32bits(w) != math.Float32bits(x) {
					t.Errorf("cap %v: %v becomes %v, want %v", limit, scores[i], x, w)
				}
				if s := slopes[i]; slope[i] != s && (slope[i] == slope[i] || s == s) {
					t.Errorf("cap %v: the slope at %v is %v, want %v", limit, scores[i], s,
						slope[i])
				}
			}
		}
	})
}

// TestHighCap: a cap far above all logits gives the bits of none.
func TestHighCap(t *testing.T) {
	eachVector(t, func(t *testing.T, p path) {
		b := contiguous(150, 2, 1, 24, 16)
		do := fillBlock(b, 1)
		out, lse := forwardAll(p, b)
		g := backwardAll(p, b, do, out, lse)
		b.SoftCap = maxCap
		out2, lse2 := forwardAll(p, b)
		g2 := backwardAll(p, b, do, out2, lse2)
		for i, x := range [][2][]float32{
			{out, out2}, {lse, lse2}, {g.DQ, g2.DQ}, {g.DK, g2.DK}, {g.DV, g2.DV}} {
			if !sameBits(x[0], x[1]) {
				t.Errorf("%s has other bits", names[i])
			}
		}
	})
}

// TestCappedLogits holds blocks with logits that are huge, infinite or NaN, some of them at pairs
// that the mask forbids, against the portable kernels.
func TestCappedLogits(t *testing.T) {
	eachVector(t, func(t *testing.T, p path) {
		for _, limit := range []float64{1e-3, 3, 1e4} {
			for name, x := range map[string]float64{
				"huge": 1e30, "huge, negative": -1e30, "+Inf": math.Inf(1), "-Inf": math.Inf(-1),
				"NaN": math.NaN(), "tiny": 1e-42,
			} {
				t.Run(fmt.Sprintf("cap %v, %s", limit, name), func(t *testing.T) {
					b := contiguous(130, 2, 2, 2, 4)
					b.SoftCap = limit
					do := fillBlock(b, 1)
					fill(b.Q, 0.5)
					for _, key := range []int{0, 40, 97} {
						fill(b.K[key*2:][:2], float32(x))
					}
					p.fit(b, do)
					got, want := p.run(b, do), path{isa: Portable}.run(b, do)
					for i, e := range got.errors(&want, 1e-2) {
						if !(e <= p.bound(i, 2e-6)) {
							t.Errorf("%s is off by %.3g", names[i], e)
						}
					}
				})
			}
		}
	})
}

// TestCapOfTwin: the portable kernels cap the same scores to nearly the same.
func TestCapOfTwin(t *testing.T) {
	eachVector(t, func(t *testing.T, p path) {
		b := contiguous(40, 1, 1, 1, 1)
		fillBlock(b, 1)
		fill(b.Q, 1)
		b.Mask = nil
		for i := range 40 {
			b.K[i] = float32(i)/2 - 10
			b.Mask = append(b.Mask, attn.Slice{
				Q0: i, Q1: i + 1, K0: i, K1: i + 1, Lo: -attn.Unbounded, Hi: attn.Unbounded,
			})
		}
		b.SoftCap = 4
		p.fit(b, b.V)
		s, twin := newState(b), newState(b)
		fold(p, b, s, nil)
		for task := range kernel.ForwardTasks(b) {
			kernel.Forward(b, twin, task, &kernel.Scratch[float32]{})
		}
		for i, m := range s.M { // a row sees one key, so its maximum is the score
			if e := math.Abs(float64(m - twin.M[i])); !(e <= 4e-7*math.Abs(float64(m))) {
				t.Errorf("score %v becomes %v, by the portable kernels %v", b.K[i], m, twin.M[i])
			}
		}
	})
}
