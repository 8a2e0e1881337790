package collect_test

import (
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/collect"
	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// breakage is one mistake in the all-reduce of breakSpec and what must be said of it.
type breakage struct {
	name  string
	do    func(f *fixed)
	kind  string
	rank  int
	words []string
}

// breakSpec has two groups of three ranks, 0 2 4 and 1 3 5, over 7 elements each.
func breakSpec() collect.Spec {
	return collect.Spec{Kind: collect.AllReduce, Mesh: mesh.Mesh{Head: 2, Ring: 3},
		Axis: collect.Ring, Elements: 7, ElemBytes: 4}
}

// on changes op i of a rank, found by at.
func on(rank int, at func(d *draft) int, do func(o *draftOp)) func(f *fixed) {
	return func(f *fixed) {
		d := f.progs[rank]
		do(&d.ops[at(d)])
	}
}

func op(k plan.Kind, t plan.Tensor, n int) func(d *draft) int {
	return func(d *draft) int { return d.find(k, t, n) }
}

func unpack(n int) func(d *draft) int { return func(d *draft) int { return d.unpack(n) } }

// without drops an op of a rank.
func without(rank int, at func(d *draft) int) func(f *fixed) {
	return func(f *fixed) {
		d := f.progs[rank]
		d.drop(at(d))
	}
}

func noDeps(o *draftOp) { o.deps = nil }

// slotOf is the slot of a role.
func slotOf(f *fixed, rank int, r plan.Role) *plan.Slot {
	slots := f.progs[rank].slots
	return &slots[slices.IndexFunc(slots, func(s plan.Slot) bool { return s.Role == r })]
}

// imposter lets a rank bring another contributor's part, and send it as such.
func imposter(f *fixed) {
	slotOf(f, 2, plan.VecIn).Heads = mesh.Heads{Hi: 1}
	for i := range f.progs[2].ops {
		if o := &f.progs[2].ops[i]; o.Kind == plan.Send && o.args[0].Tensor == plan.Vec {
			o.args[0].Heads = mesh.Heads{Hi: 1}
		}
	}
}

func exchangeBreakages() []breakage {
	return []breakage{
		{"send of a part dropped", without(0, op(plan.Send, plan.Vec, 0)), "pairing", 2,
			[]string{"receives vec[g0.1 h0:1]", "rank 0 has no send for it"}},
		{"receive of a part dropped", without(0, op(plan.Recv, plan.Vec, 0)), "slot", 0,
			[]string{"nothing lives in slot"}},
		{"send of a sum dropped", without(0, op(plan.Send, plan.Sum, 1)), "pairing", 4,
			[]string{"receives sum[g0.0 h0:1]", "rank 0 has no send"}},
		{"part sent to the other group", on(0, op(plan.Send, plan.Vec, 0), func(o *draftOp) {
			o.Peer = 1
		}), "pairing", 0, []string{"sends vec[g0.1 h0:1]", "rank 1 has no receive"}},
		{"another run sent", on(0, op(plan.Send, plan.Vec, 0), func(o *draftOp) {
			o.args[0].Set = 4
		}), "pairing", 0, []string{"sends vec[g0.2 h0:1]", "receives vec[g0.1 h0:1]"}},
		{"another group's elements sent", on(0, op(plan.Send, plan.Vec, 0), func(o *draftOp) {
			o.args[0].Set = 6
		}), "slot", 0, []string{"vec[g1.0 h0:1] does not lie in vec[g0 h0:1]"}},
		{"ticks of the second phase too low", func(f *fixed) {
			for _, d := range f.progs {
				for i := range d.ops {
					if o := &d.ops[i]; o.Kind.Link() && o.args[0].Tensor == plan.Sum {
						o.Tick -= 3
					}
				}
			}
		}, "deadlock", 0, []string{"is not above tick"}},
		{"a lane's tick twice", func(f *fixed) {
			for _, d := range f.progs {
				for i := range d.ops {
					if o := &d.ops[i]; o.Kind.Link() && o.args[0].Tensor == plan.Sum {
						o.Tick -= 4
					}
				}
			}
		}, "deadlock", 0, []string{"its lane has tick 1 twice"}},
		{"sum read before it is made", on(0, op(plan.Send, plan.Sum, 0), noDeps), "order", 0,
			[]string{"does not wait for the op that wrote it", "unpack"}},
		{"parts added before they came", on(0, unpack(0), noDeps), "order", 0,
			[]string{"does not wait for the op that wrote it", "recv"}},
		{"piece given up too soon", on(0, op(plan.Release, plan.Vec, 0), noDeps), "order", 0,
			[]string{"does not wait for an op that uses it"}},
		{"slot reused before it is free", on(0, op(plan.Recv, plan.Sum, 0), noDeps), "order", 0,
			[]string{"does not wait for its release"}},
		{"piece never given up", without(0, op(plan.Release, plan.Sum, 0)), "slot", 0,
			[]string{"still holds sum["}},
		{"vector handed on", on(0, op(plan.Send, plan.Vec, 0), func(o *draftOp) {
			o.args[0].Access = plan.HandOn
		}), "slot", 0, []string{"send reads a block"}},
	}
}

func sumBreakages() []breakage {
	return []breakage{
		{"part left out", on(0, unpack(0), func(o *draftOp) {
			o.args = slices.Delete(o.args, 1, 2)
		}), "home", 0, []string{"not each contribution to each element of its result once"}},
		{"part taken for another", on(0, unpack(0), func(o *draftOp) {
			o.args[1].Heads = mesh.Heads{Lo: 2, Hi: 3}
		}), "home", 0, []string{"not each contribution"}},
		{"own part of another run", on(0, unpack(0), func(o *draftOp) {
			o.args[0].Set = 3
		}), "home", 0, []string{"not each contribution"}},
		{"parts added in another order", on(0, unpack(0), func(o *draftOp) {
			o.args[1], o.args[2] = o.args[2], o.args[1]
		}), "home", 0, []string{"contributor 1 is added after 2"}},
		{"sum and part added", on(0, unpack(0), func(o *draftOp) {
			o.args[1].Tensor = plan.Sum
			o.args[1].Heads = mesh.Heads{Hi: 1}
		}), "slot", 0, []string{"source 1 is not of vec"}},
		{"a run of the sum left out", on(0, unpack(1), func(o *draftOp) {
			o.args = slices.Delete(o.args, 1, 2)
		}), "home", 0, []string{"not each cell of its result once"}},
		{"only a run kept", on(0, unpack(1), func(o *draftOp) {
			o.args = []plan.Operand{o.args[0], o.args[3]}
			o.args[1].Set = o.args[0].Set
		}), "home", 0, []string{"(sum.out) holds sum[g0.0 h0:1] at the end, sum[g0 h0:1]"}},
		{"sum zeroed", func(f *fixed) {
			out := f.progs[0].ops[f.progs[0].unpack(1)].args[3]
			f.progs[0].ops[f.progs[0].unpack(1)] = draftOp{
				Op: plan.Op{Kind: plan.Zero, Peer: -1}, args: []plan.Operand{out}}
		}, "slot", 0, []string{"zero writes an accumulator"}},
		{"tensor of attention", on(0, op(plan.Send, plan.Vec, 0), func(o *draftOp) {
			o.args[0].Tensor = plan.Q
		}), "slot", 0, []string{"operand 0 is q: vec and sum belong to collectives"}},
	}
}

func homeBreakages() []breakage {
	return []breakage{
		{"rank brings another's part", imposter, "ownership", 2,
			[]string{"contributor 0's part of element 0 is brought by ranks 0 2"}},
		{"rank brings nothing", func(f *fixed) { f.progs[2] = &draft{rank: 2} }, "ownership", -1,
			[]string{"contributor 1's part of element 0 is brought by no rank"}},
		{"no place for the sum", func(f *fixed) { f.progs[2] = &draft{rank: 2} }, "home", 2,
			[]string{"no slot keeps sum.out"}},
		{"one contributor more", func(f *fixed) { f.hdr.QHeads++ }, "ownership", -1,
			[]string{"contributor 3's part of element 0 is brought by no rank"}},
		{"a rank does not want the sum", func(f *fixed) { f.hdr.HomeK[4] = 0 }, "ownership", -1,
			[]string{"not every element's sum is at home on 2 ranks"}},
		{"a rank wants another group's sum", func(f *fixed) { f.hdr.HomeK[4] = 5 }, "home", 4,
			[]string{"its block is sum[g0 h0:1], the rank's own is sum[g1 h0:1]"}},
		{"slot of attention", func(f *fixed) {
			s := slotOf(f, 0, plan.VecIn)
			s.Role, s.Tensor = plan.HomeQ, plan.Q
		}, "home", 0, []string{"home.q is not there"}},
		{"result is given", func(f *fixed) { slotOf(f, 0, plan.SumOut).In = true }, "home", 0,
			[]string{"sum.out is not there when a forward pass starts"}},
		{"slot too small", func(f *fixed) { slotOf(f, 0, plan.SumOut).Bytes-- }, "slot", 0,
			[]string{"has 27 bytes, sum[g0 h0:1] needs 28"}},
		{"vector released", func(f *fixed) {
			s := slotOf(f, 0, plan.VecIn)
			f.progs[0].ops = append(f.progs[0].ops, draftOp{
				Op:   plan.Op{Kind: plan.Release, Peer: -1},
				args: []plan.Operand{{Set: s.Set, Heads: s.Heads, Tensor: plan.Vec}},
				deps: []int32{int32(f.progs[0].unpack(0))}})
		}, "home", 0, []string{"is the session's and to be kept"}},
		{"programs exchanged", func(f *fixed) {
			f.progs[0], f.progs[1] = f.progs[1], f.progs[0]
		}, "home", 1, []string{"this is no forward program of rank 0"}},
		{"backward program", func(f *fixed) { f.progs[0].pass = plan.Backward }, "home", 0,
			[]string{"this is no forward program of rank 0"}},
		{"a mask", func(f *fixed) { f.hdr.Mask = attn.Causal(14, 14) }, "home", -1,
			[]string{"header", "1 mask slices"}},
		{"no elements", func(f *fixed) { f.hdr.QTokens, f.hdr.KTokens = 0, 0 }, "home", -1,
			[]string{"header", "elements 0 and 0"}},
	}
}

func TestBrokenPlansAreRefused(t *testing.T) {
	for _, c := range slices.Concat(exchangeBreakages(), sumBreakages(), homeBreakages()) {
		t.Run(c.name, func(t *testing.T) {
			f := load(t, build(t, breakSpec()))
			c.do(f)
			r, err := plan.Verify(f)
			if err != nil {
				t.Fatal(err)
			}
			var seen []string
			for _, v := range r.Violations {
				seen = append(seen, v.Kind+": "+v.Text)
				ok := v.Kind == c.kind && v.Rank == c.rank
				for _, w := range c.words {
					ok = ok && strings.Contains(v.Text, w)
				}
				if ok {
					t.Log(seen[len(seen)-1])
					return
				}
			}
			t.Errorf("want %s of rank %d with %q, got\n%s", c.kind, c.rank, c.words,
				strings.Join(seen, "\n"))
		})
	}
}

// TestAttentionHasNoVectors: vec and sum in a plan of attention are refused too.
func TestAttentionHasNoVectors(t *testing.T) {
	f := load(t, build(t, breakSpec()))
	f.hdr.Dim, f.hdr.VDim, f.hdr.Scale = 4, 4, 1
	r, err := plan.Verify(f)
	if err != nil {
		t.Fatal(err)
	}
	if r.Err() == nil || !strings.Contains(r.Err().Error(), "vec.in") {
		t.Errorf("a collective as attention: %v", r.Err())
	}
}

// TestAttentionRefusesCollectives: plan.New makes no plan of a collective's shape.
func TestAttentionRefusesCollectives(t *testing.T) {
	_, err := plan.New(plan.Spec{Shape: build(t, breakSpec()).Header().Shape})
	if err == nil || !strings.Contains(err.Error(), "dim 0: use 1 to 4096") {
		t.Errorf("a collective as attention: %v", err)
	}
}

var mutations = flag.Int("mutations", 3000, "random mistakes that TestVerifyHasTeeth makes")

// TestVerifyHasTeeth: a plan with a random mistake that Verify accepts runs to the right bits all
// the same, in any order.
func TestVerifyHasTeeth(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	var family []*collect.Plan
	for _, s := range specs() {
		if sizeOf(s) > 1 && s.Mesh.Ranks() < 8 {
			family = append(family, build(t, s))
		}
	}
	made, accepted, wrong := 0, 0, map[string]int{}
	for made < *mutations {
		p := family[rng.IntN(len(family))]
		f := load(t, p)
		what := f.mutate(rng)
		if what == "" {
			continue
		}
		made++
		r, err := plan.Verify(f)
		if err != nil {
			t.Fatal(err)
		}
		if r.Err() != nil {
			continue
		}
		accepted++
		for range 4 {
			err := direct[float32](p, f, rng, cpu.Options{Copy: true, Poison: true})
			if err != nil {
				wrong[what]++
				t.Errorf("%s: %s is accepted, but: %v", name(p.Spec()), what, err)
				break
			}
		}
	}
	t.Logf("%d mistakes, %d accepted, wrong: %v", made, accepted, wrong)
	if accepted == 0 || accepted > made/2 {
		t.Errorf("%d of %d mistakes are accepted: the test shows nothing", accepted, made)
	}
}
