package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// weave lays out the index vector that takes the numbers of two halves in turns.
func (g *gen) weave() {
	m := g.StaticGlobal("weave" + g.isa.name)
	g.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := range g.isa.width {
		g.AddDatum(4*i, operand.U32(i|(g.isa.width+i)<<16))
	}
	g.consts["weave"] = m
}

// softmaxDot generates softmax with weights that end as pairs of keys.
func (g *gen) softmaxDot() {
	g.begin("softmax", "func(s *float32, words *uint64, n int, m, l, alpha *float32, vecs int)",
		"is softmax, but for the weights, which it rounds to bf16 when they are summed: in",
		"place of s, [n/2, lanes] pairs of two keys. n is even.")
	g.fork(g.softmaxDotOf)
}

// softmaxDotOf is softmaxDot for so many vectors.
func (g *gen) softmaxDotOf(vecs int) {
	g.used = vecs
	s, words, n := g.arg("s"), g.arg("words"), g.arg("n")
	m, l, alpha := g.arg("m"), g.arg("l"), g.arg("alpha")
	base, p := g.lift(s, words, n, m, alpha)

	order, sum, to := g.constant("weave"), g.zeros(2*g.used), g.GP64()
	g.MOVQ(s, to)
	g.SHRQ(operand.U8(1), n)
	g.loop(n, func() {
		for i := range g.used {
			x := g.vecs(2)
			for u := range x {
				g.VMOVUPS(at(s, u*g.isa.rowBytes()+i*g.isa.vecBytes()), x[u])
				g.VSUBPS(base[i], x[u], x[u])
			}
			g.exp(p, x)
			for u := range x {
				g.VADDPS(x[u], sum[u*g.used+i], sum[u*g.used+i])
			}
			both := g.vec()
			g.round(x[0], x[1], both)
			g.VPERMW(both, order, both)
			g.VMOVUPS(both, at(to, i*g.isa.vecBytes()))
		}
		g.ADDQ(operand.I32(2*g.isa.rowBytes()), s)
		g.ADDQ(operand.I32(g.isa.rowBytes()), to)
	})
	g.total(l, alpha, sum)
	g.end()
}

// slopesDot generates slopes with results in bf16, in rows of row bytes.
func (g *gen) slopesDot(row int) {
	g.begin("slopes",
		"func(s, d *float32, ds *uint16, see *uint64, n int, lse, mean *float32, by float32,"+
			" vecs int)",
		"is slopes, of words see, deltas mean and scale by, but for results rounded to bf16:",
		fmt.Sprintf("P [n, %d] in place of s, dS as ds [n, %d] and, in place of d, as [n/2, lanes]",
			row/2, row/2),
		"pairs of two keys. n is even. Numbers 48 and on of a row are 0.")
	g.fork(func(vecs int) {
		g.used = vecs
		g.slopesDotOf(row)
	})
}

// slopesDotOf is slopesDot for so many vectors.
func (g *gen) slopesDotOf(row int) {
	s, dp, ds := g.arg("s"), g.arg("d"), g.arg("ds")
	words, n := g.arg("see"), g.arg("n")
	base, mean := g.panelOperands(g.arg("lse")), g.panelOperands(g.arg("mean"))
	scale, p, order := g.single("by"), g.newPowers(true), g.constant("weave")
	to, pairs := g.GP64(), g.GP64()
	g.MOVQ(s, to)
	g.MOVQ(dp, pairs)
	g.SHRQ(operand.U8(1), n)
	all, done := g.label("all"), g.label("done")
	g.TESTQ(words, words)
	g.JZ(operand.LabelRef(all))
	for _, masked := range []bool{true, false} {
		if !masked {
			g.JMP(operand.LabelRef(done))
			g.Label(all)
		}
		g.loop(n, func() {
			var masks [2][]reg.Register
			for u := 0; masked && u < 2; u++ {
				masks[u] = g.lanesOf(words)
				g.ADDQ(operand.I32(8), words)
			}
			scores := make([][]reg.VecVirtual, g.used) // all are read before their place is written to
			for i := range scores {
				scores[i] = g.vecs(2)
				for u, x := range scores[i] {
					g.VMOVUPS(at(s, u*g.isa.rowBytes()+i*g.isa.vecBytes()), x)
				}
			}
			for i, x := range scores {
				d := g.vecs(2)
				for u := range x {
					g.VSUBPS(base[i], x[u], x[u])
					g.VMOVUPS(at(dp, u*g.isa.rowBytes()+i*g.isa.vecBytes()), d[u])
					g.VSUBPS(mean[i], d[u], d[u])
					g.VMULPS(scale, d[u], d[u])
				}
				g.exp(p, x)
				for u := range x {
					g.VMULPS(x[u], d[u], d[u])
					if masked {
						g.keep(masks[u][i], x[u])
						g.keep(masks[u][i], d[u])
					}
				}
				g.storeHalves(x, to, row, i)
				both := g.storeHalves(d, ds, row, i)
				g.VPERMW(both, order, both)
				g.VMOVUPS(both, at(pairs, i*g.isa.vecBytes()))
			}
			for u := 0; u < 2 && row > narrowRow; u++ {
				zero := g.zeros(1)[0].AsY()
				g.VMOVUPS(zero, at(to, narrowRow+u*row))
				g.VMOVUPS(zero, at(ds, narrowRow+u*row))
			}
			g.ADDQ(operand.I32(2*g.isa.rowBytes()), s)
			g.ADDQ(operand.I32(2*g.isa.rowBytes()), dp)
			g.ADDQ(operand.I32(2*row), to)
			g.ADDQ(operand.I32(2*row), ds)
			g.ADDQ(operand.I32(g.isa.rowBytes()), pairs)
		})
	}
	g.Label(done)
	g.end()
}

