package ringbus

import "github.com/kvloom/kvloom/plan"

// Backward meets every block again. Either KV travels, followed by its dKV, and dq stays, or the
// queries travel, followed by their dQ, and dkv stays.
func (r Ring) Backward(b *plan.Builder, q, kv, out, do, delta plan.Block) (dq, dkv plan.Block) {
	if r.Rotate == RotateQ && b.Mesh.Ring > 1 {
		return r.backwardQ(b, q, kv, out, do, delta)
	}
	l := newLoop(b, r, plan.KV)
	dq, dkv = b.Result(plan.DQ, q), b.Result(plan.DKV, kv)
	if !q.Empty {
		b.Write(dq).Emit(plan.Zero, l.tick)
	}
	g := newGradient(l, dkv)
	g.inputs = [5]plan.Block{q, do, out, delta, dq}
	g.goRound([2]plan.Block{kv, kv})
	return dq, dkv
}

// backwardQ is Backward with queries on the way.
func (r Ring) backwardQ(b *plan.Builder, q, kv, out, do, delta plan.Block) (dq, dkv plan.Block) {
	l := newLoop(b, r, plan.Visit)
	dq, dkv = b.Result(plan.DQ, q), b.Result(plan.DKV, kv)
	if !kv.Empty {
		b.Write(dkv).Emit(plan.Zero, l.tick)
	}
	var visits [2]plan.Block
	for lane := range l.lanes {
		v := l.frame(plan.Visit, l.c, lane)
		if !v.Empty && l.met(l.c, lane, 0, l.n) {
			v = b.Take(plan.PoolVisit+plan.Pool(lane), 0, plan.Visit, v.Set, v.Heads)
			for _, x := range [...]plan.Block{q, do, out, delta} {
				b.Read(x.Region(v.Set, v.Heads))
			}
			b.Write(v).Emit(plan.VisitOp, l.tick)
			visits[lane] = v
		} else {
			visits[lane] = plan.Block{Empty: true}
		}
	}
	g := newGradient(l, dq)
	g.kv, g.dkv = kv, dkv
	g.goRound(visits)
	for lane := range l.lanes {
		b.Release(visits[lane])
	}
	return dq, dkv
}

// gradient is the journey of what is summed over the ranks that a block visits, dKV or dQ. The
// accumulator of a block follows the block one hop behind: each rank that the block meets writes
// its own part into a partial, adds it to the accumulator when that has come, and sends it on.
//
//	rank       b        b+1             b+2             b+C-1            b
//	           part ──> + part ──hop──> + part ─ ... ─> + part ──hop──> home
//
// Where the mask leaves later ranks nothing to add, the last one that added sends it straight home.
type gradient struct {
	*loop
	sum    plan.Tensor // DKV or DQ
	way    int32       // the lane that it travels on
	home   plan.Block
	landed [2]plan.Block // where each lane of it comes home; in home itself when there is one

	inputs  [5]plan.Block // if KV travels: q, do, out, delta, dq
	kv, dkv plan.Block    // if queries travel
}

func newGradient(l *loop, home plan.Block) *gradient {
	g := &gradient{loop: l, sum: plan.DKV, way: plan.LaneDKV, home: home}
	if l.moves != plan.KV {
		g.sum, g.way = plan.DQ, plan.LaneDQ
	}
	return g
}

// goRound takes all blocks past this rank, and brings its own sum home.
func (g *gradient) goRound(home [2]plan.Block) {
	g.landing()
	for t := range g.n {
		var lanes [2]plan.Block
		for lane := range g.lanes {
			lanes[lane] = g.arrive(home[lane], t, lane)
			g.pass(lanes[lane], t, lane)
		}
		for lane := range g.lanes {
			g.step(lanes[lane], t, lane)
			if g.local() && g.w > 1 && t%g.w == g.w-1 {
				g.crossWindow(g.returned(t/g.w, lane), t/g.w, lane)
			}
		}
	}
	g.comeHome()
}

