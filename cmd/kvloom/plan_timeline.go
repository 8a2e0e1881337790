package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvloom/kvloom/plan"
)

// timeline is one rank's pass as a list of the KV blocks that come by.
type timeline struct {
	h      *plan.Header
	p      *plan.Program
	blocks []visit
	before []piece // exchanges, before the first attend and after it
	after  []piece
}

// visit is one KV block, or one lane of it, at the rank.
type visit struct {
	set            plan.SetID
	tick           int32 // of its attend; -1 if it only passes through
	from, to       []int // peers of the KV block
	dkvFrom, dkvTo []int // peers of its gradient
	flops          int64
}

// piece is what one exchange of a tensor brings in and takes away.
type piece struct {
	tensor            plan.Tensor
	in, out           []int // peers
	bytesIn, bytesOut int64
}

// newTimeline reads a program in the order of its list, which is that of the ring steps.
func newTimeline(h *plan.Header, p *plan.Program) *timeline {
	t := &timeline{h: h, p: p}
	attended := false
	for i := range p.Ops {
		op, args := &p.Ops[i], p.Args(i)
		switch op.Kind {
		case plan.Attend, plan.AttendBackward:
			v := t.visit(args[1].Set)
			v.tick = op.Tick
			c := plan.Count(h, one(p, i))
			v.flops += c.Flops
			attended = true
		case plan.Send, plan.Recv:
			t.transfer(op, &args[0], attended)
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

func (t *timeline) visit(set plan.SetID) *visit {
	for i := range t.blocks {
		if t.blocks[i].set == set {
			return &t.blocks[i]
		}
	}
	t.blocks = append(t.blocks, visit{set: set, tick: -1})
	return &t.blocks[len(t.blocks)-1]
}

func (t *timeline) transfer(op *plan.Op, a *plan.Operand, attended bool) {
	peer, sends := int(op.Peer), op.Kind == plan.Send
	switch plan.ClassOf(t.p.Pass, op.Lane) {
	case plan.KVForward, plan.KVBackward:
		v := t.visit(a.Set)
		if sends {
			v.to = append(v.to, peer)
		} else {
			v.from = append(v.from, peer)
		}
	case plan.DKVHops:
		v := t.visit(a.Set)
		if sends {
			v.dkvTo = append(v.dkvTo, peer)
		} else {
			v.dkvFrom = append(v.dkvFrom, peer)
		}
	default:
		list := &t.before
		if attended {
			list = &t.after
		}
		p := pieceOf(list, a.Tensor)
		if sends {
			p.out, p.bytesOut = append(p.out, peer), p.bytesOut+t.h.OperandBytes(a)
		} else {
			p.in, p.bytesIn = append(p.in, peer), p.bytesIn+t.h.OperandBytes(a)
		}
	}
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
	head := []any{"step", "block", "tokens", "kv from", "kv to", "work"}
	backward := t.p.Pass == plan.Backward
	if backward {
		head = append(head, "dkv from", "dkv to")
	}
	table := plainTable(head...)
	for _, v := range t.blocks {
		step, work := "-", "none"
		switch {
		case v.tick >= 0:
			step, work = fmt.Sprint(steps.of(v.tick)), flopsText(v.flops)
		case len(v.to) > 0:
			work = "passes on"
		}
		row := []any{step, t.h.Names[v.set], setText(t.h, v.set), peersText(v.from),
			peersText(v.to), work}
		if backward {
			row = append(row, peersText(v.dkvFrom), peersText(v.dkvTo))
		}
		table.AppendRow(row)
	}
	b.WriteString(table.Render() + "\n")
	pieces(&b, t.after, "after")
	return b.String()
}

func pieces(b *strings.Builder, list []piece, when string) {
	for _, p := range list {
		fmt.Fprintf(b, "%s: %v, %s from ranks %s, %s to ranks %s\n", when, p.tensor,
			bytesText(p.bytesIn), peersText(p.in), bytesText(p.bytesOut), peersText(p.out))
	}
}

func peersText(peers []int) string {
	if len(peers) == 0 {
		return "-"
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
