package plan

import (
	"fmt"
	"math"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// Limits of a plan; Validate names the one that a shape breaks.
const (
	MaxTokens = attn.MaxTokens
	MaxHeads  = 1 << 14
	MaxDim    = 1 << 12
)

// Shape is an attention problem without its data. Queries and keys are two sequences, each with
// tokens and owners of its own; in self-attention they have the same length.
//
// A shape whose Dim and VDim are 0 is a collective: each element of some vectors is the sum of what
// QHeads contributors bring to it. Both sequences are then the elements, of all groups one after
// the other; KHeads is 1, and there is no mask, scale, cap or sink.
type Shape struct {
	QTokens, KTokens    int
	QHeads, KHeads      int
	Dim, VDim           int
	ElemBytes, AccBytes int
	Scale               float64
	Mask                attn.Mask
	SoftCap             float64 // of logits (attn.Problem); 0: none
	Sink                bool    // a learned logit a head joins each row's sum (attn.Problem)
}

// Validate refuses shapes that no plan can serve, naming the value and what would work.
func (s *Shape) Validate() error {
	switch {
	case s.Collective():
		return s.validateCollective()
	case s.QTokens < 1 || s.QTokens > MaxTokens:
		return fmt.Errorf("tokens %d: use 1 to %d", s.QTokens, MaxTokens)
	case s.KTokens < 1 || s.KTokens > MaxTokens:
		return fmt.Errorf("key tokens %d: use 1 to %d", s.KTokens, MaxTokens)
	case s.QHeads < 1 || s.QHeads > MaxHeads:
		return fmt.Errorf("heads %d: use 1 to %d", s.QHeads, MaxHeads)
	case s.Dim < 1 || s.Dim > MaxDim:
		return fmt.Errorf("dim %d: use 1 to %d", s.Dim, MaxDim)
	case s.VDim < 1 || s.VDim > MaxDim:
		return fmt.Errorf("v-dim %d: use 1 to %d", s.VDim, MaxDim)
	case math.IsNaN(s.Scale) || math.IsInf(s.Scale, 0):
		return fmt.Errorf("scale %v is not a finite number: use a number such as %.4g",
			s.Scale, 1/math.Sqrt(float64(s.Dim)))
	case math.IsNaN(s.SoftCap) || math.IsInf(s.SoftCap, 0) || s.SoftCap < 0:
		return fmt.Errorf("softcap %v: use a finite number above 0, such as 50, or 0 for none",
			s.SoftCap)
	case s.ElemBytes < 1 || s.AccBytes < s.ElemBytes:
		return fmt.Errorf("element of %d bytes with an accumulator of %d: an accumulator is at "+
			"least as wide as its element", s.ElemBytes, s.AccBytes)
	}
	return mesh.ValidateHeads(s.QHeads, s.KHeads, 1)
}

// Collective tells whether the shape is a collective's.
func (s *Shape) Collective() bool { return s.Dim == 0 && s.VDim == 0 }

// validateCollective is Validate for a collective.
func (s *Shape) validateCollective() error {
	switch {
	case s.QTokens < 1 || s.QTokens > MaxTokens || s.QTokens != s.KTokens:
		return fmt.Errorf("elements %d and %d of a collective: use one number, 1 to %d", s.QTokens,
			s.KTokens, MaxTokens)
	case s.QHeads < 1 || s.QHeads > MaxHeads:
		return fmt.Errorf("contributors %d of a collective: use 1 to %d", s.QHeads, MaxHeads)
	case s.KHeads != 1 || len(s.Mask) > 0 || s.Scale != 0 || s.SoftCap != 0 || s.Sink:
		return fmt.Errorf("a collective (dim 0 and v-dim 0) with %d sums an element, %d mask "+
			"slices and scale %v: it has 1 sum and no attention", s.KHeads, len(s.Mask), s.Scale)
	case s.ElemBytes < 1 || s.AccBytes < s.ElemBytes:
		return fmt.Errorf("element of %d bytes with a sum of %d: a sum is at least as wide as its "+
			"element", s.ElemBytes, s.AccBytes)
	}
	return nil
}

// bf16Bytes is the width of an element of DKVWire.
const bf16Bytes = 2

// Bytes is the size of a block: rows tokens of heads heads of a tensor.
func (s *Shape) Bytes(t Tensor, rows, heads int) int64 {
	n := int64(rows) * int64(heads)
	elem, acc, d, dv := int64(s.ElemBytes), int64(s.AccBytes), int64(s.Dim), int64(s.VDim)
	switch t {
	case Q:
		return n * d * elem
	case KV:
		return n * (d + dv) * elem
	case State:
		return n * (dv + 2) * acc
	case Out:
		return n * (dv*elem + acc)
	case DO:
		return n * dv * elem
	case Delta:
		return n * acc
	case DQ:
		return n * d * acc
	case DKV:
		return n * (d + dv) * acc
	case Part:
		return n * (dv + 1) * acc
	case Visit:
		return n * ((d+dv)*elem + 2*acc)
	case DKVWire:
		return n * (d + dv) * bf16Bytes
	case Vec:
		return n * elem
	case Sum:
		return n * acc
	}
	return 0
}

// AllHeads is every head of a tensor.
func (s *Shape) AllHeads(t Tensor) mesh.Heads {
	if t.keyed() {
		return mesh.Heads{Hi: int32(s.KHeads)}
	}
	return mesh.Heads{Hi: int32(s.QHeads)}
}

// KVHeads are the key/value heads that query heads q read.
func (s *Shape) KVHeads(q mesh.Heads) mesh.Heads {
	g := int32(s.QHeads / s.KHeads)
	return mesh.Heads{Lo: q.Lo / g, Hi: (q.Hi-1)/g + 1}
}

// Header is what all programs of a plan share: the shape, the token sets that operands name, and
// who is at home where.
type Header struct {
	Shape
	Ranks int
	Sets  []mesh.Set // by SetID; set 0 is empty
	Names []string   // of the sets, for texts: c3 (ring shard 3), c3.1 (its run 1)
	HomeQ []SetID    // by rank: the query tokens whose q, dO, out, lse, dq the rank holds
	HomeK []SetID    // by rank: the key tokens whose k, v, dk, dv the rank holds
	// Of a collective: HomeQ are the elements to which the rank brings its part, HomeK those whose
	// sums it gets.
}

// ContentHash is a 64-bit name of all that programs refer to: the shape with its mask, the token
// sets and the homes.
func (h *Header) ContentHash() uint64 {
	v := uint64(14695981039346656037)
	mix := func(x uint64) {
		v = (v ^ x) * 1099511628211
		v ^= v >> 29
	}
	for _, x := range []int{h.QTokens, h.KTokens, h.QHeads, h.KHeads, h.Dim, h.VDim, h.ElemBytes,
		h.AccBytes, h.Ranks} {
		mix(uint64(x))
	}
	mix(math.Float64bits(h.Scale))
	if h.SoftCap != 0 {
		mix(math.Float64bits(h.SoftCap))
	}
	if h.Sink {
		mix(sinkMark)
	}
	for _, s := range h.Mask {
		for _, x := range [6]int{s.Q0, s.Q1, s.K0, s.K1, s.Lo, s.Hi} {
			mix(uint64(x))
		}
	}
	for i := range h.Sets {
		mix(h.SetHash(SetID(i)))
	}
	for r := range h.HomeQ {
		mix(uint64(h.HomeQ[r])<<32 | uint64(h.HomeK[r]))
	}
	return v
}

// sinkMark stands for Sink in a ContentHash.
const sinkMark = 0x51c4

// OperandBytes is the size of an operand's region.
func (h *Header) OperandBytes(a *Operand) int64 {
	return h.Bytes(a.Tensor, h.Sets[a.Set].Len(), a.Heads.Len())
}

// Source gives programs rank by rank, on demand, so that a plan of thousands of ranks never
// exists whole. A Plan is one; tests wrap it to change programs.
type Source interface {
	Header() *Header
	Passes() []Pass
	Program(pass Pass, rank int) (*Program, error)
}

// SetHash is a 64-bit name of a set's content (FNV-1a over its spans), for block headers.
func (h *Header) SetHash(id SetID) uint64 {
	v := uint64(14695981039346656037)
	for _, s := range h.Sets[id] {
		for _, x := range [3]int{s.Start, s.Stride, s.Count} {
			for range 8 {
				v = (v ^ uint64(x&0xff)) * 1099511628211
				x >>= 8
			}
		}
	}
	return v
}
