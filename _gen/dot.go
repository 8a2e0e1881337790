package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// bf16 multiplies pairs of bf16 numbers and adds both products to a float32 (VDPBF16PS): a panel
// holds in each of its 32-bit lanes two numbers that follow each other along the summed axis.
var bf16 = isa{name: "BF16", width: 16, rows: 8, outer: avx512.outer}

const (
	pairBlock = 8  // dims that lie side by side in blocks of pairs
	narrowRow = 96 // bytes of a row of 48 bf16 numbers
)

// dots generates the kernels of products of pairs.
func (g *gen) dots() {
	g.isa = bf16
	g.table()
	g.weave()
	g.scoresDot()
	g.weighDot()
	g.outerDot()
	g.softmaxDot()
	g.slopesDot(narrowRow)
	g.pairs()
}

// dotRow adds the pair at m times the pairs of x to acc.
func (g *gen) dotRow(acc []reg.VecVirtual, m operand.Mem, x []reg.VecVirtual) {
	b := g.vec()
	g.VBROADCASTSS(m, b)
	for i := range x {
		g.dot(x[i], b, acc[i])
	}
}

// scoresDot generates S^T = K Q^T times a scale, as scores does.
func (g *gen) scoresDot() {
	g.begin("scores",
		"func(dst, qt *float32, k *uint16, stride, n, pairs, vecs int, scale float32)",
		"sets dst [n, lanes] to scale times the products of n rows k of pairs pairs, stride",
		"bytes apart, with the columns of panel qt [pairs, lanes]; of lanes, vecs vectors, 2",
		"or 3. n is at least 8.")
	g.fork(g.scoresDotOf)
}

// scoresDotOf is scoresDot for so many vectors.
func (g *gen) scoresDotOf(vecs int) {
	dst, qt, k := g.arg("dst"), g.arg("qt"), g.arg("k")
	stride, n, pairs := g.arg("stride"), g.arg("n"), g.arg("pairs")
	s3, s5, s7 := g.multiples(stride)
	rows, row, step := g.isa.rows, g.isa.rowBytes(), g.GP64()
	scale := g.single("scale")

	next, done := g.label("block"), g.label("done")
	g.Label(next)
	kp, qp, left, ahead := g.GP64(), g.GP64(), g.GP64(), g.GP64()
	g.MOVQ(k, kp)
	g.MOVQ(qt, qp)
	g.MOVQ(pairs, left)
	g.LEAQ(operand.Mem{Base: kp, Index: stride, Scale: uint8(rows)}, ahead)
	acc := g.zeros(rows * vecs)
	g.each(left, 8, func(steps int) {
		for u := range steps {
			q := g.loadPanel(qp, u*row, vecs)
			for r := range rows {
				g.dotRow(acc[r*vecs:], rowAt(kp, stride, s3, s5, s7, r, 4*u), q)
			}
			if steps > 1 && u < rows {
				g.PREFETCHT0(rowAt(ahead, stride, s3, s5, s7, u, 0))
			}
		}
		g.ADDQ(operand.I32(4*steps), ahead)
		g.ADDQ(operand.I32(4*steps), kp)
		g.ADDQ(operand.I32(row*steps), qp)
	})
	for _, x := range acc {
		g.VMULPS(scale, x, x)
	}
	g.storePanel(dst, acc, vecs)

	g.Comment("Next block, or the last rows, some of them for a second time.")
	g.MOVQ(operand.I32(rows), step)
	g.SUBQ(step, n)
	g.JZ(operand.LabelRef(done))
	g.CMPQ(n, step)
	g.CMOVQLT(n, step)
	g.MOVQ(step, left)
	g.IMULQ(stride, left)
	g.ADDQ(left, k)
	g.IMUL3Q(operand.I32(row), step, left)
	g.ADDQ(left, dst)
	g.MOVQ(operand.I32(rows), step)
	g.CMPQ(n, step)
	g.CMOVQLT(step, n)
	g.JMP(operand.LabelRef(next))
	g.Label(done)
	g.end()
}

// weighDot generates O^T = alpha O^T + V^T P^T, as weigh does.
func (g *gen) weighDot() {
	g.begin("weigh", "func(o, p, v *float32, stride, pairs, dims int, alpha *float32, vecs int)",
		"sets panel o [dims, lanes] to o times alpha [lanes] plus the sum over pairs of keys",
		"of v times panel p [pairs, lanes]; of lanes, vecs vectors, 2 or 3. Rows of v are 8",
		"pairs, one after the other, for each 8 of the dims stride bytes further. dims is a",
		"multiple of 8.")
	g.fork(g.weighDotOf)
}

