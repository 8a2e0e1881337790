package simd

import "github.com/kvloom/kvloom/attn"

// A weight of 0 times a NaN or an infinity is NaN, and a product of panels takes in every row. So
// where a pair is forbidden and the row is not finite, the product is made of a copy of the rows
// with 0 in those places, and what belongs there is added for the allowed pairs alone, one by one.

// cleaned is r with 0 in place of what is not finite, in sc.clean.
func (sc *Scratch) cleaned(r *rows) rows {
	pad := padded(r.w)
	if !r.clean {
		r.clean = true
		for i := range max(r.n, minKeys) {
			to := sc.clean[i*pad : (i+1)*pad]
			clear(to)
			if i >= r.n {
				continue
			}
			for c, x := range r.data[i*r.step:][:r.w] {
				if isFinite(x) {
					to[c] = x
				}
			}
		}
	}
	return rows{data: sc.clean, step: pad, n: r.n, w: r.w}
}

// patchPanel adds to panel o [w, lanes] what cleaned left out of rows r: weights p [.., lanes] of
// keys from see.lo on.
func (sc *Scratch) patchPanel(isa ISA, o, p []float32, r *rows, see seen) {
	width := isa.lanes()
	for key := see.lo; key < min(see.hi, r.n); key++ {
		word, weights := sc.words[key], p[(key-see.lo)*width:][:width]
		for c, x := range r.data[key*r.step:][:r.w] {
			if isFinite(x) {
				continue
			}
			to := o[c*width:][:width]
			for i, w := range weights {
				if word>>i&1 != 0 {
					to[i] += w * x
				}
			}
		}
	}
}

// dropOdd sets what is not finite to 0 in a group's copy of its rows.
func dropOdd(a []float32) {
	for i, x := range a {
		if !isFinite(x) {
			a[i] = 0
		}
	}
}

// patchRows adds to the rows of dst [keys, padded(w)] what dropOdd took out of src [items, w]:
// weights p [keys, lanes], both from see.lo on.
func patchRows[E attn.Elem](sc *Scratch, isa ISA, dst, p []float32, src []E, g *lanes, w int,
	see seen,
) {
	width, pad := isa.lanes(), padded(w)
	row := sc.row[:w]
	for i, item := range g.item[:g.n] {
		loadRow(isa, row, src[item*w:][:w])
		for c, x := range row {
			if isFinite(x) {
				continue
			}
			for key := see.lo; key < see.hi; key++ {
				if see.all || sc.words[key]>>i&1 != 0 {
					dst[(key-see.lo)*pad+c] += p[(key-see.lo)*width+i] * x
				}
			}
		}
	}
}
