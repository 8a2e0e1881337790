package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// powers is what exp needs: constants in registers where there are 32 of them, else in memory.
type powers struct {
	poly           []operand.Op
	log2e, shifter operand.Op
	least          reg.VecVirtual
	limit          bool // the argument may exceed 88
}

func (g *gen) newPowers(limit bool) *powers {
	p := &powers{least: g.constant("least"), limit: limit, shifter: g.consts["shifter"]}
	use := func(name string) operand.Op {
		if g.wide() {
			return g.constant(name)
		}
		return g.consts[name]
	}
	for i := range expWide {
		p.poly = append(p.poly, use(term(i)))
	}
	p.log2e = use("log2e")
	return p
}

// exp turns each x into e^x, 0 below 2^-126 (narrow vectors: below 2^-126.5); -Inf gives 0, NaN
// stays.
func (g *gen) exp(p *powers, x []reg.VecVirtual) {
	for _, v := range x {
		g.VMULPS(p.log2e, v, v)
	}
	if g.wide() {
		g.expWide(p, x)
		return
	}
	for _, v := range x {
		g.expNarrow(p, v)
	}
}

// expWide is 2^x by VREDUCEPS, a polynomial on [0,1) and VSCALEFPS.
func (g *gen) expWide(p *powers, x []reg.VecVirtual) {
	f, r := g.vecs(len(x)), g.vecs(len(x))
	for i := range x {
		g.VREDUCEPS(operand.U8(1), x[i], f[i])
		g.VMOVAPS(p.poly[0], r[i])
	}
	for _, c := range p.poly[1:] {
		for i := range x {
			g.VFMADD213PS(c, f[i], r[i])
		}
	}
	for i := range x {
		k := g.K()
		g.VCMPPS(operand.U8(notLess), p.least, x[i], k)
		g.VSCALEFPS_Z(x[i], r[i], k, x[i])
	}
}

// expNarrow is 2^x by rounding to an integer, a polynomial on [-1/2,1/2] and a power of 2 that is
// made from the integer's bits: 0 from its least argument down.
func (g *gen) expNarrow(p *powers, x reg.VecVirtual) {
	n, f := g.vec(), g.vec()
	g.VMAXPS(x, p.least, x) // of a NaN and a number, the first operand here
	if p.limit {
		most := g.constant("most")
		g.VMINPS(x, most, x)
	}
	g.VADDPS(p.shifter, x, n)
	g.VSUBPS(p.shifter, n, f)
	g.VSUBPS(f, x, x)
	r := g.vec()
	g.VMOVAPS(p.poly[0], r)
	for _, c := range p.poly[1:] {
		g.VFMADD213PS(c, x, r)
	}
	g.VPSLLD(operand.U8(23), n, n)
	g.VMULPS(n, r, x)
}

// lanesOf is the lanes of a mask word, vector by vector: mask registers or vectors of ones.
func (g *gen) lanesOf(words reg.GPVirtual) []reg.Register {
	masks := make([]reg.Register, g.used)
	if g.wide() {
		for i := range masks {
			k := g.K()
			g.KMOVW(at(words, 2*i), k)
			masks[i] = k
		}
		return masks
	}
	word := g.vec()
	g.VPBROADCASTD(at(words, 0), word)
	for i := range masks {
		bits, m := g.consts["lane bits"], g.vec()
		bits.Disp += i * g.isa.vecBytes()
		g.VPAND(bits, word, m)
		g.VPCMPEQD(bits, m, m)
		masks[i] = m
	}
	return masks
}

// choose sets x to other where mask is not set.
func (g *gen) choose(mask reg.Register, x, other reg.VecVirtual) {
	if g.wide() {
		g.VBLENDMPS(x, other, mask, x)
		return
	}
	g.VBLENDVPS(mask, x, other, x)
}

// keep sets x to 0 where mask is not set.
func (g *gen) keep(mask reg.Register, x reg.VecVirtual) {
	if g.wide() {
		g.VMOVAPS_Z(x, mask, x)
		return
	}
	g.VANDPS(mask, x, x)
}

// differs is the lanes in which x is not the constant.
func (g *gen) differs(x, constant reg.VecVirtual) reg.Register {
	if g.wide() {
		k := g.K()
		g.VCMPPS(operand.U8(notEqual), constant, x, k)
		return k
	}
	m := g.vec()
	g.VCMPPS(operand.U8(notEqual), constant, x, m)
	return m
}

