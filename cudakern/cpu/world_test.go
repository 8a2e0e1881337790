package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/headshuffle"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/ringbus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// problem is an attention problem with its data and the gradient of its output, whole.
type problem struct {
	attn.Problem
	do []float64
}

func newProblem(tokens, heads, kvHeads, d, dv int, mask attn.Mask) *problem {
	rng := rand.New(rand.NewPCG(7, uint64(tokens)))
	draw := func(n int) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = rng.NormFloat64()
		}
		return x
	}
	return &problem{
		Problem: attn.Problem{
			QTokens: tokens, KTokens: tokens, QHeads: heads, KHeads: kvHeads, D: d, DV: dv,
			Scale: 0.3, Mask: mask, Q: draw(tokens * heads * d), K: draw(tokens * kvHeads * d),
			V: draw(tokens * kvHeads * dv),
		},
		do: draw(tokens * heads * dv),
	}
}

func cast[T attn.Float](x []float64) []T {
	out := make([]T, len(x))
	for i, v := range x {
		out[i] = T(v)
	}
	return out
}

// rows picks the rows of a set out of a tensor of whole width w.
func rows[T attn.Float](all []float64, set mesh.Set, w int) []T {
	out := []T{}
	for _, t := range set.Positions() {
		for _, x := range all[t*w : (t+1)*w] {
			out = append(out, T(x))
		}
	}
	return out
}

// book gives every rank two rounds for each state: 2*state forward, 2*state+1 backward.
type book struct {
	header   *plan.Header
	programs [2][]*plan.Program
}

func (b *book) Round(rank, round int32) (cpu.Round, bool) {
	if round < 0 {
		return cpu.Round{}, false
	}
	return cpu.Round{
		Header: b.header, Program: b.programs[round%2][rank], State: round / 2}, true
}

