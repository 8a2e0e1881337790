package simd

import (
	"math"
	"unsafe"

	"github.com/kvloom/kvloom/attn"
)

// The paths of AVX512BF16 and AMX multiply bf16 numbers as they are, in pairs that follow each
// other along the summed axis, and add both products to a float32. Logits, softmax and all sums are
// float32; weights and their gradients are rounded to bf16 for the next product.
//
//	S^T[c][48]   = scale K Qt           pairs of dims: Qt [d/2, 48], K where it is
//	O^T[dv][48] += V^T P^T              pairs of keys: V and P^T woven
//	dV += P^T dO, dK += dS^T Q          pairs of queries: dO and Q woven, P and dS by rows
//
// Tiles are cut at even keys, so that no pair depends on where a group begins to see; for AMX,
// whose registers take 16 rows of 16 pairs, at multiples of 16 (see amx.go).

const (
	tilePairs = maxKeys / 2           // pairs of keys of a tile
	dimPairs  = 8                     // dims of a pair of keys that lie side by side
	pairBytes = 4 * dimPairs          // their bytes
	dimStride = tilePairs * pairBytes // bytes from there to the next dims
	rowFloats = wideRow / 2           // float32 in the space of a row of weights in bf16
)

// dots is what that path needs besides the rest of a Scratch.
type dots struct {
	k, v  dotRows
	few   [2][]attn.BF16 // keys, values of a tile that cannot be read where they are
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
	if w = amxSteps(w) * stepDims; len(sc.dot.clean) < maxKeys*w {
		sc.dot.clean = make([]attn.BF16, maxKeys*w)
		sc.dot.few = [2][]attn.BF16{make([]attn.BF16, maxKeys*w), make([]attn.BF16, maxKeys*w)}
	}
}

// pathOf is isa, or what it stands for with blocks that do not go the path of pairs: those of other
// elements, and those with odd dims, whose rows would split a pair.
func pathOf[E attn.Elem](isa ISA, b *attn.Block[E]) ISA {
	_, narrow := any(b.Q).([]attn.BF16)
	if isa.dots() && !(narrow && b.D%2 == 0 && b.DV%2 == 0) {
		return AVX512
	}
	return isa
}

// dots reports whether the instruction set multiplies pairs.
func (i ISA) dots() bool { return i >= AVX512BF16 }

// unit is the keys at whose multiples products of weights begin and scores end: a pair's; or those
// of a row of a tile, and of the rows of one.
func (i ISA) unit() (weights, scores int) {
	if i == AMX {
		return stepDims, amxRows
	}
	return 2, 2
}

// rowLanes is the numbers from row to row of weights in bf16.
func (i ISA) rowLanes() int {
	if i == AMX {
		return wideRow
	}
	return maxLanes
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

// dotSource is one head's rows of a tile of src [keys, heads, w]: in place where scores can read
// them there, else copied to buf with zeros beside them. Nobody sees the rows after them, whatever
// they hold.
func dotSource(isa ISA, buf, src []attn.BF16, t *tile, heads, head, w int) dotRows {
	step, from := heads*w, src[(t.row0*heads+head)*w:]
	n, pad := max(t.n, minKeys), w
	if isa == AMX {
		n, pad = ceilDiv(t.n, amxRows)*amxRows, amxSteps(w)*stepDims
	}
	if n == t.n && pad == w && (isa != AMX || 2*step < farApart) {
		return dotRows{from, step}
	}
	if pad > w {
		clear(buf[:n*pad])
	}
	for i := range t.n {
		copy(buf[i*pad:][:w], from[i*step:])
	}
	return dotRows{buf, pad}
}

// weave makes pairs of the n keys, w wide, that begin at r.
func (sc *Scratch) weave(isa ISA, r *dotRows, n, w int) {
	x := &sc.dot
	x.odd = !sc.weavePairs(isa, r.at(0), r.stride(), n, w)
	if x.odd {
		for i := range n {
			copyFinite(x.clean[i*w:(i+1)*w], r.data[i*r.step:])
		}
		sc.weavePairs(isa, word(x.clean), 2*w, n, w)
	}
}

// weavePairs is weave of rows stride bytes apart; it reports whether all numbers are finite.
func (sc *Scratch) weavePairs(isa ISA, from *uint16, stride, n, w int) bool {
	x := &sc.dot
	if isa == AMX {
		return sc.turn(from, stride, n, w)
	}
	if n < minKeys {
		clear(x.woven)
	}
	return pairBF16(&x.woven[0], from, &sc.count[0], stride, n, w, pairBytes, dimStride)
}

// copyFinite fills dst from src, with 0 in place of what is not finite.
func copyFinite(dst, src []attn.BF16) {
	for i := range dst {
		if dst[i] = src[i]; !isFinite(src[i].Float32()) {
			dst[i] = 0
		}
	}
}

// whole widens what is seen to whole units, so that no sum depends on where a group begins to see.
// Where the tile ends inside of one, the keys after it are none: held says how many rows scores
// has, and drop sees to the others.
func (sc *Scratch) whole(isa ISA, s seen) seen {
	weights, scores := isa.unit()
	hi := ceilDiv(s.hi, scores) * scores
	clear(sc.words[s.hi:hi])
	s.lo, s.hi = s.lo&^(weights-1), hi
	return s
}

// held is the keys of what is seen that scores can read, and that may weigh something.
func (s seen) held(isa ISA, t *tile) int {
	if isa == AMX {
		return min(s.hi, t.n) - s.lo
	}
	return min(s.hi, max(t.n, minKeys)) - s.lo
}

// drop makes rows [from, to) of the scores those of keys that weigh nothing.
func (sc *Scratch) drop(from, to int) {
	rows := sc.s[from*maxLanes : to*maxLanes]
	for i := range rows {
		rows[i] = float32(math.Inf(-1))
	}
}

// scoresDot sets dst to the scores of n keys from lo on, of which the tile holds held.
func (sc *Scratch) scoresDot(isa ISA, dst, panel []float32, r *dotRows, lo, n, held, w, vecs int,
	scale float32,
) {
	if isa == AMX {
		scoresAMX(&dst[0], &panel[0], r.at(lo), r.stride(), n, amxSteps(w), vecs, scale)
		return
	}
	scoresBF16(&dst[0], &panel[0], r.at(lo), r.stride(), held, w/2, vecs, scale)
}

// weighDot adds to panel o, times alpha, the product of what weave wove, w wide, and the pairs p of
// n keys from lo on.
func (sc *Scratch) weighDot(isa ISA, o, p []float32, lo, n, w int, alpha *float32, vecs int) {
	woven := sc.dot.woven
	if isa == AMX {
		steps := ceilDiv(n, stepDims)
		clear(p[n/2*maxLanes : steps*amxRows*maxLanes])
		weighAMX(&o[0], &p[0], &woven[lo/2], steps, padded(w), alpha, vecs)
		return
	}
	weighBF16(&o[0], &p[0], &woven[lo/2*dimPairs], dimStride, n/2, (w+7)&^7, alpha, vecs)
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
