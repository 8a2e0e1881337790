package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// curve is what a soft cap needs.
type curve struct {
	steep, rest reg.VecVirtual // their sum is 2 log2(e) / cap
	top, times  reg.VecVirtual // cap, and what quotients are to be multiplied by
	vanish, two reg.VecVirtual
	poly        []operand.Op
}

// newCurve loads the numbers at by, and the constants; halved says that quotients will be twice as
// large.
func (g *gen) newCurve(by reg.GPVirtual, halved bool) *curve {
	number := func(i int) reg.VecVirtual {
		v := g.vec()
		g.VBROADCASTSS(at(by, 4*i), v)
		return v
	}
	c := &curve{
		steep: number(0), rest: number(1), top: number(2), vanish: g.constant("vanish"),
		two: g.constant("two"),
	}
	if c.times = c.top; halved {
		c.times = number(3)
	}
	for i := range len(expNarrow) - 1 {
		var p operand.Op = g.consts[nearTerm(i)]
		if g.wide() {
			p = g.constant(nearTerm(i))
		}
		c.poly = append(c.poly, p)
	}
	return c
}

// falls gives, of each s, its size -|s|, the power y = -2|s|/cap log2(e), not below -127, and a and g
// with 2^y = a (1 + g): a is a power of 2, 0 for 2^-127, and g has all digits of 2^f - 1 for what
// is left of y, f in [-1/2,1/2].
func (g *gen) falls(c *curve, s []reg.VecVirtual) (size, y, a, rest []reg.VecVirtual) {
	size, y = g.vecs(len(s)), g.vecs(len(s))
	a, rest = g.vecs(len(s)), g.vecs(len(s))
	for i := range s {
		g.VORPS(g.consts["sign"], s[i], size[i])
		g.VMULPS(c.rest, size[i], y[i])
		g.VFMADD231PS(c.steep, size[i], y[i])
		g.VMAXPS(y[i], c.vanish, y[i]) // of a NaN and a number, the first operand here
	}
	f := g.vecs(len(s))
	for i := range s {
		g.VADDPS(g.consts["shifter"], y[i], a[i])
		g.VSUBPS(g.consts["shifter"], a[i], f[i])
		g.VSUBPS(f[i], y[i], f[i])
		g.VPSLLD(operand.U8(23), a[i], a[i])
		g.VMOVAPS(c.poly[0], rest[i])
	}
	for _, p := range c.poly[1:] {
		for i := range s {
			g.VFMADD213PS(p, f[i], rest[i])
		}
	}
	for i := range s {
		g.VMULPS(f[i], rest[i], rest[i])
	}
	return size, y, a, rest
}

// quotient gives, of powers y and 2^y = u = a (1 + g), u itself, what is to be divided by 1 + u, and
// 1 + u and a base: with the quotient q
//
//	tanh(|s|/cap) = base/cap - q    q = 2u / (1 + u), base = cap    where tanh is 1/2 or more
//	                                q = (u - 1) / (1 + u), base = 0 elsewhere
//
// Rounding errors of the first are small beside the cap; the second has all digits near 0, as u - 1
// is a - 1, which is 0 there, and a g.
func (g *gen) quotient(c *curve, y, a, rest reg.VecVirtual) (u, over, under, base reg.VecVirtual) {
	u, over, under, base = rest, g.vec(), g.vec(), g.vec()
	g.VSUBPS(g.consts["unit"], a, over)
	g.VFMADD231PS(rest, a, over)
	g.VFMADD213PS(a, a, u)
	g.VADDPS(c.two, over, under)
	high := g.smaller(y, g.consts["middle"])
	if g.wide() {
		g.VADDPS(u, u, high, over)
		g.VMOVAPS_Z(c.top, high, base)
		return u, over, under, base
	}
	double := g.vec()
	g.VADDPS(u, u, double)
	g.VBLENDVPS(high, double, over, over)
	g.VANDPS(c.top, high, base)
	return u, over, under, base
}

