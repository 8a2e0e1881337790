package plan

import "github.com/kvloom/kvloom/mesh"

// Pass is one direction of an attention layer; a round runs one pass.
type Pass uint8

// The two passes.
const (
	Forward Pass = iota
	Backward
)

// String is the pass's name in plan texts.
func (p Pass) String() string {
	if p == Backward {
		return "backward"
	}
	return "forward"
}

// Tensor is what a region of a slot holds. Rows are tokens of the query sequence, for KV and DKV
// of the key sequence; heads are query heads, for KV and DKV key/value heads. Vec and Sum are those
// of collectives (Shape.Collective): an element of a vector stands for a token; the heads of Vec
// are contributors, the ranks of a group in order, and a sum has one head.
type Tensor uint8

// The tensors. elem is the element's width, acc the accumulator's.
const (
	Q       Tensor = iota // q [rows, heads, D] elem
	KV                    // k [rows, heads, D] then v [rows, heads, DV], elem
	State                 // acc [rows, heads, DV] then m, l [rows, heads], acc
	Out                   // out [rows, heads, DV] elem, then lse [rows, heads] acc
	DO                    // gradient of out [rows, heads, DV] elem
	Delta                 // rowsum(dO*O) [rows, heads] acc
	DQ                    // gradient of q [rows, heads, D] acc
	DKV                   // gradients of k then v, as KV, acc
	Part                  // a finished part of out [rows, heads, DV] acc, then its lse acc
	Visit                 // q elem, dO elem, lse acc, delta acc: what queries on a visit bring
	DKVWire               // DKV on its way, as bf16
	Vec                   // contributions to a vector [elements, contributors] elem
	Sum                   // sums of all contributions [elements, 1] acc
	numTensors
)

// keyed tells whether the tensor's rows are of the key sequence and its heads key/value heads.
func (t Tensor) keyed() bool { return t == KV || t == DKV || t == DKVWire || t == Sum }

// collective tells whether the tensor belongs to collectives, and to nothing else.
func (t Tensor) collective() bool { return t == Vec || t == Sum }

// Linear tensors are accumulators: made once, added to, handed on exactly once.
func (t Tensor) Linear() bool {
	return t == State || t == DQ || t == DKV || t == Part || t == DKVWire
}

// Access is what an op does to the region of an operand.
type Access uint8

// The accesses. A life of a slot begins with one Write of its whole frame, ends with a release (or
// stays, live-out). HandOn consumes the region: nothing may touch it afterwards.
const (
	Read Access = iota
	Write
	Add
	HandOn
)

// Kind is what an op does.
type Kind uint8

// The kinds, with their operands in order.
//
//	pack        r|c src          w piece        copies a region into a block of its own, a dkv
//	                                            also rounded into a dkvw
//	unpack      r|c src...       w dst          puts regions together; DKV of replicas, and Vec
//	                                            of all contributors into Sum, are added in
//	                                            operand order
//	zero                         w acc          starts an accumulator: 0, or m=-inf l=0 acc=0
//	send        r|c block        peer lane tick
//	recv                         w block        peer lane tick
//	attend      r q, r kv        + state
//	attend-bwd  r q kv do out delta   + dq   w|+ dkv (last)
//	attend-bwd  r visit kv            + dq   w|+ dkv (last)
//	delta       r do, r out      w delta
//	visit       r q do out delta w visit        what attend-bwd needs of queries, in one block
//	accumulate  c partial        + acc          equal regions; acc may be one of a larger block: dq
//	                                            on dq, dkv or dkvw on dkv, part on state (merged)
//	finalize    c state          w out|part     on one slot: out takes acc's place
//	release     slot             ends the slot's life; its operand is the frame that lived there
const (
	Pack Kind = iota
	Unpack
	Zero
	Send
	Recv
	Attend
	AttendBackward
	DeltaOp
	Accumulate
	Finalize
	Release
	VisitOp
	numKinds
)

// Device tells whether the op runs on the rank's device.
func (k Kind) Device() bool { return k != Send && k != Recv && k != Release }

// Link tells whether the op is one end of a transfer.
func (k Kind) Link() bool { return k == Send || k == Recv }

