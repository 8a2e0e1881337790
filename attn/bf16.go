package attn

import "math"

// BF16 is a bfloat16 number by its bits: the upper half of a float32, 8 bits of exponent and 7 of
// fraction.
type BF16 uint16

// Elem is an element type of q, k, v and do. Where it is narrower than the accumulators, whose type
// is a Float, it is widened when it is read. Arithmetic on a BF16 itself is never meant: it is an
// integer to Go.
type Elem interface{ ~float32 | ~float64 | BF16 }

// Float32 is the number, exactly.
func (b BF16) Float32() float32 { return math.Float32frombits(uint32(b) << 16) }

// quietNaN is set in the fraction of every NaN that is made, as its other bits may be cut off.
const quietNaN = 1 << 6

// ToBF16 rounds to the nearest BF16, to the even one of two that are as near (IEEE 754). What lies
// beyond the largest by half a step or more is infinite; a NaN stays one and is made quiet.
func ToBF16(x float32) BF16 {
	bits := math.Float32bits(x)
	if x != x {
		return BF16(bits>>16) | quietNaN
	}
	return BF16((bits + 0x7fff + bits>>16&1) >> 16)
}

// Widen sets dst to the numbers of src, exactly. It panics when the lengths differ.
func Widen[T Float](dst []T, src []BF16) {
	mustBeAsLong("widen", len(dst), len(src))
	dst = dst[:len(src)]
	for n, x := range src {
		dst[n] = T(x.Float32())
	}
}

// Narrow sets dst to src, each number rounded once, as ToBF16 does. It panics when the lengths
// differ.
func Narrow[T Float](dst []BF16, src []T) {
	mustBeAsLong("narrow", len(dst), len(src))
	dst = dst[:len(src)]
	for n, x := range src {
		dst[n] = ToBF16(toOdd(float64(x)))
	}
}

// toOdd rounds to float32 such that rounding the result again, to fewer bits, gives what rounding x
// itself to them gives: a number between two float32 becomes the one of them with an odd fraction,
// and so never one half-way between two BF16 (Boldo and Melquiond, Emulation of a FMA and correctly
// rounded sums, 2008).
func toOdd(x float64) float32 {
	near := float32(x)
	if back := float64(near); back == x || x != x {
		return near
	}
	bits := math.Float32bits(near)
	if math.Abs(float64(near)) > math.Abs(x) {
		bits-- // towards 0; from infinity to the largest number
	}
	return math.Float32frombits(bits | 1)
}

// WidenBlock is the block with q, k and v in T, in arrays of its own: what Forward and Backward
// take for a block of BF16.
func WidenBlock[T Float](b *Block[BF16]) Block[T] {
	widened := func(src []BF16) []T {
		dst := make([]T, len(src))
		Widen(dst, src)
		return dst
	}
	return Block[T]{
		QSpans: b.QSpans, KSpans: b.KSpans, QHeads: b.QHeads, KHeads: b.KHeads,
		QHead0: b.QHead0, KHead0: b.KHead0, Group: b.Group, D: b.D, DV: b.DV, Scale: b.Scale,
		SoftCap: b.SoftCap, Mask: b.Mask, Q: widened(b.Q), K: widened(b.K), V: widened(b.V),
	}
}