// softmax generates the step from scores to weights, down the columns.
func (g *gen) softmax() {
	g.begin("softmax", "func(s *float32, words *uint64, n int, m, l, alpha *float32, vecs int)",
		"turns scores s [n, lanes] into e^(s-m') in place, where m' is the larger of the",
		"column's maximum and m; it updates m and l and sets alpha to e^(m-m'). Where bit i",
		"of words[c] is 0, query i does not see key c; nil words allow all. n is at least 1;",
		"of lanes, vecs vectors, 2 or 3.")
	g.fork(g.softmaxOf)
}

// softmaxOf is softmax for so many vectors.
func (g *gen) softmaxOf(vecs int) {
	g.used = vecs
	s, words, n := g.arg("s"), g.arg("words"), g.arg("n")
	m, l, alpha := g.arg("m"), g.arg("l"), g.arg("alpha")
	base, p := g.lift(s, words, n, m, alpha)

	sum := g.zeros(2 * g.used)
	g.each(n, 2, func(steps int) {
		for u := range steps {
			g.weights(p, s, u, base, sum[u*g.used:])
		}
		g.ADDQ(operand.I32(steps*g.isa.rowBytes()), s)
	})
	g.total(l, alpha, sum)
	g.end()
}

// lift generates the first half of a softmax: the columns' new maxima m, and alpha. It gives what is
// to be taken from scores.
func (g *gen) lift(s, words, n, m, alpha reg.GPVirtual) ([]reg.VecVirtual, *powers) {
	base := g.loadPanel(m, 0, g.used)
	g.maxima(s, words, n, base)
	p := g.newPowers(false)
	fade := g.loadPanel(m, 0, g.used)
	g.storePanel(m, base, g.used)
	minus := g.constant("-inf")
	g.Comment("A column of -Inf alone: 0 in place of its maximum never takes -Inf from -Inf.")
	for i := range base {
		g.keep(g.differs(base[i], minus), base[i])
		g.VSUBPS(base[i], fade[i], fade[i])
	}
	g.exp(p, fade)
	g.storePanel(alpha, fade, g.used)
	return base, p
}

// total generates its end: l = l alpha + sum, of which each column has two parts.
func (g *gen) total(l, alpha reg.GPVirtual, sum []reg.VecVirtual) {
	for i := range g.used {
		g.VADDPS(sum[i], sum[g.used+i], sum[i])
		x := g.vec()
		g.VMOVUPS(at(l, i*g.isa.vecBytes()), x)
		g.VFMADD132PS(at(alpha, i*g.isa.vecBytes()), sum[i], x)
		g.VMOVUPS(x, at(l, i*g.isa.vecBytes()))
	}
}

// weights does row u of the panel s.
func (g *gen) weights(p *powers, s reg.GPVirtual, u int, base, sum []reg.VecVirtual) {
	per := 1
	if g.wide() {
		per = g.used
	}
	for i := 0; i < g.used; i += per {
		x := g.vecs(per)
		for j := range x {
			where := at(s, u*g.isa.rowBytes()+(i+j)*g.isa.vecBytes())
			g.VMOVUPS(where, x[j])
			g.VSUBPS(base[i+j], x[j], x[j])
		}
		g.exp(p, x)
		for j := range x {
			where := at(s, u*g.isa.rowBytes()+(i+j)*g.isa.vecBytes())
			g.VMOVUPS(x[j], where)
			g.VADDPS(x[j], sum[i+j], sum[i+j])
		}
	}
}

