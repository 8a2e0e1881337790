package simd

import (
	"fmt"
	"math"
	"testing"

	"github.com/kvloom/kvloom/attn"
)

// The kernels of whole tiles, on arrays that end with what their comments name: panels with their
// last vector in use.

func TestGuardedScores(t *testing.T) {
	eachCall(t, guardedISAs, func(s *site, isa ISA, d, vecs int) {
		lanes := isa.lanes()
		for _, n := range []int{8, 9, 12, 15, 16, 17} {
			step := d + n%3
			k, qt := s.floats((n-1)*step+d), s.floats(panel(isa, d, vecs))
			dst := s.blank(panel(isa, n, vecs))
			isa.scores(&dst[0], &qt[0], &k[0], 4*step, n, d, vecs)
			s.want("scores", dst, func(i int) (sum float32, ok bool) {
				for c := 0; c < d && i%lanes < used(isa, vecs); c++ {
					sum += k[i/lanes*step+c] * qt[c*lanes+i%lanes]
				}
				return sum, i%lanes < used(isa, vecs)
			})
		}
	})
}

func TestGuardedWeigh(t *testing.T) {
	eachCall(t, guardedISAs, func(s *site, isa ISA, n, vecs int) {
		lanes := isa.lanes()
		for _, dims := range []int{8, 16, 40} {
			step := dims + n%3
			v, p := s.floats((n-1)*step+dims), s.floats(panel(isa, n, vecs))
			o, alpha := s.floats(panel(isa, dims, vecs)), s.floats(used(isa, vecs))
			was := append([]float32(nil), o...)
			isa.weigh(&o[0], &p[0], &v[0], 4*step, n, dims, &alpha[0], vecs)
			s.want("weigh", o, func(i int) (sum float32, ok bool) {
				dim, lane := i/lanes, i%lanes
				if lane >= used(isa, vecs) {
					return was[i], true
				}
				for c := range n {
					sum += v[c*step+dim] * p[c*lanes+lane]
				}
				return sum + alpha[lane]*was[i], true
			})
		}
	})
}

func TestGuardedOuter(t *testing.T) {
	eachCall(t, guardedISAs, func(s *site, isa ISA, n, vecs int) {
		lanes, vec := isa.lanes(), isa.lanes()/panelVecs
		rows := ceilDiv(n, zeroRows) * zeroRows
		for _, width := range []int{vec, 2 * vec, 3 * vec, 4 * vec, 5 * vec, 7 * vec} {
			fours := 1 + (n+width)%(lanes/4)
			a, b := s.floats((rows-1)*lanes+4*fours), s.floats(4*fours*width)
			clear(a[min(len(a), n*lanes):])
			c := s.floats(rows * width)
			was := append([]float32(nil), c...)
			isa.outer(&c[0], &a[0], &b[0], n, width, fours)
			s.want("outer", c, func(i int) (sum float32, ok bool) {
				for x := range 4 * fours {
					sum += a[i/width*lanes+x] * b[x*width+i%width]
				}
				return sum + was[i], true
			})
		}
	})
}

// maskFor makes words for n keys, of which all lanes see the first; none where all are seen.
func (s *site) maskFor(n int, all bool) (words *uint64, sees func(key, lane int) bool) {
	if all {
		return nil, func(int, int) bool { return true }
	}
	w := make([]uint64, n)
	for i := range w {
		w[i] = uint64(0x9e3779b97f4a7c15) * uint64(n*7+i+1)
	}
	w[0] = ^uint64(0)
	w = guarded(s.guards, w)
	return &w[0], func(key, lane int) bool { return w[key]>>lane&1 != 0 }
}

func near(x float32, want, relative float64) bool {
	return math.Abs(float64(x)-want) <= relative*math.Abs(want)+1e-30
}

