package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// chunk is how many products scores sums in one go.
const chunk = 32

// fork runs body for a panel of which all vectors are used, and for one of which the last is not:
// the argument vecs says which. A block of 8 by 2 still has multiply-adds enough to hide a load.
func (g *gen) fork(body func(vecs int)) {
	less := g.label("less")
	g.CMPQ(g.arg("vecs"), operand.I32(panelVecs))
	g.JLT(operand.LabelRef(less))
	body(panelVecs)
	g.Label(less)
	body(panelVecs - 1)
}

// scores generates S^T = K Q^T: blocks of rows keys by 3 vectors of queries, whose accumulators
// stay in registers over all of d.
func (g *gen) scores() {
	g.begin("scores", "func(dst, qt, k *float32, stride, n, d, vecs int)",
		"sets dst [n, lanes] to the products of n rows k of d floats, stride bytes apart,",
		"with the columns of panel qt [d, lanes]; of lanes, vecs vectors, 2 or 3. n is at",
		"least the rows of a block.")
	g.fork(g.scoresOf)
}

// scoresOf is scores for so many vectors.
func (g *gen) scoresOf(vecs int) {
	dst, qt, k := g.arg("dst"), g.arg("qt"), g.arg("k")
	stride, n, d := g.arg("stride"), g.arg("n"), g.arg("d")
	s3, s5, s7 := g.multiples(stride)
	row, step := g.isa.rowBytes(), g.GP64()

	next, done := g.label("block"), g.label("done")
	g.Label(next)
	kp, qp, rest := g.GP64(), g.GP64(), g.GP64()
	g.MOVQ(k, kp)
	g.MOVQ(qt, qp)
	g.MOVQ(d, rest)
	// A long running sum loses digits: d is summed by chunks.
	part, first := g.label("chunk"), g.label("first")
	g.Label(part)
	left := g.GP64()
	g.MOVQ(operand.I32(chunk), left)
	g.CMPQ(rest, left)
	g.CMOVQLT(rest, left)
	acc := g.zeros(g.isa.rows * vecs)
	ahead := g.GP64()
	g.LEAQ(operand.Mem{Base: kp, Index: stride, Scale: uint8(g.isa.rows)}, ahead)
	g.each(left, 16, func(steps int) {
		for u := range steps {
			q := g.loadPanel(qp, u*row, vecs)
			for r := range g.isa.rows {
				b := g.vec()
				g.VBROADCASTSS(rowAt(kp, stride, s3, s5, s7, r, 4*u), b)
				g.fmas(acc[r*vecs:], b, q)
			}
			if r := u / 2; u%2 == 0 && steps > 1 && r < g.isa.rows {
				g.PREFETCHT0(rowAt(ahead, stride, s3, s5, s7, r, 0))
			}
		}
		if steps > 1 {
			g.ADDQ(operand.I32(4*steps), ahead)
		}
		g.ADDQ(operand.I32(4*steps), kp)
		g.ADDQ(operand.I32(row*steps), qp)
	})
	g.CMPQ(rest, d)
	g.JEQ(operand.LabelRef(first))
	for i, x := range acc {
		g.VADDPS(at(dst, i/vecs*row+i%vecs*g.isa.vecBytes()), x, x)
	}
	g.Label(first)
	g.storePanel(dst, acc, vecs)
	g.SUBQ(operand.I32(chunk), rest)
	g.JG(operand.LabelRef(part))

	// The last block goes back over keys of the one before, so that no row is left over.
	g.Comment("Next block, or the last rows, some of them for a second time.")
	g.MOVQ(operand.I32(g.isa.rows), step)
	g.SUBQ(step, n)
	g.JZ(operand.LabelRef(done))
	g.CMPQ(n, step)
	g.CMOVQLT(n, step)
	g.MOVQ(step, left)
	g.IMULQ(stride, left)
	g.ADDQ(left, k)
	g.IMUL3Q(operand.I32(row), step, left)
	g.ADDQ(left, dst)
	g.MOVQ(operand.I32(g.isa.rows), step)
	g.CMPQ(n, step)
	g.CMOVQLT(step, n)
	g.JMP(operand.LabelRef(next))
	g.Label(done)
	g.end()
}

// loadPanel loads vectors of a row of a panel.
func (g *gen) loadPanel(base reg.Register, disp, vecs int) []reg.VecVirtual {
	v := g.vecs(vecs)
	for i := range v {
		g.VMOVUPS(at(base, disp+i*g.isa.vecBytes()), v[i])
	}
	return v
}

// storePanel stores rows of a panel, of so many vectors.
func (g *gen) storePanel(base reg.Register, v []reg.VecVirtual, vecs int) {
	for i := range v {
		g.VMOVUPS(v[i], at(base, i/vecs*g.isa.rowBytes()+i%vecs*g.isa.vecBytes()))
	}
}

// fmas adds by*x[i] to acc[i].
func (g *gen) fmas(acc []reg.VecVirtual, by reg.Register, x []reg.VecVirtual) {
	for i := range x {
		g.VFMADD231PS(x[i], by, acc[i])
	}
}

// weigh generates O^T = alpha O^T + V^T P^T: blocks of rows dims by 3 vectors of queries. The sum
// over the keys begins at 0, so that one long running sum does not lose digits.
func (g *gen) weigh() {
	g.begin("weigh", "func(o, p, v *float32, stride, n, dims int, alpha *float32, vecs int)",
		"sets panel o [dims, lanes] to o times alpha [lanes] plus the sum over n keys of",
		"v, rows of dims floats, stride bytes apart, times panel p [n, lanes]; of lanes,",
		"vecs vectors, 2 or 3. dims is a multiple of 8, n at least 1.")
	g.fork(g.weighOf)
}

