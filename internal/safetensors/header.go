package safetensors

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// MaxHeaderBytes is the longest header that is read or written, the limit of the format's own
// library.
const MaxHeaderBytes = 100_000_000

// MaxTensors is the most tensors that a file may hold, and again the most keys of its metadata. The
// largest models have some 100,000 over all their files; a header of MaxHeaderBytes could name
// millions, which would cost time and memory before anything is known to be right.
const MaxTensors = 1 << 18

// MaxDims is the longest shape that is read; numpy's own limit.
const MaxDims = 64

// maxKeys is the most keys of one tensor's entry, and maxDepth how deep the values of those that
// are unknown here may nest. The format has three keys, and none of them nests.
const maxKeys, maxDepth = 16, 64

// metadataKey is the one key of a header that is not a tensor.
const metadataKey = "__metadata__"

// showShape prints a shape for a message, the first dimensions of a long one.
func showShape(shape []int) string {
	const limit = 8
	if len(shape) <= limit {
		return fmt.Sprint(shape)
	}
	return fmt.Sprintf("%v... (%d dimensions)", shape[:limit], len(shape))
}

// checkTensors proves invariants 1 and 2 of the package comment for tensors over dataBytes bytes.
func checkTensors(file string, tensors []Tensor, dataBytes int64) error {
	for i := range tensors {
		if problem := checkTensor(&tensors[i], dataBytes); problem != "" {
			return &Error{File: file, Tensor: tensors[i].Name, Problem: problem}
		}
	}
	order := make([]*Tensor, len(tensors))
	for i := range tensors {
		order[i] = &tensors[i]
	}
	slices.SortFunc(order, func(a, b *Tensor) int {
		if c := cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.End, b.End)); c != 0 {
			return c
		}
		return cmp.Compare(a.Name, b.Name)
	})
	end, last := int64(0), "the start of the data"
	for _, t := range order {
		if t.Begin < end {
			return &Error{File: file, Tensor: t.Name, Problem: fmt.Sprintf(
				"its bytes [%d,%d) overlap those of %s, which end at %d", t.Begin, t.End, last,
				end)}
		}
		if t.Begin > end {
			return &Error{File: file, Tensor: t.Name, Problem: fmt.Sprintf(
				"a hole of %d bytes lies between %s and its first byte %d", t.Begin-end, last,
				t.Begin)}
		}
		end, last = t.End, short(t.Name)
	}
	if end != dataBytes {
		return &Error{File: file, Problem: fmt.Sprintf(
			"%d bytes follow %s, which no tensor holds", dataBytes-end, last)}
	}
	return nil
}

// checkTensor checks one tensor by itself and says what is wrong with it, if anything.
func checkTensor(t *Tensor, dataBytes int64) string {
	if t.Begin > t.End {
		return fmt.Sprintf("data_offsets [%d,%d] run backwards", t.Begin, t.End)
	}
	if t.End > dataBytes {
		return fmt.Sprintf("data_offsets [%d,%d] reach past the %d data bytes of the file, which "+
			"was cut short or is damaged", t.Begin, t.End, dataBytes)
	}
	bits := dtypeBits(t.DType)
	if bits == 0 {
		return ""
	}
	n, ok := elements(t.Shape)
	if !ok || n > math.MaxInt64/bits {
		return "shape " + showShape(t.Shape) + " has more elements than any file holds"
	}
	if n*bits%8 != 0 || n*bits/8 != t.End-t.Begin {
		return fmt.Sprintf("%d elements of %s, shape %s, do not fill data_offsets [%d,%d], "+
			"%d bytes", n, t.DType, showShape(t.Shape), t.Begin, t.End, t.End-t.Begin)
	}
	return ""
}

// elements is the product of a shape; false when it overflows. An empty dimension makes it 0
// whatever the others are; a shape without dimensions is one element.
func elements(shape []int) (int64, bool) {
	if slices.Contains(shape, 0) {
		return 0, true
	}
	n := int64(1)
	for _, d := range shape {
		if int64(d) > math.MaxInt64/n {
			return 0, false
		}
		n *= int64(d)
	}
	return n, true
}

// dtypeBits is the size of one element of the format's dtypes; 0 for others.
func dtypeBits(dtype string) int64 {
	switch dtype {
	case "F4":
		return 4
	case "F6_E2M3", "F6_E3M2":
		return 6
	case "BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ":
		return 8
	case "U16", "I16", "F16", "BF16":
		return 16
	case "U32", "I32", "F32":
		return 32
	case "U64", "I64", "F64", "C64":
		return 64
	}
	return 0
}