// storeHalves rounds two rows of vector i to bf16 and stores them, row bytes apart.
func (g *gen) storeHalves(x []reg.VecVirtual, to reg.GPVirtual, row, i int) reg.VecVirtual {
	both, half := g.vec(), g.isa.vecBytes()/2
	g.round(x[0], x[1], both)
	g.VMOVUPS(both.AsY(), at(to, i*half))
	g.VEXTRACTI64X4(operand.U8(1), both, at(to, row+i*half))
	return both
}

// pairs generates the way from rows to pairs of two rows.
func (g *gen) pairs() {
	g.begin("pair",
		"func(dst *float32, src *uint16, items *int, rowBytes, n, width, row, apart int) bool",
		"sets rows of pairs dst, row bytes apart, to the numbers of rows items[0] and items[1]",
		"of src, then of items[2] and items[3], and so on for n of them, each rowBytes long;",
		"a last one without a partner pairs with 0. Of each width, filled up with 0 to a",
		"multiple of 16, 8 pairs lie side by side and the next 8 apart bytes further. It",
		"reports whether all numbers are finite. n and width are at least 1.")
	dst, src, items := g.arg("dst"), g.arg("src"), g.arg("items")
	bytes, n := g.arg("rowBytes"), g.arg("n")
	size, top, most := g.vec(), g.zeros(1)[0], g.vec()
	bits := g.GP32()
	g.MOVL(operand.U32(0x7fff7fff), bits)
	g.VPBROADCASTD(bits, size)
	next, one, strip := g.label("rows"), g.label("one"), g.label("strip")
	lone := g.K()
	g.KXNORW(lone, lone, lone)
	g.Label(next)
	a, b, to, left := g.GP64(), g.GP64(), g.GP64(), g.GP64()
	g.MOVQ(at(items, 0), a)
	g.IMULQ(bytes, a)
	g.ADDQ(src, a)
	g.MOVQ(a, b)
	g.KXORW(lone, lone, lone)
	g.CMPQ(n, operand.I32(1))
	g.JEQ(operand.LabelRef(one))
	g.KXNORW(lone, lone, lone)
	g.MOVQ(at(items, 8), b)
	g.IMULQ(bytes, b)
	g.ADDQ(src, b)
	g.Label(one)
	g.MOVQ(dst, to)
	g.Load(g.Param("width"), left)
	g.Label(strip)
	columns := g.GP64()
	g.MOVQ(operand.I32(g.isa.width), columns)
	g.CMPQ(left, columns)
	g.CMOVQLT(left, columns)
	ka, kb := g.tail(columns), g.K()
	g.KANDW(ka, lone, kb)
	x, y := g.vec(), g.vec()
	g.VPMOVZXWD_Z(at(a, 0), ka, x)
	g.VPMOVZXWD_Z(at(b, 0), kb, y)
	g.VPSLLD(operand.U8(16), y, y)
	g.VPORD(y, x, x)
	g.VMOVUPS(x.AsY(), at(to, 0))
	apart := g.GP64()
	g.Load(g.Param("apart"), apart)
	g.VEXTRACTI64X4(operand.U8(1), x, operand.Mem{Base: to, Index: apart, Scale: 1})
	g.VPANDD(size, x, x)
	g.VPMAXUW(x, top, top)
	g.LEAQ(operand.Mem{Base: to, Index: apart, Scale: 2}, to)
	g.ADDQ(operand.I32(2*g.isa.width), a)
	g.ADDQ(operand.I32(2*g.isa.width), b)
	g.SUBQ(operand.I32(g.isa.width), left)
	g.JG(operand.LabelRef(strip))
	g.ADDQ(operand.I32(16), items)
	row := g.GP64()
	g.Load(g.Param("row"), row)
	g.ADDQ(row, dst)
	g.SUBQ(operand.I32(2), n)
	g.JG(operand.LabelRef(next))
	g.MOVL(operand.U32(0x7f7f7f7f), bits)
	g.VPBROADCASTD(bits, most)
	k, ok := g.K(), g.GP8()
	g.VPCMPUW(operand.U8(6), most, top, k)
	g.KMOVD(k, bits)
	g.TESTL(bits, bits)
	g.SETEQ(ok)
	g.Store(ok, g.ReturnIndex(0))
	g.end()
}
