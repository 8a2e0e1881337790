package kvloom

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
	"github.com/kvloom/kvloom/sim"
)

// Figures of docs/performance.md. Theory and machine stand beside them there.

// benchProblem is a causal problem in f32.
func benchProblem(tokens, heads, kvHeads, dim int) Problem {
	return Problem{
		Tokens: tokens, Heads: heads, KVHeads: kvHeads, Dim: dim,
		Scale: 1 / math.Sqrt(float64(dim)), Mask: attn.Causal(tokens, tokens),
	}
}

// benchSession is a gang with drawn inputs, for one problem.
func benchSession(b *testing.B, m mesh.Mesh, p Problem) *Session[float32] {
	b.Helper()
	s, err := Open[float32](b.Context(), Config{
		Mesh: m, Problems: []Problem{p}, Deadline: 10 * time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	nq, nk := p.Tokens*p.Heads*p.Dim, p.Tokens*p.KVHeads*p.Dim
	err = s.Load(0, 0, Inputs[float32]{
		Q: tensors.Draw[float32](1, "q", nq), K: tensors.Draw[float32](1, "k", nk),
		V: tensors.Draw[float32](1, "v", nk), DO: tensors.Draw[float32](1, "do", nq),
	})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// BenchmarkHop is what control costs: a ring of 8 ranks on a problem so small that its arithmetic
// is nothing (16 tokens, one head of dimension 4), round after round. A hop is a block sent and
// received, with the ops around it (attend, accumulate, release): 56 of KV a round, backward 64 of
// dKV besides. envelopes/hop are counted on the same plan in virtual time and include the round's
// own words (grant, done, complete).
//
//	go test -run xxx -bench Hop -benchmem -count 3 .
func BenchmarkHop(b *testing.B) {
	const ranks = 8
	p := benchProblem(2*ranks, 1, 1, 4)
	p.Mask = attn.Full(p.Tokens, p.Tokens)
	s := benchSession(b, mesh.Mesh{Head: 1, Ring: ranks}, p)
	for _, x := range []plan.Pass{plan.Forward, plan.Backward} {
		b.Run(x.String(), func(b *testing.B) {
			hops := float64(transfers(b, s.Plan(0), x))
			warm := sameRounds(100, Round{Pass: plan.Forward}, Round{Pass: x})
			if err := s.Run(b.Context(), warm...); err != nil {
				b.Fatal(err)
			}
			rounds := sameRounds(b.N, Round{Pass: x})
			b.ReportAllocs()
			b.ResetTimer()
			used := cpuTime()
			if err := s.Run(b.Context(), rounds...); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			b.ReportMetric(float64((cpuTime()-used).Nanoseconds())/float64(b.N)/hops, "cpu-ns/hop")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/hops, "ns/hop")
			b.ReportMetric(envelopes(b, s.Plan(0), x)/hops, "envelopes/hop")
		})
	}
}

// BenchmarkRound is a whole tiny round, 2x4 ranks, 64 tokens: what a live session allocates in
// the steady state.
//
//	go test -run xxx -bench Round -benchmem .
func BenchmarkRound(b *testing.B) {
	s := benchSession(b, mesh.Mesh{Head: 2, Ring: 4}, benchProblem(64, 8, 2, 8))
	both := []Round{{Pass: plan.Forward}, {Pass: plan.Backward}}
	if err := s.Run(b.Context(), sameRounds(100, both...)...); err != nil {
		b.Fatal(err)
	}
	rounds := sameRounds((b.N+1)/2, both...)
	b.ReportAllocs()
	b.ResetTimer()
	if err := s.Run(b.Context(), rounds...); err != nil {
		b.Fatal(err)
	}
}

// transfers is how many blocks a round of all ranks moves.
func transfers(b *testing.B, p *plan.Plan, x plan.Pass) int {
	b.Helper()
	n := 0
	for r := range p.Header().Ranks {
		prog, err := p.Program(x, r)
		if err != nil {
			b.Fatal(err)
		}
		for _, sends := range plan.Count(p.Header(), prog).Sends {
			n += sends
		}
	}
	return n
}

// sameRounds is rounds over and over, n times.
func sameRounds(n int, rounds ...Round) []Round {
	out := make([]Round, 0, n*len(rounds))
	for range n {
		out = append(out, rounds...)
	}
	return out
}

// envelopes counts what ranks, devices, links, scheduler and owner are sent in one round.
func envelopes(b *testing.B, p *plan.Plan, x plan.Pass) float64 {
	b.Helper()
	c, err := rank.CompilePlan(p, nil, p.Seal)
	if err != nil {
		b.Fatal(err)
	}
	mail := 0
	w := sim.New(sim.Config{
		Ranks: p.Header().Ranks, Costs: noTime{}, Window: 1,
		Book: &rank.Rounds{Entries: []rank.Entry{{Plan: c, Pass: x}, {Plan: c, Pass: x}}},
		Trace: func(e sim.Event) {
			if e.What == "deliver" {
				mail++
			}
		},
	})
	for range 2 { // the first round has the Hello and Confirm of every rank, too
		mail = 0
		if _, err := w.Run(1); err != nil {
			b.Fatal(err)
		}
	}
	return float64(mail)
}

// noTime is a world in which nothing takes time.
type noTime struct{}

func (noTime) Op(_, _, _ int32) actors.Time { return 0 }

func (noTime) Transfer(src, dst, _, _ int32) (int, actors.Time, actors.Time) {
	return int(src)<<16 + int(dst), 0, 0
}

func (noTime) Mail(_, _ actors.Addr) actors.Time { return 0 }
