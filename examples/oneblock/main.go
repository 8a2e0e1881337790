// Command oneblock follows one KV block through a forward and a backward round of a ring of three
// ranks, hop by hop, in words. The ranks are the real machines, in virtual time.
package main

import (
	"fmt"
	"io"
	"os"
	"sort"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/headshuffle"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
	"github.com/kvloom/kvloom/ringbus"
	"github.com/kvloom/kvloom/sim"
)

const tokens, ranks = 12, 3

// step is the time of one attend; a hop takes 0.6 of it.
const step = actors.Time(1000)

func main() {
	if err := follow(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// follow prints the journey of the block that is at home on rank 0.
func follow(w io.Writer) error {
	p, err := plan.New(plan.Spec{
		Shape: plan.Shape{QTokens: tokens, KTokens: tokens, QHeads: 2, KHeads: 1, Dim: 4, VDim: 4,
			ElemBytes: 4, AccBytes: 4, Scale: 0.5, Mask: attn.Causal(tokens, tokens)},
		Mesh: mesh.Mesh{Head: 1, Ring: ranks}, Ring: ringbus.Ring{}, Heads: headshuffle.AllToAll{},
	})
	if err != nil {
		return err
	}
	c, err := rank.CompilePlan(p, nil, p.Seal)
	if err != nil {
		return err
	}
	book := &rank.Rounds{Entries: []rank.Entry{
		{Plan: c, Pass: plan.Forward}, {Plan: c, Pass: plan.Backward}}}
	j := &journey{book: book, header: p.Header(), block: p.Header().HomeK[0]}
	world := sim.New(sim.Config{
		Ranks: ranks, Book: book, Costs: costs{book}, Trace: j.see, Window: 1})
	if _, err := world.Run(len(book.Entries)); err != nil {
		return err
	}
	fmt.Fprintf(w, "block of rank 0: tokens %v of %d, on a ring of %d\n",
		p.Header().Sets[j.block].Positions(), tokens, ranks)
	sort.SliceStable(j.lines, func(a, b int) bool { return j.lines[a].at < j.lines[b].at })
	round := int32(-1)
	for _, l := range j.lines {
		if l.round != round {
			round = l.round
			fmt.Fprintf(w, "%v\n", book.Entries[round].Pass)
		}
		fmt.Fprintf(w, "%5.1f  %s\n", float64(l.at-j.starts[round])/float64(step), l.text)
	}
	return nil
}

// journey collects what touches the block.
type journey struct {
	book   *rank.Rounds
	header *plan.Header
	block  plan.SetID
	starts [2]actors.Time // of the rounds
	lines  []line
}

type line struct {
	at    actors.Time
	round int32
	text  string
}

// see looks at an event: ops that are over, blocks that have crossed a link.
func (j *journey) see(e sim.Event) {
	if start := &j.starts[min(e.Env.Round, 1)]; e.Env.Kind == actors.Post && *start == 0 {
		*start = e.At
	}
	switch e.What {
	case "op":
		j.op(e)
	case "block":
		j.hop(e)
	}
}

func (j *journey) op(e sim.Event) {
	r := e.Env.To.Rank
	p := j.book.Script(r, e.Env.Round).Program
	for _, a := range p.Args(int(e.Env.Op)) {
		if a.Set != j.block || (a.Tensor != plan.KV && a.Tensor != plan.DKV) {
			continue
		}
		text := map[plan.Kind]string{
			plan.Attend:         "rank %d has attended it",
			plan.AttendBackward: "rank %d has attended it, and has its own part of the gradient",
			plan.Accumulate:     "rank %d has added its part to the gradient that came",
		}[p.Ops[e.Env.Op].Kind]
		if text != "" {
			j.lines = append(j.lines, line{e.At, e.Env.Round, fmt.Sprintf(text, r)})
		}
		return
	}
}

func (j *journey) hop(e sim.Event) {
	src, dst := e.Env.To.Rank, e.Env.Peer
	a := j.book.Script(src, e.Env.Round).Program.Args(int(e.Env.Op))[0]
	if a.Set != j.block {
		return
	}
	what := "the block"
	if a.Tensor == plan.DKV {
		what = "its gradient"
	}
	if a.Tensor == plan.DKV && dst == 0 {
		what = "its gradient, complete,"
	}
	j.lines = append(j.lines, line{e.At, e.Env.Round,
		fmt.Sprintf("%s has hopped from rank %d to rank %d", what, src, dst)})
}

// costs: an attend takes a step, a hop 0.6, adding 0.1.
type costs struct{ book *rank.Rounds }

func (c costs) Op(r, round, op int32) actors.Time {
	switch c.book.Script(r, round).Program.Ops[op].Kind {
	case plan.Attend, plan.AttendBackward:
		return step
	case plan.Accumulate:
		return step / 10
	}
	return 0
}

func (c costs) Transfer(src, dst, round, op int32) (int, actors.Time, actors.Time) {
	if op < 0 {
		return 0, 0, 0
	}
	lane := c.book.Script(src, round).Program.Ops[op].Lane
	return (int(src)*ranks+int(dst))*int(plan.NumLanes) + int(lane), step * 6 / 10, 0
}

func (costs) Mail(_, _ actors.Addr) actors.Time { return 0 }
