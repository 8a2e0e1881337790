package headshuffle

import (
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// AllToAll is the head axis of Ulysses: an exchange inside each head group turns token-sharded
// blocks into head-sharded ones and back. Any split of heads works: KV heads are sliced where
// they can be and held by several ranks where they must be; gradients of replicas are summed in
// the order of head ranks.
type AllToAll struct{}

// String names the scheme in plan hashes and texts.
func (AllToAll) String() string { return "all-to-all" }

// Gather turns home blocks into head-sharded ones, kept under their roles.
func (AllToAll) Gather(b *plan.Builder, home []plan.Block, roles []plan.Role) []plan.Block {
	if b.Mesh.Head == 1 {
		return home
	}
	tick := b.Tick(len(home))
	out := make([]plan.Block, len(home))
	var pieces []plan.Block
	for i, src := range home {
		t := src.Tensor
		x := exchange{Builder: b, tensor: t, tick: tick + int32(i), toShard: true}
		if b.Opt.HeadChunks > 1 {
			x.pool = plan.PoolChunks + plan.Pool(b.Chunk()%2)
		}
		x.transfer(src)
		out[i] = b.LiveOut(roles[i], t, b.ShardSet(t, b.At.C), b.HeadsOf(t, b.At.H), t)
		x.unpack(src, out[i])
		pieces = append(pieces, x.pieces()...)
	}
	for _, p := range pieces {
		b.Release(p)
	}
	return out
}

// Scatter sends head-sharded blocks home and receives this rank's own. Where heads come in chunks,
// this rank's own part is copied out too, so that the chunk's accumulator can be given back.
func (AllToAll) Scatter(b *plan.Builder, head []plan.Block) []plan.Landing {
	if b.Mesh.Head == 1 {
		return make([]plan.Landing, len(head))
	}
	tick := b.Tick(len(head))
	landed := make([]plan.Landing, len(head))
	for i, src := range head {
		x := exchange{Builder: b, tensor: src.Tensor, tick: tick + int32(i),
			copied: b.Opt.HeadChunks > 1}
		x.transfer(src)
		landed[i] = plan.Landing{Parts: x.came, Done: x.pieces()}
		switch {
		case x.copied:
			for _, p := range append(x.sent, src) {
				b.Release(p)
			}
			landed[i].Done = x.came
		case src.Tensor.Linear():
			landed[i].Done = append(landed[i].Done, src)
		}
	}
	return landed
}

// Land puts the parts of each block together in one op, so that replicas are summed in the order of
// chunks and, in a chunk, of head ranks.
func (AllToAll) Land(b *plan.Builder, chunks [][]plan.Landing, roles []plan.Role) {
	if b.Mesh.Head == 1 {
		return
	}
	var done []plan.Block
	for i, role := range roles {
		t := tensorOf(role)
		dst := b.LiveOut(role, t, b.HomeSet(t, b.At), b.Header.AllHeads(t), t)
		parts := 0
		for _, landed := range chunks {
			for _, p := range landed[i].Parts {
				if !p.Empty && !dst.Empty {
					b.Give(p)
					parts++
				}
			}
			done = append(done, landed[i].Done...)
		}
		if parts > 0 {
			b.Write(dst).Emit(plan.Unpack, b.Tick(0))
		}
	}
	for _, p := range done {
		b.Release(p)
	}
}

// tensorOf is what lands under a role.
func tensorOf(role plan.Role) plan.Tensor {
	switch role {
	case plan.HomeDQ:
		return plan.DQ
	case plan.HomeDKV:
		return plan.DKV
	}
	return plan.Out
}

// exchange is one block's all-to-all in a head group of H ranks. Both directions are the same
// exchange with the axes swapped (run i: the tokens at home on head rank i; me: this rank):
//
//	            to p              from p            result
//	to shard    run me, heads p   run p, heads me   shard, heads me
//	to home     run p, heads me   run me, heads p   run me, all heads
type exchange struct {
	*plan.Builder
	tensor     plan.Tensor
	tick       int32
	toShard    bool
	pool       plan.Pool    // of pieces
	copied     bool         // the own region is packed too
	sent, came []plan.Block // came in the order of head ranks, the own region in its place
}

// region is what head ranks a and b exchange: the tokens of one, the heads of the other.
func (x *exchange) region(tokensOf, headsOf int) (plan.SetID, mesh.Heads) {
	set := x.HomeSet(x.tensor, mesh.Coord{H: tokensOf, C: x.At.C})
	return set, x.HeadsOf(x.tensor, headsOf)
}

// transfer packs and sends every peer's piece and receives this rank's.
func (x *exchange) transfer(src plan.Block) {
	lane, me := laneOf(x.tensor), x.At.H
	for p := range x.Mesh.Head {
		if p == me {
			set, heads := x.region(me, me)
			own := src.Region(set, heads)
			own.Empty = len(x.Header.Sets[set]) == 0
			if x.copied && !own.Empty {
				piece := x.Take(x.pool, 0, x.tensor, set, heads)
				x.Give(own).Write(piece).Emit(plan.Pack, x.tick)
				own = piece
			}
			x.came = append(x.came, own)
			continue
		}
		peer := x.Peer(p, x.At.C)
		toTokens, fromTokens := me, p
		if !x.toShard {
			toTokens, fromTokens = p, me
		}
		toHeads, fromHeads := me+p-toTokens, me+p-fromTokens
		set, heads := x.region(toTokens, toHeads)
		out := x.Take(x.pool, 0, x.tensor, set, heads)
		if !out.Empty {
			x.Give(src.Region(set, heads)).Write(out).Emit(plan.Pack, x.tick)
			x.Send(out, peer, lane, x.tick)
			x.sent = append(x.sent, out)
		}
		set, heads = x.region(fromTokens, fromHeads)
		in := x.Take(x.pool, 0, x.tensor, set, heads)
		if !in.Empty {
			x.Recv(in, peer, lane, x.tick)
		}
		x.came = append(x.came, in)
	}
}

// unpack puts the pieces together in one op, so that replicas are summed in head-rank order.
func (x *exchange) unpack(src, dst plan.Block) {
	if dst.Empty {
		return
	}
	for _, p := range x.came {
		if !p.Empty {
			x.Give(p)
		}
	}
	x.Write(dst).Emit(plan.Unpack, x.tick)
}

// pieces are the slots that the exchange is done with.
func (x *exchange) pieces() []plan.Block {
	out := x.sent
	for p, k := range x.came {
		if p != x.At.H && !k.Empty {
			out = append(out, k)
		}
	}
	return out
}

// laneOf keeps pieces of the two sequences on lanes of their own, so that neither waits.
func laneOf(t plan.Tensor) int32 {
	if t == plan.KV || t == plan.DKV {
		return plan.LanePieces
	}
	return plan.LanePiecesQ
}
