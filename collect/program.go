package collect

import (
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// writer writes one rank's program.
type writer struct {
	*plan.Builder
	plan     *Plan
	group    int
	me, size int
	sets     *group
}

func (p *Plan) program(rank int) *plan.Program {
	w := writer{
		Builder: plan.NewBuilder(&p.header, p.spec.Mesh, plan.Options{}, plan.Forward, rank),
		plan:    p, size: p.size,
	}
	w.group, w.me = p.spec.Axis.seat(p.spec.Mesh, rank)
	w.sets = &p.groups[w.group]
	one := mesh.Heads{Hi: 1}
	part := one
	if p.spec.Kind != AllGather {
		part = mesh.Heads{Lo: int32(w.me), Hi: int32(w.me) + 1}
	}
	in := w.LiveIn(plan.VecIn, plan.Vec, p.header.HomeQ[rank], part)
	out := w.LiveOut(plan.SumOut, plan.Sum, p.header.HomeK[rank], one, plan.Sum)
	if p.spec.Kind != AllReduce || w.size == 1 {
		w.exchange(in, out)
		return w.Builder.Program()
	}
	sum := w.Take(plan.PoolState, 0, plan.Sum, w.sets.runs[w.me], one)
	w.exchange(in, sum)
	w.exchange(sum, out)
	w.Release(sum)
	return w.Builder.Program()
}

// exchange sends every peer what it needs of from, receives what this rank needs of theirs, and
// puts all into to, in the order of places:
//
//	parts are added     to p: (run p, my part)      from p: (my run, part of p)
//	runs are gathered   to p: (my run)              from p: (run p)
//
// At distance d (the receiver's place less the sender's, round the group) a piece has tick d, so
// that no rank is everybody's first.
func (w *writer) exchange(from, to plan.Block) {
	tick := w.Tick(w.size + 1)
	adds := from.Tensor == plan.Vec && w.plan.spec.Kind != AllGather
	pieces := make([]plan.Block, w.size)
	if pieces[w.me] = from; adds {
		pieces[w.me] = w.cut(from, w.me)
	}
	for d := 1; d < w.size; d++ {
		next, before := (w.me+d)%w.size, (w.me+w.size-d)%w.size
		at := tick + int32(d)
		give, set, heads := from, w.sets.runs[before], from.Heads
		if adds {
			give = w.cut(from, next)
			set, heads = w.sets.runs[w.me], mesh.Heads{Lo: int32(before), Hi: int32(before) + 1}
		}
		if !give.Empty {
			w.Send(give, w.peer(next), plan.LaneCollective, at)
		}
		pieces[before] = w.Take(plan.PoolPieces, 0, from.Tensor, set, heads)
		if !pieces[before].Empty {
			w.Recv(pieces[before], w.peer(before), plan.LaneCollective, at)
		}
	}
	if to.Empty {
		return
	}
	for _, k := range pieces {
		if !k.Empty {
			w.Read(k)
		}
	}
	w.Write(to).Emit(plan.Unpack, tick+int32(w.size))
	for i, k := range pieces {
		if i != w.me {
			w.Release(k)
		}
	}
}

// cut is run i of a block.
func (w *writer) cut(k plan.Block, i int) plan.Block {
	k = k.Region(w.sets.runs[i], k.Heads)
	k.Empty = w.sets.runs[i] == 0
	return k
}

// peer is the rank at a place of the group.
func (w *writer) peer(place int) int {
	return w.plan.spec.Axis.rank(w.plan.spec.Mesh, w.group, place)
}
