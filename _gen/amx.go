package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// amx multiplies tiles: 16 rows of 64 bytes. TDPBF16PS adds to 16 x 16 float32 the product of 16
// rows of 32 bf16 numbers and 16 rows of 16 pairs, so panels are those of products of pairs. Blocks
// are 2 by 2 tiles, of which each is read once for two products.
var amx = isa{name: "AMX", width: 16}

const (
	tileRows  = 16
	tileBytes = 64  // of a row
	wideRow   = 128 // bytes of a row of weights: 48 lanes, and 16 of 0 to fill two tiles
)

// tiles generates the kernels of tiles.
func (g *gen) tiles() {
	g.isa = amx
	g.table()
	g.weave()
	g.shape()
	g.scoresTile()
	g.weighTile()
	g.outerTile()
	g.slopesDot(wideRow)
	g.peakTile()
}

// shape lays out the shape of all 8 tiles (palette 1).
func (g *gen) shape() {
	m := g.StaticGlobal("shape" + g.isa.name)
	g.DataAttributes(attr.RODATA | attr.NOPTR)
	words := [16]uint32{1}
	for i := range 4 {
		words[4+i] = tileBytes<<16 | tileBytes
		if i < 2 {
			words[12+i] = tileRows * 0x01010101
		}
	}
	for i, w := range words {
		g.AddDatum(4*i, operand.U32(w))
	}
	g.consts["shape"] = m
}

// configure begins the use of tiles, which endTiles ends: between calls there are none, so that the
// system has none to save.
func (g *gen) configure() {
	at := g.GP64()
	g.LEAQ(g.consts["shape"], at)
	g.tile("LDTILECFG", operand.Mem{Base: at})
}

func (g *gen) endTiles() {
	g.tile("TILERELEASE")
	g.end()
}

// block is 1 or 2 by 1 or 2 tiles of sums: c + i*below + 64 j, whose rows are stride bytes apart.
// They are the products of tiles a, whose second one is under the first, and b, whose second one is
// beside it.
type block struct {
	rows, cols int
}

// sum is the tile of row i and column j; a and b follow the four sums.
func (t block) sum(i, j int) operand.Op { return tmm(2*i + j) }
func (t block) a(i int) operand.Op      { return tmm(4 + i) }
func (t block) b(j int) operand.Op      { return tmm(6 + j) }

// multiply adds to the sums the product of the tiles at a[i], stride aStride, and those side by side
// at b.
func (g *gen) multiply(t block, a []operand.Mem, b operand.Mem) {
	for i := range t.rows {
		g.tile("TILELOADD", a[i], t.a(i))
	}
	for j := range t.cols {
		m := b
		m.Disp += j * tileBytes
		g.tile("TILELOADD", m, t.b(j))
		for i := range t.rows {
			g.tile("TDPBF16PS", t.b(j), t.a(i), t.sum(i, j))
		}
	}
}

// sums runs each for the sums of the block at c[i].
func (g *gen) sums(t block, c []operand.Mem, each func(m operand.Mem, tile operand.Op)) {
	for i := range t.rows {
		for j := range t.cols {
			m := c[i]
			m.Disp += j * tileBytes
			each(m, t.sum(i, j))
		}
	}
}

func (g *gen) loadTile(m operand.Mem, tile operand.Op)  { g.tile("TILELOADD", m, tile) }
func (g *gen) storeTile(m operand.Mem, tile operand.Op) { g.tile("TILESTORED", tile, m) }

// pairUp runs body for two tiles at a time of the n rows or columns, a multiple of 16, and for a last
// one alone. n is used up.
func (g *gen) pairUp(n reg.GPVirtual, body func(tiles int)) {
	two, rest, done := g.label("two"), g.label("rest"), g.label("done")
	g.SUBQ(operand.I32(2*tileRows), n)
	g.JL(operand.LabelRef(rest))
	g.Label(two)
	body(2)
	g.SUBQ(operand.I32(2*tileRows), n)
	g.JGE(operand.LabelRef(two))
	g.Label(rest)
	g.ADDQ(operand.I32(2*tileRows), n)
	g.JZ(operand.LabelRef(done))
	body(1)
	g.Label(done)
}

// strips is the columns of a panel that blocks take: two tiles, and what is left.
func strips(vecs int) (cols []int) {
	for ; vecs > 0; vecs -= 2 {
		cols = append(cols, min(2, vecs))
	}
	return cols
}