func newBook(t testing.TB, p *problem, m mesh.Mesh, layout mesh.Layout, bytes int) *book {
	t.Helper()
	pl, err := plan.New(plan.Spec{
		Shape: plan.Shape{
			QTokens: p.QTokens, KTokens: p.KTokens, QHeads: p.QHeads, KHeads: p.KHeads, Dim: p.D,
			VDim: p.DV, ElemBytes: bytes, AccBytes: max(bytes, 4), Scale: p.Scale, Mask: p.Mask,
			SoftCap: p.SoftCap, Sink: p.Sink != nil,
		},
		Mesh: m, Layout: layout, Ring: ringbus.Ring{}, Heads: headshuffle.AllToAll{},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &book{header: pl.Header()}
	for pass := range b.programs {
		for r := range m.Ranks() {
			prog, err := pl.Program(plan.Pass(pass), r)
			if err != nil {
				t.Fatal(err)
			}
			b.programs[pass] = append(b.programs[pass], prog)
		}
	}
	return b
}

// step is one call of the executor.
type step struct {
	kind          plan.Kind // Recv is Post, Send is Hop
	rank, op      int32
	peer, peersOp int32
}

// schedule finds an order in which all ranks' programs of a pass can run, drawn from rng among all
// that the run-time model allows; a receive is posted as soon as it can be. Releases do nothing.
func schedule(t testing.TB, programs []*plan.Program, rng *rand.Rand) []step {
	t.Helper()
	type key struct{ src, dst, lane, tick int32 }
	over := make([][]bool, len(programs))
	posted := map[key]int32{}
	begun := make([][]bool, len(programs))
	left := 0
	for r, p := range programs {
		over[r], begun[r] = make([]bool, len(p.Ops)), make([]bool, len(p.Ops))
		left += len(p.Ops)
	}
	ready := func(r, i int) bool {
		for _, d := range programs[r].Deps(i) {
			if !over[r][d] {
				return false
			}
		}
		return true
	}
	// first tells whether the earlier transfers of an op's lane are over.
	first := func(r, i int) bool {
		op := programs[r].Ops[i]
		for k, o := range programs[r].Ops {
			if o.Kind == op.Kind && o.Peer == op.Peer && o.Lane == op.Lane && o.Tick < op.Tick &&
				!over[r][k] {
				return false
			}
		}
		return true
	}
	var steps []step
	for left > 0 {
		var may []step
		for r, p := range programs {
			for i, op := range p.Ops {
				s := step{kind: op.Kind, rank: int32(r), op: int32(i)}
				switch {
				case over[r][i] || begun[r][i] || !ready(r, i):
					continue
				case op.Kind == plan.Recv && first(r, i):
					posted[key{op.Peer, s.rank, op.Lane, op.Tick}] = s.op
					begun[r][i] = true
					steps = append(steps, s)
					continue
				case op.Kind == plan.Recv:
					continue
				case op.Kind == plan.Send:
					recv, ok := posted[key{s.rank, op.Peer, op.Lane, op.Tick}]
					if !ok || !first(r, i) {
						continue
					}
					s.peer, s.peersOp = op.Peer, recv
				}
				may = append(may, s)
			}
		}
		if len(may) == 0 {
			t.Fatalf("nothing can run and %d ops are left", left)
		}
		s := may[rng.IntN(len(may))]
		over[s.rank][s.op] = true
		left--
		if s.kind == plan.Send {
			over[s.peer][s.peersOp] = true
			left--
		}
		if s.kind != plan.Release {
			steps = append(steps, s)
		}
	}
	return steps
}

// executor is what replay drives.
type executor interface {
	Do(rank, round, op int32) error
	Post(rank, round, op int32) error
	Hop(src, dst, round, sendOp, recvOp int32) (int64, error)
}

func replay(x executor, round int32, steps []step) error {
	for i := range steps {
		s := &steps[i]
		var err error
		switch s.kind {
		case plan.Recv:
			err = x.Post(s.rank, round, s.op)
		case plan.Send:
			_, err = x.Hop(s.rank, s.peer, round, s.op, s.peersOp)
		default:
			err = x.Do(s.rank, round, s.op)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// setInputs shards the problem's data over the ranks.
func setInputs[T attn.Float](t testing.TB, s *cpu.Store[T], b *book, p *problem, state int32) {
	t.Helper()
	s.Expect(state, b.header)
	s.SetSink(state, cast[T](p.Sink))
	for r := range b.header.Ranks {
		qs, ks := b.header.Sets[b.header.HomeQ[r]], b.header.Sets[b.header.HomeK[r]]
		for _, err := range []error{
			s.SetInput(int32(r), state, plan.HomeQ, rows[T](p.Q, qs, p.QHeads*p.D)),
			s.SetInput(int32(r), state, plan.HomeKV, rows[T](p.K, ks, p.KHeads*p.D),
				rows[T](p.V, ks, p.KHeads*p.DV)),
			s.SetInput(int32(r), state, plan.HomeDO, rows[T](p.do, qs, p.QHeads*p.DV)),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// results are whole tensors: out, lse, dq, dk, dv.
type results[T attn.Float] [5][]T

// outputs puts the ranks' results together.
func outputs[T attn.Float](t testing.TB, s *cpu.Store[T], b *book, p *problem, state int32) (
	all results[T],
) {
	t.Helper()
	widths := [5]int{p.QHeads * p.DV, p.QHeads, p.QHeads * p.D, p.KHeads * p.D, p.KHeads * p.DV}
	for i, w := range widths {
		all[i] = make([]T, p.QTokens*w)
	}
	for r := range b.header.Ranks {
		at := 0
		for _, role := range []plan.Role{plan.HomeOut, plan.HomeDQ, plan.HomeDKV} {
			set := b.header.Sets[b.header.HomeQ[r]]
			if role == plan.HomeDKV {
				set = b.header.Sets[b.header.HomeK[r]]
			}
			count := 2
			if role == plan.HomeDQ {
				count = 1
			}
			if len(set) > 0 {
				parts, err := s.Output(int32(r), state, role)
				if err != nil {
					t.Fatal(err)
				}
				for i, part := range parts {
					w := widths[at+i]
					for row, token := range set.Positions() {
						copy(all[at+i][token*w:(token+1)*w], part[row*w:(row+1)*w])
					}
				}
			}
			at += count
		}
	}
	return all
}

// dense is the oracle's results.
func dense(p *problem) results[float64] {
	out, lse := attn.Dense(&p.Problem, nil)
	dq, dk, dv, _ := attn.DenseBackward(&p.Problem, p.do, out, lse, nil)
	return results[float64]{out, lse, dq, dk, dv}
}

func compare[T attn.Float](got results[T], want results[float64], gate float64) error {
	for i, name := range []string{"out", "lse", "dq", "dk", "dv"} {
		if e := attn.Compare(got[i], want[i]); !e.OK(gate) {
			return fmt.Errorf("%s: error %.3g above %.3g", name, e.Rel, gate)
		}
	}
	return nil
}

func same[T attn.Float](a, b results[T]) bool {
	for i := range a {
		if !slices.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}
