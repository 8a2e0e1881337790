package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvloom/kvloom/plan"
)

// timeline is one rank's pass as a list of the blocks that come by: of KV, or of queries where
// those travel.
type timeline struct {
	h      *plan.Header
	p      *plan.Program
	moves  plan.Tensor // KV or Q
	parts  bool        // parts of out travel home
	bases  []int32     // first ticks of the chunks of heads
	blocks []visit
	before []piece // exchanges, before the first attend and after it
	after  []piece
}

// visit is one block, or one lane of it, at the rank.
type visit struct {
	set              plan.SetID
	chunk            int
	tick             int32 // of its attend; -1 if it only passes through
	from, to         []int // peers of the block
	backFrom, backTo []int // peers of what it brings home: dkv, dq or parts of out
	flops            int64
}

// piece is what one exchange of a tensor brings in and takes away.
type piece struct {
	tensor            plan.Tensor
	in, out           []int // peers
	bytesIn, bytesOut int64
}

// newTimeline reads a program in the order of its list, which is that of the ring steps.
func newTimeline(h *plan.Header, p *plan.Program) *timeline {
	t := &timeline{h: h, p: p, moves: plan.KV, bases: chunkBases(p)}
	for i := range p.Ops {
		if p.Ops[i].Kind == plan.Send || p.Ops[i].Kind == plan.Recv {
			switch plan.ClassOf(p.Pass, p.Ops[i].Lane) {
			case plan.QForward, plan.QBackward:
				t.moves = plan.Q
			case plan.PartForward:
				t.moves, t.parts = plan.Q, true
			}
		}
	}
	for i := range p.Ops {
		op, args := &p.Ops[i], p.Args(i)
		switch op.Kind {
		case plan.Attend, plan.AttendBackward:
			set := args[1].Set
			if t.moves == plan.Q {
				set = args[0].Set
			}
			v := t.visit(set, op.Tick)
			v.tick = op.Tick
			c := plan.Count(h, one(p, i))
			v.flops += c.Flops
		case plan.Send, plan.Recv:
			t.transfer(op, &args[0])
		}
	}
	return t
}

// one is a program of a single op.
func one(p *plan.Program, op int) *plan.Program {
	out := &plan.Program{Rank: p.Rank, Pass: p.Pass}
	out.Append(p.Ops[op], p.Args(op), nil)
	return out
}

// visit is the row of a set, in the chunk of heads that a tick belongs to.
func (t *timeline) visit(set plan.SetID, tick int32) *visit {
	chunk := 0
	for i, base := range t.bases {
		if tick >= base {
			chunk = i
		}
	}
	for i := range t.blocks {
		if t.blocks[i].set == set && t.blocks[i].chunk == chunk {
			return &t.blocks[i]
		}
	}
	t.blocks = append(t.blocks, visit{set: set, chunk: chunk, tick: -1})
	return &t.blocks[len(t.blocks)-1]
}

func (t *timeline) transfer(op *plan.Op, a *plan.Operand) {
	peer, sends := int(op.Peer), op.Kind == plan.Send
	note := func(from, to *[]int) {
		if sends {
			from = to
		}
		*from = append(*from, peer)
	}
	switch plan.ClassOf(t.p.Pass, op.Lane) {
	case plan.KVForward, plan.KVBackward, plan.QForward, plan.QBackward:
		v := t.visit(a.Set, op.Tick)
		note(&v.from, &v.to)
	case plan.DKVHops, plan.DQHops, plan.PartForward:
		v := t.visit(a.Set, op.Tick)
		note(&v.backFrom, &v.backTo)
	default:
		list := &t.after
		if t.gathers(a.Tensor) {
			list = &t.before
		}
		p := pieceOf(list, a.Tensor)
		note(&p.in, &p.out)
		if sends {
			p.bytesOut += t.h.OperandBytes(a)
		} else {
			p.bytesIn += t.h.OperandBytes(a)
		}
	}
}

// gathers tells whether a tensor is exchanged before it is attended with, not after.
func (t *timeline) gathers(x plan.Tensor) bool {
	switch x {
	case plan.Q, plan.KV, plan.DO:
		return true
	case plan.Out:
		return t.p.Pass == plan.Backward
	}
	return false
}

func pieceOf(list *[]piece, tensor plan.Tensor) *piece {
	i := slices.IndexFunc(*list, func(p piece) bool { return p.tensor == tensor })
	if i < 0 {
		*list = append(*list, piece{tensor: tensor})
		i = len(*list) - 1
	}
	return &(*list)[i]
}

// text is the timeline for a terminal.
func (t *timeline) text(steps stepClock) string {
	var b strings.Builder
	fmt.Fprintf(&b, "timeline of rank %d, %v\n", t.p.Rank, t.p.Pass)
	pieces(&b, t.before, "before")
	moves, back := "kv", "dkv"
	if t.moves == plan.Q {
		moves, back = "q", "dq"
	}
	head := []any{"step", "block", "tokens", moves + " from", moves + " to", "work"}
	backward := t.p.Pass == plan.Backward
	if t.parts {
		back = "part"
	}
	if backward || t.parts {
		head = append(head, back+" from", back+" to")
	}
	table := plainTable(head...)
	for _, v := range t.blocks {
		step, work := "-", "none"
		switch {
		case v.tick >= 0:
			step, work = fmt.Sprint(steps.of(v.tick)), flopsText(v.flops)
		case len(v.from) > 0 && len(v.to) > 0:
			work = "passes on"
		case len(v.to) > 0:
			work = "gives"
		}
		row := []any{step, t.h.Names[v.set], setText(t.h, v.set), peersText(v.from),
			peersText(v.to), work}
		if backward || t.parts {
			row = append(row, peersText(v.backFrom), peersText(v.backTo))
		}
		table.AppendRow(row)
	}
	b.WriteString(table.Render() + "\n")
	pieces(&b, t.after, "after")
	return b.String()
}

// pieces writes what exchanges bring in and take away; a side without any is left out.
func pieces(b *strings.Builder, list []piece, when string) {
	for _, p := range list {
		fmt.Fprintf(b, "%s: %v", when, p.tensor)
		for _, half := range []struct {
			way   string
			peers []int
			bytes int64
		}{{"from", p.in, p.bytesIn}, {"to", p.out, p.bytesOut}} {
			if len(half.peers) == 0 {
				continue
			}
			noun := "ranks"
			if len(slices.Compact(slices.Sorted(slices.Values(half.peers)))) == 1 {
				noun = "rank"
			}
			fmt.Fprintf(b, ", %s %s %s %s", bytesText(half.bytes), half.way, noun,
				peersText(half.peers))
		}
		b.WriteByte('\n')
	}
}

func peersText(peers []int) string {
	if len(peers) == 0 {
		return "-"
	}
	peers = slices.Clone(peers)
	for i := len(peers) - 1; i >= 0; i-- { // each once, in the order of the steps
		if slices.Contains(peers[:i], peers[i]) {
			peers = slices.Delete(peers, i, i+1)
		}
	}
	var words []string
	for _, p := range peers {
		words = append(words, fmt.Sprint(p))
	}
	if len(words) > 8 {
		return numbersText(peers)
	}
	return strings.Join(words, ",")
}

// setText writes the runs of a token set, the first ones of many.
func setText(h *plan.Header, id plan.SetID) string {
	const most = 3
	var words []string
	for i, s := range spansOf(h.Sets[id]) {
		if i == most {
			words = append(words, "...")
			break
		}
		word := fmt.Sprintf("%d:%d", s[0], s[1])
		if len(s) > 2 {
			word += fmt.Sprintf(":%d", s[2])
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}