// scoresTile generates S^T = K Q^T times a scale, as scoresDot does.
func (g *gen) scoresTile() {
	g.begin("scores",
		"func(dst, qt *float32, k *uint16, stride, n, steps, vecs int, scale float32)",
		"sets dst [n, lanes] to scale times the products of n rows k of steps times 32",
		"numbers, stride bytes apart, with the columns of panel qt [steps*16, lanes] of pairs;",
		"of lanes, vecs vectors, 2 or 3. n is a multiple of 16.")
	g.configure()
	g.fork(g.scoresTileOf)
}

// scoresTileOf is scoresTile for so many vectors.
func (g *gen) scoresTileOf(vecs int) {
	dst, qt, k := g.arg("dst"), g.arg("qt"), g.arg("k")
	stride, n, row := g.arg("stride"), g.arg("n"), g.GP64()
	panel := g.isa.rowBytes()
	g.MOVQ(operand.I32(panel), row)
	size := g.GP64() // of 16 rows of k
	g.MOVQ(stride, size)
	g.SHLQ(operand.U8(4), size)
	g.pairUp(n, func(tiles int) {
		for at, cols := range strips(vecs) {
			t, off := block{tiles, cols}, at*2*tileBytes
			kp, qp, left := g.GP64(), g.GP64(), g.GP64()
			g.MOVQ(k, kp)
			g.MOVQ(qt, qp)
			g.Load(g.Param("steps"), left)
			below := g.GP64()
			g.LEAQ(operand.Mem{Base: kp, Index: size, Scale: 1}, below)
			c := []operand.Mem{rowsAt(dst, row, off), rowsAt(dst, row, off+tileRows*panel)}
			g.sums(t, c, func(_ operand.Mem, tile operand.Op) { g.tile("TILEZERO", tile) })
			g.loop(left, func() {
				g.multiply(t, []operand.Mem{rowsAt(kp, stride, 0), rowsAt(below, stride, 0)},
					rowsAt(qp, row, off))
				g.ADDQ(operand.I32(tileBytes), kp)
				g.ADDQ(operand.I32(tileBytes), below)
				g.ADDQ(operand.I32(tileRows*panel), qp)
			})
			g.sums(t, c, g.storeTile)
		}
		for range tiles {
			g.ADDQ(size, k)
		}
		g.ADDQ(operand.I32(tiles*tileRows*panel), dst)
	})
	scale := g.single("scale")
	g.Load(g.Param("dst"), dst)
	g.Load(g.Param("n"), n)
	g.loop(n, func() {
		x := g.vecs(vecs)
		for i := range x {
			g.VMULPS(at(dst, i*g.isa.vecBytes()), scale, x[i])
		}
		g.storePanel(dst, x, vecs)
		g.ADDQ(operand.I32(panel), dst)
	})
	g.endTiles()
}

// weighTile generates O^T = alpha O^T + V^T P^T, as weighDot does.
func (g *gen) weighTile() {
	g.begin("weigh", "func(o, p, v *float32, steps, dims int, alpha *float32, vecs int)",
		"sets panel o [dims, lanes] to o times alpha [lanes] plus the product of v [dims,",
		"lanes], rows of pairs of keys, and panel p [steps*16, lanes] of such pairs; of lanes,",
		"vecs vectors, 2 or 3. dims is a multiple of 16.")
	g.fork(g.weighTileOf)
}

// weighTileOf is weighTile for so many vectors.
func (g *gen) weighTileOf(vecs int) {
	o, p, v := g.arg("o"), g.arg("p"), g.arg("v")
	dims, row, panel := g.arg("dims"), g.GP64(), g.isa.rowBytes()
	g.fade(o, dims, vecs)
	g.configure()
	g.MOVQ(operand.I32(panel), row)
	g.pairUp(dims, func(tiles int) {
		for at, cols := range strips(vecs) {
			t, off := block{tiles, cols}, at*2*tileBytes
			vp, pp, left := g.GP64(), g.GP64(), g.GP64()
			g.MOVQ(v, vp)
			g.MOVQ(p, pp)
			g.Load(g.Param("steps"), left)
			c := []operand.Mem{rowsAt(o, row, off), rowsAt(o, row, off+tileRows*panel)}
			g.sums(t, c, g.loadTile)
			g.loop(left, func() {
				g.multiply(t,
					[]operand.Mem{rowsAt(vp, row, 0), rowsAt(vp, row, tileRows*panel)},
					rowsAt(pp, row, off))
				g.ADDQ(operand.I32(tileBytes), vp)
				g.ADDQ(operand.I32(tileRows*panel), pp)
			})
			g.sums(t, c, g.storeTile)
		}
		g.ADDQ(operand.I32(tiles*tileRows*panel), o)
		g.ADDQ(operand.I32(tiles*tileRows*panel), v)
	})
	g.endTiles()
}

