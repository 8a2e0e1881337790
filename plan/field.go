package plan

import (
	"math/bits"

	"github.com/kvloom/kvloom/mesh"
)

// fieldP is the Mersenne prime 2^61-1. Residues are uint64 below fieldP; reduction needs no
// division since 2^61 = 1.
const fieldP = 1<<61 - 1

// fieldSeed is the first 64 bits of the fraction of pi, the constant part of every seed.
const fieldSeed = 0x243f6a8885a308d3

func fadd(a, b uint64) uint64 {
	c := a + b
	if c >= fieldP {
		c -= fieldP
	}
	return c
}

func fsub(a, b uint64) uint64 { return fadd(a, fieldP-b) }

// fmul needs a, b < fieldP: the two 61-bit halves of the product then add up to at most 2p-3.
func fmul(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return fadd(lo&fieldP, lo>>61|hi<<3)
}

func fpow(a, e uint64) uint64 {
	r := uint64(1)
	for ; e > 0; e >>= 1 {
		if e&1 == 1 {
			r = fmul(r, a)
		}
		a = fmul(a, a)
	}
	return r
}

// finv is 1/a by Fermat, and 0 for 0.
func finv(a uint64) uint64 { return fpow(a, fieldP-2) }

// mix64 is the finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection without structure.
func mix64(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// absorb folds a word into a running hash; the order of words matters.
func absorb(h, w uint64) uint64 { return mix64(h*0x9e3779b97f4a7c15 + w) }

// powBits is the radix of the power tables: 3 digits reach any exponent of a sequence.
const powBits = 11

// powers gives base^t in at most two multiplications, from tables of base^i, base^(2048 i) and
// base^(2048^2 i).
type powers struct{ low, mid, high []uint64 }

// newPowers serves exponents 0 to most.
func newPowers(base uint64, most int) powers {
	table := func(base uint64, n int) []uint64 {
		t := make([]uint64, n)
		t[0] = 1
		for i := 1; i < n; i++ {
			t[i] = fmul(t[i-1], base)
		}
		return t
	}
	size := func(shift int) int { return min(most>>shift, 1<<powBits-1) + 1 }
	return powers{
		low:  table(base, size(0)),
		mid:  table(fpow(base, 1<<powBits), size(powBits)),
		high: table(fpow(base, 1<<(2*powBits)), most>>(2*powBits)+1),
	}
}

func (p *powers) at(t int) uint64 {
	const mask = 1<<powBits - 1
	r := p.low[t&mask]
	if t > mask {
		r = fmul(r, p.mid[t>>powBits&mask])
		if t >= 1<<(2*powBits) {
			r = fmul(r, p.high[t>>(2*powBits)])
		}
	}
	return r
}

// field holds the points of the sums: a query token q counts x^q, a key token k counts y^k, a head
// h counts z^h. Sums over runs of tokens are geometric series.
type field struct {
	x, y    powers
	z       []uint64 // z[h] is the sum of z^i over i < h
	strides []stride
	tileSum tileSum // scratch of tile
}

// stride holds what series of one stride s need: x^s, y^s and 1/(x^s-1), 1/(y^s-1), 1/((xy)^s-1).
type stride struct {
	s                int
	x, y, xy         uint64
	invX, invY, invZ uint64
}

// maxStrides bounds the strides remembered; beyond it they are computed anew each time.
const maxStrides = 64

// newField draws the points from a seed. The seed is a hash of the plan's header: all ranks of a
// plan draw the same points, no plan can be made to suit points that are not known before it, and
// an error that one plan's points miss (chance below 2^-30) another plan's points do not.
// tokens is the largest exponent, heads the number of heads.
func newField(seed uint64, tokens, heads int) *field {
	draw := func() uint64 {
		for {
			seed += 0x9e3779b97f4a7c15
			if r := mix64(seed^fieldSeed) >> 3; r >= 2 && r < fieldP {
				return r
			}
		}
	}
	x, y, z := draw(), draw(), draw()
	// A series ends one stride beyond its last token, so exponents reach twice the longest run.
	f := &field{x: newPowers(x, 2*tokens+2), y: newPowers(y, 2*tokens+2)}
	f.z = make([]uint64, heads+1)
	p := uint64(1)
	for h := range heads {
		f.z[h+1] = fadd(f.z[h], p)
		p = fmul(p, z)
	}
	return f
}

// heads is the sum of z^h over a run of heads.
func (f *field) heads(h mesh.Heads) uint64 { return fsub(f.z[h.Hi], f.z[h.Lo]) }

// stride is the entry for stride s.
func (f *field) stride(s int) stride {
	for i := range f.strides {
		if f.strides[i].s == s {
			return f.strides[i]
		}
	}
	st := stride{s: s, x: f.x.at(s), y: f.y.at(s)}
	st.xy = fmul(st.x, st.y)
	st.invX, st.invY = finv(fsub(st.x, 1)), finv(fsub(st.y, 1))
	st.invZ = finv(fsub(st.xy, 1))
	if len(f.strides) < maxStrides {
		f.strides = append(f.strides, st)
	}
	return st
}

// series is 1 + r + ... + r^(n-1), given r^n and 1/(r-1).
func series(r, rn, inv uint64, n int) uint64 {
	if r == 1 {
		return uint64(n) % fieldP
	}
	return fmul(fsub(rn, 1), inv)
}

// sumX is the sum of x^q over the tokens q of a span.
func (f *field) sumX(p mesh.Span) uint64 {
	if p.Count < 1 {
		return 0
	}
	if p.Count == 1 {
		return f.x.at(p.Start)
	}
	st := f.stride(p.Stride)
	return fmul(f.x.at(p.Start), series(st.x, f.x.at(p.Stride*p.Count), st.invX, p.Count))
}

// sumY is the sum of y^k over the tokens k of a span.
func (f *field) sumY(p mesh.Span) uint64 {
	if p.Count < 1 {
		return 0
	}
	if p.Count == 1 {
		return f.y.at(p.Start)
	}
	st := f.stride(p.Stride)
	return fmul(f.y.at(p.Start), series(st.y, f.y.at(p.Stride*p.Count), st.invY, p.Count))
}

// band is the sum of x^q y^k over the pairs of q in a, k in b with lo <= k-q <= hi: a closed form
// where the strides agree, else a loop over the shorter span.
func (f *field) band(a, b mesh.Span, lo, hi int) uint64 {
	if a.Count < 1 || b.Count < 1 || lo > hi {
		return 0
	}
	most, least := b.Last()-a.Start, b.Start-a.Last()
	switch {
	case most < lo || least > hi:
		return 0
	case lo <= least && most <= hi:
		return fmul(f.sumX(a), f.sumY(b))
	}
	// A single token has any stride: take the other's.
	if a.Count == 1 {
		a.Stride = b.Stride
	} else if b.Count == 1 {
		b.Stride = a.Stride
	}
	st := f.stride(a.Stride)
	if a.Stride != b.Stride || st.y == 1 {
		return f.bandByRow(a, b, lo, hi)
	}
	return fsub(f.below(a, b, st, hi), f.below(a, b, st, lo-1))
}

// bandByRow is band with a loop over the shorter span.
func (f *field) bandByRow(a, b mesh.Span, lo, hi int) uint64 {
	sum := uint64(0)
	if a.Count <= b.Count {
		for i := range a.Count {
			q := a.At(i)
			row := f.sumY(spanClip(b, q+lo, q+hi+1))
			sum = fadd(sum, fmul(f.x.at(q), row))
		}
		return sum
	}
	for j := range b.Count {
		k := b.At(j)
		col := f.sumX(spanClip(a, k-hi, k-lo+1))
		sum = fadd(sum, fmul(f.y.at(k), col))
	}
	return sum
}

// below is the sum of x^q y^k over q in a, k in b with k <= q+c, both of one stride s. Row i of a
// (n rows) sees the first min(i+d+1, m) of b's m keys, d = floor((a0+c-b0)/s):
//
//	rows  0 ... i0  ...        i1 ... n     i0 = -d, i1 = m-d-1, kept in [0,n]
//	      none   one more each    all m
//
// and the middle is y^b0 x^(a0+s*i0) / (y^s-1) times the sum over i < i1-i0 of
// x^(s*i) (y^(s*(i0+d+1)) y^(s*i) - 1).
func (f *field) below(a, b mesh.Span, st stride, c int) uint64 {
	n, m, s := a.Count, b.Count, a.Stride
	d := divFloor(a.Start+c-b.Start, s)
	i0 := min(max(-d, 0), n)
	i1 := min(max(m-d-1, i0), n)
	sum := uint64(0)
	if i1 < n {
		rest := mesh.Span{Start: a.At(i1), Stride: s, Count: n - i1}
		sum = fmul(f.sumX(rest), f.sumY(b))
	}
	if i0 == i1 {
		return sum
	}
	l := i1 - i0
	xl, yl := f.x.at(s*l), f.y.at(s*l)
	both := series(st.xy, fmul(xl, yl), st.invZ, l)
	t := fsub(fmul(f.y.at(s*(i0+d+1)), both), series(st.x, xl, st.invX, l))
	first := fmul(f.x.at(a.At(i0)), f.y.at(b.Start))
	return fadd(sum, fmul(fmul(first, t), st.invY))
}

// spanClip is the part of p inside [lo,hi); its Count is 0 when there is none.
func spanClip(p mesh.Span, lo, hi int) mesh.Span {
	a := max(divFloor(lo-p.Start+p.Stride-1, p.Stride), 0)
	b := min(divFloor(hi-p.Start+p.Stride-1, p.Stride), p.Count)
	if a >= b {
		return mesh.Span{Start: p.Start, Stride: p.Stride}
	}
	return mesh.Span{Start: p.At(a), Stride: p.Stride, Count: b - a}
}

// divFloor is x/y rounded down, y > 0.
func divFloor(x, y int) int {
	q := x / y
	if x%y < 0 {
		q--
	}
	return q
}
