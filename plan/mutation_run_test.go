package plan_test

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// How hard TestVerifyHasTeeth tries. The full run of the plan's proof:
//
//	go test ./plan -run TestVerifyHasTeeth -v -args -mutations 10000
//
// and with -mutation-seed another 10,000. -disagreements prints the mutants of which Verify and
// the judge think differently.
var (
	mutations     = flag.Int("mutations", 2000, "mutants that Verify and the judge both judge")
	mutationSeed  = flag.Uint64("mutation-seed", 1, "draws plans, mistakes and orders")
	disagreements = flag.Bool("disagreements", false, "print mutants that are judged differently")
)

// judgeEach is how many adversarial orders a plan is run in.
const judgeEach = 20

// teethSpec is one valid plan of the family.
type teethSpec struct {
	spec plan.Spec
	mask string
}

func (s teethSpec) String() string {
	x, m := &s.spec.Shape, s.spec.Mesh
	text := fmt.Sprintf("%dx%d %v %v %s S=%d,%d heads %d/%d sink %v, %v, options %v", m.Head,
		m.Ring, m.Placement, s.spec.Layout, s.mask, x.QTokens, x.KTokens, x.QHeads, x.KHeads,
		x.Sink, s.spec.Ring, s.spec.Options)
	if s.spec.KeyLayout != nil {
		text += fmt.Sprintf(", keys %v", s.spec.KeyLayout)
	}
	return text
}

// family draws valid plans of all kinds: many small ones, since a mistake shows in those too.
func family(rng *rand.Rand) teethSpec {
	meshes := [][2]int{
		{1, 1}, {1, 2}, {2, 1}, {1, 3}, {1, 4}, {2, 2}, {2, 4}, {4, 2}, {3, 2}, {2, 3}, {1, 8},
		{4, 1}, {3, 5}, {4, 4}, {8, 1}, {5, 2},
	}
	heads := [][2]int{{8, 2}, {6, 3}, {5, 5}, {8, 1}, {4, 4}}
	tokens := []int{2, 5, 6, 7, 11, 16, 24, 31, 48, 64}
	masks := []string{"causal", "causal", "causal", "full", "full", "full", "docs", "band", "blind"}
	m, h := meshes[rng.IntN(len(meshes))], heads[rng.IntN(len(heads))]
	if m[0] > h[0] {
		h = heads[0]
	}
	q := tokens[rng.IntN(len(tokens))]
	k := q
	if rng.IntN(8) == 0 {
		k = tokens[rng.IntN(len(tokens))]
	}
	mask := masks[rng.IntN(len(masks))]
	pick := picker(func(_ string, n int) int { return rng.IntN(n) })
	shape := plan.Shape{
		QTokens: q, KTokens: k, QHeads: h[0], KHeads: h[1], Dim: 8, VDim: 6, ElemBytes: 4,
		AccBytes: 4, Scale: 1, Mask: slicesOf(mask, q, k), Sink: rng.IntN(3) == 0,
	}
	return teethSpec{mask: mask, spec: pick.spec(shape,
		mesh.Mesh{Head: m[0], Ring: m[1], Placement: mesh.Placement(rng.IntN(2))})}
}

// slicesOf is a mask: besides the usual ones documents, a band, and one that hides the last keys
// from all and all keys from the first queries.
func slicesOf(mask string, q, k int) attn.Mask {
	switch mask {
	case "causal":
		return attn.Causal(q, k)
	case "docs":
		return attn.Mask{
			{Q1: q / 3, K1: k / 3, Lo: -attn.Unbounded, Hi: 0},
			{Q0: q / 3, Q1: q, K0: k / 3, K1: k, Lo: -attn.Unbounded, Hi: 0},
		}
	case "band":
		return attn.Mask{{Q1: q, K1: k, Lo: -3, Hi: 1}}
	case "blind":
		return attn.Mask{{Q0: q / 2, Q1: q, K1: k / 2, Lo: -attn.Unbounded, Hi: attn.Unbounded}}
	}
	return attn.Full(q, k)
}

// load builds the plan and holds its programs.
func (s teethSpec) load() (*fixed, error) {
	p, err := plan.New(s.spec)
	if err != nil {
		return nil, err
	}
	f := &fixed{hdr: p.Header()}
	for _, pass := range p.Passes() {
		for r := range f.hdr.Ranks {
			prog, err := p.Program(pass, r)
			if err != nil {
				return nil, err
			}
			f.progs[pass] = append(f.progs[pass], prog)
		}
	}
	return f, nil
}

// verdict is what both judges say of one plan.
type verdict struct {
	spec    teethSpec
	mutant  mutant
	verify  error
	judge   error
	rule    string // the only kind of violation that Verify found, if there is only one
	invalid error  // the plan before the mutation could not be built
}

