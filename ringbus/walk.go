package ringbus

import (
	"fmt"

	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// Ring is the ring axis. Its zero value is the plain ring: one window over the whole ring.
//
// With an inner window w the ring is double (LoongTrain): ring index c = o*w + i, outer o, inner i.
// At outer step j, inner step s, rank (o,i) holds the block of ring index ((o-j) mod W, (i-s) mod
// w). The window-start block goes to (o+1,i) before any inner compute, so that this hop hides
// behind w inner steps and uses other links than the inner hops.
//
//	w = 2, W = 2          step  0 (0,0)  1 (0,1)  2 (1,0)  3 (1,1)
//	rank 0 = (0,0)  block         0        1        2        3
//	rank 1 = (0,1)                1        0        3        2
//	rank 2 = (1,0)                2        3        0        1
//	rank 3 = (1,1)                3        2        1        0
type Ring struct {
	Inner  int      // inner window w, a divisor of the ring degree; 0 is the ring degree
	DKV    Window   // how travelling gradients cross windows
	Lanes  int      // 2: the two halves of a shard travel on lanes of their own; 0 is 1
	Rotate Rotation // what travels backward
}

// Rotation is what goes round the ring in the backward pass.
type Rotation uint8

// The rotations. RotateKV sends KV blocks round, each followed by its dKV, and dQ stays.
// RotateQ sends (q, dO, lse, delta) round in one block (plan.Visit), followed by its dQ, and dKV
// stays: fewer bytes where there are as many KV heads as query heads, since dO, lse and delta are
// less than v and the accumulator of q is half of that of k and v.
const (
	RotateKV Rotation = iota
	RotateQ
)

// String is the rotation as the command line spells it.
func (r Rotation) String() string {
	if r == RotateQ {
		return "q"
	}
	return "kv"
}

// Window is how dKV gets from one inner window to the next.
type Window uint8

// The ways of dKV. Fold merges the last inner hop of a window with the hop to the next: C hops in
// all, the folded ones diagonal, (o,i) -> (o+1,i+1). Local sums a window in an accumulator of its
// own, which returns to the rank where the window began and is added there to the accumulator that
// goes from window to window: C + W hops, but a slow outer hop has a whole window to hide.
const (
	Fold Window = iota
	Local
)

// String is the way as the command line spells it.
func (w Window) String() string {
	if w == Local {
		return "local"
	}
	return "fold"
}

// String names the scheme in plan hashes and texts.
func (r Ring) String() string {
	s := fmt.Sprintf("ring inner %d dkv %v lanes %d", r.Inner, r.DKV, max(r.Lanes, 1))
	if r.Rotate != RotateKV {
		s += " rotate " + r.Rotate.String()
	}
	return s
}

// Validate refuses a window that does not divide the ring, and lanes other than 1 and 2.
func (r Ring) Validate(m mesh.Mesh) error {
	switch {
	case r.Inner < 0 || r.Inner > m.Ring || (r.Inner > 0 && m.Ring%r.Inner != 0):
		return fmt.Errorf("inner window %d does not divide the ring degree %d: use a divisor of "+
			"it, such as %d", r.Inner, m.Ring, nearestDivisor(m.Ring, r.Inner))
	case r.Lanes < 0 || r.Lanes > 2:
		return fmt.Errorf("lanes %d: a shard travels on 1 or 2 lanes", r.Lanes)
	case r.DKV > Local:
		return fmt.Errorf("dkv window %d is unknown: use fold or local", r.DKV)
	case r.Rotate > RotateQ:
		return fmt.Errorf("rotation %d is unknown: use kv or q", r.Rotate)
	}
	return nil
}

func nearestDivisor(n, near int) int {
	best := 1
	for d := 1; d <= n; d++ {
		if n%d == 0 && max(d-near, near-d) < max(best-near, near-best) {
			best = d
		}
	}
	return best
}

// KeepsDKV tells whether dKV stays and dQ travels.
func (r Ring) KeepsDKV() bool { return r.Rotate == RotateQ }

// LaneCount is how many lanes a block's chunks travel on.
func (r Ring) LaneCount() int { return max(r.Lanes, 1) }

// ticksPerStep leaves room between the hops that end at a step: KV at +0, the window-start block at
// +1 of the window before, dKV at +2, window sums at +3.
const ticksPerStep = 4

// loop is the walk of one rank round the ring: blocks of one tensor travel, and meet what stays.
type loop struct {
	*plan.Builder
	ring    Ring
	moves   plan.Tensor // KV, Q or Visit
	lane    int32       // of what travels
	stays   plan.Tensor // what it meets: Q or KV
	tick    int32
	n, c    int // ring degree, this rank's ring index
	w, outs int // inner window, windows
	lanes   int
	all     bool // blocks go all the way round, needed or not: full and causal masks
	survey  *survey
}

func newLoop(b *plan.Builder, r Ring, moves plan.Tensor) *loop {
	l := &loop{Builder: b, ring: r, moves: moves, n: b.Mesh.Ring, c: b.At.C}
	l.lane, l.stays = plan.LaneKV, plan.Q
	if moves != plan.KV {
		l.lane, l.stays = plan.LaneQ, plan.KV
	}
	l.cutWindows()
	l.all = untrimmed(b.Header)
	l.survey = b.Survey.(*survey)
	l.tick = b.Tick(ticksPerStep * (l.n + 2))
	return l
}

// cutWindows is how the ring is cut.
func (l *loop) cutWindows() {
	l.w, l.lanes = l.ring.Inner, 1
	if l.w == 0 {
		l.w = l.n
	}
	l.outs = l.n / l.w
	if l.n > 1 {
		l.lanes = l.ring.LaneCount()
	}
}

// untrimmed reports whether the mask is full or causal over the whole sequence: then every block
// goes to every rank, and the counts of hops are those of the theory.
func untrimmed(h *plan.Header) bool {
	if len(h.Mask) != 1 {
		return false
	}
	s := h.Mask[0]
	whole := s.Q0 == 0 && s.K0 == 0 && s.Q1 == h.QTokens && s.K1 == h.KTokens &&
		s.Lo <= 1-h.QTokens
	return whole && (s.Hi == 0 || s.Hi >= h.KTokens-1)
}

// place is where a ring index stands in the windows.
type place struct{ o, i int }

func (l *loop) place(c int) place { return place{c / l.w, c % l.w} }

// at is the ring index at a place, both of whose numbers wrap round.
func (l *loop) at(o, i int) int {
	return (o+2*l.outs)%l.outs*l.w + (i+2*l.w)%l.w
}

// block is the ring index of the block that ring index c holds at step t.
func (l *loop) block(c, t int) int {
	p := l.place(c)
	return l.at(p.o-t/l.w, p.i-t%l.w)
}

// holder is the ring index that holds block j at step t.
func (l *loop) holder(j, t int) int {
	p := l.place(j)
	return l.at(p.o+t/l.w, p.i+t%l.w)
}

// peer is the global rank of a place in this rank's ring.
func (l *loop) peer(o, i int) int { return l.Peer(l.At.H, l.at(o, i)) }

// rankOf is the global rank of a ring index in this rank's ring.
func (l *loop) rankOf(c int) int { return l.Peer(l.At.H, c) }

// stepTick is the tick of what arrives for step t.
func (l *loop) stepTick(t int) int32 { return l.tick + int32(ticksPerStep*t) }

// outerTick is the tick of the hop that brings the start block of window j: it begins a window
// earlier.
func (l *loop) outerTick(j int) int32 { return l.stepTick((j-1)*l.w) + 1 }

// set is the tokens that lane number lane of ring index j carries.
func (l *loop) set(j, lane int) plan.SetID {
	if l.lanes == 1 {
		return l.ShardSet(l.moves, j)
	}
	return l.LaneSet(l.moves, j, lane)
}

// frame is the block of tensor t that is a lane of ring index j, in no slot yet.
func (l *loop) frame(t plan.Tensor, j, lane int) plan.Block {
	set := l.set(j, lane)
	return plan.Block{Tensor: t, Set: set, Heads: l.HeadsOf(t, l.At.H),
		Empty: l.Header.Sets[set].Len() == 0}
}

// meets reports whether a lane of ring index j meets something at ring index c: a query there, or
// of it, may see a key of it, or there.
func (l *loop) meets(c, j, lane int) bool {
	if l.moves == plan.KV {
		return l.Allowed(l.ShardSet(plan.Q, c), l.set(j, lane))
	}
	return l.Allowed(l.set(j, lane), l.ShardSet(plan.KV, c))
}

// comes reports whether a lane of block j travels to where it is at step t: somebody from there on
// needs it. A window's start block is what all later windows start from.
func (l *loop) comes(j, lane, t int) bool {
	switch {
	case l.Header.Sets[l.set(j, lane)].Len() == 0:
		return false
	case t == 0 || l.all:
		return true
	case t%l.w == 0:
		return l.met(j, lane, t, l.n)
	}
	return l.met(j, lane, t, t+l.w-t%l.w)
}

// number is a lane's number among those of a tensor.
func number(base int32, lane int) int32 { return base + plan.LaneStep*int32(lane) }

// arrive gives a lane of the block of step t: at home at step 0, else received. It is empty when
// nothing travels.
func (l *loop) arrive(home plan.Block, t, lane int) plan.Block {
	j := l.block(l.c, t)
	blk := l.frame(l.moves, j, lane)
	if blk.Empty = !l.comes(j, lane, t); blk.Empty || t == 0 {
		blk.Slot = home.Slot
		return blk
	}
	p := l.place(l.c)
	pool, limit := plan.PoolKV, min(l.Opt.KVSlots, l.w-1)
	from, tick := l.peer(p.o, p.i-1), l.stepTick(t)
	if t%l.w == 0 {
		pool, limit = plan.PoolOuter, l.Opt.OuterSlots
		from, tick = l.peer(p.o-1, p.i), l.outerTick(t/l.w)
	}
	blk = l.Take(pool+plan.Pool(lane), limit, l.moves, blk.Set, blk.Heads)
	l.Recv(blk, from, number(l.lane, lane), tick)
	return blk
}

// pass sends a lane of the block of step t on: a window's start block to the next window first,
// then any block to the next rank inside the window.
func (l *loop) pass(blk plan.Block, t, lane int) {
	if blk.Empty {
		return
	}
	p, j, s := l.place(l.c), t/l.w, t%l.w
	block := l.block(l.c, t)
	if s == 0 && j < l.outs-1 && l.comes(block, lane, t+l.w) {
		l.Send(blk, l.peer(p.o+1, p.i), number(l.lane, lane), l.outerTick(j+1))
	}
	if s < l.w-1 && l.comes(block, lane, t+1) {
		l.Send(blk, l.peer(p.o, p.i+1), number(l.lane, lane), l.stepTick(t+1))
	}
}
