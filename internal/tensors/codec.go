package tensors

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
)

// digestChunk is how many elements are turned into bytes at once: small enough for the cache,
// large enough that the hash sees long runs.
const digestChunk = 4096

// Append appends data to dst as little-endian elements of dtype d and returns the longer slice.
// A narrower d rounds to nearest, ties to even; float64 goes to BF16 by way of float32. It
// panics when d is none of the constants.
func Append[T Float](dst []byte, d DType, data []T) []byte {
	switch d {
	case F32:
		for _, x := range data {
			dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(x)))
		}
	case F64:
		for _, x := range data {
			dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(float64(x)))
		}
	case BF16:
		for _, x := range data {
			dst = binary.LittleEndian.AppendUint16(dst, ToBF16(float32(x)))
		}
	default:
		panic(fmt.Sprintf("tensors: Append to %v", d))
	}
	return dst
}

// Decode reads len(dst) little-endian elements of dtype d from the start of src, at whatever
// alignment it has. F64 into float32 rounds to nearest; every other pair is exact. It panics when
// src is too short or d is none of the constants.
func Decode[T Float](dst []T, d DType, src []byte) {
	if d.Bytes() == 0 || len(src)/d.Bytes() < len(dst) {
		panic(fmt.Sprintf("tensors: Decode of %d elements of %v from %d bytes",
			len(dst), d, len(src)))
	}
	switch d {
	case F32:
		for i := range dst {
			dst[i] = T(math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:])))
		}
	case F64:
		for i := range dst {
			dst[i] = T(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])))
		}
	case BF16:
		for i := range dst {
			dst[i] = T(FromBF16(binary.LittleEndian.Uint16(src[2*i:])))
		}
	}
}

// Digest is the sha256, in hex, of the little-endian bytes of data in the order of the slice,
// which for a tensor [S, heads, D] in token order is row-major. The dtype is T's own.
func Digest[T Float](data []T) string { return DigestAs(DTypeOf[T](), data) }

// DigestAs is Digest of data as elements of dtype d: what a file would hold of bf16 results that
// are kept in float32. It panics when d is none of the constants.
func DigestAs[T Float](d DType, data []T) string {
	h := sha256.New()
	buf := make([]byte, 0, min(len(data), digestChunk)*d.Bytes())
	for len(data) > 0 {
		n := min(len(data), digestChunk)
		h.Write(Append(buf[:0], d, data[:n])) // a hash never fails to take bytes
		data = data[n:]
	}
	return hex.EncodeToString(h.Sum(nil))
}

// ToBF16 is x as bfloat16 bits: the upper half of a float32, rounded to nearest, ties to even.
// A NaN keeps its sign and upper payload and becomes quiet.
func ToBF16(x float32) uint16 {
	b := math.Float32bits(x)
	if x != x {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// FromBF16 is the value of bfloat16 bits, exactly.
func FromBF16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// RoundBF16 rounds each element to the nearest bfloat16 value, in place.
func RoundBF16[T Float](data []T) {
	for i, x := range data {
		data[i] = T(FromBF16(ToBF16(float32(x))))
	}
}
