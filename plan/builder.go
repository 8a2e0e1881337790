package plan

import (
	"fmt"

	"github.com/kvloom/kvloom/mesh"
)

// Block is what a builder holds in its hand: a frame that lives in a slot of the program.
type Block struct {
	Slot   int32
	Tensor Tensor
	Set    SetID
	Heads  mesh.Heads
	Empty  bool // no rows: nothing lives anywhere, and no op may name it
}

// Builder writes one rank's program. It keeps, for each slot, who wrote it last and who has read it
// since, and derives each op's dependencies from the slots that the op touches: reuse of a slot
// is a dependency like any other. Axes (ring, heads) call it; they never write a dependency.
type Builder struct {
	Header *Header
	Mesh   mesh.Mesh
	At     mesh.Coord
	Opt    Options
	Survey any // of a Surveyor

	prog   *Program
	uses   []slotUse
	pools  [NumPools][]int32 // free slots, longest free first
	made   [NumPools]int
	tick   int32
	chunk  int       // of heads, at hand
	groups []group   // the token sets of each ring shard
	sees   *sees     // which of them may see which
	args   []Operand // of the op being written
	deps   []int32
}

type slotUse struct {
	writer  int32   // last op that wrote, added or (when free) released; -1 if none
	readers []int32 // ops that read or handed on since
	pool    Pool
	live    Block
}

// Pool names a class of scratch slots that stand in for one another.
type Pool uint8

// The pools.
const (
	PoolPieces      Pool = iota // exchange pieces
	PoolChunks                  // pieces of head chunks on their way in; one pool for odd chunks
	_                           //
	PoolState                   // state, delta, head-sharded gradients
	PoolLand                    // what comes home of the own block's sum; one pool a lane
	_                           //
	PoolKV                      // KV blocks on their way inside a window; one pool a lane
	_                           //
	PoolOuter                   // KV blocks on their way between windows; one pool a lane
	_                           //
	PoolPartial                 // this rank's own dKV of one block; one pool a lane
	_                           //
	PoolTravel                  // travelling dKV accumulators; one pool a lane
	_                           //
	PoolTravelOuter             // dKV accumulators between windows; one pool a lane
	_                           //
	PoolWire                    // accumulators rounded for the way; one pool a lane
	_                           //
	PoolWireOuter               // the same, between windows; one pool a lane
	_                           //
	PoolVisit                   // what this rank's queries bring to others; one pool a lane
	_                           //
	NumPools
)

// NewBuilder starts the program of one rank.
func NewBuilder(h *Header, m mesh.Mesh, opt Options, pass Pass, rank int) *Builder {
	return &Builder{
		Header: h, Mesh: m, At: m.Coord(rank), Opt: opt,
		prog: &Program{Rank: rank, Pass: pass},
	}
}

// Program is the finished program; the builder must not be used after.
func (b *Builder) Program() *Program { return b.prog }

// Pass is the pass that the program runs.
func (b *Builder) Pass() Pass { return b.prog.Pass }

// Tick gives the next n ticks to the caller: the first of them is returned. Every rank must ask
// alike, since both ends of a transfer carry the same tick.
func (b *Builder) Tick(n int) int32 {
	t := b.tick
	b.tick += int32(n)
	return t
}

// LiveIn declares a session's block that is there when the round starts.
func (b *Builder) LiveIn(role Role, t Tensor, set SetID, heads mesh.Heads) Block {
	blk := Block{Tensor: t, Set: set, Heads: heads}
	if b.Header.Sets[set].Len() == 0 {
		blk.Empty = true
		return blk
	}
	blk.Slot = b.newSlot(PoolState)
	s := &b.prog.Slots[blk.Slot]
	*s = Slot{Role: role, In: true, Keep: true, Tensor: t, Set: set, Heads: heads}
	s.Bytes = b.bytes(blk)
	b.uses[blk.Slot].live = blk
	return blk
}

