package simd

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvloom/kvloom/attn"
)

// eachDot runs test on the paths of pairs and tiles that this machine has.
func eachDot(t *testing.T, test func(t *testing.T, p path)) {
	eachPath(t, func(t *testing.T, p path) {
		if !p.isa.dots() {
			t.Skip("it multiplies no pairs")
		}
		test(t, p)
	})
}

// TestPairsAreOfBF16 wants AVX512's bits for elements of float32, and for heads of bf16 whose dims
// are odd.
func TestPairsAreOfBF16(t *testing.T) {
	eachDot(t, func(t *testing.T, p path) {
		rapid.Check(t, func(t *rapid.T) {
			b, do := drawBlock(t, 200)
			sameOn(t, p, b, do)
			if b.D%2 == 1 || b.DV%2 == 1 {
				sameOn(t, p, narrow(b), narrowed(do))
			}
		})
	})
}

// sameOn wants of the path what AVX512 gives.
func sameOn[E attn.Elem](t *rapid.T, p path, b *attn.Block[E], do []E) {
	var states [2]attn.State[float32]
	var grads [2]attn.Grad[E, float32]
	plain := path{AVX512, p.sc}
	out, lse := forwardAll(plain, b)
	for i, isa := range []ISA{AVX512, p.isa} {
		states[i], grads[i] = newState(b), newGrad(plain, b, do, out, lse)
		for task := range ForwardTasks(b) {
			Forward(isa, b, states[i], task, p.sc)
		}
		for task := range BackwardTasks(b) {
			Backward(isa, b, grads[i], task, p.sc)
		}
	}
	s, g := states, grads
	mustMatch(t, s[0].Acc, s[1].Acc, s[0].M, s[1].M, s[0].L, s[1].L,
		g[0].DQ, g[1].DQ, g[0].DK, g[1].DK, g[0].DV, g[1].DV)
}

// TestPairs bounds the errors of products of pairs on problems that are exact in bf16: those of a
// weight rounded to 8 bits and no more, and of lse those of float32.
func TestPairs(t *testing.T) { eachDot(t, testPairs) }

func testPairs(t *testing.T, p path) {
	worst := [len(names)]float64{}
	for _, c := range []struct {
		n, d, dv   int
		scale, cap float64
	}{
		{400, 64, 64, 1, 0}, {333, 128, 128, 1, 0}, {150, 256, 40, 1, 0}, {200, 64, 64, 40, 0},
		{9, 32, 32, 1, 0}, {300, 64, 64, 8, 5},
	} {
		for _, full := range []bool{true, false} {
			b := contiguous(c.n, 2, 2, c.d, c.dv)
			do := fillBlock(b, 1)
			b.Scale *= c.scale
			b.SoftCap = c.cap
			if full {
				b.Mask = attn.Full(c.n, c.n)
			}
			p.fit(b, do)
			want := exact(b, do)
			for i, e := range p.run(b, do).errors(&want, 0) {
				worst[i] = max(worst[i], e)
				if limit := [...]float64{2.5e-3, 2e-7, 4e-3, 4e-3, 4e-3}[i]; !(e <= limit) {
					t.Errorf("%v full %v: the error of %s is %.2g", c, full, names[i], e)
				}
			}
		}
	}
	t.Logf("errors of %v: %.2g", names, worst)
}

// TestPairsDoNotDrift compares a problem in one block with the same in 8, as a ring computes it:
// the error may be at most 1.25 times as large.
func TestPairsDoNotDrift(t *testing.T) { eachDot(t, testDrift) }

func testDrift(t *testing.T, p path) {
	b := contiguous(512, 2, 1, 64, 64)
	do := fillBlock(b, 1)
	p.fit(b, do)
	want := exact(b, do)
	one := p.run(b, do).errors(&want, 0)
	s := newState(b)
	for at := 0; at < 512; at += 64 {
		fold(p, keyRows(b, at, at+64), s, nil)
	}
	out, lse := finish(p, s, b.DV)
	g := newGrad(p, b, do, out, lse)
	for at := 0; at < 512; at += 64 {
		share := g
		share.DK, share.DV = g.DK[at*2*64:(at+64)*2*64], g.DV[at*2*64:(at+64)*2*64]
		descend(p, keyRows(b, at, at+64), share)
	}
	r := result{wide(out), wide(lse), wide(g.DQ), wide(g.DK), wide(g.DV)}
	for i, e := range r.errors(&want, 0) {
		t.Logf("%s: %.3g in one block, %.3g in eight", names[i], one[i], e)
		if !(e <= 1.25*one[i]+1e-5) {
			t.Errorf("%s: the error is %.3g in eight blocks, %.3g in one", names[i], e, one[i])
		}
	}
}

// TestPairsRound holds weights and their gradients, as slopes leaves them, against one rounding to
// bf16, ties to even: what a processor does by itself (Intel, volume 2, VCVTNE2PS2BF16).
func TestPairsRound(t *testing.T) {
	eachDot(t, func(t *testing.T, p path) {
		const n = 4
		var s, dp [(n + zeroRows) * maxLanes]float32
		var g lanes
		ds := make([]attn.BF16, (n+zeroRows)*wideRow)
		for i := range s {
			s[i], dp[i] = -float32(i)/7, float32(math.Sin(float64(i)))
		}
		weights, grads := s, dp
		AVX512.slopes(&weights[0], &grads[0], nil, n, &g.m[0], &g.l[0], 0.3, panelVecs)
		fill(ds, attn.ToBF16(7))
		slopesDot(p.isa, s[:], dp[:], ds, nil, n, &g.m[0], &g.l[0], 0.3, panelVecs)
		rows, pairs, step := numbers(s[:]), numbers(dp[:]), p.isa.rowLanes()
		for i := range n * maxLanes {
			row, lane := i/maxLanes, i%maxLanes
			at := row*step + lane
			if want := attn.ToBF16(weights[i]); rows[at] != want {
				t.Errorf("weight %d is %04x, want %04x", i, rows[at], want)
			}
			want, pair := attn.ToBF16(grads[i]), pairs[(row/2*maxLanes+lane)*2+row%2]
			if ds[at] != want || pair != want {
				t.Errorf("gradient %d is %04x by rows and %04x in pairs, want %04x", i, ds[at],
					pair, want)
			}
		}
		for i := range n * step {
			if i%step >= maxLanes && (rows[i] != 0 || ds[i] != 0) {
				t.Errorf("number %d of a row is %04x, %04x, want 0", i%step, rows[i], ds[i])
			}
		}
	})
}
