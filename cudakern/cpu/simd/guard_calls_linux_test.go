package simd

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/kvloom/kvloom/attn"
)

// site makes the arrays of one call of a kernel: between guards, of small whole numbers whose sums
// are exact in any order.
type site struct {
	*guards
	seed uint32
}

// one is the next number, from -4 to 4.
func (s *site) one() float32 {
	s.seed = s.seed*1664525 + 1013904223
	return float32(s.seed>>16%9) - 4
}

func (s *site) floats(n int) []float32 {
	a := make([]float32, n)
	for i := range a {
		a[i] = s.one()
	}
	return guarded(s.guards, a)
}

func (s *site) halves(n int) []attn.BF16 { return guarded(s.guards, narrowed(s.floats(n))) }

// blank is an array to be written, full of canaries.
func (s *site) blank(n int) []float32 {
	a := make([]float32, n)
	fill(a, canary)
	return guarded(s.guards, a)
}

// picks is the rows 0 to n-1 in another order, the last one at another place than the end.
func (s *site) picks(n int) []int {
	a := make([]int, n)
	for i := range a {
		a[i] = (i*5 + 3) % n
		if n%5 == 0 {
			a[i] = n - 1 - i
		}
	}
	return guarded(s.guards, a)
}

// want compares an array with what f says of its elements, where ok; the others must be canaries.
func (s *site) want(name string, got []float32, f func(i int) (x float32, ok bool)) {
	for i, x := range got {
		w, ok := f(i)
		if !ok {
			w = canary
		}
		if math.Float32bits(x) != math.Float32bits(w) && !(ok && x == w) {
			s.t.Fatal(fmt.Sprintf("%s: element %d of %d is %v, want %v", name, i, len(got), x, w))
		}
	}
}

// panel is the length of a panel of rows rows, of which vecs vectors are in use.
func panel(isa ISA, rows, vecs int) int { return (rows-1)*isa.lanes() + used(isa, vecs) }

// used is the lanes of vecs vectors.
func used(isa ISA, vecs int) int { return vecs * isa.lanes() / panelVecs }

// eachCall runs test for all remainders of n, and panels of 2 and of 3 vectors.
func eachCall(t *testing.T, isas []ISA, test func(s *site, isa ISA, n, vecs int)) {
	for _, isa := range isas {
		t.Run(isa.String(), func(t *testing.T) {
			if err := runs(isa); err != nil || inside() && isa != AMX {
				t.Skip(err)
			}
			for n := 1; n <= 70; n++ {
				for vecs := 2; vecs <= panelVecs; vecs++ {
					eachSide(t, func(g *guards) { test(&site{g, uint32(n)}, isa, n, vecs) })
				}
			}
		})
	}
}

var guardedISAs = []ISA{AVX2, AVX512}

// TestGuardedPack has rows that lie gap floats apart, and a panel that ends with a vector of its
// rows.
func TestGuardedPack(t *testing.T) {
	eachCall(t, guardedISAs, func(s *site, isa ISA, n, vecs int) {
		lanes, in, vec := isa.lanes(), used(isa, vecs), isa.lanes()/panelVecs
		for _, gap := range []int{0, 3} {
			step := n + gap
			src, items := s.floats((in-1)*step+n), s.picks(in)
			rows := ceilDiv(n, vec) * vec
			for _, scale := range []float32{1, 2} {
				dst := s.blank(panel(isa, rows, vecs))
				if scale == 1 {
					isa.pack(&dst[0], &src[0], &items[0], 4*step, n, vecs)
				} else {
					isa.packScaled(&dst[0], &src[0], &items[0], 4*step, n, vecs, scale, 0x1p-47)
				}
				s.want("pack", dst, func(i int) (float32, bool) {
					if i%lanes >= in || i/lanes >= n {
						return dst[i], i%lanes < in // what stands behind the width is free
					}
					return scale * src[items[i%lanes]*step+i/lanes], true
				})
			}
			from, back := s.floats(panel(isa, rows, vecs)), s.blank((in-1)*step+n)
			isa.unpack(&back[0], &from[0], &items[0], 4*step, n, vecs)
			s.want("unpack", back, func(i int) (float32, bool) {
				if i%step >= n {
					return 0, false
				}
				return from[i%step*lanes+slices.Index(items, i/step)], true
			})
		}
	})
}

