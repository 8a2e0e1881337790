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

// LaneSet is a half of ring shard c, in the sequence of the tensor, where halves travel on lanes of
// their own.
func (b *Builder) LaneSet(t Tensor, c, lane int) SetID {
	if t.keyed() {
		return b.groups[c].kLanes[lane]
	}
	return b.groups[c].qLanes[lane]
}

// HeadsOf is the heads of a tensor that head rank h holds; where heads are exchanged in chunks,
// those of the chunk at hand.
func (b *Builder) HeadsOf(t Tensor, h int) mesh.Heads {
	q, kv := mesh.SplitHeads(b.Header.QHeads, b.Header.KHeads, b.Mesh.Head, h)
	if b.Opt.HeadChunks > 1 {
		lo, hi := mesh.CutEven(q.Len(), b.Opt.HeadChunks, b.chunk)
		q = mesh.Heads{Lo: q.Lo + int32(lo), Hi: q.Lo + int32(hi)}
		kv = b.Header.KVHeads(q)
	}
	if t.keyed() {
		return kv
	}
	return q
}

// Result makes the slot of what a ring axis ends with: Out (which lives as State until it is
// finalised), DQ or DKV, of the rows and heads of like. It is the session's where that is where it
// ends, else scratch that the head axis takes over.
func (b *Builder) Result(t Tensor, like Block) Block {
	role, before := Scratch, t
	if t == Out {
		before = State
	}
	switch {
	case b.Mesh.Head == 1:
		role = map[Tensor]Role{Out: HomeOut, DQ: HomeDQ, DKV: HomeDKV}[t]
	case t == Out && b.Opt.HeadChunks == 1:
		role = HeadOut
	}
	return b.LiveOut(role, t, like.Set, like.Heads, before)
}

// Chunk is the number of the head chunk at hand.
func (b *Builder) Chunk() int { return b.chunk }

// NeedSet is the keys of ring shard j that some query of ring shard c may see, where the ring axis
// is a Trimmer.
func (b *Builder) NeedSet(c, j int) SetID { return b.groups[c].needs[j] }

// Peer is the global rank at a coordinate.
func (b *Builder) Peer(h, c int) int { return b.Mesh.Rank(mesh.Coord{H: h, C: c}) }

// Allowed reports whether any query of set q may see any key of set k.
func (b *Builder) Allowed(q, k SetID) bool {
	if yes, known := b.sees.ask(q, k); known {
		return yes
	}
	return b.Header.Mask.Pairs(b.Header.Sets[q], b.Header.Sets[k]) > 0
}
