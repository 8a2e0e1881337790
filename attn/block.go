package attn

import "github.com/kvloom/kvloom/mesh"

// Float is an element type of the exact paths. Accumulators have the element's own type here;
// narrower elements (bf16) come with accumulators of f32.
type Float interface{ ~float32 | ~float64 }

// Block is one KV block against the query rows at hand: what one ring step attends. All arrays
// are row-major without gaps; rows follow the spans' order, heads are the held ones.
//
//	Q [NQ, QHeads, D]    K [NK, KHeads, D]    V [NK, KHeads, DV]
//
// Held query head h is global head QHead0+h and reads global KV head (QHead0+h)/Group, which is
// held KV head (QHead0+h)/Group - KHead0. Mask speaks of global positions.
type Block[T Float] struct {
	QSpans, KSpans mesh.Set
	QHeads, KHeads int // held
	QHead0, KHead0 int // global number of the first one held
	Group          int // query heads per KV head, globally
	D, DV          int
	Scale          float64
	Mask           Mask
	Q, K, V        []T
}

// KVHead is the held KV head that held query head h reads.
func (b *Block[T]) KVHead(h int) int { return (b.QHead0+h)/b.Group - b.KHead0 }

// State is the running softmax state of the query rows, carried from block to block: row maximum
// M and sum L [NQ, QHeads], unnormalised output Acc [NQ, QHeads, DV]. A fresh state has M = -Inf,
// L = 0, Acc = 0.
type State[T Float] struct{ Acc, M, L []T }

// Grad holds what backward reads and adds to, for one block. DQ is added to; DK and DV are the
// block's own partial and are set, not added to.
//
//	DO [NQ, QHeads, DV]   LSE, Delta [NQ, QHeads]   DQ [NQ, QHeads, D]
//	DK [NK, KHeads, D]    DV [NK, KHeads, DV]
type Grad[T Float] struct{ DO, LSE, Delta, DQ, DK, DV []T }
