package tiles

import (
	"encoding/binary"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// exactSum is a*b+c by exact arithmetic, rounded once to 24 bits without a limit of the exponent,
// then flushed.
func exactSum(a, b, c float32) float32 {
	a, b, c = daz(a), daz(b), daz(c)
	exact := func(x float32) *big.Float {
		return new(big.Float).SetPrec(600).SetFloat64(float64(x))
	}
	sum := new(big.Float)
	if a-a == 0 && b-b == 0 && c-c == 0 { // finite
		sum = exact(0).Mul(exact(a), exact(b))
		sum.Add(sum, exact(c))
	}
	if sum.Sign() == 0 { // NaN, infinities and signs of zeros are as in float64
		return float32(float64(a)*float64(b) + float64(c))
	}
	sum.SetMode(big.ToNearestEven).SetPrec(24)
	if sum.MantExp(nil) < -125 {
		return float32(math.Copysign(0, float64(sum.Sign())))
	}
	f, _ := sum.Float32()
	return f
}

// sameFloats says whether both have the same bits, or are quiet NaN.
func sameFloats(x, y uint32) bool {
	nan := func(b uint32) bool { return b&0x7FC00000 == 0x7FC00000 }
	return x == y || nan(x) && nan(y)
}

// drawBF16 draws numbers of all kinds, and often close to one exponent, where sums cancel.
func drawBF16(t *rapid.T, base uint16) uint16 {
	switch rapid.IntRange(0, 19).Draw(t, "kind") {
	case 0:
		return rapid.Uint16().Draw(t, "any")
	case 1:
		return rapid.Uint16().Draw(t, "zero or subnormal") & 0x807F
	default:
		return rapid.Uint16().Draw(t, "number")&0x81FF + base<<7
	}
}

func TestProductIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &State{palette: 1}
		m, k := rapid.IntRange(1, 16).Draw(t, "m"), rapid.IntRange(1, 16).Draw(t, "k")
		n := rapid.IntRange(1, 16).Draw(t, "n")
		s.rows = [8]uint8{uint8(m), uint8(m), uint8(k)}
		s.colsb = [8]uint16{uint16(4 * n), uint16(4 * k), uint16(4 * n)}
		base := rapid.SampledFrom([]uint16{0, 20, 60, 64, 68, 72, 125, 188, 200, 252}).
			Draw(t, "exponent")
		noise := rapid.Uint32().Draw(t, "noise")
		for r := range 16 {
			for i := range 16 {
				noise = noise*1664525 + 1013904223
				binary.LittleEndian.PutUint32(s.tiles[0][r][4*i:], noise>>8|noise<<24)
			}
		}
		for tile := 1; tile < 3; tile++ {
			for r := range int(s.rows[tile]) {
				seed := drawBF16(t, base)
				for i := range int(s.colsb[tile]) / 2 {
					noise = noise*1664525 + 1013904223
					x := seed ^ uint16(noise>>16)&0x80FF
					binary.LittleEndian.PutUint16(s.tiles[tile][r][2*i:], x)
				}
			}
		}
		before, f := s.tiles, math.Float32frombits
		if err := s.Exec(Inst{Op: TDPBF16PS, Src1: 1, Src2: 2}, 0, nil, nil); err != nil {
			t.Fatal(err)
		}
		word := func(tile, r, i int) uint32 {
			return binary.LittleEndian.Uint32(before[tile][r][4*i:])
		}
		for r := range 16 {
			for c := range 16 {
				want := uint32(0)
				if r < m && c < n {
					var even, odd float32
					for i := range k {
						a, b := word(1, r, i), word(2, i, c)
						even = exactSum(f(a<<16), f(b<<16), even)
						odd = exactSum(f(a&^0xFFFF), f(b&^0xFFFF), odd)
					}
					want = math.Float32bits(exactSum(1, f(word(0, r, c)), exactSum(1, even, odd)))
				}
				got := binary.LittleEndian.Uint32(s.tiles[0][r][4*c:])
				if !sameFloats(got, want) {
					t.Fatalf("%dx%dx%d: element (%d,%d) is %#08x, want %#08x", m, k, n, r, c, got,
						want)
				}
			}
		}
	})
}

