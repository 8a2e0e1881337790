package collect_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvloom/kvloom/collect"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// fixed is a plan whose programs can be changed, op by op, before they are asked for.
type fixed struct {
	hdr   plan.Header
	progs []*draft
}

type draft struct {
	rank  int
	pass  plan.Pass
	slots []plan.Slot
	ops   []draftOp
}

type draftOp struct {
	plan.Op
	args []plan.Operand
	deps []int32
}

func (f *fixed) Header() *plan.Header { return &f.hdr }
func (f *fixed) Passes() []plan.Pass  { return []plan.Pass{plan.Forward} }

func (f *fixed) Program(_ plan.Pass, rank int) (*plan.Program, error) {
	d := f.progs[rank]
	p := &plan.Program{Rank: d.rank, Pass: d.pass, Slots: slices.Clone(d.slots)}
	for _, o := range d.ops {
		p.Append(o.Op, o.args, o.deps)
	}
	return p, nil
}

// load copies a plan.
func load(t testing.TB, p *collect.Plan) *fixed {
	t.Helper()
	f := &fixed{hdr: *p.Header()}
	f.hdr.HomeQ, f.hdr.HomeK = slices.Clone(f.hdr.HomeQ), slices.Clone(f.hdr.HomeK)
	f.hdr.Sets, f.hdr.Names = slices.Clone(f.hdr.Sets), slices.Clone(f.hdr.Names)
	for r := range f.hdr.Ranks {
		prog, err := p.Program(plan.Forward, r)
		if err != nil {
			t.Fatal(err)
		}
		d := &draft{rank: r, slots: slices.Clone(prog.Slots)}
		for i := range prog.Ops {
			d.ops = append(d.ops, draftOp{prog.Ops[i], slices.Clone(prog.Args(i)),
				slices.Clone(prog.Deps(i))})
		}
		f.progs = append(f.progs, d)
	}
	return f
}

// drop removes an op; what waited for it no longer does.
func (d *draft) drop(i int) {
	d.ops = slices.Delete(d.ops, i, i+1)
	for k := range d.ops {
		o := &d.ops[k]
		o.deps = slices.DeleteFunc(o.deps, func(dep int32) bool { return dep == int32(i) })
		for n := range o.deps {
			if o.deps[n] > int32(i) {
				o.deps[n]--
			}
		}
	}
}

// find is the n-th op of a kind that has a tensor.
func (d *draft) find(k plan.Kind, t plan.Tensor, n int) int {
	for i := range d.ops {
		if d.ops[i].Kind == k && d.ops[i].args[0].Tensor == t {
			if n--; n < 0 {
				return i
			}
		}
	}
	panic("no such op in the program")
}

// last is the op that a program ends a phase with: the n-th unpack.
func (d *draft) unpack(n int) int {
	for i := range d.ops {
		if d.ops[i].Kind == plan.Unpack {
			if n--; n < 0 {
				return i
			}
		}
	}
	panic("no such unpack in the program")
}

// mutate makes one random mistake and says which, or "" when there was no room for it.
func (f *fixed) mutate(rng *rand.Rand) string {
	d := f.progs[rng.IntN(len(f.progs))]
	if len(d.ops) == 0 {
		return ""
	}
	i := rng.IntN(len(d.ops))
	o := &d.ops[i]
	a := &o.args[rng.IntN(len(o.args))]
	switch rng.IntN(11) {
	case 0:
		d.drop(i)
		return "op dropped"
	case 1, 2:
		if len(o.deps) == 0 {
			return ""
		}
		k := rng.IntN(len(o.deps))
		o.deps = slices.Delete(o.deps, k, k+1)
		return "dependency dropped"
	case 3:
		a.Set = plan.SetID(rng.IntN(len(f.hdr.Sets)))
		return "set changed"
	case 4:
		lo := int32(rng.IntN(f.hdr.QHeads))
		a.Heads = mesh.Heads{Lo: lo, Hi: lo + 1 + int32(rng.IntN(f.hdr.QHeads-int(lo)))}
		return "heads changed"
	case 5:
		a.Slot = int32(rng.IntN(len(d.slots)))
		return "slot changed"
	case 6:
		o.Tick += int32(rng.IntN(5) - 2)
		return "tick changed"
	case 7:
		if !o.Kind.Link() {
			return ""
		}
		o.Peer = int32(rng.IntN(f.hdr.Ranks))
		return "peer changed"
	case 8:
		return f.both(rng)
	case 9:
		return f.swapSources(d, rng)
	}
	s := &d.slots[rng.IntN(len(d.slots))]
	if s.Role == plan.Scratch {
		s.Bytes -= int64(f.hdr.ElemBytes)
		return "slot shrunk"
	}
	s.Set = plan.SetID(rng.IntN(len(f.hdr.Sets)))
	s.Heads.Lo = int32(rng.IntN(2))
	return "frame of a slot changed"
}

// both changes the two ends of a transfer alike.
func (f *fixed) both(rng *rand.Rand) string {
	r := rng.IntN(len(f.progs))
	var sends []int
	for i := range f.progs[r].ops {
		if f.progs[r].ops[i].Kind == plan.Send {
			sends = append(sends, i)
		}
	}
	if len(sends) == 0 {
		return ""
	}
	s := &f.progs[r].ops[sends[rng.IntN(len(sends))]]
	for i := range f.progs[s.Peer].ops {
		e := &f.progs[s.Peer].ops[i]
		if e.Kind != plan.Recv || int(e.Peer) != r || e.Tick != s.Tick {
			continue
		}
		switch rng.IntN(3) {
		case 0:
			tick := int32(rng.IntN(2 * len(f.progs)))
			s.Tick, e.Tick = tick, tick
		case 1:
			set := plan.SetID(rng.IntN(len(f.hdr.Sets)))
			s.args[0].Set, e.args[0].Set = set, set
		case 2:
			lo := int32(rng.IntN(f.hdr.QHeads))
			h := mesh.Heads{Lo: lo, Hi: lo + 1}
			s.args[0].Heads, e.args[0].Heads = h, h
		}
		return "both ends changed alike"
	}
	return ""
}

// swapSources exchanges two operands of an unpack.
func (f *fixed) swapSources(d *draft, rng *rand.Rand) string {
	for i := range d.ops {
		args := d.ops[i].args
		if d.ops[i].Kind == plan.Unpack && len(args) > 2 {
			a, b := rng.IntN(len(args)-1), rng.IntN(len(args)-1)
			args[a], args[b] = args[b], args[a]
			return "sources exchanged"
		}
	}
	return ""
}
