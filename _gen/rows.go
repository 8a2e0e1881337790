package main

import (
	"math/bits"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// strip runs body over n floats by vectors, the last time with a mask if n is no multiple; body
// gets the byte offset. n is used up.
func (g *gen) strip(n reg.GPVirtual, body func(off reg.GPVirtual, mask reg.Register)) {
	off := g.GP64()
	whole, part, done := g.label("whole"), g.label("part"), g.label("done")
	g.XORQ(off, off)
	g.Label(whole)
	g.CMPQ(n, operand.I32(g.isa.width))
	g.JLT(operand.LabelRef(part))
	body(off, nil)
	g.ADDQ(operand.I32(g.isa.vecBytes()), off)
	g.SUBQ(operand.I32(g.isa.width), n)
	g.JMP(operand.LabelRef(whole))
	g.Label(part)
	g.TESTQ(n, n)
	g.JZ(operand.LabelRef(done))
	body(off, g.tail(n))
	g.Label(done)
}

// by is base plus an offset.
func by(base, off reg.GPVirtual) operand.Mem {
	return operand.Mem{Base: base, Index: off, Scale: 1}
}

// widen generates bf16 to f32, by vectors with a tail of single numbers.
func (g *gen) widen() {
	g.begin("widen", "func(dst *float32, src *uint16, to, from, rows, n int)",
		"sets rows rows of n floats dst, to bytes apart, to the bf16 numbers of src, whose",
		"rows are from bytes apart. rows is at least 1.")
	dst, src, rows := g.arg("dst"), g.arg("src"), g.arg("rows")
	to, from, n := g.arg("to"), g.arg("from"), g.arg("n")
	g.loop(rows, func() {
		d, s, left := g.GP64(), g.GP64(), g.GP64()
		g.MOVQ(dst, d)
		g.MOVQ(src, s)
		g.MOVQ(n, left)
		g.each(left, g.isa.width, func(steps int) {
			if steps == 1 {
				x := g.GP32()
				g.MOVWLZX(at(s, 0), x)
				g.SHLL(operand.U8(16), x)
				g.MOVL(x, at(d, 0))
			} else {
				x := g.vec()
				g.VPMOVZXWD(at(s, 0), x)
				g.VPSLLD(operand.U8(16), x, x)
				g.VMOVUPS(x, at(d, 0))
			}
			g.ADDQ(operand.I32(2*steps), s)
			g.ADDQ(operand.I32(4*steps), d)
		})
		g.ADDQ(to, dst)
		g.ADDQ(from, src)
	})
	g.end()
}

// narrow generates f32 to bf16, to the nearest and of two to the even one, as integers: half a unit
// of the last place, less one where that is even, carries over by itself. NaN stays NaN.
func (g *gen) narrow() {
	g.begin("narrow", "func(dst *uint16, src *float32, n int)",
		"sets n bf16 numbers dst to src, rounded to the nearest. n is a multiple of a vector.")
	dst, src, n := g.arg("dst"), g.arg("src"), g.arg("n")
	half, one, quiet := g.constant("half"), g.constant("one"), g.constant("quiet")
	done := g.label("done")
	g.SHRQ(operand.U8(bits.TrailingZeros(uint(g.isa.width))), n)
	g.JZ(operand.LabelRef(done))
	g.loop(n, func() {
		x, r, nan := g.vec(), g.vec(), g.vec()
		g.VMOVUPS(at(src, 0), x)
		g.VPSRLD(operand.U8(16), x, r)
		if g.wide() {
			g.VPORD(quiet, r, nan)
			g.VPANDD(one, r, r)
		} else {
			g.VPOR(quiet, r, nan)
			g.VPAND(one, r, r)
		}
		g.VPADDD(half, r, r)
		g.VPADDD(x, r, r)
		g.VPSRLD(operand.U8(16), r, r)
		if g.wide() {
			k := g.K()
			g.VCMPPS(operand.U8(unordered), x, x, k)
			g.VMOVDQA32(nan, k, r)
			g.VPMOVDW(r, at(dst, 0))
		} else {
			m := g.vec()
			g.VCMPPS(operand.U8(unordered), x, x, m)
			g.VBLENDVPS(m, nan, r, r)
			g.VPACKUSDW(r, r, r)
			g.VPERMQ(operand.U8(0b1000), r, r)
			g.VMOVDQU(r.AsX(), at(dst, 0))
		}
		g.ADDQ(operand.I32(g.isa.vecBytes()), src)
		g.ADDQ(operand.I32(g.isa.vecBytes()/2), dst)
	})
	g.Label(done)
	g.end()
}

// finite generates the search for NaN and infinities.
func (g *gen) finite() {
	g.begin("finite", "func(p *float32, stride, rows, width int) bool",
		"reports whether all of rows rows of width floats, stride bytes apart, are finite.",
		"rows is at least 1.")
	p, stride, rows, width := g.arg("p"), g.arg("stride"), g.arg("rows"), g.arg("width")
	sum := g.zeros(1)[0]
	g.loop(rows, func() {
		n := g.GP64()
		g.MOVQ(width, n)
		g.strip(n, func(off reg.GPVirtual, mask reg.Register) {
			x := g.vec()
			g.loadTail(by(p, off), mask, x)
			g.VSUBPS(x, x, x)
			g.VADDPS(x, sum, sum)
		})
		g.ADDQ(stride, p)
	})
	zero, bits := g.zeros(1)[0], g.GP32()
	m := g.differs(sum, zero)
	if g.wide() {
		g.KMOVW(m, bits)
	} else {
		g.VMOVMSKPS(m, bits)
	}
	ok := g.GP8()
	g.TESTL(bits, bits)
	g.SETEQ(ok)
	g.Store(ok, g.ReturnIndex(0))
	g.end()
}

// halves is x as two vectors of float64.
func (g *gen) halves(x reg.VecVirtual) (lo, hi reg.VecVirtual) {
	lo, hi = g.vec(), g.vec()
	if g.wide() {
		y := g.YMM()
		g.VEXTRACTF64X4(operand.U8(1), x, y)
		g.VCVTPS2PD(x.AsY(), lo)
		g.VCVTPS2PD(y, hi)
		return lo, hi
	}
	h := g.XMM()
	g.VEXTRACTF128(operand.U8(1), x, h)
	g.VCVTPS2PD(x.AsX(), lo)
	g.VCVTPS2PD(h, hi)
	return lo, hi
}

// delta generates the row sums of a product.
func (g *gen) delta() {
	g.begin("delta", "func(dst, a, b *float32, n, width int)",
		"sets dst [n] to the row sums of a*b [n, width], summed in float64. n is at least 1.")
	dst, a, b := g.arg("dst"), g.arg("a"), g.arg("b")
	n, width := g.arg("n"), g.arg("width")
	g.loop(n, func() {
		sum := g.zeros(2)
		left := g.GP64()
		g.MOVQ(width, left)
		g.strip(left, func(off reg.GPVirtual, mask reg.Register) {
			x, y := g.vec(), g.vec()
			g.loadTail(by(a, off), mask, x)
			g.loadTail(by(b, off), mask, y)
			x0, x1 := g.halves(x)
			y0, y1 := g.halves(y)
			g.VFMADD231PD(x0, y0, sum[0])
			g.VFMADD231PD(x1, y1, sum[1])
		})
		g.VADDPD(sum[0], sum[1], sum[0])
		y := sum[0].AsY()
		if g.wide() {
			top := g.YMM()
			g.VEXTRACTF64X4(operand.U8(1), sum[0], top)
			low := g.YMM()
			g.VADDPD(top, y, low)
			y = low
		}
		high, s := g.XMM(), g.XMM()
		g.VEXTRACTF128(operand.U8(1), y, high)
		g.VADDPD(high, y.(reg.VecVirtual).AsX(), s)
		g.VHADDPD(s, s, s)
		g.VCVTSD2SS(s, s, s)
		g.VMOVSS(s, at(dst, 0))
		g.LEAQ(operand.Mem{Base: a, Index: width, Scale: 4}, a)
		g.LEAQ(operand.Mem{Base: b, Index: width, Scale: 4}, b)
		g.ADDQ(operand.I32(4), dst)
	})
	g.end()
}

// scale generates the end of a softmax for one row.
func (g *gen) scale() {
	g.begin("scale", "func(dst, src *float32, n int, by float64)",
		"sets n floats dst to src times a factor, rounded once. dst may be src.")
	dst, src, n := g.arg("dst"), g.arg("src"), g.arg("n")
	factor := g.double("by")
	g.strip(n, func(off reg.GPVirtual, mask reg.Register) {
		x := g.vec()
		g.loadTail(by(src, off), mask, x)
		g.scaled(x, factor)
		g.storeTail(x, mask, by(dst, off))
	})
	g.end()
}

// double is a vector of an argument of type float64.
func (g *gen) double(name string) reg.VecVirtual {
	v := g.vec()
	a, err := g.Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	g.VBROADCASTSD(a.Addr, v)
	return v
}

// single is a vector of an argument of type float32.
func (g *gen) single(name string) reg.VecVirtual {
	v := g.vec()
	a, err := g.Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	g.VBROADCASTSS(a.Addr, v)
	return v
}

// accumulate generates a sum of arrays.
func (g *gen) accumulate() {
	g.begin("accumulate", "func(dst, src *float32, n int)", "adds n floats src to dst.")
	dst, src, n := g.arg("dst"), g.arg("src"), g.arg("n")
	g.strip(n, func(off reg.GPVirtual, mask reg.Register) {
		x, y := g.vec(), g.vec()
		g.loadTail(by(src, off), mask, x)
		g.loadTail(by(dst, off), mask, y)
		g.VADDPS(x, y, y)
		g.storeTail(y, mask, by(dst, off))
	})
	g.end()
}
