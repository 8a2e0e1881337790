package tensors

import (
	"bytes"
	"math"
	"testing"
)

// FuzzDecode: any bytes are elements of any dtype, at any alignment and into either type; what is
// decoded without rounding is encoded to the same bytes again, but that a NaN becomes quiet when it
// passes through another width.
func FuzzDecode(f *testing.F) {
	f.Add(uint8(0), uint8(1), []byte{9, 0, 0, 0x80, 0x3f, 1, 0, 0x80, 0x7f})
	f.Add(uint8(1), uint8(0), []byte{0, 0, 0, 0, 0, 0, 0x04, 0xc0, 1, 0, 0, 0, 0, 0, 0xf0, 0x7f})
	f.Add(uint8(2), uint8(3), []byte{0, 0, 0, 0x80, 0x3f, 0x81, 0xff, 0x80, 0x7f, 1, 0})
	f.Fuzz(func(t *testing.T, dtype, skip uint8, src []byte) {
		d := DType(dtype % 3)
		src = src[min(int(skip%8), len(src)):]
		n := len(src) / d.Bytes()
		src = src[:n*d.Bytes()]
		narrow, double := make([]float32, n), make([]float64, n)
		Decode(narrow, d, src)
		Decode(double, d, src)
		for i, x := range double {
			if y := narrow[i]; float32(x) != y && (x == x || y == y) {
				t.Fatalf("element %d of %v is %v as float64 and %v as float32", i, d, x, y)
			}
		}
		for i, got := range [][]byte{Append(nil, d, narrow), Append(nil, d, double)} {
			for j := range n {
				at := j * d.Bytes()
				a, b := got[at:at+d.Bytes()], src[at:at+d.Bytes()]
				exact := i == 1 || d != F64
				if x := double[j]; x == x && exact && !bytes.Equal(a, b) {
					t.Fatalf("element %d of %v, %v: % x became % x", j, d, x, b, a)
				}
			}
		}
		if d == F32 && !bytes.Equal(Append(nil, d, narrow), src) ||
			d == F64 && !bytes.Equal(Append(nil, d, double), src) {
			t.Fatalf("bits of %v were lost, of a NaN perhaps: % x", d, src)
		}
		if n > 0 {
			wantShort(t, d, src, n)
		}
		for i := range double { // the same in bf16 and back, so rounding twice is rounding once
			once := FromBF16(ToBF16(narrow[i]))
			if twice := FromBF16(ToBF16(once)); math.Float32bits(once) != math.Float32bits(twice) {
				t.Fatalf("%v rounds to %v and then to %v", narrow[i], once, twice)
			}
		}
	})
}

// wantShort: one byte too few is never read over.
func wantShort(t *testing.T, d DType, src []byte, n int) {
	t.Helper()
	if !panics(func() { Decode(make([]float32, n), d, src[:len(src)-1]) }) {
		t.Fatalf("%d bytes were read as %d elements of %v", len(src)-1, n, d)
	}
}
