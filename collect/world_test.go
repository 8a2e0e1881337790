package collect_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/collect"
	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
	"github.com/kvloom/kvloom/sim"
)

// specs are collectives of all kinds and axes, with vectors of one element, of fewer than a group
// has ranks, and more.
func specs() []collect.Spec {
	meshes := []mesh.Mesh{
		{Head: 1, Ring: 1}, {Head: 1, Ring: 3}, {Head: 2, Ring: 1}, {Head: 2, Ring: 3},
		{Head: 3, Ring: 2, Placement: mesh.ContextFirst}, {Head: 4, Ring: 2},
	}
	var out []collect.Spec
	for _, m := range meshes {
		for k := range collect.AllGather + 1 {
			for a := range collect.World + 1 {
				for _, n := range []int{1, 2, 5, 24} {
					out = append(out, collect.Spec{Kind: k, Mesh: m, Axis: a, Elements: n,
						ElemBytes: 4})
				}
			}
		}
	}
	return out
}

func name(s collect.Spec) string {
	return fmt.Sprintf("%v over %v of %dx%d %v, %d elements", s.Kind, s.Axis, s.Mesh.Head,
		s.Mesh.Ring, s.Mesh.Placement, s.Elements)
}

func build(t testing.TB, s collect.Spec) *collect.Plan {
	t.Helper()
	p, err := collect.New(s)
	if err != nil {
		t.Fatalf("%s: %v", name(s), err)
	}
	return p
}

func sizeOf(s collect.Spec) int {
	switch s.Axis {
	case collect.Head:
		return s.Mesh.Head
	case collect.Ring:
		return s.Mesh.Ring
	}
	return s.Mesh.Ranks()
}

// vectors draws what ranks bring: whole vectors, of magnitudes so far apart that another order of
// adding gives other bits.
func vectors[T attn.Float](s collect.Spec) [][]T {
	rng := rand.New(rand.NewPCG(11, uint64(s.Elements)))
	out := make([][]T, s.Mesh.Ranks())
	for r := range out {
		for range s.Elements {
			scale := []float64{1, 1e3, 1e-3}[rng.IntN(3)]
			out[r] = append(out[r], T(rng.NormFloat64()*scale))
		}
	}
	return out
}

// want is what a rank should get, computed without any plan.
func want[T attn.Float](p *collect.Plan, all [][]T, r int) []T {
	s := p.Spec()
	members, _ := p.Group(r)
	var sum []T
	switch s.Kind {
	case collect.AllGather:
		for _, m := range members {
			lo, hi := p.Run(m)
			sum = append(sum, all[m][lo:hi]...)
		}
		return sum
	default:
		sum = append(sum, all[members[0]]...)
		for _, m := range members[1:] {
			for e, x := range all[m] {
				sum[e] += x
			}
		}
	}
	if s.Kind == collect.ReduceScatter {
		lo, hi := p.Run(r)
		return sum[lo:hi]
	}
	return sum
}

// lent is what a rank brings.
func lent[T attn.Float](p *collect.Plan, all [][]T, r int) []T {
	if p.Spec().Kind == collect.AllGather {
		lo, hi := p.Run(r)
		return all[r][lo:hi]
	}
	return all[r]
}

// book gives every rank one round.
type book struct {
	hdr   *plan.Header
	progs []*plan.Program
}

func (b *book) Round(r, round int32) (cpu.Round, bool) {
	return cpu.Round{Header: b.hdr, Program: b.progs[r]}, round == 0
}

// check compares what ranks got, bit by bit.
func check[T attn.Float](p *collect.Plan, s *cpu.Store[T], all [][]T) error {
	for r := range p.Header().Ranks {
		exp := want(p, all, r)
		got := [][]T{nil}
		if len(exp) > 0 {
			var err error
			if got, err = s.Output(int32(r), 0, plan.SumOut); err != nil {
				return err
			}
		} else if _, err := s.Output(int32(r), 0, plan.SumOut); err == nil {
			return fmt.Errorf("rank %d has an output without elements", r)
		}
		if len(got) != 1 || len(got[0]) != len(exp) {
			return fmt.Errorf("rank %d got %d parts, the first of %d elements, want 1 of %d", r,
				len(got), len(got[0]), len(exp))
		}
		for e, x := range exp {
			if got[0][e] != x {
				return fmt.Errorf("rank %d, element %d is %v, want %v", r, e, got[0][e], x)
			}
		}
	}
	return nil
}

// direct runs a source's programs, op by op, in an order drawn from rng among all that the run-time
// model allows. src is p, or what became of it.
func direct[T attn.Float](p *collect.Plan, src plan.Source, rng *rand.Rand, opt cpu.Options) error {
	b := &book{hdr: src.Header()}
	for r := range b.hdr.Ranks {
		prog, err := src.Program(plan.Forward, r)
		if err != nil {
			return err
		}
		b.progs = append(b.progs, prog)
	}
	store := cpu.New[T](b, b.hdr.Ranks, opt)
	defer store.Close()
	all := vectors[T](p.Spec())
	for r := range b.hdr.Ranks {
		if err := store.SetInput(int32(r), 0, plan.VecIn, lent(p, all, r)); err != nil {
			return err
		}
	}
	if err := newDriver(b.progs, rng).run(store.Do, store.Post, store.Hop); err != nil {
		return err
	}
	return check(p, store, all)
}

