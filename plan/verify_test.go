package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/mesh"
)

func TestVerifyAcceptsPlansByHand(t *testing.T) {
	for name, fresh := range byHand() {
		p := fresh()
		r, err := Verify(p)
		if err != nil || r.Err() != nil {
			t.Errorf("%s: %v, %v", name, err, r.Err())
		}
	}
}

// Ops may come in any order in the list: reverse it.
func TestVerifyTakesAnyOrderOfOps(t *testing.T) {
	for name, fresh := range byHand() {
		p := fresh()
		for pass := range p.progs {
			for i, q := range p.progs[pass] {
				p.progs[pass][i] = reversed(q)
			}
		}
		r, err := Verify(p)
		if err != nil || r.Err() != nil {
			t.Errorf("%s: %v, %v", name, err, r.Err())
		}
	}
}

func reversed(p *Program) *Program {
	out := &Program{Rank: p.Rank, Pass: p.Pass, Slots: p.Slots}
	n := int32(len(p.Ops))
	for i := n - 1; i >= 0; i-- {
		var deps []int32
		for _, d := range p.Deps(int(i)) {
			deps = append(deps, n-1-d)
		}
		out.Append(p.Ops[i], p.Args(int(i)), deps)
	}
	return out
}

// edit is one op of a program under change.
type edit struct {
	op   Op
	args []Operand
	deps []int32
}

// rewrite changes a program through a list of its ops. Dependencies keep meaning the same op when
// ops are dropped; dependencies on dropped ops are dropped.
func (p *hand) rewrite(pass Pass, rank int, change func(ops []*edit) []*edit) {
	old := p.progs[pass][rank]
	var ops []*edit
	for i := range old.Ops {
		ops = append(ops, &edit{old.Ops[i], slices.Clone(old.Args(i)), slices.Clone(old.Deps(i))})
	}
	was := slices.Clone(ops)
	ops = change(ops)
	out := &Program{Rank: old.Rank, Pass: old.Pass, Slots: old.Slots}
	for _, e := range ops {
		var deps []int32
		for _, d := range e.deps {
			if d < 0 || int(d) >= len(was) {
				deps = append(deps, d)
			} else if at := slices.Index(ops, was[d]); at >= 0 {
				deps = append(deps, int32(at))
			}
		}
		out.Append(e.op, e.args, deps)
	}
	p.progs[pass][rank] = out
}

// at changes op i of a program.
func at(pass Pass, rank, i int, change func(e *edit)) func(p *hand) {
	return func(p *hand) {
		p.rewrite(pass, rank, func(ops []*edit) []*edit {
			change(ops[i])
			return ops
		})
	}
}

func drop(pass Pass, rank int, which ...int) func(p *hand) {
	return func(p *hand) {
		p.rewrite(pass, rank, func(ops []*edit) []*edit {
			var left []*edit
			for i, e := range ops {
				if !slices.Contains(which, i) {
					left = append(left, e)
				}
			}
			return left
		})
	}
}

// insert adds an op at the end, so that the numbers of the others stay.
func insert(pass Pass, rank int, op Op, deps []int32, args ...Operand) func(p *hand) {
	return func(p *hand) {
		p.rewrite(pass, rank, func(ops []*edit) []*edit {
			return append(ops, &edit{op, args, deps})
		})
	}
}

func all(changes ...func(p *hand)) func(p *hand) {
	return func(p *hand) {
		for _, f := range changes {
			f(p)
		}
	}
}

func deps(d ...int32) func(e *edit)      { return func(e *edit) { e.deps = d } }
func tick(t int32) func(e *edit)         { return func(e *edit) { e.op.Tick = t } }
func set(arg int, s SetID) func(e *edit) { return func(e *edit) { e.args[arg].Set = s } }
func slot(arg int, s int32) func(e *edit) {
	return func(e *edit) { e.args[arg].Slot = s }
}
func heads(arg int, lo, hi int32) func(e *edit) {
	return func(e *edit) { e.args[arg].Heads = mesh.Heads{Lo: lo, Hi: hi} }
}
func access(arg int, a Access) func(e *edit) { return func(e *edit) { e.args[arg].Access = a } }

func slots(pass Pass, rank int, change func(s []Slot)) func(p *hand) {
	return func(p *hand) { change(p.progs[pass][rank].Slots) }
}

// breakage is one mistake and what must be said of it.
type breakage struct {
	name     string
	do       func(p *hand)
	kind     string
	rank, op int // -2: not asked
	words    []string
}

func checkBreakages(t *testing.T, fresh func() *hand, cases []breakage) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := fresh()
			c.do(p)
			r, err := Verify(p)
			if err != nil {
				t.Fatal(err)
			}
			var seen []string
			for _, v := range r.Violations {
				seen = append(seen, fmt.Sprintf("%s rank %d op %d other %d: %s", v.Kind, v.Rank,
					v.Op, v.Other, v.Text))
				ok := v.Kind == c.kind && (c.rank == -2 || v.Rank == c.rank) &&
					(c.op == -2 || v.Op == c.op)
				for _, w := range c.words {
					ok = ok && strings.Contains(v.Text, w)
				}
				if ok {
					t.Log(seen[len(seen)-1])
					if r.Err() == nil || !strings.Contains(r.Err().Error(), r.Violations[0].Text) {
						t.Errorf("Err: %v", r.Err())
					}
					return
				}
			}
			t.Errorf("want %s of rank %d op %d with %q, got\n%s", c.kind, c.rank, c.op, c.words,
				strings.Join(seen, "\n"))
		})
	}
}