// step attends a lane of the block of step t and lets its gradient travel.
func (g *gradient) step(blk plan.Block, t, lane int) {
	at := g.frame(g.sum, g.block(g.c, t), lane)
	if at.Empty {
		return
	}
	own := g.attend(blk, at, t, lane)
	if t > 0 {
		g.Release(blk)
	}
	switch {
	case g.n == 1:
	case g.local():
		g.travelLocal(own, at, t, lane)
	default:
		g.travel(own, at, t, lane)
	}
}

// attend computes this rank's part of the block's sum into a partial; a sum that nobody else adds
// to is written straight home.
func (g *gradient) attend(blk, at plan.Block, t, lane int) plan.Block {
	if !g.meets(g.c, g.block(g.c, t), lane) {
		return plan.Block{Empty: true}
	}
	own := g.landed[lane]
	if g.n > 1 && !(t == 0 && g.endsAt(g.c, lane) == 0) {
		own = g.Take(plan.PoolPartial+plan.Pool(lane), g.Opt.Partials, g.sum, at.Set, at.Heads)
	}
	if g.sum == plan.DKV {
		in := &g.inputs
		g.Read(in[0]).Read(blk).Read(in[1]).Read(in[2]).Read(in[3]).Add(in[4]).Write(own).
			Emit(plan.AttendBackward, g.stepTick(t))
		return own
	}
	g.Write(own).Emit(plan.Zero, g.stepTick(t))
	g.Read(blk).Read(g.kv).Add(own).Add(g.dkv).Emit(plan.AttendBackward, g.stepTick(t))
	return own
}

// endsAt is the step at which the journey of a lane of block j's sum ends: after it the sum goes
// home. It is the last step of the ring, or, where the mask leaves gaps, the last at which the
// block meets something; -1 if there is none. Sums of windows all go the whole way, but for those
// of a block that meets something at home only.
func (g *gradient) endsAt(j, lane int) int {
	if g.all || g.local() && g.met(j, lane, 1, g.n) {
		return g.n - 1
	}
	return g.lastMeeting(j, lane)
}

// join receives the accumulator of a block, if one comes, and adds the own part to it; it gives
// what is to be sent on.
func (g *gradient) join(own, at plan.Block, pool plan.Pool, comes bool, from, lane int,
	tick int32) plan.Block {
	if !comes {
		return own
	}
	if g.narrow() {
		return g.joinNarrow(own, at, pool, from, lane, tick)
	}
	sum := g.Take(pool+plan.Pool(lane), g.Opt.DKVSlots, g.sum, at.Set, at.Heads)
	g.Recv(sum, from, number(g.way, lane), tick)
	if !own.Empty {
		g.HandOn(own).Add(sum).Emit(plan.Accumulate, tick)
		g.Release(own)
	}
	return sum
}

// forward sends an accumulator on and gives its slot back.
func (g *gradient) forward(sum plan.Block, to, lane int, tick int32) {
	if sum.Empty {
		return
	}
	if g.narrow() {
		sum = g.round(sum, plan.PoolWire, lane, tick)
	}
	g.Send(sum, to, number(g.way, lane), tick)
	g.Release(sum)
}

// travel is the folded way: inner hops, and at a window's end one diagonal hop to the next. Until a
// rank has added something, nothing travels.
func (g *gradient) travel(own, at plan.Block, t, lane int) {
	block := g.block(g.c, t)
	end := g.endsAt(block, lane)
	if t > end || end == 0 && !g.all {
		return // nothing more is added, or the sum is home already
	}
	p, s := g.place(g.c), t%g.w
	from := g.peer(p.o, p.i-1)
	if s == 0 {
		from = g.peer(p.o-1, p.i-1)
	}
	comes := g.met(block, lane, 0, t)
	sum := g.join(own, at, plan.PoolTravel, comes, from, lane, g.stepTick(t)+2)
	to := g.peer(p.o, p.i+1)
	if s == g.w-1 {
		to = g.peer(p.o+1, p.i+1)
	}
	if t == end {
		to = g.rankOf(block)
	}
	g.forward(sum, to, lane, g.stepTick(t+1)+2)
}