// driver knows what may start.
type driver struct {
	progs  []*plan.Program
	rng    *rand.Rand
	begun  [][]bool
	over   [][]bool
	posted map[end]int32
	left   int
}

type end struct{ src, dst, tick int32 }

func newDriver(progs []*plan.Program, rng *rand.Rand) *driver {
	d := &driver{progs: progs, rng: rng, posted: map[end]int32{}}
	for _, p := range progs {
		d.begun = append(d.begun, make([]bool, len(p.Ops)))
		d.over = append(d.over, make([]bool, len(p.Ops)))
		d.left += len(p.Ops)
	}
	return d
}

// ready tells whether an op waits for nothing, of its dependencies or in its lane.
func (d *driver) ready(r, i int) bool {
	p := d.progs[r]
	for _, dep := range p.Deps(i) {
		if !d.over[r][dep] {
			return false
		}
	}
	op := &p.Ops[i]
	for k := range p.Ops {
		o := &p.Ops[k]
		if op.Kind.Link() && o.Kind == op.Kind && o.Peer == op.Peer && o.Lane == op.Lane &&
			o.Tick < op.Tick && !d.over[r][k] {
			return false
		}
	}
	return true
}

func (d *driver) run(do, post func(r, round, op int32) error,
	hop func(src, dst, round, send, recv int32) (int64, error)) error {
	for d.left > 0 {
		var may [][2]int
		for r, p := range d.progs {
			for i := range p.Ops {
				if op := &p.Ops[i]; !d.begun[r][i] && d.ready(r, i) {
					_, open := d.posted[end{int32(r), op.Peer, op.Tick}]
					if op.Kind != plan.Send || open {
						may = append(may, [2]int{r, i})
					}
				}
			}
		}
		if len(may) == 0 {
			return fmt.Errorf("nothing can start and %d ops are left", d.left)
		}
		at := may[d.rng.IntN(len(may))]
		r, i := int32(at[0]), int32(at[1])
		op := &d.progs[r].Ops[i]
		d.begun[r][i] = true
		var err error
		switch op.Kind {
		case plan.Recv:
			d.posted[end{op.Peer, r, op.Tick}] = i
			err = post(r, 0, i)
		case plan.Send:
			recv := d.posted[end{r, op.Peer, op.Tick}]
			_, err = hop(r, op.Peer, 0, i, recv)
			d.over[op.Peer][recv] = true
			d.over[r][i] = true
			d.left -= 2
		default:
			if op.Kind != plan.Release {
				err = do(r, 0, i)
			}
			d.over[r][i] = true
			d.left--
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// evenCosts takes a microsecond for everything and gives each pair of ranks a link.
type evenCosts struct{ ranks int }

func (evenCosts) Op(_, _, _ int32) actors.Time { return 1000 }

func (c evenCosts) Transfer(src, dst, _, _ int32) (int, actors.Time, actors.Time) {
	return int(src)*c.ranks + int(dst), 1000, 100
}

func (evenCosts) Mail(_, _ actors.Addr) actors.Time { return 50 }

// simBook is the simulator's book as the store reads it.
type simBook struct{ *rank.Rounds }

func (b simBook) Round(r, round int32) (cpu.Round, bool) {
	e, ok := b.At(round)
	if !ok {
		return cpu.Round{}, false
	}
	s := e.Plan.Scripts[e.Pass][r]
	return cpu.Round{Header: s.Header, Program: s.Program, State: e.State}, true
}

// simulated runs a collective by the real workers in virtual time: blocks are copied at the latest
// moment and freed memory is poisoned.
func simulated[T attn.Float](p *collect.Plan, seed uint64) (sim.Result, error) {
	c, err := rank.CompilePlan(p, nil, p.Seal)
	if err != nil {
		return sim.Result{}, err
	}
	n := p.Header().Ranks
	rounds := &rank.Rounds{Entries: []rank.Entry{{Plan: c}}}
	store := cpu.New[T](simBook{rounds}, n, cpu.Options{Copy: true, Poison: true})
	defer store.Close()
	all := vectors[T](p.Spec())
	for r := range n {
		if err := store.SetInput(int32(r), 0, plan.VecIn, lent(p, all, r)); err != nil {
			return sim.Result{}, err
		}
	}
	w := sim.New(sim.Config{
		Ranks: n, Seed: seed, Book: rounds, Costs: evenCosts{n}, Exec: store, Mover: store,
		Noise: sim.Noise{Mail: 3000, Transfer: 9000, Op: 2000},
	})
	res, err := w.Run(1)
	if err != nil {
		return res, err
	}
	if len(res.Violations) > 0 {
		return res, fmt.Errorf("%s", res.Violations[0])
	}
	return res, check(p, store, all)
}