func TestGuardedSoftmax(t *testing.T) {
	isas := []ISA{AVX2, AVX512, AVX512BF16}
	eachCall(t, isas, func(s *site, isa ISA, n, vecs int) {
		lanes, within := isa.lanes(), 1e-6
		if isa == AVX512BF16 {
			n, within = n+n%2, 5e-3 // pairs of keys, rounded
		}
		x, m, l := s.floats(n*lanes), s.floats(lanes), s.floats(lanes)
		was, m0, l0 := append([]float32(nil), x...), append([]float32(nil), m...),
			append([]float32(nil), l...)
		alpha, n0 := s.blank(lanes), n
		words, sees := s.maskFor(n, vecs == 2)
		if isa == AVX512BF16 {
			softmaxBF16(&x[0], words, n0, &m[0], &l[0], &alpha[0], vecs)
		} else {
			isa.softmax(&x[0], words, n0, &m[0], &l[0], &alpha[0], vecs)
		}
		for lane := range lanes * vecs / panelVecs {
			top, sum := float64(m0[lane]), 0.0
			for c := range n {
				if sees(c, lane) {
					top = max(top, float64(was[c*lanes+lane]))
				}
			}
			for c := range n {
				want, got := 0.0, float32(0)
				if sees(c, lane) {
					want = math.Exp(float64(was[c*lanes+lane]) - top)
				}
				if sum += want; isa == AVX512BF16 {
					got = numbers(x)[c/2*2*lanes+2*lane+c%2].Float32()
				} else {
					got = x[c*lanes+lane]
				}
				if !near(got, want, within) {
					s.t.Fatal(fmt.Sprintf("%d keys: weight of key %d, lane %d is %v, want %v", n,
						c, lane, got, want))
				}
			}
			fade := math.Exp(float64(m0[lane]) - top)
			if float64(m[lane]) != top || !near(alpha[lane], fade, 1e-6) ||
				math.Abs(float64(l[lane])-fade*float64(l0[lane])-sum) > 1e-5*float64(n+4) {
				s.t.Fatal(fmt.Sprintf("%d keys, lane %d: m %v, l %v, alpha %v, want %v, %v, %v", n,
					lane, m[lane], l[lane], alpha[lane], top, fade*float64(l0[lane])+sum, fade))
			}
		}
	})
}

func TestGuardedSlopes(t *testing.T) {
	isas := []ISA{AVX2, AVX512, AVX512BF16, AMX}
	eachCall(t, isas, func(s *site, isa ISA, n, vecs int) {
		const scale = 0.5
		lanes, within, row := isa.lanes(), 1e-6, isa.rowLanes()
		if isa.dots() {
			n, within = n+n%2, 5e-3
		}
		x, dp, lse, delta := s.floats(n*lanes), s.floats(n*lanes), s.floats(lanes), s.floats(lanes)
		scores, slopes := append([]float32(nil), x...), append([]float32(nil), dp...)
		ds := s.halves(n * row)
		words, sees := s.maskFor(n, vecs == 2)
		switch isa {
		case AVX512BF16:
			slopesBF16(&x[0], &dp[0], word(ds), words, n, &lse[0], &delta[0], scale, vecs)
		case AMX:
			slopesAMX(&x[0], &dp[0], word(ds), words, n, &lse[0], &delta[0], scale, vecs)
		default:
			isa.slopes(&x[0], &dp[0], words, n, &lse[0], &delta[0], scale, vecs)
		}
		for i := range n * lanes {
			c, lane := i/lanes, i%lanes
			if lane >= lanes*vecs/panelVecs {
				continue
			}
			p, d := math.Exp(float64(scores[i]-lse[lane])), float64(slopes[i]-delta[lane])*scale
			if d *= p; !sees(c, lane) {
				p, d = 0, 0
			}
			got := [3]float32{x[i], dp[i], dp[i]}
			if isa.dots() {
				pairs, at := numbers(dp), c*row+lane
				got = [3]float32{numbers(x)[at].Float32(), ds[at].Float32(),
					pairs[c/2*2*lanes+2*lane+c%2].Float32()}
			}
			if !near(got[0], p, within) || !near(got[1], d, within) || !near(got[2], d, within) {
				s.t.Fatal(fmt.Sprintf("%d keys: key %d, lane %d has %v, want %v, %v", n, c, lane,
					got, p, d))
			}
		}
	})
}

