package kernel

import "github.com/kvloom/kvloom/attn"

// dotPair sets s0[c] and s1[c] to the inner products of a0 and of a1 with row c of rows, whose rows
// are as long as a0. len(s0) = len(s1) is even; when rows has one row less, the last products are
// doubled and of no use.
//
// Two by two products at a time: four sums, their operands and terms fit the 15 registers that Go
// has for floats; larger blocks are spilled and run at half the speed. Four terms go into a sum at
// once, since an addition to it must wait for the one before.
func dotPair[T attn.Float](a0, a1, rows, s0, s1 []T) {
	w := len(a0)
	a1, s1 = a1[:len(a0)], s1[:len(s0)]
	for c := 0; c < len(s0)-1; c += 2 {
		b0 := rows[:len(a0)]
		b1 := b0
		if rows = rows[w:]; len(rows) >= w {
			b1, rows = rows, rows[w:]
		}
		b1 = b1[:len(a0)]
		var c00, c01, c10, c11 T
		i := 0
		for ; i < len(a0)-3; i += 4 {
			x0, x1, y0, y1 := a0[i], a0[i+1], a1[i], a1[i+1]
			u, v := b0[i], b0[i+1]
			t00 := x0*u + x1*v
			t10 := y0*u + y1*v
			u, v = b1[i], b1[i+1]
			t01 := x0*u + x1*v
			t11 := y0*u + y1*v
			x0, x1, y0, y1 = a0[i+2], a0[i+3], a1[i+2], a1[i+3]
			u, v = b0[i+2], b0[i+3]
			c00 += t00 + (x0*u + x1*v)
			c10 += t10 + (y0*u + y1*v)
			u, v = b1[i+2], b1[i+3]
			c01 += t01 + (x0*u + x1*v)
			c11 += t11 + (y0*u + y1*v)
		}
		for ; i < len(a0); i++ {
			x, y, u, v := a0[i], a1[i], b0[i], b1[i]
			c00 += x * u
			c10 += y * u
			c01 += x * v
			c11 += y * v
		}
		s0[c], s0[c+1] = c00, c01
		s1[c], s1[c+1] = c10, c11
	}
}

// weights are the weights of one pair of rows of sums in a tile: row i of the addends has weight
// tile[i*step] in the first row of sums, where bit i of allow0 is set, and tile[i*step+other] in
// the second, where bit i of allow1 is. What lies under a bit not set is not read.
type weights[T attn.Float] struct {
	tile           []T
	step, other    int
	allow0, allow1 uint64
}

// axpyPair sets the two rows o0 and o1 to the weighted sums of rows, whose rows are as long as o0.
//
// Where four addends in a row belong to both sums they go in together, so that a sum is loaded and
// stored once in four products and an addend serves two. The others go in one by one, because a
// weight of 0 would still carry over the NaN or infinity of a row that must not be seen.
func axpyPair[T attn.Float](o0, o1, rows []T, by weights[T]) {
	n := len(o0)
	o1 = o1[:len(o0)]
	clear(o0)
	clear(o1)
	either, both := by.allow0|by.allow1, by.allow0&by.allow1
	if either == 0 {
		return
	}
	lo, hi := hull(either)
	for at := lo &^ 3; at < hi; at += 4 {
		if both>>at&15 != 15 {
			axpyEach(o0, rows, by.tile, by.step, at, by.allow0)
			if by.other != 0 {
				axpyEach(o1, rows, by.tile[by.other:], by.step, at, by.allow1)
			}
			continue
		}
		t := by.tile[at*by.step:]
		p00, p01, p02, p03 := t[0], t[by.step], t[2*by.step], t[3*by.step]
		t = t[by.other:]
		p10, p11, p12, p13 := t[0], t[by.step], t[2*by.step], t[3*by.step]
		four := rows[at*n : (at+4)*n]
		v0, v1 := four[:len(o0)], four[n:][:len(o0)]
		v2, v3 := four[2*n:][:len(o0)], four[3*n:][:len(o0)]
		for i := range o0 {
			a, b, c, d := v0[i], v1[i], v2[i], v3[i]
			o0[i] += (p00*a + p01*b) + (p02*c + p03*d)
			o1[i] += (p10*a + p11*b) + (p12*c + p13*d)
		}
	}
}

// axpyEach adds to o the allowed ones of rows at ... at+3, one by one.
func axpyEach[T attn.Float](o, rows, tile []T, step, at int, allow uint64) {
	for r := at; r < at+4; r++ {
		if allow>>r&1 == 0 {
			continue
		}
		p, v := tile[r*step], rows[r*len(o):][:len(o)]
		for i, x := range v {
			o[i] += p * x
		}
	}
}
