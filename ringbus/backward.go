package ringbus

import "github.com/kvloom/kvloom/plan"

// Backward meets every block again; dq stays, dKV travels home.
func (r Ring) Backward(b *plan.Builder, q, kv, out, do, delta plan.Block) (dq, dkv plan.Block) {
	l := newLoop(b, r, q)
	roleQ, roleKV := plan.Scratch, plan.Scratch
	if b.Mesh.Head == 1 {
		roleQ, roleKV = plan.HomeDQ, plan.HomeDKV
	}
	dq = b.LiveOut(roleQ, plan.DQ, q.Set, q.Heads, plan.DQ)
	if !q.Empty {
		b.Write(dq).Emit(plan.Zero, l.tick)
	}
	kvSet := b.ShardSet(plan.DKV, l.c)
	dkv = b.LiveOut(roleKV, plan.DKV, kvSet, b.HeadsOf(plan.DKV, b.At.H), plan.DKV)
	g := &gradient{loop: l, home: dkv, inputs: [5]plan.Block{q, do, out, delta, dq}}
	for t := range l.n {
		var lanes [2]plan.Block
		for lane := range l.lanes {
			lanes[lane] = l.arrive(kv, t, lane)
			if !lanes[lane].Empty {
				l.pass(lanes[lane], t, lane)
			}
		}
		for lane := range l.lanes {
			if blk := lanes[lane]; !blk.Empty {
				g.step(blk, t, lane)
			}
			if g.local() && l.w > 1 && t%l.w == l.w-1 {
				g.crossWindow(g.returned(t/l.w, lane), t/l.w, lane)
			}
		}
	}
	g.comeHome()
	return dq, dkv
}

// gradient is the journey of dKV. The accumulator of a block follows the block one hop behind: each
// rank that the block meets writes its own part into a partial, adds it to the accumulator when
// that has come, and sends it on.
//
//	rank       b        b+1             b+2             b+C-1            b
//	           part ──> + part ──hop──> + part ─ ... ─> + part ──hop──> home
type gradient struct {
	*loop
	home   plan.Block
	inputs [5]plan.Block // q, do, out, delta, dq
}

// step attends a lane of the block of step t and lets its gradient travel.
func (g *gradient) step(kv plan.Block, t, lane int) {
	own := g.attend(kv, t, lane)
	if t > 0 {
		g.Release(kv)
	}
	switch {
	case g.n == 1:
	case g.local():
		g.travelLocal(own, kv, t, lane)
	default:
		g.travel(own, kv, t, lane)
	}
}

// attend computes this rank's part of the block's dKV into a partial; alone on its ring the part
// is the whole, written straight home.
func (g *gradient) attend(kv plan.Block, t, lane int) plan.Block {
	if !g.meets(g.c, g.block(g.c, t), lane) {
		return plan.Block{Empty: true}
	}
	own := g.home
	if g.n > 1 {
		pool := plan.PoolPartial + plan.Pool(lane)
		own = g.Take(pool, g.Opt.Partials, plan.DKV, kv.Set, kv.Heads)
	}
	in := &g.inputs
	g.Read(in[0]).Read(kv).Read(in[1]).Read(in[2]).Read(in[3]).Add(in[4]).Write(own).
		Emit(plan.AttendBackward, g.stepTick(t))
	return own
}

// laneDKV is the lane of travelling accumulators.
func laneDKV(lane int) int32 { return plan.LaneDKV + plan.LaneStep*int32(lane) }

// join receives the accumulator of a block, if one comes, and adds the own part to it; it gives
// what is to be sent on.
func (g *gradient) join(own, kv plan.Block, pool plan.Pool, comes bool, from, lane int,
	tick int32) plan.Block {
	if !comes {
		return own
	}
	sum := g.Take(pool+plan.Pool(lane), g.Opt.DKVSlots, plan.DKV, kv.Set, kv.Heads)
	g.Recv(sum, from, laneDKV(lane), tick)
	if !own.Empty {
		g.HandOn(own).Add(sum).Emit(plan.Accumulate, tick)
		g.Release(own)
	}
	return sum
}

// forward sends an accumulator on and gives its slot back.
func (g *gradient) forward(sum plan.Block, to, lane int, tick int32) {
	if !sum.Empty {
		g.Send(sum, to, laneDKV(lane), tick)
		g.Release(sum)
	}
}

