package tensors

import (
	"fmt"
	"math"
)

// Float is an element type that Go can hold. BF16 has no such type: its values are held as
// float32 or float64 and rounded with RoundBF16.
type Float interface{ ~float32 | ~float64 }

// DType is the element type of q, k, v and of the results of a problem.
type DType uint8

// The element types of a problem. F32 is the default of every command.
const (
	F32 DType = iota
	F64
	BF16
)

// ParseDType reads the spelling of the command line and of JSON: f32, f64 or bf16, exactly.
func ParseDType(s string) (DType, error) {
	for _, d := range [...]DType{F32, F64, BF16} {
		if s == d.String() {
			return d, nil
		}
	}
	return 0, fmt.Errorf("dtype %.40q is unknown; use f32, bf16 or f64", s)
}

// DTypeOf is the element type that T holds without rounding: F32 or F64.
func DTypeOf[T Float]() DType {
	if float64(T(math.Pi)) == math.Pi { // a float32 cannot hold these digits
		return F64
	}
	return F32
}

// String is the spelling that ParseDType reads.
func (d DType) String() string {
	switch d {
	case F32:
		return "f32"
	case F64:
		return "f64"
	case BF16:
		return "bf16"
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

// Bytes is the size of one element, in memory of a device, on a wire and in a file. It is 0 for
// a value that is none of the constants.
func (d DType) Bytes() int {
	switch d {
	case F32:
		return 4
	case F64:
		return 8
	case BF16:
		return 2
	}
	return 0
}

// AccBytes is the size of one accumulator: running states and travelling gradients are summed in
// f32 for F32 and BF16, in f64 for F64. It is 0 for a value that is none of the constants.
func (d DType) AccBytes() int {
	switch d {
	case F32, BF16:
		return 4
	case F64:
		return 8
	}
	return 0
}