// LiveOut makes a fresh slot for a session's block (scratch when role is Scratch); the program
// must write it. The frame that is kept at the end is t over set and heads; before is the tensor
// that lives in the slot until then, t itself or the state that turns into it.
func (b *Builder) LiveOut(role Role, t Tensor, set SetID, heads mesh.Heads, before Tensor) Block {
	blk := Block{Tensor: t, Set: set, Heads: heads}
	if b.Header.Sets[set].Len() == 0 {
		blk.Empty = true
		return blk
	}
	if role == Scratch {
		blk = b.Take(PoolState, 0, before, set, heads)
		return b.Become(blk, t)
	}
	blk.Slot = b.newSlot(PoolState)
	s := &b.prog.Slots[blk.Slot]
	*s = Slot{Role: role, Keep: true, Tensor: t, Set: set, Heads: heads}
	s.Bytes = b.bytes(blk)
	blk.Tensor = before
	s.Bytes = max(s.Bytes, b.bytes(blk))
	blk.Tensor = t
	return blk
}

// Become is the block as the tensor that takes its place in its slot.
func (b *Builder) Become(k Block, t Tensor) Block {
	k.Tensor = t
	if !k.Empty {
		s := &b.prog.Slots[k.Slot]
		s.Bytes = max(s.Bytes, b.bytes(k))
	}
	return k
}

// Take claims a scratch slot of a pool for a frame that must be written next. With a limit the pool
// grows to that many slots and then gives the one that has been free longest; without one it
// gives the free slot that fits best, or a new one.
func (b *Builder) Take(p Pool, limit int, t Tensor, set SetID, heads mesh.Heads) Block {
	blk := Block{Tensor: t, Set: set, Heads: heads}
	if b.Header.Sets[set].Len() == 0 {
		blk.Empty = true
		return blk
	}
	free := b.pools[p]
	switch {
	case b.made[p] < limit, len(free) == 0 && limit == 0:
		blk.Slot = b.newSlot(p)
		b.made[p]++
	case len(free) > 0:
		i := 0
		if limit == 0 {
			i = b.bestFit(free, b.bytes(blk))
		}
		blk.Slot = free[i]
		b.pools[p] = append(free[:i], free[i+1:]...)
	default:
		panic(fmt.Sprintf("plan: pool %d has no free slot of %d: the axis holds too many", p,
			limit))
	}
	s := &b.prog.Slots[blk.Slot]
	s.Bytes = max(s.Bytes, b.bytes(blk))
	return blk
}

// bestFit picks the free slot that grows least and, of those, wastes least.
func (b *Builder) bestFit(free []int32, bytes int64) int {
	best, cost := 0, int64(-1)
	for i, s := range free {
		has := b.prog.Slots[s].Bytes
		c := has - bytes
		if c < 0 {
			c = -c << 32
		}
		if cost < 0 || c < cost {
			best, cost = i, c
		}
	}
	return best
}

func (b *Builder) newSlot(p Pool) int32 {
	b.prog.Slots = append(b.prog.Slots, Slot{})
	b.uses = append(b.uses, slotUse{writer: -1, pool: p})
	return int32(len(b.prog.Slots) - 1)
}

func (b *Builder) bytes(k Block) int64 {
	return b.Header.Bytes(k.Tensor, b.Header.Sets[k.Set].Len(), k.Heads.Len())
}

// Region is a part of a block: some of its rows, some of its heads.
func (k Block) Region(set SetID, heads mesh.Heads) Block {
	k.Set, k.Heads = set, heads
	return k
}

// Read, Write, Add and HandOn add an operand to the op that the next Emit writes.
func (b *Builder) Read(k Block) *Builder { return b.operand(k, Read) }

// Write adds an operand that begins a life; see Read.
func (b *Builder) Write(k Block) *Builder { return b.operand(k, Write) }

// Add adds an operand that accumulates; see Read.
func (b *Builder) Add(k Block) *Builder { return b.operand(k, Add) }

// HandOn adds an operand that is consumed; see Read.
func (b *Builder) HandOn(k Block) *Builder { return b.operand(k, HandOn) }

// Give is Read for an immutable tensor and HandOn for an accumulator.
func (b *Builder) Give(k Block) *Builder {
	if k.Tensor.Linear() {
		return b.HandOn(k)
	}
	return b.Read(k)
}

func (b *Builder) operand(k Block, a Access) *Builder {
	if k.Empty {
		panic("plan: an empty block has no operand")
	}
	b.args = append(b.args, Operand{
		Slot: k.Slot, Set: k.Set, Heads: k.Heads, Tensor: k.Tensor, Access: a,
	})
	return b
}