// TestGuardedRows has the kernels that go along rows.
func TestGuardedRows(t *testing.T) {
	eachCall(t, guardedISAs, func(s *site, isa ISA, n, vecs int) {
		rows := 1 + n%4
		step := n + vecs - 2 // 0 or 1 apart
		size := (rows-1)*step + n

		src, dst := s.halves(size), s.blank(size)
		isa.widen(&dst[0], word(src), 4*step, 2*step, rows, n)
		s.want("widen", dst, func(i int) (float32, bool) {
			return src[i].Float32(), i%step < n
		})

		wide, half := s.floats(n), s.halves(n)
		Narrow(isa, half, wide)
		s.want("narrow", wide, func(i int) (float32, bool) { return half[i].Float32(), true })

		a, b, sums := s.floats(rows*n), s.floats(rows*n), s.blank(rows)
		isa.delta(&sums[0], &a[0], &b[0], rows, n)
		s.want("delta", sums, func(i int) (sum float32, ok bool) {
			for c := range n {
				sum += a[i*n+c] * b[i*n+c]
			}
			return sum, true
		})

		into := s.blank(n)
		isa.scale(&into[0], &a[0], n, 3)
		s.want("scale", into, func(i int) (float32, bool) { return 3 * a[i], true })
		isa.accumulate(&into[0], &b[0], n)
		s.want("accumulate", into, func(i int) (float32, bool) { return 3*a[i] + b[i], true })

		items := s.picks(rows)
		touch(isa, a, items, n, n)
		touch(isa, src, items, step, n)
	})
}

// TestGuardedFinite puts a NaN or an infinity to each end of a row, and between rows, where nobody
// looks.
func TestGuardedFinite(t *testing.T) {
	eachCall(t, guardedISAs, func(s *site, isa ISA, n, vecs int) {
		rows, step := 1+n%3, n+1
		a := s.floats((rows-1)*step + n)
		for r := 1; r < rows; r++ {
			a[r*step-1] = float32(math.NaN())
		}
		if !isa.finite(&a[0], 4*step, rows, n) {
			s.t.Fatal(fmt.Sprintf("%d rows of %d numbers are taken for more", rows, n))
		}
		for _, at := range []int{0, n - 1, (rows - 1) * step, len(a) - 1} {
			keep := a[at]
			for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
				a[at] = float32(x)
				if isa.finite(&a[0], 4*step, rows, n) {
					s.t.Fatal(fmt.Sprintf("%v at %d of %d rows of %d is not seen", x, at, rows, n))
				}
			}
			a[at] = math.MaxFloat32
			if !isa.finite(&a[0], 4*step, rows, n) {
				s.t.Fatal("the largest number is taken for an infinity")
			}
			a[at] = keep
		}
	})
}

// TestGuardedPairs has any number of rows and widths, with pairs side by side and in blocks.
func TestGuardedPairs(t *testing.T) {
	eachCall(t, []ISA{AVX512BF16}, func(s *site, isa ISA, n, vecs int) {
		for _, rows := range []int{1, 2, 3, 8, 9} {
			step, pad, pairs := n+vecs-2, padded(n), (rows+1)/2
			src, items := s.halves((rows-1)*step+n), s.picks(rows)
			for _, blocks := range []bool{true, false} {
				dst := s.blank(pairs * pad)
				row, apart := 4*pad, pairBytes
				if blocks {
					row, apart = pairBytes, pairs*pairBytes
				}
				if !pairBF16(&dst[0], word(src), &items[0], 2*step, rows, n, row, apart) {
					s.t.Fatal("whole numbers are not finite")
				}
				got := numbers(dst)
				for i := range pairs * pad {
					pair, c := i/pad, i%pad
					at := 2 * (pair*row/4 + c/dimPairs*apart/4 + c%dimPairs)
					for odd := range 2 {
						want := attn.BF16(0)
						if x := 2*pair + odd; x < rows && c < n {
							want = src[items[x]*step+c]
						}
						if got[at+odd] != want {
							s.t.Fatal(fmt.Sprintf("%d rows of %d: number %d of pair %d, column "+
								"%d, is %v, want %v", rows, n, odd, pair, c, got[at+odd], want))
						}
					}
				}
				last := len(src) - 1
				keep := src[last]
				src[last] = attn.ToBF16(float32(math.Inf(-1)))
				if pairBF16(&dst[0], word(src), &items[0], 2*step, rows, n, row, apart) {
					s.t.Fatal(fmt.Sprintf("%d rows of %d: an infinity at the end is not seen",
						rows, n))
				}
				src[last] = keep
			}
		}
	})
}