// TestGuardedDots has the products of pairs.
func TestGuardedDots(t *testing.T) {
	eachCall(t, []ISA{AVX512BF16}, func(s *site, isa ISA, n, vecs int) {
		in := used(isa, vecs)
		sum := func(a, b []attn.BF16) float32 {
			return a[0].Float32()*b[0].Float32() + a[1].Float32()*b[1].Float32()
		}
		keys, step := 8+n%10, 2*n+n%3
		k, qt := s.halves((keys-1)*step+2*n), s.pairsOf(panel(isa, n, vecs))
		dst := s.blank(panel(isa, keys, vecs))
		scoresBF16(&dst[0], &qt[0], word(k), 2*step, keys, n, vecs, 2)
		s.want("scores", dst, func(i int) (x float32, ok bool) {
			lane := i % maxLanes
			for c := 0; c < n && lane < in; c++ {
				x += 2 * sum(k[i/maxLanes*step+2*c:], numbers(qt)[2*(c*maxLanes+lane):])
			}
			return x, lane < in
		})

		dims := 8 + n%4*8
		p, v := s.pairsOf(panel(isa, n, vecs)), s.pairsOf(dims*n)
		o, alpha := s.floats(panel(isa, dims, vecs)), s.floats(in)
		was := append([]float32(nil), o...)
		weighBF16(&o[0], &p[0], &v[0], n*pairBytes, n, dims, &alpha[0], vecs)
		s.want("weigh", o, func(i int) (x float32, ok bool) {
			dim, lane := i/maxLanes, i%maxLanes
			if lane >= in {
				return was[i], true
			}
			for c := range n {
				at := (dim/dimPairs*n+c)*dimPairs + dim%dimPairs
				x += sum(numbers(v)[2*at:], numbers(p)[2*(c*maxLanes+lane):])
			}
			return x + alpha[lane]*was[i], true
		})

		rows, width, fours := ceilDiv(n, zeroRows)*zeroRows, 16*(1+n%7), 1+n%6
		a, b := s.halves((rows-1)*maxLanes+8*fours), s.pairsOf(4*fours*width)
		clear(a[min(len(a), n*maxLanes):])
		c := s.floats(rows * width)
		was = append([]float32(nil), c...)
		outerBF16(&c[0], word(a), &b[0], n, width, fours)
		s.want("outer", c, func(i int) (x float32, ok bool) {
			for y := range 4 * fours {
				x += sum(a[i/width*maxLanes+2*y:], numbers(b)[2*(y*width+i%width):])
			}
			return x + was[i], true
		})
	})
}

// TestGuardedTiles has the products of tiles.
func TestGuardedTiles(t *testing.T) {
	eachCall(t, []ISA{AMX}, func(s *site, isa ISA, n, vecs int) {
		if n > 10 {
			return
		}
		in, steps := used(isa, vecs), 1+n%3
		sum := func(a, b []attn.BF16) float32 {
			return a[0].Float32()*b[0].Float32() + a[1].Float32()*b[1].Float32()
		}
		keys, width := amxRows*(1+n%6), steps*stepDims
		step := width + n
		k, qt := s.halves((keys-1)*step+width), s.pairsOf(panel(isa, width/2, vecs))
		dst := s.blank(panel(isa, keys, vecs))
		scoresAMX(&dst[0], &qt[0], word(k), 2*step, keys, steps, vecs, 2)
		s.want("scores", dst, func(i int) (x float32, ok bool) {
			lane := i % maxLanes
			for c := 0; c < width/2 && lane < in; c++ {
				x += 2 * sum(k[i/maxLanes*step+2*c:], numbers(qt)[2*(c*maxLanes+lane):])
			}
			return x, lane < in
		})

		dims, pairs := amxRows*(1+n%5), amxRows*steps
		p, v := s.pairsOf(panel(isa, pairs, vecs)), s.pairsOf((dims-1)*tilePairs+pairs)
		o, alpha := s.floats(panel(isa, dims, vecs)), s.floats(in)
		if n%2 == 0 {
			fill(alpha, 1)
		}
		was := append([]float32(nil), o...)
		weighAMX(&o[0], &p[0], &v[0], steps, dims, &alpha[0], vecs)
		s.want("weigh", o, func(i int) (x float32, ok bool) {
			dim, lane := i/maxLanes, i%maxLanes
			if lane >= in {
				return was[i], true
			}
			for c := range pairs {
				x += sum(numbers(v)[2*(dim*tilePairs+c):], numbers(p)[2*(c*maxLanes+lane):])
			}
			return x + alpha[lane]*was[i], true
		})

		columns, steps := amxRows*(1+n%4), vecs-1
		a, b := s.halves((keys-1)*wideRow+steps*stepDims), s.pairsOf(steps*amxRows*columns)
		c := s.floats(keys * columns)
		was = append([]float32(nil), c...)
		outerAMX(&c[0], word(a), &b[0], keys, columns, steps)
		s.want("outer", c, func(i int) (x float32, ok bool) {
			for y := range steps * amxRows {
				x += sum(a[i/columns*wideRow+2*y:], numbers(b)[2*(y*columns+i%columns):])
			}
			return x + was[i], true
		})
	})
}

// pairsOf is n pairs of bf16 numbers, each in the place of a float.
func (s *site) pairsOf(n int) []float32 {
	a := s.blank(n)
	attn.Narrow(numbers(a), s.floats(2*n))
	return a
}
