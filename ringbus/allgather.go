package ringbus

import (
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// AllGather sends every KV block straight to every rank that sees a key of it, all at once, and
// holds them all: C-1 blocks in, no hop waits for another, and the memory of the whole sequence's
// keys, which the plan's figures say. Backward each part of dKV goes straight home: C-1 out.
type AllGather struct {
	Ring Ring // none of its choices
}

// String names the scheme in plan hashes and texts.
func (AllGather) String() string { return "allgather" }

// LaneCount is 1.
func (AllGather) LaneCount() int { return 1 }

// Validate refuses windows, lanes and rotations.
func (a AllGather) Validate(m mesh.Mesh) error { return onlyPlain("allgather", a.Ring, m) }

// Forward attends the blocks in the order of their distance.
func (AllGather) Forward(b *plan.Builder, q, kv plan.Block) plan.Block {
	return newDirect(b, false, 0).forward(q, kv)
}

// Backward gathers KV again and sends the parts of dKV home.
func (AllGather) Backward(b *plan.Builder, q, kv, out, do, delta plan.Block) (dq, dkv plan.Block) {
	return newDirect(b, false, 0).backward(q, kv, out, do, delta)
}
