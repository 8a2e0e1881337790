package tensors

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"testing"

	"pgregory.net/rapid"
)

type named float32 // the constraint admits named types, so they must work too

func TestDType(t *testing.T) {
	for _, c := range []struct {
		d          DType
		s          string
		bytes, acc int
	}{{F32, "f32", 4, 4}, {F64, "f64", 8, 8}, {BF16, "bf16", 2, 4}} {
		got, err := ParseDType(c.s)
		if err != nil || got != c.d || c.d.String() != c.s {
			t.Errorf("ParseDType(%q) = %v, %v; want %v", c.s, got, err, c.d)
		}
		if c.d.Bytes() != c.bytes || c.d.AccBytes() != c.acc {
			t.Errorf("%v: %d and %d bytes, want %d and %d", c.d, c.d.Bytes(), c.d.AccBytes(),
				c.bytes, c.acc)
		}
	}
	for _, s := range []string{"", "F32", "f16", "f32 ", "float32", "dtype(3)"} {
		if d, err := ParseDType(s); err == nil {
			t.Errorf("ParseDType(%q) gave %v", s, d)
		}
	}
	if DTypeOf[float32]() != F32 || DTypeOf[named]() != F32 || DTypeOf[float64]() != F64 {
		t.Error("DTypeOf is wrong")
	}
	if DType(9).Bytes() != 0 || DType(9).AccBytes() != 0 || DType(9).String() != "dtype(9)" {
		t.Error("a value that is no dtype has a size or a name")
	}
}

func TestAppendBytes(t *testing.T) {
	for _, c := range []struct {
		d    DType
		want []byte
	}{
		{F32, []byte{0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0}},
		{F64, []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0, 0, 0, 0x04, 0xc0}},
		{BF16, []byte{0x80, 0x3f, 0x20, 0xc0}},
	} {
		if got := Append([]byte{7}, c.d, []float64{1, -2.5}); !bytes.Equal(got[1:], c.want) {
			t.Errorf("%v: % x, want % x", c.d, got[1:], c.want)
		}
	}
}

func TestCodecKeepsBits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOf(rapid.Uint64()).Draw(t, "words")
		narrow, wide := make([]float32, len(words)), make([]float64, len(words))
		for i, w := range words {
			narrow[i], wide[i] = math.Float32frombits(uint32(w)), math.Float64frombits(w)
		}
		pad := rapid.IntRange(0, 7).Draw(t, "misalignment")
		b := Append(make([]byte, pad), F64, wide)
		back := make([]float64, len(wide))
		Decode(back, F64, b[pad:])
		b32 := Append(make([]byte, pad), F32, narrow)
		back32 := make([]float32, len(narrow))
		Decode(back32, F32, b32[pad:])
		for i := range words {
			if math.Float64bits(back[i]) != math.Float64bits(wide[i]) ||
				math.Float32bits(back32[i]) != math.Float32bits(narrow[i]) {
				t.Fatalf("element %d: %x %x came back as %x %x", i, wide[i], narrow[i], back[i],
					back32[i])
			}
		}
		if Digest(wide) != sum(b[pad:]) || Digest(narrow) != sum(b32[pad:]) {
			t.Fatal("the digest is not the sha256 of the bytes")
		}
		if DigestAs(BF16, narrow) != sum(Append(nil, BF16, narrow)) {
			t.Fatal("the bf16 digest is not the sha256 of the bf16 bytes")
		}
	})
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

func TestDigestAcrossChunks(t *testing.T) {
	const chunk = digestChunk
	for _, n := range []int{0, 1, chunk - 1, chunk, chunk + 1, 3*chunk + 5} {
		x := Draw[float32](1, "x", n)
		if got, want := Digest(x), sum(Append(nil, F32, x)); got != want {
			t.Errorf("%d elements: %s, want %s", n, got, want)
		}
	}
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	if got := Digest[float32](nil); got != empty {
		t.Errorf("no elements: %s, want %s", got, empty)
	}
}

func TestDecodeRefuses(t *testing.T) {
	if !panics(func() { Decode(make([]float32, 2), F32, make([]byte, 7)) }) {
		t.Error("7 bytes were read as two f32")
	}
	if !panics(func() { Decode(make([]float32, 0), DType(9), nil) }) {
		t.Error("an unknown dtype was read")
	}
	if !panics(func() { Append(nil, DType(9), []float32{1}) }) {
		t.Error("an unknown dtype was written")
	}
}

func TestBF16(t *testing.T) {
	inf, nan := float32(math.Inf(1)), math.Float32frombits(0x7f800001)
	for _, c := range []struct {
		x    float32
		want uint16
	}{
		{0, 0}, {1, 0x3f80}, {-1, 0xbf80}, {inf, 0x7f80}, {-inf, 0xff80},
		{1 + 0x1p-8, 0x3f80},           // a tie goes to the even neighbour below
		{1 + 0x3p-8, 0x3f82},           // a tie goes to the even neighbour above
		{1 + 0x1p-8 + 0x1p-23, 0x3f81}, // just over a tie
		{math.MaxFloat32, 0x7f80},      // rounds up out of range
		{0x1.fep127, 0x7f7f},           // the largest finite one
		{nan, 0x7fc0}, {-nan, 0xffc0},  // payload only in the lower half
		{0x1p-133, 1}, {0x1p-134, 0}, // smallest subnormal; a tie with zero
		{float32(0x1.8p-134), 1}, // above that tie
		{-math.SmallestNonzeroFloat32, 0x8000},
	} {
		if got := ToBF16(c.x); got != c.want {
			t.Errorf("ToBF16(%v) = %#04x, want %#04x", c.x, got, c.want)
		}
	}
	for b := range 1 << 16 {
		x := FromBF16(uint16(b))
		if x == x && ToBF16(x) != uint16(b) {
			t.Fatalf("%#04x is %v, which rounds to %#04x", b, x, ToBF16(x))
		}
		if x != x && FromBF16(ToBF16(x)) == FromBF16(ToBF16(x)) {
			t.Fatalf("NaN %#04x became a number", b)
		}
	}
}

func TestRoundBF16(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float32().Draw(t, "x")
		got := []float32{x}
		RoundBF16(got)
		down := math.Float32bits(x) &^ 0xffff
		lo := math.Float32frombits(down)            // toward zero
		hi := math.Float32frombits(down + 0x1_0000) // away from zero
		d := math.Abs(float64(got[0]) - float64(x))
		if !math.IsInf(float64(hi), 0) && d > min(math.Abs(float64(lo)-float64(x)),
			math.Abs(float64(hi)-float64(x))) {
			t.Fatalf("%v rounds to %v, between %v and %v", x, got[0], lo, hi)
		}
	})
}

func BenchmarkDigestF32(b *testing.B) {
	x := Draw[float32](1, "x", 1<<18)
	b.SetBytes(int64(4 * len(x)))
	for b.Loop() {
		Digest(x)
	}
}