// travel is the folded way: inner hops, and at a window's end one diagonal hop to the next. Until a
// rank has added something, nothing travels.
func (g *gradient) travel(own, kv plan.Block, t, lane int) {
	p, s := g.place(g.c), t%g.w
	from := g.peer(p.o, p.i-1)
	if s == 0 {
		from = g.peer(p.o-1, p.i-1)
	}
	comes := g.began(g.block(g.c, t), lane, 0, t)
	sum := g.join(own, kv, plan.PoolTravel, comes, from, lane, g.stepTick(t)+2)
	to := g.peer(p.o, p.i+1)
	if s == g.w-1 {
		to = g.peer(p.o+1, p.i+1)
	}
	g.forward(sum, to, lane, g.stepTick(t+1)+2)
}

// began reports whether a lane of block j got a part at one of the steps from <= t < to of its
// journey.
func (g *gradient) began(j, lane, from, to int) bool {
	p := g.place(j)
	for t := from; t < to; t++ {
		if g.meets(g.at(p.o+t/g.w, p.i+t%g.w), j, lane) {
			return true
		}
	}
	return false
}

// travelLocal is the local way: w inner hops bring a window's sum back to the rank where the window
// began; there it joins the accumulator that goes from window to window.
func (g *gradient) travelLocal(own, kv plan.Block, t, lane int) {
	p, j, s := g.place(g.c), t/g.w, t%g.w
	block := g.block(g.c, t)
	comes := s > 0 && g.began(block, lane, j*g.w, t)
	sum := g.join(own, kv, plan.PoolTravel, comes, g.peer(p.o, p.i-1), lane, g.stepTick(t)+2)
	if g.w == 1 {
		g.crossWindow(sum, j, lane)
		return
	}
	g.forward(sum, g.peer(p.o, p.i+1), lane, g.stepTick(t+1)+2)
}

// local reports whether windows have sums of their own.
func (g *gradient) local() bool { return g.ring.DKV == Local && g.outs > 1 }

// returned receives the sum of window j of the block with which this rank began the window.
func (g *gradient) returned(j, lane int) plan.Block {
	block := g.block(g.c, j*g.w)
	if !g.began(block, lane, j*g.w, (j+1)*g.w) {
		return plan.Block{Empty: true}
	}
	p := g.place(g.c)
	sum := g.Take(plan.PoolTravel+plan.Pool(lane), g.Opt.DKVSlots, plan.DKV, g.set(block, lane),
		g.home.Heads)
	if !sum.Empty {
		g.Recv(sum, g.peer(p.o, p.i-1), laneDKV(lane), g.stepTick((j+1)*g.w)+2)
	}
	return sum
}

// crossWindow adds the sum of window j to the accumulator of the windows before and sends it to the
// next window; after the last one that is home.
func (g *gradient) crossWindow(sum plan.Block, j, lane int) {
	p, block := g.place(g.c), g.block(g.c, j*g.w)
	at := plan.Block{Set: g.set(block, lane), Heads: g.home.Heads}
	comes := j > 0 && g.began(block, lane, 0, j*g.w)
	sum = g.join(sum, at, plan.PoolTravelOuter, comes, g.peer(p.o-1, p.i), lane,
		g.stepTick(j*g.w)+3)
	g.forward(sum, g.peer(p.o+1, p.i), lane, g.stepTick((j+1)*g.w)+3)
}

// comeHome ends the journey of this rank's own block: its dKV arrives after C hops, or is zero when
// no query anywhere sees a key of it. Two lanes arrive apart and are put together.
func (g *gradient) comeHome() {
	if g.home.Empty || (g.n == 1 && g.began(g.c, 0, 0, 1)) {
		return
	}
	if g.lanes == 1 {
		g.land(g.home, 0)
		return
	}
	var parts [2]plan.Block
	for lane := range parts {
		parts[lane] = g.Take(plan.PoolLand, 0, plan.DKV, g.set(g.c, lane), g.home.Heads)
		if !parts[lane].Empty {
			g.land(parts[lane], lane)
		}
	}
	for _, p := range parts {
		if !p.Empty {
			g.HandOn(p)
		}
	}
	g.Write(g.home).Emit(plan.Unpack, g.stepTick(g.n)+3)
	for _, p := range parts {
		g.Release(p)
	}
}

// land receives the last hop of a lane of the own block into a slot.
func (g *gradient) land(into plan.Block, lane int) {
	p := g.place(g.c)
	switch {
	case !g.began(g.c, lane, 0, g.n):
		g.Write(into).Emit(plan.Zero, g.tick)
	case g.local():
		g.Recv(into, g.peer(p.o-1, p.i), laneDKV(lane), g.stepTick(g.n)+3)
	default:
		g.Recv(into, g.peer(p.o-1, p.i-1), laneDKV(lane), g.stepTick(g.n)+2)
	}
}