// Lanes of a link. Each (direction, peer, lane) keeps its order and none blocks another.
const (
	LaneKV         int32 = iota // KV blocks round the ring
	LaneDKV                     // dKV accumulators round the ring
	LanePieces                  // exchange pieces of KV and DKV
	LanePiecesQ                 // exchange pieces of Q, Out, DO and DQ
	laneKV2                     // the second chunk's LaneKV
	laneDKV2                    // the second chunk's LaneDKV
	LaneCollective              // pieces of collectives
	LaneQ                       // queries on a visit round the ring: Q, Visit
	LaneDQ                      // dQ accumulators round the ring
	LanePart                    // parts of out on their way home
	_                           //
	laneQ2                      // the second half's LaneQ
	laneDQ2                     // the second half's LaneDQ
	lanePart2                   // the second half's LanePart
	NumLanes
)

// LaneStep is from a chunk's ring lane to that of the next chunk, where they travel apart.
const LaneStep = laneKV2 - LaneKV

// SetID names a token set in the plan's table; set 0 is always the empty set.
type SetID int32

// Operand is one region that an op touches: heads Heads of the tokens Set of tensor Tensor, lying
// in slot Slot.
type Operand struct {
	Slot   int32
	Set    SetID
	Heads  mesh.Heads
	Tensor Tensor
	Access Access
}

// Op is one step of a rank's program. Its operands and dependencies lie in the program's arenas.
// Peer, Lane and Tick are those of a send or receive; both ends carry the same lane and tick. The
// tick of other ops is their place in the queue: ready ops are issued lowest tick first.
type Op struct {
	Kind       Kind
	Peer       int32
	Lane       int32
	Tick       int32
	arg0, argN int32
	dep0, depN int32
}

// Role is what a slot means outside its program: the session's tensors.
type Role uint8

// The roles. Home slots are token-sharded: the rank's own tokens, all heads. Head slots are
// head-sharded: the ring shard's tokens, the rank's heads; with head degree 1 a home slot is both.
// A collective has what the rank brings (VecIn) and what it gets (SumOut).
const (
	Scratch Role = iota
	HomeQ
	HomeKV
	HomeOut
	HomeDO
	HomeDQ
	HomeDKV
	HeadQ
	HeadKV
	HeadOut
	VecIn
	SumOut
	NumRoles
)

// Slot is the right to hold one block of at most Bytes bytes. A slot with a role belongs to the
// session: In says that a block lives there when the round starts, Keep that it stays when the
// round ends. Its frame says which block.
type Slot struct {
	Role     Role
	In, Keep bool
	Tensor   Tensor
	Set      SetID
	Heads    mesh.Heads
	Bytes    int64
}

// Program is what one rank does in one pass: ops with explicit dependencies over a slot table.
// Dependencies are numbers of ops of the same program. Programs are immutable once built.
type Program struct {
	Rank  int
	Pass  Pass
	Slots []Slot
	Ops   []Op
	args  []Operand
	deps  []int32
}

// Args are the operands of op i. The caller must not change them.
func (p *Program) Args(i int) []Operand {
	op := &p.Ops[i]
	return p.args[op.arg0:op.argN:op.argN]
}

// Deps are the ops that op i waits for. The caller must not change them.
func (p *Program) Deps(i int) []int32 {
	op := &p.Ops[i]
	return p.deps[op.dep0:op.depN:op.depN]
}

// Append adds an op with its operands and dependencies and returns its number. It is how programs
// are made: by Builder, by the text reader, by hand in tests.
func (p *Program) Append(op Op, args []Operand, deps []int32) int {
	op.arg0 = int32(len(p.args))
	p.args = append(p.args, args...)
	op.argN = int32(len(p.args))
	op.dep0 = int32(len(p.deps))
	p.deps = append(p.deps, deps...)
	op.depN = int32(len(p.deps))
	p.Ops = append(p.Ops, op)
	return len(p.Ops) - 1
}

// PeakBytes is what the rank holds at once in this pass: slots are claimed when a round starts, so
// it is the sum of their sizes.
func (p *Program) PeakBytes() int64 {
	n := int64(0)
	for i := range p.Slots {
		n += p.Slots[i].Bytes
	}
	return n
}
