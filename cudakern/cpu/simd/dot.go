package simd

import (
	"math"
	"unsafe"

	"github.com/kvloom/kvloom/attn"
)

// The path of AVX512BF16 multiplies bf16 numbers as they are, in pairs that follow each other along
// the summed axis, and adds both products to a float32. Logits, softmax and all sums are float32;
// weights and their gradients are rounded to bf16 for the next product.
//
//	S^T[c][48]   = scale K Qt           pairs of dims: Qt [d/2, 48], K where it is
//	O^T[dv][48] += V^T P^T              pairs of keys: V and P^T woven
//	dV += P^T dO, dK += dS^T Q          pairs of queries: dO and Q woven, P and dS by rows
//
// Tiles are cut at even keys, so that no pair depends on where a group begins to see.

const (
	tilePairs = maxKeys / 2           // pairs of keys of a tile
	dimPairs  = 8                     // dims of a pair of keys that lie side by side
	pairBytes = 4 * dimPairs          // their bytes
	dimStride = tilePairs * pairBytes // bytes from there to the next dims
	rowFloats = maxLanes / 2          // float32 in the space of a row of weights in bf16
)

// dots is what that path needs besides the rest of a Scratch.
type dots struct {
	k, v  dotRows
	few   [2][]attn.BF16 // keys, values of a tile of less than minKeys
	woven []float32      // a tile's pairs of keys, 8 dims after 8 dims
	odd   bool           // not all that was woven is finite: 0 is in its place
	ds    []float32      // [maxKeys, lanes] gradients of scores in bf16
	clean []attn.BF16    // rows without what is not finite
}

// fitDots makes room for the path of pairs.
func (sc *Scratch) fitDots(d, dv int) {
	w := padded(max(d, dv))
	grow(&sc.dot.woven, w/dimPairs*tilePairs*dimPairs)
	grow(&sc.dot.ds, (maxKeys+zeroRows)*rowFloats)
	if len(sc.dot.clean) < maxKeys*w {
		sc.dot.clean = make([]attn.BF16, maxKeys*w)
		sc.dot.few = [2][]attn.BF16{make([]attn.BF16, minKeys*w), make([]attn.BF16, minKeys*w)}
	}
}

// pathOf is isa, or what it stands for with blocks that do not go the path of pairs: those of other
// elements, and those with odd dims, whose rows would split a pair.
func pathOf[E attn.Elem](isa ISA, b *attn.Block[E]) ISA {
	_, narrow := any(b.Q).([]attn.BF16)
	if isa == AVX512BF16 && !(narrow && b.D%2 == 0 && b.DV%2 == 0) {
		return AVX512
	}
	return isa
}

// dotRows are rows of bf16 where scores reads them: row i begins at data[i*step].
type dotRows struct {
	data []attn.BF16
	step int
}

// at is the first number of row i.
func (r *dotRows) at(i int) *uint16 { return word(r.data[i*r.step:]) }

// stride is the bytes from row to row.
func (r *dotRows) stride() int { return 2 * r.step }

// word is the first number of a, as the kernels take it.
func word(a []attn.BF16) *uint16 { return (*uint16)(unsafe.Pointer(&a[0])) }

// bits is a as bf16 numbers; it is nil for other elements.
func bits[E attn.Elem](a []E) []attn.BF16 {
	b, _ := any(a).([]attn.BF16)
	return b
}

// numbers is the space of floats as bf16 numbers.
func numbers(a []float32) []attn.BF16 {
	return unsafe.Slice((*attn.BF16)(unsafe.Pointer(&a[0])), 2*len(a))
}

// dotSource is one head's rows of a tile of src [keys, heads, w]: in place where they are enough,
// else copied to buf with rows of 0 after them.
func dotSource(buf, src []attn.BF16, t *tile, heads, head, w int) dotRows {
	step, from := heads*w, src[(t.row0*heads+head)*w:]
	if t.n >= minKeys {
		return dotRows{from, step}
	}
	clear(buf[:minKeys*w])
	for i := range t.n {
		copy(buf[i*w:(i+1)*w], from[i*step:])
	}
	return dotRows{buf, w}
}

// weave makes pairs of the n keys, w wide, that begin at r.
func (sc *Scratch) weave(r *dotRows, n, w int) {
	x := &sc.dot
	if n < minKeys {
		clear(x.woven)
	}
	x.odd = !pairBF16(&x.woven[0], r.at(0), &sc.count[0], r.stride(), n, w, pairBytes, dimStride)
	if x.odd {
		for i := range n {
			copyFinite(x.clean[i*w:(i+1)*w], r.data[i*r.step:])
		}
		pairBF16(&x.woven[0], word(x.clean), &sc.count[0], 2*w, n, w, pairBytes, dimStride)
	}
}

// copyFinite fills dst from src, with 0 in place of what is not finite.
func copyFinite(dst, src []attn.BF16) {
	for i := range dst {
		if dst[i] = src[i]; !isFinite(src[i].Float32()) {
			dst[i] = 0
		}
	}
}

// pair widens what is seen to even ends. Where the tile ends at an odd one, the key after it is
// none: its scores, of which sc.s and dp have n rows, become -Inf and 0.
func (s seen) pair() seen {
	s.lo &^= 1
	s.hi += s.hi & 1
	return s
}

// held is the keys of what is seen that scores can read.
func (s seen) held(t *tile) int { return min(s.hi, max(t.n, minKeys)) - s.lo }

// dropLast makes row n of the scores that of a key that weighs nothing.
func (sc *Scratch) dropLast(n int) {
	row := sc.s[n*maxLanes : (n+1)*maxLanes]
	for i := range row {
		row[i] = float32(math.Inf(-1))
	}
}

// patchWoven adds to panel o [w, lanes] what weave left out of the w numbers of rows r: weights p,
// [.., lanes] pairs of keys from see.lo on.
func (sc *Scratch) patchWoven(o, p []float32, r *dotRows, n, w int, see seen) {
	weights := numbers(p)
	for key := see.lo; key < min(see.hi, n); key++ {
		at := (key-see.lo)/2*maxLanes*2 + key%2
		for c, x := range r.data[key*r.step:][:w] {
			if isFinite(x.Float32()) {
				continue
			}
			to := o[c*maxLanes:][:maxLanes]
			for i := range to {
				if see.all || sc.words[key]>>i&1 != 0 {
					to[i] += weights[at+2*i].Float32() * x.Float32()
				}
			}
		}
	}
}
