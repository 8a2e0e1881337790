package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tail is the mask of the columns of a last block: a mask register, or a vector of ones.
func (g *gen) tail(columns reg.GPVirtual) reg.Register {
	if g.wide() {
		one, k, count := g.GP64(), g.K(), g.GP64()
		g.MOVQ(columns, count)
		g.MOVQ(operand.I32(1), one)
		g.SHLXQ(count, one, one)
		g.DECQ(one)
		g.KMOVW(one.As32(), k)
		return k
	}
	window, m, back := g.GP64(), g.vec(), g.GP64()
	g.LEAQ(g.consts["window"], window)
	g.MOVQ(columns, back)
	g.SHLQ(operand.U8(2), back)
	g.SUBQ(back, window)
	g.VMOVUPS(at(window, g.isa.vecBytes()), m)
	return m
}

// loadTail loads the columns of mask, 0 elsewhere; without mask, all.
func (g *gen) loadTail(m operand.Mem, mask reg.Register, x reg.VecVirtual) {
	switch {
	case mask == nil:
		g.VMOVUPS(m, x)
	case g.wide():
		g.VMOVUPS_Z(m, mask, x)
	default:
		g.VMASKMOVPS(m, mask, x)
	}
}

// storeTail stores the columns of mask; without mask, all.
func (g *gen) storeTail(x reg.VecVirtual, mask reg.Register, m operand.Mem) {
	switch {
	case mask == nil:
		g.VMOVUPS(x, m)
	case g.wide():
		g.VMOVUPS(x, mask, m)
	default:
		g.VMASKMOVPS(x, mask, m)
	}
}

// transpose gives the columns of a square of as many rows as a vector has lanes.
func (g *gen) transpose(row []reg.VecVirtual) []reg.VecVirtual {
	n := len(row)
	pairs, fours := make([]reg.VecVirtual, n), make([]reg.VecVirtual, n)
	for i := 0; i < n; i += 2 {
		pairs[i], pairs[i+1] = g.vec(), g.vec()
		g.VUNPCKLPS(row[i+1], row[i], pairs[i])
		g.VUNPCKHPS(row[i+1], row[i], pairs[i+1])
	}
	for i := 0; i < n; i += 4 {
		for j := range 2 {
			lo, hi := g.vec(), g.vec()
			g.VUNPCKLPD(pairs[i+2+j], pairs[i+j], lo)
			g.VUNPCKHPD(pairs[i+2+j], pairs[i+j], hi)
			fours[i+2*j], fours[i+2*j+1] = lo, hi
		}
	}
	col := make([]reg.VecVirtual, n)
	for j := range 4 {
		if !g.wide() {
			col[j], col[4+j] = g.vec(), g.vec()
			g.VPERM2F128(operand.U8(0x20), fours[4+j], fours[j], col[j])
			g.VPERM2F128(operand.U8(0x31), fours[4+j], fours[j], col[4+j])
			continue
		}
		for odd, pick := range []operand.U8{0x88, 0xdd} {
			ab, cd := g.vec(), g.vec()
			g.VSHUFF32X4(pick, fours[4+j], fours[j], ab)
			g.VSHUFF32X4(pick, fours[12+j], fours[8+j], cd)
			col[4*odd+j], col[8+4*odd+j] = g.vec(), g.vec()
			g.VSHUFF32X4(operand.U8(0x88), cd, ab, col[4*odd+j])
			g.VSHUFF32X4(operand.U8(0xdd), cd, ab, col[8+4*odd+j])
		}
	}
	return col
}

// scaled multiplies x by a vector of float64 and rounds once.
func (g *gen) scaled(x, by reg.VecVirtual) {
	if g.wide() {
		lo, hi, y := g.ZMM(), g.ZMM(), g.YMM()
		g.VEXTRACTF64X4(operand.U8(1), x, y)
		g.VCVTPS2PD(x.(reg.VecVirtual).AsY(), lo)
		g.VCVTPS2PD(y, hi)
		g.VMULPD(by, lo, lo)
		g.VMULPD(by, hi, hi)
		g.VCVTPD2PS(lo, x.AsY())
		g.VCVTPD2PS(hi, y)
		g.VINSERTF64X4(operand.U8(1), y, x, x)
		return
	}
	lo, hi, h := g.YMM(), g.YMM(), g.XMM()
	g.VEXTRACTF128(operand.U8(1), x, h)
	g.VCVTPS2PD(x.AsX(), lo)
	g.VCVTPS2PD(h, hi)
	g.VMULPD(by, lo, lo)
	g.VMULPD(by, hi, hi)
	g.VCVTPD2PSY(lo, x.AsX())
	g.VCVTPD2PSY(hi, h)
	g.VINSERTF128(operand.U8(1), h, x, x)
}

