package ringbus

import "github.com/kvloom/kvloom/plan"

// Forward attends every block, in the order of the walk, into one state.
func (r Ring) Forward(b *plan.Builder, q, kv plan.Block) plan.Block {
	l := newLoop(b, r, plan.KV)
	out := b.Result(plan.Out, q)
	st := out
	st.Tensor = plan.State
	if !q.Empty {
		b.Write(st).Emit(plan.Zero, l.tick)
	}
	for t := range l.n {
		var lanes [2]plan.Block
		for lane := range l.lanes {
			lanes[lane] = l.arrive(kv, t, lane)
			l.pass(lanes[lane], t, lane)
		}
		for lane := range l.lanes {
			blk := lanes[lane]
			if !blk.Empty && l.meets(l.c, l.block(l.c, t), lane) {
				b.Read(q).Read(blk).Add(st).Emit(plan.Attend, l.stepTick(t))
			}
			if t > 0 {
				b.Release(blk)
			}
		}
	}
	if !q.Empty {
		b.HandOn(st).Write(out).Emit(plan.Finalize, l.stepTick(l.n-1))
	}
	return out
}
