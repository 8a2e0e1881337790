package ringbus

import (
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// Halo sends each rank the rows of KV that its queries see and does not own, and no other: under a
// window(left, right) mask at most left + right rows into a rank for each contiguous run that it
// owns, under packed documents nothing of a document that lies on one rank. Backward the gradients
// of those rows go straight home. Ring slots are as few as a ring's.
type Halo struct {
	Ring Ring // none of its choices
}

// String names the scheme in plan hashes and texts.
func (Halo) String() string { return "halo" }

// LaneCount is 1.
func (Halo) LaneCount() int { return 1 }

// Trims says that the plan makes the sets of rows that are needed.
func (Halo) Trims() bool { return true }

// Validate refuses windows, lanes and rotations.
func (h Halo) Validate(m mesh.Mesh) error { return onlyPlain("halo", h.Ring, m) }

// Forward attends the rows in the order of their distance.
func (Halo) Forward(b *plan.Builder, q, kv plan.Block) plan.Block {
	return newDirect(b, true, b.Opt.KVSlots).forward(q, kv)
}

// Backward fetches the rows again and sends their gradients home.
func (Halo) Backward(b *plan.Builder, q, kv, out, do, delta plan.Block) (dq, dkv plan.Block) {
	return newDirect(b, true, b.Opt.KVSlots).backward(q, kv, out, do, delta)
}
