package ringbus

import "github.com/kvloom/kvloom/plan"

// PassQ lets queries visit the ranks and keys stay: for few queries against many keys, and wherever
// a block of Q and its part of out are less than one of KV. Each rank attends the visiting queries
// to its own keys from a fresh state and sends the part (out, lse) straight home, where parts are
// merged in the order of the walk. The backward pass is the ring's with RotateQ.
//
//	step       0              1                2                3
//	rank c     q(c) x kv(c)   q(c-1) x kv(c)   q(c-2) x kv(c)   q(c-3) x kv(c)
//	                            part -> c-1      part -> c-2      part -> c-3
//	home of c  st             + part of c+1    + part of c+2    + part of c+3   -> out
type PassQ struct{ Ring }

// String names the scheme in plan hashes and texts.
func (p PassQ) String() string { return "passq " + p.Ring.String() }

// KeepsDKV is true: dQ travels.
func (PassQ) KeepsDKV() bool { return true }

// Forward sends q round and merges the parts that come back.
func (p PassQ) Forward(b *plan.Builder, q, kv plan.Block) plan.Block {
	l := newLoop(b, p.Ring, plan.Q)
	out := b.Result(plan.Out, q)
	st := out
	st.Tensor = plan.State
	if !q.Empty {
		b.Write(st).Emit(plan.Zero, l.tick)
	}
	for t := range l.n {
		var lanes [2]plan.Block
		for lane := range l.lanes {
			lanes[lane] = l.arrive(q, t, lane)
			l.pass(lanes[lane], t, lane)
		}
		if t == 0 {
			if l.Allowed(q.Set, kv.Set) {
				b.Read(q).Read(kv).Add(st).Emit(plan.Attend, l.tick)
			}
			continue
		}
		for lane := range l.lanes {
			l.answer(lanes[lane], kv, t, lane)
			l.gather(st, t, lane)
			b.Release(lanes[lane])
		}
	}
	if !q.Empty {
		b.HandOn(st).Write(out).Emit(plan.Finalize, l.stepTick(l.n))
	}
	return out
}

// answer attends visiting queries and sends their part home.
func (l *loop) answer(q, kv plan.Block, t, lane int) {
	j := l.block(l.c, t)
	if q.Empty || !l.meets(l.c, j, lane) {
		return
	}
	part := l.Take(plan.PoolPartial+plan.Pool(lane), l.Opt.Partials, plan.State, q.Set, q.Heads)
	st := part
	part = l.Become(part, plan.Part)
	tick := l.stepTick(t)
	l.Write(st).Emit(plan.Zero, tick)
	l.Read(q).Read(kv).Add(st).Emit(plan.Attend, tick)
	l.HandOn(st).Write(part).Emit(plan.Finalize, tick)
	l.Send(part, l.rankOf(j), number(plan.LanePart, lane), tick+2)
	l.Release(part)
}

// gather merges what the rank that this rank's queries visit at step t sends back.
func (l *loop) gather(st plan.Block, t, lane int) {
	host := l.holder(l.c, t)
	at := l.frame(plan.Part, l.c, lane)
	if at.Empty || !l.meets(host, l.c, lane) {
		return
	}
	part := l.Take(plan.PoolTravel+plan.Pool(lane), l.Opt.DKVSlots, plan.Part, at.Set, at.Heads)
	tick := l.stepTick(t) + 2
	l.Recv(part, l.rankOf(host), number(plan.LanePart, lane), tick)
	l.HandOn(part).Add(st.Region(at.Set, at.Heads)).Emit(plan.Accumulate, tick)
	l.Release(part)
}

// Backward is the ring's with queries on the way.
func (p PassQ) Backward(b *plan.Builder, q, kv, out, do, delta plan.Block) (dq, dkv plan.Block) {
	r := p.Ring
	r.Rotate = RotateQ
	return r.Backward(b, q, kv, out, do, delta)
}