// weighOf is weigh for so many vectors.
func (g *gen) weighOf(vecs int) {
	o, p, v := g.arg("o"), g.arg("p"), g.arg("v")
	stride, n, dims, alpha := g.arg("stride"), g.arg("n"), g.arg("dims"), g.arg("alpha")
	rows, row := g.isa.rows, g.isa.rowBytes()
	if rows == 4 {
		g.SHRQ(operand.U8(2), dims)
	} else {
		g.SHRQ(operand.U8(3), dims)
	}
	s3, after := g.GP64(), g.GP64()
	g.LEAQ(operand.Mem{Base: stride, Index: stride, Scale: 2}, s3)
	g.MOVQ(n, after)
	g.IMULQ(stride, after)
	g.ADDQ(v, after)
	g.loop(dims, func() {
		vp, pp, left, ahead := g.GP64(), g.GP64(), g.GP64(), g.GP64()
		g.MOVQ(v, vp)
		g.LEAQ(at(v, 64), ahead)
		g.CMPQ(dims, operand.I32(1))
		g.CMOVQEQ(after, ahead)
		g.MOVQ(p, pp)
		g.MOVQ(n, left)
		acc := g.zeros(rows * vecs)
		g.each(left, 4, func(steps int) {
			for u := range steps {
				x := g.loadPanel(pp, u*row, vecs)
				for r := range rows {
					b := g.vec()
					g.VBROADCASTSS(rowAt(vp, stride, s3, s3, s3, u, 4*r), b)
					g.fmas(acc[r*vecs:], b, x)
				}
				g.PREFETCHT0(rowAt(ahead, stride, s3, s3, s3, u, 0))
			}
			if steps == 4 {
				g.LEAQ(operand.Mem{Base: vp, Index: stride, Scale: 4}, vp)
				g.LEAQ(operand.Mem{Base: ahead, Index: stride, Scale: 4}, ahead)
			} else {
				g.ADDQ(stride, vp)
				g.ADDQ(stride, ahead)
			}
			g.ADDQ(operand.I32(row*steps), pp)
		})
		by := g.loadPanel(alpha, 0, vecs)
		for r := range rows {
			for i := range by {
				g.VFMADD231PS(at(o, r*row+i*g.isa.vecBytes()), by[i], acc[r*vecs+i])
			}
		}
		g.storePanel(o, acc, vecs)
		g.ADDQ(operand.I32(rows*row), o)
		g.ADDQ(operand.I32(4*rows), v)
	})
	g.end()
}

// outer generates C += A B, A one row a key, B one row a query, in blocks of up to 4 vectors of
// columns by as many keys as the registers hold.
func (g *gen) outer() {
	g.begin("outer", "func(c, a, b *float32, n, width, fours int)",
		"adds to c [n, width] the product of a [n, lanes] and b [lanes, width]; of lanes,",
		"fours times 4. width is a multiple of a vector; a and c go on with rows of which",
		"a's are 0 to a multiple of 24 rows.")
	c, a, b, n, width := g.arg("c"), g.arg("a"), g.arg("b"), g.arg("n"), g.arg("width")
	fours := g.arg("fours")
	stride := g.GP64()
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
		g.outerColumns(c, a, b, n, stride, fours, v)
		g.ADDQ(operand.I32(v*g.isa.vecBytes()), b)
		g.ADDQ(operand.I32(v*g.isa.vecBytes()), c)
		g.SUBQ(operand.I32(v*g.isa.width), width)
		g.JNZ(operand.LabelRef(next))
		g.JMP(operand.LabelRef(done))
	}
	g.Label(done)
	g.end()
}

// outerColumns does v vectors of columns for all keys.
func (g *gen) outerColumns(c, a, b, n, stride, fours reg.GPVirtual, v int) {
	rows, row := g.isa.outer[v-1], g.isa.rowBytes()
	cp, ap, keys := g.GP64(), g.GP64(), g.GP64()
	g.MOVQ(c, cp)
	g.MOVQ(a, ap)
	g.MOVQ(n, keys)
	top := g.label("keys")
	g.Label(top)
	acc := g.zeros(rows * v)
	bp, left := g.GP64(), g.GP64()
	g.MOVQ(b, bp)
	g.MOVQ(fours, left)
	g.loop(left, func() {
		for u := range 4 {
			x := g.vecs(v)
			for i := range x {
				g.VMOVUPS(at(bp, i*g.isa.vecBytes()), x[i])
			}
			g.ADDQ(stride, bp)
			for r := range rows {
				w := g.vec()
				g.VBROADCASTSS(at(ap, r*row+4*u), w)
				g.fmas(acc[r*v:], w, x)
			}
		}
		g.ADDQ(operand.I32(16), ap)
	})
	g.MOVQ(fours, left)
	g.SHLQ(operand.U8(4), left)
	g.SUBQ(left, ap)
	g.ADDQ(operand.I32(rows*row), ap)
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

// peak generates multiply-adds on registers alone, as many as scores has accumulators.
func (g *gen) peak() {
	g.begin("peak", "func(rounds int)",
		"does rounds rounds, at least 1, of 8 multiply-adds on each of as many vectors",
		"as the kernels have accumulators.")
	n, x := g.arg("rounds"), g.zeros(2)
	acc := g.zeros(g.isa.rows * panelVecs)
	g.loop(n, func() {
		for range 8 {
			for i := range acc {
				g.VFMADD231PS(x[0], x[1], acc[i])
			}
		}
	})
	g.end()
}
