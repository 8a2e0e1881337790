package tiles

import (
	"encoding/binary"
	"math"
)

// dotScratch has the factors of TDPBF16PS as float32: bf16 numbers, subnormal ones replaced by 0.
type dotScratch struct {
	a [2 * maxRows]float32             // one row of A: pairs along k
	b [maxRows / 4][maxRows][8]float32 // four columns of B at a time: for each k four pairs
}

// span is the least and largest exponent (as encoded) of the numbers of a set that are not 0.
type span struct{ least, most uint32 }

// pair makes float32 of a pair of bf16 numbers, subnormal ones replaced by 0.
func (s *span) pair(row []byte, i int) (first, second float32) {
	w := binary.LittleEndian.Uint32(row[4*i:])
	return s.wide(w << 16), s.wide(w & 0xFFFF0000)
}

func (s *span) wide(bits uint32) float32 {
	e := bits >> 23 & 0xFF
	if e == 0 {
		return math.Float32frombits(bits & 0x80000000)
	}
	s.least, s.most = min(s.least, e), max(s.most, e)
	return math.Float32frombits(bits)
}

// multiply is TDPBF16PS on tiles that fit: for each element of C two sums along k, of the first and
// of the second elements of the pairs, each product added by one rounding; then both sums are added
// to one another, and the result to C.
func (s *State) multiply(c, a, b int) {
	d := &s.dot
	k, n := int(s.colsb[a])/4, int(s.colsb[c])/4
	inB := span{255, 0}
	for i := range k {
		for j := range n {
			p := &d.b[j/4][i]
			p[j%4*2], p[j%4*2+1] = inB.pair(s.tiles[b][i][:], j)
		}
	}
	for m := range int(s.rows[c]) {
		inA := span{255, 0}
		for j := range k {
			d.a[2*j], d.a[2*j+1] = inA.pair(s.tiles[a][m][:], j)
		}
		row := s.tiles[c][m][:]
		plain := isPlain(inA, inB)
		for j := 0; j < n; j += 4 {
			var t [8]float32
			if plain {
				t = sumsPlain(d.a[:2*k], &d.b[j/4])
			} else {
				t = sums(d.a[:2*k], &d.b[j/4])
			}
			for i := range min(4, n-j) {
				at := row[4*(j+i):]
				old := math.Float32frombits(binary.LittleEndian.Uint32(at))
				sum := add(old, add(t[2*i], t[2*i+1]))
				binary.LittleEndian.PutUint32(at, math.Float32bits(sum))
			}
		}
		clear(row[4*n:])
	}
	clear(s.tiles[c][s.rows[c]:])
}

// isPlain says whether sums of products of such numbers can be computed by float32 operations: no
// product has more than 16 bits, so it is exact if it neither underflows nor overflows; all are
// multiples of 2^(least a + least b - 2*127 - 14), and if that is at least 2^-126 no sum of them is
// subnormal; none of 32 is above 2^127.
func isPlain(a, b span) bool {
	return a.least+b.least >= 2*127+14-126 && a.most+b.most <= 127+2*126-5
}

// sumsPlain is sums for numbers that are plain.
func sumsPlain(a []float32, b *[maxRows][8]float32) [8]float32 {
	var t0, t1, t2, t3, t4, t5, t6, t7 float32
	for k := 0; 2*k+1 < len(a) && k < maxRows; k++ {
		x, y, r := a[2*k], a[2*k+1], &b[k]
		t0 += x * r[0]
		t1 += y * r[1]
		t2 += x * r[2]
		t3 += y * r[3]
		t4 += x * r[4]
		t5 += y * r[5]
		t6 += x * r[6]
		t7 += y * r[7]
	}
	return [8]float32{t0, t1, t2, t3, t4, t5, t6, t7}
}

// sums adds up the products of a row of A and four columns of B, first and second elements apart.
func sums(a []float32, b *[maxRows][8]float32) (t [8]float32) {
	for k := range len(a) / 2 {
		for i := range t {
			t[i] = mulAdd(a[2*k+i%2], b[k][i], t[i])
		}
	}
	return t
}

// mulAdd is a*b+c rounded once, of numbers that are not subnormal, a and b with 8 bits. The product
// is exact in float64, and a float64 sum of numbers of at most 24 bits rounds to the float32 that
// the exact sum rounds to, as it has more than 2*24+2 bits (Figueroa, When is double rounding
// innocuous?).
func mulAdd(a, b, c float32) float32 { return flush(float64(a)*float64(b) + float64(c)) }

// least is below all numbers that round to a normal float32 where the exponent has no limit.
const least = 0x1p-126 - 0x1p-151

// flush rounds to float32; what is subnormal after rounding becomes 0. A NaN is quiet.
func flush(x float64) float32 {
	if math.Abs(x) < least {
		return float32(math.Copysign(0, x))
	}
	return float32(x)
}

// add is a+b, subnormal numbers taken for zeros, also in the result: that is not rounded, as all
// float32 are multiples of the least subnormal one.
func add(a, b float32) float32 { return daz(daz(a) + daz(b)) }

func daz(x float32) float32 {
	if b := math.Float32bits(x); b&0x7F800000 == 0 {
		return math.Float32frombits(b & 0x80000000)
	}
	return x
}
