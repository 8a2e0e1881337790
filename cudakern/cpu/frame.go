package cpu

import (
	"fmt"
	"unsafe"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// frame says what a block holds: which rows and heads of which tensor.
type frame struct {
	header *plan.Header
	tensor plan.Tensor
	heads  mesh.Heads
	set    mesh.Set
	rows   int
}

// frameOf is the region that an operand names.
func frameOf(h *plan.Header, t plan.Tensor, set plan.SetID, heads mesh.Heads) frame {
	return frame{header: h, tensor: t, heads: heads, set: h.Sets[set], rows: h.Sets[set].Len()}
}

// maxParts is the most parts that a block has: those of a visit.
const maxParts = 4

// widths are the elements that each part of a block has for one row and head; a part is one array
// [rows, heads, width].
func (f *frame) widths() [maxParts]int {
	d, dv := f.header.Dim, f.header.VDim
	switch f.tensor {
	case plan.Q, plan.DQ:
		return [maxParts]int{d}
	case plan.KV, plan.DKV, plan.DKVWire:
		return [maxParts]int{d, dv}
	case plan.State:
		return [maxParts]int{dv, 1, 1}
	case plan.Out, plan.Part:
		return [maxParts]int{dv, 1}
	case plan.DO:
		return [maxParts]int{dv}
	case plan.Visit:
		return [maxParts]int{d, dv, 1, 1}
	}
	return [maxParts]int{1} // plan.Delta, plan.Vec, plan.Sum
}

// order is how the parts of a block lie in memory, without gaps. Parts of one accumulator a row
// and head come first, so that elements of 2 bytes, however many, leave accumulators aligned, and
// so that out or part finds its places in the memory of its state:
//
//	state   m   | acc          | l         out, part   lse | out          (rest unused)
//	visit   lse | delta | q | do
func (f *frame) order() [maxParts]int {
	switch f.tensor {
	case plan.State, plan.Out, plan.Part:
		return [maxParts]int{1, 0, 2, 3}
	case plan.Visit:
		return [maxParts]int{2, 3, 0, 1}
	}
	return [maxParts]int{0, 1, 2, 3}
}

// narrowBytes is the width of an attn.BF16.
const narrowBytes = 2

// narrow tells whether part p is of attn.BF16; else it is of accumulators.
func (f *frame) narrow(p int) bool {
	switch f.tensor {
	case plan.DKVWire:
		return true
	case plan.Q, plan.KV, plan.DO:
		return f.header.ElemBytes == narrowBytes
	case plan.Out:
		return p == 0 && f.header.ElemBytes == narrowBytes
	case plan.Visit:
		return p < 2 && f.header.ElemBytes == narrowBytes
	}
	return false
}

// size is the bytes that part p has for one row and head.
func (f *frame) size(p int) int {
	if f.narrow(p) {
		return f.widths()[p] * narrowBytes
	}
	return f.widths()[p] * f.header.AccBytes
}

// items is the rows of all heads.
func (f *frame) items() int { return f.rows * f.heads.Len() }

// width is the elements of one row and head.
func (f *frame) width() int {
	n := 0
	for _, w := range f.widths() {
		n += w
	}
	return n
}

// elems is the number of elements of the block.
func (f *frame) elems() int { return f.items() * f.width() }

// itemBytes is the bytes of one row and head.
func (f *frame) itemBytes() int {
	n := 0
	for p := range maxParts {
		n += f.size(p)
	}
	return n
}

// bytes is the size of the block: plan.Shape.Bytes.
func (f *frame) bytes() int64 { return int64(f.items()) * int64(f.itemBytes()) }

// same reports whether two blocks hold the same region; their headers may be different copies.
func (f *frame) same(o *frame) bool {
	return f.tensor == o.tensor && f.heads == o.heads && f.rows == o.rows &&
		f.header.Dim == o.header.Dim && f.header.VDim == o.header.VDim &&
		f.header.ElemBytes == o.header.ElemBytes && sameRows(f.set, o.set)
}

// String is the region in errors, such as kv of 12 tokens [{0 1 12}], heads 0:2.
func (f frame) String() string {
	return fmt.Sprintf("%v of %d tokens %v, heads %d:%d", f.tensor, f.rows, f.set, f.heads.Lo,
		f.heads.Hi)
}

// view is a block and the region of it that an op names.
type view[T attn.Float] struct {
	mem []byte
	frame
	region frame
	row    int // at which the region's rows begin: see run
}

// part8 is the memory of part p of the block.
func (v *view[T]) part8(p int) []byte {
	at, n := 0, v.items()
	for _, q := range v.order() {
		size := n * v.size(q)
		if q == p {
			return v.mem[at : at+size : at+size]
		}
		at += size
	}
	return nil
}

// part is part p of the block, of accumulators.
func (v *view[T]) part(p int) []T { return cast[T](v.part8(p)) }

// part16 is part p of the block, of attn.BF16.
func (v *view[T]) part16(p int) []attn.BF16 { return cast[attn.BF16](v.part8(p)) }

// run finds the row at which the region begins and reports whether it is consecutive rows of the
// block with all heads. Its parts are then slices of the block's: cut8, cut, cut16.
func (v *view[T]) run() bool {
	row, ok := runOf(v.region.set, v.set)
	v.row = row
	return ok && v.region.heads == v.heads
}

func (v *view[T]) cut8(p int) []byte {
	n := v.heads.Len() * v.size(p)
	return v.part8(p)[v.row*n : (v.row+v.region.rows)*n]
}

func (v *view[T]) cut(p int) []T { return cast[T](v.cut8(p)) }

func (v *view[T]) cut16(p int) []attn.BF16 { return cast[attn.BF16](v.cut8(p)) }

// cast is memory as elements of E. Parts lie where those are aligned: see order.
func cast[E attn.Elem](mem []byte) []E {
	n := len(mem) / int(unsafe.Sizeof(E(0)))
	return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(mem))), n)
}