// fade multiplies the rows of panel o by alpha, unless that is 1 in all lanes: maxima seldom move
// when some tiles have passed.
func (g *gen) fade(o, dims reg.GPVirtual, vecs int) {
	same, left, op, bits := g.label("same"), g.GP64(), g.GP64(), g.GP64()
	by, one := g.loadPanel(g.arg("alpha"), 0, vecs), g.constant("unit")
	g.XORQ(bits, bits)
	for _, x := range by {
		k, lane := g.K(), g.GP64()
		g.VCMPPS(operand.U8(notEqual), one, x, k)
		g.KMOVW(k, lane.As32())
		g.ORQ(lane, bits)
	}
	g.TESTQ(bits, bits)
	g.JZ(operand.LabelRef(same))
	g.MOVQ(o, op)
	g.MOVQ(dims, left)
	g.loop(left, func() {
		for i := range by {
			x := g.vec()
			g.VMULPS(at(op, i*g.isa.vecBytes()), by[i], x)
			g.VMOVUPS(x, at(op, i*g.isa.vecBytes()))
		}
		g.ADDQ(operand.I32(g.isa.rowBytes()), op)
	})
	g.Label(same)
}

// outerTile generates C += A B, as outerDot does.
func (g *gen) outerTile() {
	g.begin("outer", "func(c *float32, a *uint16, b *float32, n, width, steps int)",
		"adds to c [n, width] the product of a, n rows of 64 numbers, and b [steps*16, width],",
		"rows of pairs; steps, 1 or 2, is the 32 numbers of a row that count. n and width are",
		"multiples of 16.")
	c, b, width := g.arg("c"), g.arg("b"), g.arg("width")
	stride, size, row := g.GP64(), g.GP64(), g.GP64()
	g.configure()
	g.MOVQ(operand.I32(wideRow), row)
	g.MOVQ(width, stride)
	g.SHLQ(operand.U8(2), stride)
	g.MOVQ(stride, size)
	g.SHLQ(operand.U8(4), size)
	g.pairUp(width, func(cols int) {
		n, ap, cp := g.arg("n"), g.arg("a"), g.GP64()
		g.MOVQ(c, cp)
		g.pairUp(n, func(rows int) {
			t, now, bp, left, below := block{rows, cols}, g.GP64(), g.GP64(), g.GP64(), g.GP64()
			g.MOVQ(ap, now)
			g.MOVQ(b, bp)
			g.Load(g.Param("steps"), left)
			g.LEAQ(operand.Mem{Base: cp, Index: size, Scale: 1}, below)
			sums := []operand.Mem{rowsAt(cp, stride, 0), rowsAt(below, stride, 0)}
			g.sums(t, sums, g.loadTile)
			g.loop(left, func() {
				g.multiply(t, []operand.Mem{rowsAt(now, row, 0), rowsAt(now, row, tileRows*wideRow)},
					rowsAt(bp, stride, 0))
				g.ADDQ(operand.I32(tileBytes), now)
				g.ADDQ(size, bp)
			})
			g.sums(t, sums, g.storeTile)
			g.ADDQ(operand.I32(rows*tileRows*wideRow), ap)
			for range rows {
				g.ADDQ(size, cp)
			}
		})
		g.ADDQ(operand.I32(cols*tileBytes), b)
		g.ADDQ(operand.I32(cols*tileBytes), c)
	})
	g.endTiles()
}

// peakTile generates products of tiles and nothing else.
func (g *gen) peakTile() {
	g.begin("peak", "func(rounds int)",
		"does rounds rounds, at least 1, of 6 products of tiles, none of which waits for another.")
	n := g.arg("rounds")
	g.configure()
	for i := range 8 {
		g.tile("TILEZERO", tmm(i))
	}
	g.loop(n, func() {
		for i := range 6 {
			g.tile("TDPBF16PS", tmm(7), tmm(6), tmm(i))
		}
	})
	g.endTiles()
}