// finish gives s' = cap tanh(s/cap) in the place of s, of its size -|s|, the quotient q and its base.
// Near 0 it is s and three terms of powers of y, so s itself for the least numbers, whose y has no
// digits, and for zeros of both signs. NaN stays.
func (g *gen) finish(c *curve, q, base, s, size, y reg.VecVirtual) {
	bent := g.smaller(y, g.consts["straight"])
	g.VMULPS(y, y, y)
	w := g.vec()
	g.VMOVUPS(g.consts["seventh"], w)
	g.VFMADD213PS(g.consts["fifth"], y, w)
	g.VFMADD213PS(g.consts["third"], y, w)
	g.VMULPS(y, w, w)
	g.VFNMSUB213PS(size, size, w)
	g.VFNMADD231PS(c.times, q, base)
	if g.wide() {
		const xorAnd = 0x78 // the first xor the second and the third
		g.VMOVAPS(base, bent, w)
		g.VPTERNLOGD(operand.U8(xorAnd), g.consts["sign"], s, w)
		g.VMOVAPS(w, s)
		return
	}
	g.VBLENDVPS(bent, base, w, w)
	g.VANDPS(g.consts["sign"], s, s)
	g.VXORPS(w, s, s)
}

// smaller is the lanes in which x is less than the constant at m.
func (g *gen) smaller(x reg.VecVirtual, m operand.Mem) reg.Register {
	var mask reg.Register = g.vec()
	if g.wide() {
		mask = g.K()
	}
	g.VCMPPS(operand.U8(less), m, x, mask)
	return mask
}

// cap generates the soft cap of forward.
func (g *gen) cap() {
	g.begin("cap", "func(s *float32, n int, curve *float32)",
		"turns scores s [n, lanes] into cap tanh(s/cap), in place; curve is the numbers of",
		"the cap. NaN stays, an infinity becomes the cap. n is at least 1.")
	s, n := g.arg("s"), g.arg("n")
	c := g.newCurve(g.arg("curve"), false)
	g.panelRows(n, func(i, per int) {
		x := g.loadSome(s, i, per)
		size, y, a, rest := g.falls(c, x)
		for j := range x {
			_, over, under, base := g.quotient(c, y[j], a[j], rest[j])
			g.VDIVPS(under, over, over)
			g.finish(c, over, base, x[j], size[j], y[j])
			g.VMOVUPS(x[j], at(s, (i+j)*g.isa.vecBytes()))
		}
	}, s)
	g.end()
}

// bend generates the soft cap of backward.
func (g *gen) bend() {
	g.begin("bend", "func(s, dp *float32, n int, delta, curve *float32)",
		"is cap, and turns dp [n, lanes] into (dp - delta) (1 - tanh^2(s/cap)), in place, for",
		"slopes with a delta of 0. n is at least 1.")
	s, dp, n, delta := g.arg("s"), g.arg("dp"), g.arg("n"), g.arg("delta")
	c := g.newCurve(g.arg("curve"), true)
	g.panelRows(n, func(i, per int) {
		x := g.loadSome(s, i, per)
		size, y, a, rest := g.falls(c, x)
		for j := range x {
			slope, over, under, base := g.quotient(c, y[j], a[j], rest[j])
			g.Comment("r = 2 / (1 + u): the slope is u r^2, the quotient's half is over r.")
			r, d := g.vec(), g.vec()
			g.VDIVPS(under, c.two, r)
			g.VMULPS(r, slope, slope)
			g.VMULPS(r, slope, slope)
			g.VMULPS(r, over, over)
			g.finish(c, over, base, x[j], size[j], y[j])
			g.VMOVUPS(x[j], at(s, (i+j)*g.isa.vecBytes()))
			g.VMOVUPS(at(dp, (i+j)*g.isa.vecBytes()), d)
			g.VSUBPS(at(delta, (i+j)*g.isa.vecBytes()), d, d)
			g.VMULPS(slope, d, d)
			g.VMOVUPS(d, at(dp, (i+j)*g.isa.vecBytes()))
		}
	}, s, dp)
	g.end()
}

// panelRows runs body over n rows of panels that begin at the pointers, a vector at a time or all
// of a row's where the registers suffice: the vectors from i on, per of them. n is used up.
func (g *gen) panelRows(n reg.GPVirtual, body func(i, per int), pointers ...reg.GPVirtual) {
	per := 1
	if g.wide() {
		per = panelVecs
	}
	g.loop(n, func() {
		for i := 0; i < panelVecs; i += per {
			body(i, per)
		}
		for _, p := range pointers {
			g.ADDQ(operand.I32(g.isa.rowBytes()), p)
		}
	})
}

// loadSome loads the vectors from i on, per of them, of a row of a panel.
func (g *gen) loadSome(base reg.GPVirtual, i, per int) []reg.VecVirtual {
	return g.loadPanel(base, i*g.isa.vecBytes(), per)
}