// Emit writes a device op with the operands given since the last one, at the given tick.
func (b *Builder) Emit(k Kind, tick int32) { b.emit(Op{Kind: k, Peer: -1, Tick: tick}) }

// Send writes the sending end of a transfer of block k, handed on if it is an accumulator.
func (b *Builder) Send(k Block, peer int, lane, tick int32) {
	b.Give(k).emit(Op{Kind: Send, Peer: int32(peer), Lane: lane, Tick: tick})
}

// Recv writes the receiving end of a transfer into block k.
func (b *Builder) Recv(k Block, peer int, lane, tick int32) {
	b.Write(k).emit(Op{Kind: Recv, Peer: int32(peer), Lane: lane, Tick: tick})
}

// Release ends the life of a block's slot and gives the slot back to its pool.
func (b *Builder) Release(k Block) {
	if k.Empty {
		return
	}
	u := &b.uses[k.Slot]
	b.args = append(b.args[:0], Operand{
		Slot: k.Slot, Set: u.live.Set, Heads: u.live.Heads, Tensor: u.live.Tensor,
	})
	for _, r := range u.readers {
		b.addDep(r)
	}
	if len(u.readers) == 0 {
		b.addDep(u.writer)
	}
	tick := int32(0)
	for _, d := range b.deps {
		tick = max(tick, b.prog.Ops[d].Tick)
	}
	n := b.prog.Append(Op{Kind: Release, Peer: -1, Tick: tick}, b.args, b.deps)
	u.writer, u.readers = int32(n), u.readers[:0]
	b.pools[u.pool] = append(b.pools[u.pool], k.Slot)
	b.args, b.deps = b.args[:0], b.deps[:0]
}

// emit derives the dependencies, appends the op and notes what it did to its slots.
func (b *Builder) emit(op Op) {
	for i := range b.args {
		b.conflicts(&b.args[i])
	}
	b.dropImplied()
	n := int32(b.prog.Append(op, b.args, b.deps))
	for i := range b.args {
		a := &b.args[i]
		u := &b.uses[a.Slot]
		switch a.Access {
		case Read, HandOn:
			u.readers = append(b.notWaitedFor(u.readers), n)
		case Write:
			u.live = Block{Slot: a.Slot, Tensor: a.Tensor, Set: a.Set, Heads: a.Heads}
			u.writer, u.readers = n, u.readers[:0]
		case Add:
			u.writer, u.readers = n, u.readers[:0]
		}
	}
	b.args, b.deps = b.args[:0], b.deps[:0]
}

// notWaitedFor keeps the readers that the op just written does not follow: whoever waits for the op
// waits for the others too.
func (b *Builder) notWaitedFor(readers []int32) []int32 {
	keep := readers[:0]
	for _, r := range readers {
		if !b.hasDep(r) {
			keep = append(keep, r)
		}
	}
	return keep
}

// conflicts adds the ops that must be over before operand a is touched.
func (b *Builder) conflicts(a *Operand) {
	u := &b.uses[a.Slot]
	if u.writer >= 0 {
		b.addDep(u.writer)
	}
	if a.Access == Add || a.Access == Write {
		for _, r := range u.readers {
			b.addDep(r)
		}
	}
}

// dropImplied drops a slot's writer where a direct dependency has itself read that slot since: the
// long-lived q of every attend is waited for once, by the first.
func (b *Builder) dropImplied() {
	keep := b.deps[:0]
	for _, d := range b.deps {
		if !b.implied(d) {
			keep = append(keep, d)
		}
	}
	b.deps = keep
}

func (b *Builder) implied(d int32) bool {
	for i := range b.args {
		u := &b.uses[b.args[i].Slot]
		if u.writer != d || len(u.readers) == 0 {
			continue
		}
		for _, r := range u.readers {
			if r != d && b.hasDep(r) {
				return true
			}
		}
	}
	return false
}

func (b *Builder) addDep(d int32) {
	if d >= 0 && !b.hasDep(d) {
		b.deps = append(b.deps, d)
	}
}

func (b *Builder) hasDep(d int32) bool {
	for _, x := range b.deps {
		if x == d {
			return true
		}
	}
	return false
}
