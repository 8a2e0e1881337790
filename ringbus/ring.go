package ringbus

import "github.com/kvloom/kvloom/plan"

// Single is the plain ring: at step t rank c holds the KV block of ring index (c-t) mod C, and
// every hop goes to c+1.
//
//	step      0      1      2      3         C = 4, rank c = 1
//	block     1      0      3      2
//	recv             <-0    <-0    <-0       one hop is on the wire while a block is attended
//	send      ->2    ->2    ->2
//
// In the backward pass KV goes round again. The dKV accumulator of a block follows one hop behind
// it: each rank writes its own part into a partial, adds the partial to the accumulator when that
// has come, and sends it on; after C hops it is home.
type Single struct{}

// String names the scheme in plan hashes and texts.
func (Single) String() string { return "ring" }

// loop is the walk of one rank round the ring.
type loop struct {
	*plan.Builder
	q    plan.Block
	tick int32
	n, c int
	next int // global ranks
	prev int
}

func newLoop(b *plan.Builder, q plan.Block, ticks int) *loop {
	n, c := b.Mesh.Ring, b.At.C
	return &loop{
		Builder: b, q: q, n: n, c: c, tick: b.Tick(ticks),
		next: b.Peer(b.At.H, (c+1)%n), prev: b.Peer(b.At.H, (c+n-1)%n),
	}
}

// block is the ring index of the block at step t on ring rank c.
func (l *loop) block(c, t int) int { return ((c-t)%l.n + l.n) % l.n }

// arrive gives the KV block of step t: at home at step 0, else received at the given tick. It is
// empty when nothing travels.
func (l *loop) arrive(home plan.Block, t int, tick int32) plan.Block {
	if t == 0 {
		return home
	}
	set := l.ShardSet(plan.KV, l.block(l.c, t))
	kv := l.Take(plan.PoolKV, l.Opt.KVSlots, plan.KV, set, l.HeadsOf(plan.KV, l.At.H))
	if !kv.Empty {
		l.Recv(kv, l.prev, plan.LaneKV, tick)
	}
	return kv
}

// meets reports whether ring rank c has a query that may see a key of ring index j.
func (l *loop) meets(c, j int) bool {
	return l.Allowed(l.ShardSet(plan.Q, c), l.ShardSet(plan.KV, j))
}

// Forward attends every block in ring order into one state.
func (Single) Forward(b *plan.Builder, q, kv plan.Block) plan.Block {
	l := newLoop(b, q, b.Mesh.Ring)
	role := plan.HeadOut
	if b.Mesh.Head == 1 {
		role = plan.HomeOut
	}
	out := b.LiveOut(role, plan.Out, q.Set, q.Heads, plan.State)
	st := out
	st.Tensor = plan.State
	if !q.Empty {
		b.Write(st).Emit(plan.Zero, l.tick)
	}
	for t := range l.n {
		tick := l.tick + int32(t)
		blk := l.arrive(kv, t, tick)
		if blk.Empty {
			continue
		}
		if t < l.n-1 {
			b.Send(blk, l.next, plan.LaneKV, tick+1)
		}
		if l.meets(l.c, l.block(l.c, t)) {
			b.Read(q).Read(blk).Add(st).Emit(plan.Attend, tick)
		}
		if t > 0 {
			b.Release(blk)
		}
	}
	if !q.Empty {
		b.HandOn(st).Write(out).Emit(plan.Finalize, l.tick+int32(l.n)-1)
	}
	return out
}

// Backward meets every block again; dq stays, dKV travels home.
func (Single) Backward(b *plan.Builder, q, kv, out, do, delta plan.Block) (dq, dkv plan.Block) {
	l := newLoop(b, q, 2*b.Mesh.Ring+2)
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
	for t := range l.n {
		tick := l.tick + 2*int32(t)
		blk := l.arrive(kv, t, tick)
		if blk.Empty {
			continue
		}
		if t < l.n-1 {
			b.Send(blk, l.next, plan.LaneKV, tick+2)
		}
		step := backStep{loop: l, t: t, tick: tick, kv: blk, home: dkv}
		step.attend(q, do, out, delta, dq)
		if t > 0 {
			b.Release(blk)
		}
		step.travel()
	}
	l.comeHome(dkv)
	return dq, dkv
}

// backStep is one ring step of the backward pass.
type backStep struct {
	*loop
	t        int
	tick     int32
	kv, home plan.Block
	own      plan.Block // this rank's part of the block's dKV
}

// attend computes this rank's part of the block's dKV into a partial; alone on its ring the part
// is the whole, written straight home.
func (s *backStep) attend(q, do, out, delta, dq plan.Block) {
	s.own.Empty = true
	if !s.meets(s.c, s.block(s.c, s.t)) {
		return
	}
	s.own = s.home
	if s.n > 1 {
		s.own = s.Take(plan.PoolPartial, s.Opt.Partials, plan.DKV, s.kv.Set, s.kv.Heads)
	}
	s.Read(q).Read(s.kv).Read(do).Read(out).Read(delta).Add(dq).Write(s.own).
		Emit(plan.AttendBackward, s.tick)
}

// travel adds the own part to the accumulator that follows the block, and sends it on. Until a
// rank has added something, nothing travels.
func (s *backStep) travel() {
	if s.n == 1 {
		return
	}
	carry := s.own
	if s.began(s.block(s.c, s.t), s.t) {
		carry = s.Take(plan.PoolTravel, s.Opt.DKVSlots, plan.DKV, s.kv.Set, s.kv.Heads)
		s.Recv(carry, s.prev, plan.LaneDKV, s.tick+1)
		if !s.own.Empty {
			s.HandOn(s.own).Add(carry).Emit(plan.Accumulate, s.tick+1)
			s.Release(s.own)
		}
	}
	if !carry.Empty {
		s.Send(carry, s.next, plan.LaneDKV, s.tick+3)
		s.Release(carry)
	}
}

// began reports whether block j got a part in one of its first t steps: step i is on rank j+i.
func (l *loop) began(j, t int) bool {
	for i := range t {
		if l.meets((j+i)%l.n, j) {
			return true
		}
	}
	return false
}

// comeHome ends the journey of this rank's own block: its dKV arrives after C hops, or is zero
// when no query anywhere sees a key of it.
func (l *loop) comeHome(dkv plan.Block) {
	if dkv.Empty {
		return
	}
	begun := l.began(l.c, l.n)
	switch {
	case !begun:
		l.Write(dkv).Emit(plan.Zero, l.tick)
	case l.n > 1:
		l.Recv(dkv, l.prev, plan.LaneDKV, l.tick+2*int32(l.n)+1)
	}
}
