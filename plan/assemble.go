package plan

import "github.com/kvloom/kvloom/mesh"

// Home is the rank's own block of a tensor: its tokens, all heads, live-in under role.
func (b *Builder) Home(role Role, t Tensor) Block {
	return b.LiveIn(role, t, b.HomeSet(t, b.At), b.Header.AllHeads(t))
}

// HeadSharded is the block that the forward pass kept under role: the ring shard's tokens, the
// rank's heads. With head degree 1 it is the home block.
func (b *Builder) HeadSharded(role Role, t Tensor) Block {
	if b.Mesh.Head == 1 {
		role = map[Role]Role{HeadQ: HomeQ, HeadKV: HomeKV, HeadOut: HomeOut}[role]
	}
	return b.LiveIn(role, t, b.ShardSet(t, b.At.C), b.HeadsOf(t, b.At.H))
}

// HomeSet is the tokens at home at a coordinate, in the sequence of the tensor.
func (b *Builder) HomeSet(t Tensor, at mesh.Coord) SetID {
	if t.keyed() {
		return b.groups[at.C].kRun[at.H]
	}
	return b.groups[at.C].qRun[at.H]
}

// ShardSet is the tokens of ring shard c, in the sequence of the tensor.
func (b *Builder) ShardSet(t Tensor, c int) SetID {
	if t.keyed() {
		return b.groups[c].k
	}
	return b.groups[c].q
}

// LaneSet is a chunk of ring shard c's keys, where chunks travel on lanes of their own.
func (b *Builder) LaneSet(c, lane int) SetID { return b.groups[c].lanes[lane] }

// HeadsOf is the heads of a tensor that head rank h holds.
func (b *Builder) HeadsOf(t Tensor, h int) mesh.Heads {
	q, kv := mesh.SplitHeads(b.Header.QHeads, b.Header.KHeads, b.Mesh.Head, h)
	if t.keyed() {
		return kv
	}
	return q
}

// Peer is the global rank at a coordinate.
func (b *Builder) Peer(h, c int) int { return b.Mesh.Rank(mesh.Coord{H: h, C: c}) }

// Allowed reports whether any query of set q may see any key of set k.
func (b *Builder) Allowed(q, k SetID) bool {
	return b.Header.Mask.Pairs(b.Header.Sets[q], b.Header.Sets[k]) > 0
}