// maxima raises top to the largest scores, of which NaN is none, and sets those that are not seen
// to -Inf.
func (g *gen) maxima(s, words, n reg.GPVirtual, top []reg.VecVirtual) {
	all, done := g.label("all"), g.label("done")
	sp, wp, left := g.GP64(), g.GP64(), g.GP64()
	g.MOVQ(s, sp)
	g.MOVQ(words, wp)
	g.MOVQ(n, left)
	g.TESTQ(wp, wp)
	g.JZ(operand.LabelRef(all))
	minus := g.constant("-inf")
	g.loop(left, func() {
		x := g.loadPanel(sp, 0, g.used)
		for i, mask := range g.lanesOf(wp) {
			g.choose(mask, x[i], minus)
			g.VMAXPS(top[i], x[i], top[i])
		}
		g.storePanel(sp, x, g.used)
		g.ADDQ(operand.I32(g.isa.rowBytes()), sp)
		g.ADDQ(operand.I32(8), wp)
	})
	g.JMP(operand.LabelRef(done))
	g.Label(all)
	second := g.vecs(g.used)
	for i := range second {
		g.VMOVAPS(top[i], second[i])
	}
	g.each(left, 2, func(steps int) {
		for u := range steps {
			x := g.loadPanel(sp, u*g.isa.rowBytes(), g.used)
			for i := range x {
				to := top[i]
				if u == 1 {
					to = second[i]
				}
				g.VMAXPS(to, x[i], to)
			}
		}
		g.ADDQ(operand.I32(steps*g.isa.rowBytes()), sp)
	})
	for i := range second {
		g.VMAXPS(top[i], second[i], top[i])
	}
	g.Label(done)
}

// slopes generates the step from scores to the weights and the gradients of the scores.
func (g *gen) slopes() {
	g.begin("slopes",
		"func(s, dp *float32, words *uint64, n int, lse, delta *float32, scale float32, vecs int)",
		"turns scores s [n, lanes] into P = e^(s-lse) and dp into P (dp - delta) scale, in",
		"place; both are 0 where bit i of words[c] is 0, for query i and key c. nil words",
		"allow all. n is at least 1; of lanes, vecs vectors, 2 or 3.")
	g.fork(g.slopesOf)
}

// slopesOf is slopes for so many vectors.
func (g *gen) slopesOf(vecs int) {
	g.used = vecs
	s, dp, words, n := g.arg("s"), g.arg("dp"), g.arg("words"), g.arg("n")
	lse, delta := g.arg("lse"), g.arg("delta")
	scale := g.vec()
	a, err := g.Param("scale").Resolve()
	if err != nil {
		panic(err)
	}
	g.VBROADCASTSS(a.Addr, scale)
	p := g.newPowers(true)
	base, mean := g.panelOperands(lse), g.panelOperands(delta)
	all, done := g.label("all"), g.label("done")
	g.TESTQ(words, words)
	g.JZ(operand.LabelRef(all))
	for _, masked := range []bool{true, false} {
		if !masked {
			g.JMP(operand.LabelRef(done))
			g.Label(all)
		}
		g.loop(n, func() {
			g.slopeRow(p, s, dp, words, base, mean, scale, masked)
			g.ADDQ(operand.I32(g.isa.rowBytes()), s)
			g.ADDQ(operand.I32(g.isa.rowBytes()), dp)
			if masked {
				g.ADDQ(operand.I32(8), words)
			}
		})
	}
	g.Label(done)
	g.end()
}

// panelOperands is 3 vectors, in registers where there are 32 of them, else in memory.
func (g *gen) panelOperands(base reg.GPVirtual) []operand.Op {
	ops := make([]operand.Op, g.used)
	for i := range ops {
		ops[i] = at(base, i*g.isa.vecBytes())
		if g.wide() {
			v := g.vec()
			g.VMOVUPS(ops[i], v)
			ops[i] = v
		}
	}
	return ops
}

func (g *gen) slopeRow(p *powers, s, dp, words reg.GPVirtual, base, mean []operand.Op,
	scale reg.VecVirtual, masked bool,
) {
	per := 1
	if g.wide() {
		per = g.used
	}
	var masks []reg.Register
	if masked {
		masks = g.lanesOf(words)
	}
	for i := 0; i < g.used; i += per {
		x := g.vecs(per)
		for j := range x {
			g.VMOVUPS(at(s, (i+j)*g.isa.vecBytes()), x[j])
			g.VSUBPS(base[i+j], x[j], x[j])
		}
		g.exp(p, x)
		for j := range x {
			d := g.vec()
			g.VMOVUPS(at(dp, (i+j)*g.isa.vecBytes()), d)
			g.VSUBPS(mean[i+j], d, d)
			g.VMULPS(scale, d, d)
			g.VMULPS(x[j], d, d)
			if masked {
				g.keep(masks[i+j], x[j])
				g.keep(masks[i+j], d)
			}
			g.VMOVUPS(x[j], at(s, (i+j)*g.isa.vecBytes()))
			g.VMOVUPS(d, at(dp, (i+j)*g.isa.vecBytes()))
		}
	}
}
