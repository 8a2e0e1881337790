package plan

import (
	"os"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// hand is a plan written by hand, op by op.
type hand struct {
	h      *Header
	passes []Pass
	progs  [2][]*Program
}

func (p *hand) Header() *Header { return p.h }
func (p *hand) Passes() []Pass  { return p.passes }

func (p *hand) Program(pass Pass, rank int) (*Program, error) { return p.progs[pass][rank], nil }

// readByHand is a plan of testdata/hand. visits: queries go to the keys, forward and backward, with
// a sink; narrow: dKV travels as bf16.
func readByHand(name string) *hand {
	text, err := os.ReadFile("testdata/hand/" + name + ".txt")
	if err != nil {
		panic(err)
	}
	read, err := ParsePlan(text)
	if err != nil {
		panic(err)
	}
	return &hand{h: read.Header(), passes: read.Passes(), progs: read.programs}
}

func visitsByHand() *hand { return readByHand("visits") }
func narrowByHand() *hand { return readByHand("narrow") }

// byHand are the plans by hand.
func byHand() map[string]func() *hand {
	return map[string]func() *hand{"ring": ringByHand, "shuffle": shuffleByHand,
		"visits": visitsByHand, "narrow": narrowByHand}
}

// block is a block in a slot; rd, wr, ad and co are operands on it.
type block struct {
	slot   int32
	t      Tensor
	set    SetID
	lo, hi int32
}

func (b block) with(a Access) Operand {
	return Operand{b.slot, b.set, mesh.Heads{Lo: b.lo, Hi: b.hi}, b.t, a}
}
func rd(b block) Operand { return b.with(Read) }
func wr(b block) Operand { return b.with(Write) }
func ad(b block) Operand { return b.with(Add) }
func co(b block) Operand { return b.with(HandOn) }

// op appends an op of the device.
func (p *Program) op(k Kind, deps []int32, args ...Operand) int32 {
	return int32(p.Append(Op{Kind: k, Peer: -1}, args, deps))
}

// link appends one end of a transfer.
func (p *Program) link(k Kind, deps []int32, peer int, lane, tick int32, a Operand) int32 {
	op := Op{Kind: k, Peer: int32(peer), Lane: lane, Tick: tick}
	return int32(p.Append(op, []Operand{a}, deps))
}

func after(deps ...int32) []int32 { return deps }

// slot appends a slot of the block's size.
func (p *Program) slot(h *Header, r Role, in bool, b block) {
	o := rd(b)
	p.Slots = append(p.Slots, Slot{Role: r, In: in, Keep: r != Scratch, Tensor: b.t, Set: b.set,
		Heads: o.Heads, Bytes: h.OperandBytes(&o)})
}

func handHeader(tokens, qHeads, kHeads int, sets ...mesh.Set) *Header {
	return &Header{
		Shape: Shape{QTokens: tokens, KTokens: tokens, QHeads: qHeads, KHeads: kHeads, Dim: 4,
			VDim: 6, ElemBytes: 4, AccBytes: 4, Scale: 0.5, Mask: attn.Causal(tokens, tokens)},
		Ranks: 2,
		Sets:  append([]mesh.Set{nil}, sets...),
		Names: []string{"none", "a", "b", "c"}[:1+len(sets)],
	}
}

// ringByHand is a ring of two ranks over 8 tokens in zigzag, heads 2/1, both passes.
func ringByHand() *hand {
	h := handHeader(8, 2, 1,
		mesh.Set{{Start: 0, Stride: 1, Count: 2}, {Start: 6, Stride: 1, Count: 2}},
		mesh.Set{{Start: 2, Stride: 1, Count: 4}})
	h.HomeQ, h.HomeK = []SetID{1, 2}, []SetID{1, 2}
	p := &hand{h: h, passes: []Pass{Forward, Backward}}
	for r := range 2 {
		p.progs[Forward] = append(p.progs[Forward], ringForward(h, r))
		p.progs[Backward] = append(p.progs[Backward], ringBackward(h, r))
	}
	return p
}

func ringForward(h *Header, r int) *Program {
	own, other, peer := SetID(r+1), SetID(2-r), 1-r
	p := &Program{Rank: r, Pass: Forward}
	q := block{0, Q, own, 0, 2}
	kv := block{1, KV, own, 0, 1}
	out := block{2, Out, own, 0, 2}
	st := block{2, State, own, 0, 2}
	kv2 := block{3, KV, other, 0, 1}
	p.slot(h, HomeQ, true, q)
	p.slot(h, HomeKV, true, kv)
	p.slot(h, HomeOut, false, out)
	p.slot(h, Scratch, false, kv2)
	p.Slots[2].Bytes = h.Bytes(State, 4, 2)
	p.op(Zero, nil, wr(st))                           // 0
	p.link(Recv, nil, peer, LaneKV, 1, wr(kv2))       // 1
	p.link(Send, nil, peer, LaneKV, 1, rd(kv))        // 2
	p.op(Attend, after(0), rd(q), rd(kv), ad(st))     // 3
	p.op(Attend, after(3, 1), rd(q), rd(kv2), ad(st)) // 4
	p.op(Release, after(4), rd(kv2))                  // 5
	p.op(Finalize, after(4), co(st), wr(out))         // 6
	return p
}

func ringBackward(h *Header, r int) *Program {
	own, other, peer := SetID(r+1), SetID(2-r), 1-r
	p := &Program{Rank: r, Pass: Backward}
	q, kv := block{0, Q, own, 0, 2}, block{1, KV, own, 0, 1}
	do, out := block{2, DO, own, 0, 2}, block{3, Out, own, 0, 2}
	dq, dkv := block{4, DQ, own, 0, 2}, block{5, DKV, own, 0, 1}
	kv2, dl := block{6, KV, other, 0, 1}, block{7, Delta, own, 0, 2}
	mine, part := block{8, DKV, own, 0, 1}, block{9, DKV, other, 0, 1}
	acc := block{10, DKV, other, 0, 1}
	p.slot(h, HomeQ, true, q)
	p.slot(h, HomeKV, true, kv)
	p.slot(h, HomeDO, true, do)
	p.slot(h, HomeOut, true, out)
	p.slot(h, HomeDQ, false, dq)
	p.slot(h, HomeDKV, false, dkv)
	for _, b := range []block{kv2, dl, mine, part, acc} {
		p.slot(h, Scratch, false, b)
	}
	p.op(DeltaOp, nil, rd(do), rd(out), wr(dl)) // 0
	p.op(Zero, nil, wr(dq))                     // 1
	p.link(Recv, nil, peer, LaneKV, 1, wr(kv2)) // 2
	p.link(Send, nil, peer, LaneKV, 1, rd(kv))  // 3
	p.op(AttendBackward, after(0, 1),
		rd(q), rd(kv), rd(do), rd(out), rd(dl), ad(dq), wr(mine)) // 4
	p.link(Send, after(4), peer, LaneDKV, 2, co(mine)) // 5
	p.link(Recv, nil, peer, LaneDKV, 2, wr(acc))       // 6
	p.op(AttendBackward, after(4, 2),
		rd(q), rd(kv2), rd(do), rd(out), rd(dl), ad(dq), wr(part)) // 7
	p.op(Accumulate, after(7, 6), co(part), ad(acc))  // 8
	p.link(Send, after(8), peer, LaneDKV, 3, co(acc)) // 9
	p.link(Recv, nil, peer, LaneDKV, 3, wr(dkv))      // 10
	p.op(Release, after(7), rd(kv2))                  // 11
	p.op(Release, after(7), rd(dl))                   // 12
	p.op(Release, after(5), rd(mine))                 // 13
	p.op(Release, after(8), rd(part))                 // 14
	p.op(Release, after(9), rd(acc))                  // 15
	return p
}

// shuffleByHand is an exchange of heads between two ranks over 5 tokens, heads 2/2, forward.
func shuffleByHand() *hand {
	h := handHeader(5, 2, 2,
		mesh.Set{{Start: 0, Stride: 1, Count: 3}},
		mesh.Set{{Start: 3, Stride: 1, Count: 2}},
		mesh.Set{{Start: 0, Stride: 1, Count: 5}})
	h.HomeQ, h.HomeK = []SetID{1, 2}, []SetID{1, 2}
	p := &hand{h: h, passes: []Pass{Forward}}
	for r := range 2 {
		p.progs[Forward] = append(p.progs[Forward], shuffleForward(h, r))
	}
	return p
}

func shuffleForward(h *Header, r int) *Program {
	peer := 1 - r
	const all = SetID(3)
	own, other := SetID(r+1), SetID(peer+1)
	me, he := int32(r), int32(peer)
	p := &Program{Rank: r, Pass: Forward}
	at := func(s int32, t Tensor, set SetID, head int32) block {
		return block{s, t, set, head, head + 1}
	}
	p.slot(h, HomeQ, true, block{0, Q, own, 0, 2})
	p.slot(h, HomeKV, true, block{1, KV, own, 0, 2})
	p.slot(h, HomeOut, false, block{2, Out, own, 0, 2})
	q, kv, out := at(3, Q, all, me), at(4, KV, all, me), at(5, Out, all, me)
	st := at(5, State, all, me)
	p.slot(h, HeadQ, false, q)
	p.slot(h, HeadKV, false, kv)
	p.slot(h, HeadOut, false, out)
	p.Slots[5].Bytes = h.Bytes(State, 5, 1)
	gives := []block{at(6, Q, own, he), at(8, KV, own, he), at(10, Out, other, me)}
	gets := []block{at(7, Q, other, me), at(9, KV, other, me), at(11, Out, own, he)}
	for i := range gives {
		p.slot(h, Scratch, false, gives[i])
		p.slot(h, Scratch, false, gets[i])
	}
	p.op(Pack, nil, rd(at(0, Q, own, he)), wr(gives[0]))                // 0
	p.link(Send, after(0), peer, LanePiecesQ, 1, rd(gives[0]))          // 1
	p.link(Recv, nil, peer, LanePiecesQ, 1, wr(gets[0]))                // 2
	p.op(Unpack, after(2), rd(at(0, Q, own, me)), rd(gets[0]), wr(q))   // 3
	p.op(Pack, nil, rd(at(1, KV, own, he)), wr(gives[1]))               // 4
	p.link(Send, after(4), peer, LanePieces, 1, rd(gives[1]))           // 5
	p.link(Recv, nil, peer, LanePieces, 1, wr(gets[1]))                 // 6
	p.op(Unpack, after(6), rd(at(1, KV, own, me)), rd(gets[1]), wr(kv)) // 7
	p.op(Zero, nil, wr(st))                                             // 8
	p.op(Attend, after(8, 3, 7), rd(q), rd(kv), ad(st))                 // 9
	p.op(Finalize, after(9), co(st), wr(out))                           // 10
	p.op(Pack, after(10), rd(at(5, Out, other, me)), wr(gives[2]))      // 11
	p.link(Send, after(11), peer, LanePiecesQ, 2, rd(gives[2]))         // 12
	p.link(Recv, nil, peer, LanePiecesQ, 2, wr(gets[2]))                // 13
	p.op(Unpack, after(10, 13), rd(at(5, Out, own, me)), rd(gets[2]),
		wr(block{2, Out, own, 0, 2})) // 14
	for i, last := range []int32{1, 5, 12} {
		p.op(Release, after(last), rd(gives[i])) // 15, 17, 19
		p.op(Release, after([]int32{3, 7, 14}[i]), rd(gets[i]))
	}
	return p
}