// weighDotOf is weighDot for so many vectors.
func (g *gen) weighDotOf(vecs int) {
	o, p, v := g.arg("o"), g.arg("p"), g.arg("v")
	stride, pairs, dims, alpha := g.arg("stride"), g.arg("pairs"), g.arg("dims"), g.arg("alpha")
	row := g.isa.rowBytes()
	g.SHRQ(operand.U8(3), dims)
	by := g.loadPanel(alpha, 0, vecs)
	g.loop(dims, func() {
		vp, pp, left := g.GP64(), g.GP64(), g.GP64()
		g.MOVQ(v, vp)
		g.MOVQ(p, pp)
		g.MOVQ(pairs, left)
		acc := g.zeros(pairBlock * vecs)
		g.each(left, 4, func(steps int) {
			for u := range steps {
				x := g.loadPanel(pp, u*row, vecs)
				for r := range pairBlock {
					g.dotRow(acc[r*vecs:], at(vp, 4*pairBlock*u+4*r), x)
				}
			}
			g.ADDQ(operand.I32(4*pairBlock*steps), vp)
			g.ADDQ(operand.I32(row*steps), pp)
		})
		for r := range pairBlock {
			for i := range by {
				g.VFMADD231PS(at(o, r*row+i*g.isa.vecBytes()), by[i], acc[r*vecs+i])
			}
		}
		g.storePanel(o, acc, vecs)
		g.ADDQ(operand.I32(pairBlock*row), o)
		g.ADDQ(stride, v)
	})
	g.end()
}

// outerDot generates C += A B, as outer does, A and B in pairs of queries.
func (g *gen) outerDot() {
	g.begin("outer", "func(c *float32, a *uint16, b *float32, n, width, fours int)",
		"adds to c [n, width] the product of a [n, lanes] and b, rows of width pairs; of the",
		"pairs of lanes, fours times 4. width is a multiple of a vector; a and c go on with",
		"rows of which a's are 0 to a multiple of 24 rows.")
	c, a, b, n, width := g.arg("c"), g.arg("a"), g.arg("b"), g.arg("n"), g.arg("width")
	fours, stride := g.arg("fours"), g.GP64()
	g.MOVQ(width, stride)
	g.SHLQ(operand.U8(2), stride)
	next, done := g.label("columns"), g.label("done")
	g.Label(next)
	most := len(g.isa.outer)
	labels := make([]string, most+1)
	for v := 1; v <= most; v++ {
		labels[v] = g.label("wide")
	}
	for v := most; v > 1; v-- {
		g.CMPQ(width, operand.I32(v*g.isa.width))
		if v == most {
			g.JGE(operand.LabelRef(labels[v]))
			continue
		}
		g.JEQ(operand.LabelRef(labels[v]))
	}
	for v := 1; v <= most; v++ {
		g.Label(labels[v])
		g.outerDotColumns(c, a, b, n, stride, fours, v)
		g.ADDQ(operand.I32(v*g.isa.vecBytes()), b)
		g.ADDQ(operand.I32(v*g.isa.vecBytes()), c)
		g.SUBQ(operand.I32(v*g.isa.width), width)
		g.JNZ(operand.LabelRef(next))
		g.JMP(operand.LabelRef(done))
	}
	g.Label(done)
	g.end()
}

// outerDotColumns does v vectors of columns for all keys.
func (g *gen) outerDotColumns(c, a, b, n, stride, fours reg.GPVirtual, v int) {
	rows := g.isa.outer[v-1]
	cp, ap, keys, top := g.GP64(), g.GP64(), g.GP64(), g.label("keys")
	g.MOVQ(c, cp)
	g.MOVQ(a, ap)
	g.MOVQ(n, keys)
	g.Label(top)
	acc := g.zeros(rows * v)
	bp, left, now := g.GP64(), g.GP64(), g.GP64()
	g.MOVQ(b, bp)
	g.MOVQ(ap, now)
	g.MOVQ(fours, left)
	g.loop(left, func() {
		for u := range 4 {
			x := g.vecs(v)
			for i := range x {
				g.VMOVUPS(at(bp, i*g.isa.vecBytes()), x[i])
			}
			g.ADDQ(stride, bp)
			for r := range rows {
				g.dotRow(acc[r*v:], at(now, r*narrowRow+4*u), x)
			}
		}
		g.ADDQ(operand.I32(16), now)
	})
	g.ADDQ(operand.I32(rows*narrowRow), ap)
	for r := range rows {
		for i := range v {
			m, x := at(cp, i*g.isa.vecBytes()), acc[r*v+i]
			g.VADDPS(m, x, x)
			g.VMOVUPS(x, m)
		}
		g.ADDQ(stride, cp)
	}
	g.SUBQ(operand.I32(rows), keys)
	g.JG(operand.LabelRef(top))
}