// travelLocal is the local way: w inner hops bring a window's sum back to the rank where the window
// began; there it joins the accumulator that goes from window to window.
func (g *gradient) travelLocal(own, at plan.Block, t, lane int) {
	p, j, s := g.place(g.c), t/g.w, t%g.w
	block := g.block(g.c, t)
	if g.endsAt(block, lane) == 0 {
		return // the sum is home already
	}
	comes := s > 0 && g.met(block, lane, j*g.w, t)
	sum := g.join(own, at, plan.PoolTravel, comes, g.peer(p.o, p.i-1), lane, g.stepTick(t)+2)
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
	at := g.frame(g.sum, block, lane)
	if at.Empty || !g.met(block, lane, j*g.w, (j+1)*g.w) || g.endsAt(block, lane) == 0 {
		return plan.Block{Empty: true}
	}
	p := g.place(g.c)
	return g.join(plan.Block{Empty: true}, at, plan.PoolTravel, true, g.peer(p.o, p.i-1), lane,
		g.stepTick((j+1)*g.w)+2)
}

// crossWindow adds the sum of window j to the accumulator of the windows before and sends it to the
// next window; after the last one that is home.
func (g *gradient) crossWindow(sum plan.Block, j, lane int) {
	p, block := g.place(g.c), g.block(g.c, j*g.w)
	at := g.frame(g.sum, block, lane)
	if at.Empty || g.endsAt(block, lane) == 0 {
		return
	}
	comes := j > 0 && g.met(block, lane, 0, j*g.w)
	sum = g.join(sum, at, plan.PoolTravelOuter, comes, g.peer(p.o-1, p.i), lane,
		g.stepTick(j*g.w)+3)
	tick := g.stepTick((j+1)*g.w) + 3
	if g.narrow() && !sum.Empty {
		sum = g.round(sum, plan.PoolWireOuter, lane, tick)
	}
	g.forward(sum, g.peer(p.o+1, p.i), lane, tick)
}

// landing makes the places where the lanes of this rank's own sum come home.
func (g *gradient) landing() {
	g.landed = [2]plan.Block{g.home, {Empty: true}}
	if g.lanes == 1 || g.home.Empty {
		return
	}
	for lane := range g.landed {
		at := g.frame(g.sum, g.c, lane)
		g.landed[lane] = g.Take(plan.PoolLand+plan.Pool(lane), 0, g.sum, at.Set, at.Heads)
	}
}

// comeHome ends the journey of this rank's own block. Two lanes arrive apart and are put together.
func (g *gradient) comeHome() {
	if g.home.Empty {
		return
	}
	for lane := range g.lanes {
		g.land(g.landed[lane], lane)
	}
	if g.lanes == 1 {
		return
	}
	for _, p := range g.landed {
		if !p.Empty {
			g.HandOn(p)
		}
	}
	g.Write(g.home).Emit(plan.Unpack, g.stepTick(g.n)+3)
	for _, p := range g.landed {
		g.Release(p)
	}
}

// land receives the last hop of a lane of the own block into its place, or zeroes it when no query
// anywhere sees a key of it.
func (g *gradient) land(into plan.Block, lane int) {
	p, end := g.place(g.c), g.endsAt(g.c, lane)
	from, tick := g.rankOf(g.holder(g.c, max(end, 0))), g.stepTick(end+1)+2
	switch {
	case into.Empty:
		return
	case !g.met(g.c, lane, 0, g.n):
		g.Write(into).Emit(plan.Zero, g.tick)
		return
	case end == 0:
		return // written at home
	case g.local():
		from, tick = g.peer(p.o-1, p.i), g.stepTick(g.n)+3
	}
	if g.narrow() {
		g.landNarrow(into, from, lane, tick)
		return
	}
	g.Recv(into, from, number(g.way, lane), tick)
}