// judgeBoth mutates one plan of the family and asks both about the mutant.
func judgeBoth(seed uint64) verdict {
	spec := family(rand.New(rand.NewPCG(seed, 0)))
	v := verdict{spec: spec}
	base, err := spec.load()
	if err != nil {
		v.invalid = err
		return v
	}
	v.mutant = mutate(base, seed)
	report, err := plan.Verify(v.mutant.src)
	if err == nil {
		v.rule = onlyRule(report)
		err = report.Err()
	}
	v.verify = err
	v.judge = judgeOrders(v.mutant.src, seed, judgeEach, v.mutant.near)
	return v
}

func verifyAll(src plan.Source) error {
	report, err := plan.Verify(src)
	if err != nil {
		return err
	}
	return report.Err()
}

func onlyRule(r *plan.Report) string {
	rule := ""
	for i, x := range r.Violations {
		if i > 0 && x.Kind != rule {
			return ""
		}
		rule = x.Kind
	}
	return rule
}

// parallel calls f for 0..n-1 on all cores.
func parallel(n int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				f(i)
			}
		})
	}
	wg.Wait()
}

// TestValidPlansAreAccepted: Verify accepts the plans of the family as built, and they run clean.
func TestValidPlansAreAccepted(t *testing.T) {
	const n = 300
	bad := make([]error, n)
	parallel(n, func(i int) {
		spec := family(rand.New(rand.NewPCG(*mutationSeed, uint64(i))))
		src, err := spec.load()
		if err == nil {
			err = verifyAll(src)
		}
		if err == nil {
			err = judgeOrders(src, uint64(i), judgeEach, nil)
		}
		if err != nil {
			bad[i] = fmt.Errorf("%v: %w", spec, err)
		}
	})
	for _, err := range bad {
		if err != nil {
			t.Error(err)
		}
	}
}

// score is how often the two judges said what of one kind of mistake.
type score struct{ accepted, rejected, cleanRejected, faultyAccepted int }

// TestVerifyHasTeeth: of plans with one random mistake, those that Verify accepts run clean in
// every order tried; of those that it refuses at most 3% do.
func TestVerifyHasTeeth(t *testing.T) {
	verdicts := make([]verdict, *mutations)
	parallel(len(verdicts), func(i int) {
		verdicts[i] = judgeBoth(*mutationSeed<<32 + uint64(i))
		verdicts[i].mutant.src = nil
	})
	scores, all := map[string]*score{}, &score{}
	byRule := map[string]int{}
	for i := range verdicts {
		v := &verdicts[i]
		if v.invalid != nil {
			t.Fatalf("%v: %v", v.spec, v.invalid)
		}
		s := scores[v.mutant.kind]
		if s == nil {
			s = &score{}
			scores[v.mutant.kind] = s
		}
		s.count(v)
		all.count(v)
		if v.verify != nil && v.judge != nil {
			byRule[v.rule]++
		}
		if v.verify == nil && v.judge != nil {
			t.Errorf("accepted but faulty: mutant %d, %v: %s: %v", i, v.spec, v.mutant.what,
				v.judge)
		}
		if *disagreements && v.verify != nil && v.judge == nil {
			t.Logf("refused but clean: mutant %d, %v: %s: %v", i, v.spec, v.mutant.what, v.verify)
		}
	}
	t.Log(table(scores, all))
	t.Logf("faulty mutants that only one rule refuses: %v", byRule)
	for _, rule := range []string{"coverage", "deadlock", "home", "order", "pairing", "slot"} {
		if byRule[rule] == 0 && len(verdicts) >= 2000 {
			t.Errorf("no faulty mutant is refused by %s alone: the rule is not tested", rule)
		}
	}
	if all.cleanRejected*100 > all.rejected*3 {
		t.Errorf("%d of %d refused mutants run clean, more than 3%%", all.cleanRejected,
			all.rejected)
	}
	if all.rejected*2 < len(verdicts) || all.accepted == 0 {
		t.Errorf("%d accepted, %d refused: the mistakes are too harmless or too gross to tell",
			all.accepted, all.rejected)
	}
}

func (s *score) count(v *verdict) {
	switch {
	case v.verify == nil && v.judge == nil:
		s.accepted++
	case v.verify == nil:
		s.accepted++
		s.faultyAccepted++
	case v.judge == nil:
		s.rejected++
		s.cleanRejected++
	default:
		s.rejected++
	}
}

func table(scores map[string]*score, all *score) string {
	kinds := make([]string, 0, len(scores))
	for k := range scores {
		kinds = append(kinds, k)
	}
	slices.SortFunc(kinds, func(a, b string) int { return cmp.Compare(a, b) })
	out := &strings.Builder{}
	line := func(name string, s *score) {
		fmt.Fprintf(out, "%-30s %8d %8d %14d %15d\n", name, s.accepted, s.rejected,
			s.cleanRejected, s.faultyAccepted)
	}
	fmt.Fprintf(out, "\n%-30s %8s %8s %14s %15s\n", "mistake", "accepted", "refused",
		"refused, clean", "accepted, wrong")
	for _, k := range kinds {
		line(k, scores[k])
	}
	line("all", all)
	return out.String()
}