// TestPlainSumsAreExact compares the sums in float32 with those in float64 wherever the former are
// used, with exponents at the border.
func TestPlainSumsAreExact(t *testing.T) {
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		low := rapid.Uint32Range(1, 141).Draw(t, "least exponent of a")
		if rapid.Bool().Draw(t, "high") {
			low = rapid.Uint32Range(185, 250).Draw(t, "least exponent of a")
		}
		other := 142 - min(low, 141) + rapid.Uint32Range(0, 8).Draw(t, "b") - 5
		if low >= 185 {
			other = 374 - low - rapid.Uint32Range(0, 6).Draw(t, "b")
		}
		other = uint32(min(max(int32(other), 1), 250))
		inA, inB := span{255, 0}, span{255, 0}
		var a [32]float32
		var b [maxRows][8]float32
		draw := func(s *span, low uint32) float32 {
			x := rapid.Uint32Range(0, 1<<10-1).Draw(t, "x") // sign, 2 bits of the exponent, 7 more
			return s.wide(x>>9<<31 | (low+x>>7&3)<<23 | x&0x7F<<16)
		}
		for i := range a {
			a[i] = draw(&inA, low)
		}
		for i := range b {
			for j := range 8 {
				b[i][j] = draw(&inB, other)
			}
		}
		if !isPlain(inA, inB) {
			return
		}
		taken++
		if got, want := sumsPlain(a[:], &b), sums(a[:], &b); got != want {
			t.Fatalf("%v, want %v", got, want)
		}
	})
	if taken < 5 {
		t.Errorf("only %d draws were plain", taken)
	}
	for e := uint32(130); e < 150; e++ { // all but the last bit of two products cancels
		s, of := span{255, 0}, span{255, 0}
		a := []float32{s.wide(64<<23 | 1<<16), 0, s.wide(1<<31 | 64<<23), 0}
		b := [maxRows][8]float32{{of.wide((e-64)<<23 | 1<<16)}, {of.wide((e-64)<<23 | 2<<16)}}
		if isPlain(s, of) && sumsPlain(a, &b) != sums(a, &b) || isPlain(s, of) != (e >= 142) {
			t.Errorf("exponents %d: plain %v, %v and %v", e, isPlain(s, of), sumsPlain(a, &b)[0],
				sums(a, &b)[0])
		}
	}
}

// TestRounding has the numbers where rounding, flushing and overflow turn.
func TestRounding(t *testing.T) {
	f := math.Float32frombits
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	const least, most = 0x1p-126, 0x1.fffffep127
	for _, c := range []struct{ a, b, c, want float32 }{
		{1, 1, 0x1p-24, 1},                      // a tie goes to even
		{1, 1, 0x1.000002p-24, 1 + 0x1p-23},     // just above
		{1 + 0x1p-7, 1 - 0x1p-8, 0, 1.00387573}, // 16 bits of a product
		{0x1p-63, 0x1p-64, 0, 0},                // subnormal product
		{0x1p-63, 0x1p-64, least, 0x1.8p-126},   // it counts where it is added to more
		{0x1p-76, -0x1p-76, least, least},       // 1 - 2^-26 rounds to 1
		{0x1p-75, -0x1p-75, least, 0},           // 1 - 2^-24 does not
		{-0x1p-63, 0x1p-64, 0, f(1 << 31)},      // 0 with the sign of the product
		{0x1p100, 0x1p27, most, inf},            // overflow
		{0x1p100, 0x1p28, -most, 0x1p104},       // none: only the product is above
		{inf, 0, 1, nan}, {inf, 1, -inf, nan}, {nan, 1, 1, nan}, {inf, -1, 1, -inf},
		{f(0x7F810000), 1, 1, nan}, // signalling
	} {
		got, want := math.Float32bits(mulAdd(c.a, c.b, c.c)), math.Float32bits(c.want)
		if !sameFloats(got, want) || !sameFloats(want, math.Float32bits(exactSum(c.a, c.b, c.c))) {
			t.Errorf("%g * %g + %g: got %g, exact %g, want %g", c.a, c.b, c.c, f(got),
				exactSum(c.a, c.b, c.c), c.want)
		}
	}
	if got := add(f(1), f(2)); got != 0 {
		t.Errorf("subnormal inputs count: %g", got)
	}
	if got := add(0x1.8p-126, -least); got != 0 {
		t.Errorf("a subnormal sum stays: %g", got)
	}
}