// blocks walks squares of a panel and of the rows behind it: body does the one at column byte
// offset col of the rows items[0..width-1] and at panel, with mask for a last, narrower one.
func (g *gen) blocks(panel, items, width, vecs reg.GPVirtual,
	body func(panel, items, col reg.GPVirtual, mask reg.Register),
) {
	g.loop(vecs, func() {
		pp, col, left := g.GP64(), g.GP64(), g.GP64()
		whole, part, done := g.label("whole"), g.label("part"), g.label("done")
		g.MOVQ(panel, pp)
		g.XORQ(col, col)
		g.MOVQ(width, left)
		g.Label(whole)
		g.CMPQ(left, operand.I32(g.isa.width))
		g.JLT(operand.LabelRef(part))
		body(pp, items, col, nil)
		g.ADDQ(operand.I32(g.isa.width*g.isa.rowBytes()), pp)
		g.ADDQ(operand.I32(g.isa.vecBytes()), col)
		g.SUBQ(operand.I32(g.isa.width), left)
		g.JMP(operand.LabelRef(whole))
		g.Label(part)
		g.TESTQ(left, left)
		g.JZ(operand.LabelRef(done))
		body(pp, items, col, g.tail(left))
		g.Label(done)
		g.ADDQ(operand.I32(8*g.isa.width), items)
		g.ADDQ(operand.I32(g.isa.vecBytes()), panel)
	})
}

// pack generates the way from rows to a panel, plain and times a scale.
func (g *gen) pack() {
	const args = "dst, src *float32, items *int, rowBytes, width, vecs int"
	for _, scale := range []bool{false, true} {
		if scale {
			g.begin("packScaled", "func("+args+", scale, rest float32)",
				"is pack times the sum of scale and rest, rounded once.")
		} else {
			g.begin("pack", "func("+args+")",
				"sets panel dst [width, lanes] to the columns of rows items[i] of src, each",
				"rowBytes long; of lanes, vecs vectors. dst goes on to a multiple of a vector",
				"in its rows, which become 0.")
		}
		dst, src, items := g.arg("dst"), g.arg("src"), g.arg("items")
		bytes, width, vecs := g.arg("rowBytes"), g.arg("width"), g.arg("vecs")
		var by, rest reg.VecVirtual
		if scale {
			by, rest = g.single("scale"), g.single("rest")
		}
		g.blocks(dst, items, width, vecs, func(panel, items, col reg.GPVirtual, mask reg.Register) {
			base, off := g.GP64(), g.GP64()
			g.LEAQ(operand.Mem{Base: src, Index: col, Scale: 1}, base)
			row := g.vecs(g.isa.width)
			for i := range row {
				g.MOVQ(at(items, 8*i), off)
				g.IMULQ(bytes, off)
				g.loadTail(operand.Mem{Base: base, Index: off, Scale: 1}, mask, row[i])
				if scale {
					part := g.vec()
					g.VMULPS(rest, row[i], part)
					g.VFMADD213PS(part, by, row[i])
				}
			}
			for i, c := range g.transpose(row) {
				g.VMOVUPS(c, at(panel, i*g.isa.rowBytes()))
			}
		})
		g.end()
	}
}

// unpack generates the way back, plain and past the caches.
func (g *gen) unpack() {
	for _, past := range []bool{false, true} {
		if past {
			g.begin("unpackPast", "func(dst, src *float32, items *int, rowBytes, width, vecs int)",
				"is unpack past the caches; rows begin at multiples of 64 bytes, and width is",
				"a multiple of 16.")
		} else {
			g.begin("unpack", "func(dst, src *float32, items *int, rowBytes, width, vecs int)",
				"sets rows items[i] of dst, each rowBytes long, to the columns of panel src",
				"[width, lanes], of vecs vectors. src goes on to a multiple of a vector in its",
				"rows.")
		}
		dst, src, items := g.arg("dst"), g.arg("src"), g.arg("items")
		bytes, width, vecs := g.arg("rowBytes"), g.arg("width"), g.arg("vecs")
		g.blocks(src, items, width, vecs,
			func(panel, items, col reg.GPVirtual, mask reg.Register) {
				base, off := g.GP64(), g.GP64()
				g.LEAQ(operand.Mem{Base: dst, Index: col, Scale: 1}, base)
				row := g.vecs(g.isa.width)
				for i := range row {
					g.VMOVUPS(at(panel, i*g.isa.rowBytes()), row[i])
				}
				for i, c := range g.transpose(row) {
					g.MOVQ(at(items, 8*i), off)
					g.IMULQ(bytes, off)
					to := operand.Mem{Base: base, Index: off, Scale: 1}
					if past && mask == nil {
						g.VMOVNTPS(c, to)
						continue
					}
					g.storeTail(c, mask, to)
				}
			})
		if past {
			g.SFENCE() // such stores are seen by others in any order, but for this
		}
		g.end()
	}
}

// touch generates prefetches: what was read or written long ago takes as long to come back as the
// work on it, unless it is asked for before other work.
func (g *gen) touch() {
	g.begin("touch", "func(src *byte, items *int, n, rowBytes, bytes int)",
		"asks the caches for bytes bytes of each of n rows items[i] of src, each rowBytes",
		"long. n and bytes are at least 1.")
	src, items, n := g.arg("src"), g.arg("items"), g.arg("n")
	rowBytes, bytes := g.arg("rowBytes"), g.arg("bytes")
	g.loop(n, func() {
		p, left := g.GP64(), g.GP64()
		g.MOVQ(at(items, 0), p)
		g.IMULQ(rowBytes, p)
		g.ADDQ(src, p)
		g.MOVQ(bytes, left)
		line := g.label("line")
		g.Label(line)
		g.PREFETCHT1(at(p, 0))
		g.ADDQ(operand.I32(64), p)
		g.SUBQ(operand.I32(64), left)
		g.JG(operand.LabelRef(line))
		g.ADDQ(operand.I32(8), items)
	})
	g.RET()
}
