package collect_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/collect"
	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

func TestPlansAreProven(t *testing.T) {
	for _, s := range specs() {
		r, err := plan.Verify(build(t, s))
		if err != nil {
			t.Fatal(err)
		}
		if r.Err() != nil {
			t.Errorf("%s: %v", name(s), r.Err())
		}
	}
}

// TestResults runs every spec in several orders, in both widths, copying and handing over.
func TestResults(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, s := range specs() {
		for _, opt := range []cpu.Options{{}, {Copy: true, Poison: true}} {
			s.ElemBytes = 4
			p := build(t, s)
			if err := direct[float32](p, p, rng, opt); err != nil {
				t.Errorf("%s, f32, %+v: %v", name(s), opt, err)
			}
			s.ElemBytes = 8
			p = build(t, s)
			if err := direct[float64](p, p, rng, opt); err != nil {
				t.Errorf("%s, f64, %+v: %v", name(s), opt, err)
			}
		}
	}
}

// TestTimingChangesNoBit: workers in virtual time, whose delays a seed draws, give the plain sums
// in group order, bit by bit.
func TestTimingChangesNoBit(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 5
	}
	for _, s := range []collect.Spec{
		{Kind: collect.AllReduce, Axis: collect.World},
		{Kind: collect.AllReduce, Axis: collect.Head},
		{Kind: collect.ReduceScatter, Axis: collect.Ring},
		{Kind: collect.AllGather, Axis: collect.World},
	} {
		s.Mesh, s.Elements, s.ElemBytes = mesh.Mesh{Head: 2, Ring: 4}, 29, 4
		p := build(t, s)
		traces := map[uint64]bool{}
		for seed := range seeds {
			res, err := simulated[float32](p, seed)
			if err != nil {
				t.Fatalf("%s, seed %d: %v", name(s), seed, err)
			}
			traces[res.TraceHash] = true
		}
		if len(traces) < int(seeds)*9/10 {
			t.Errorf("%s: %d seeds gave only %d orders: the test shows nothing", name(s), seeds,
				len(traces))
		}
	}
}

// TestOrderOfAddingShows: were parts added in another order than the group's, TestResults would see
// it.
func TestOrderOfAddingShows(t *testing.T) {
	s := collect.Spec{Kind: collect.ReduceScatter, Mesh: mesh.Mesh{Head: 1, Ring: 4},
		Axis: collect.Ring, Elements: 24, ElemBytes: 4}
	p := build(t, s)
	f := load(t, p)
	for _, d := range f.progs {
		args := d.ops[d.unpack(0)].args
		args[1], args[3] = args[3], args[1]
	}
	err := direct[float32](p, f, rand.New(rand.NewPCG(1, 1)), cpu.Options{})
	if err == nil || !strings.Contains(err.Error(), "want") {
		t.Errorf("another order of adding: %v", err)
	}
}

func TestCounts(t *testing.T) {
	for _, s := range specs() {
		p, g := build(t, s), sizeOf(s)
		for r := range s.Mesh.Ranks() {
			prog, err := p.Program(plan.Forward, r)
			if err != nil {
				t.Fatal(err)
			}
			lo, hi := p.Run(r)
			runs := min(g, s.Elements) // ranks that have one
			own := 0
			if hi > lo {
				own = 1
			}
			var sends, elements int
			if s.Kind != collect.AllGather {
				sends, elements = runs-own, s.Elements-(hi-lo)
			}
			if s.Kind != collect.ReduceScatter {
				sends, elements = sends+own*(g-1), elements+(hi-lo)*(g-1)
			}
			c := plan.Count(p.Header(), prog)
			bytes := int64(elements * s.ElemBytes)
			if c.Sends[plan.Collective] != sends || c.Bytes[plan.Collective] != bytes {
				t.Errorf("%s, rank %d: %d sends of %d bytes, want %d of %d", name(s), r,
					c.Sends[plan.Collective], c.Bytes[plan.Collective], sends, bytes)
			}
			if s.Elements >= g && s.Kind == collect.AllReduce && sends != 2*(g-1) {
				t.Errorf("%s: %d sends, want 2(G-1) = %d", name(s), sends, 2*(g-1))
			}
			for class := range plan.Collective {
				if c.Sends[class] > 0 || c.BytesIn[class] > 0 {
					t.Errorf("%s: traffic of class %v", name(s), class)
				}
			}
		}
	}
}

// TestPeakBytes: with n a multiple of G, besides what the rank brings and gets, one piece from
// every peer at a time and the own sum.
func TestPeakBytes(t *testing.T) {
	const n, g = 24, 4
	for k, elements := range map[collect.Kind]int{
		collect.AllReduce:     n + n + (g-1)*n/g + n/g,
		collect.ReduceScatter: n + n/g + (g-1)*n/g,
		collect.AllGather:     n/g + n + (g-1)*n/g,
	} {
		s := collect.Spec{Kind: k, Mesh: mesh.Mesh{Head: 1, Ring: g}, Axis: collect.Ring,
			Elements: n, ElemBytes: 4}
		prog, err := build(t, s).Program(plan.Forward, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := prog.PeakBytes(); got != int64(4*elements) {
			t.Errorf("%v: peak of %d bytes, want %d", k, got, 4*elements)
		}
	}
}

// TestWideSums: sums may be wider than what is added; an all-gather keeps the width.
func TestWideSums(t *testing.T) {
	for k, want := range map[collect.Kind]int64{
		collect.AllReduce: 8 * 6, collect.ReduceScatter: 8 * 3, collect.AllGather: 4 * 6,
	} {
		s := collect.Spec{Kind: k, Mesh: mesh.Mesh{Head: 2, Ring: 1}, Axis: collect.World,
			Elements: 6, ElemBytes: 4, AccBytes: 8}
		p := build(t, s)
		prog, err := p.Program(plan.Forward, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, sl := range prog.Slots {
			if sl.Role == plan.SumOut && sl.Bytes != want {
				t.Errorf("%v: result of %d bytes, want %d", k, sl.Bytes, want)
			}
		}
		if r, err := plan.Verify(p); err != nil || r.Err() != nil {
			t.Error(k, err, r.Err())
		}
	}
}

func TestGroups(t *testing.T) {
	m := mesh.Mesh{Head: 2, Ring: 3}
	for _, c := range []struct {
		axis  collect.Axis
		rank  int
		ranks []int
		place int
	}{
		{collect.Head, 3, []int{2, 3}, 1},
		{collect.Ring, 3, []int{1, 3, 5}, 1},
		{collect.World, 3, []int{0, 1, 2, 3, 4, 5}, 3},
	} {
		p := build(t, collect.Spec{Mesh: m, Axis: c.axis, Elements: 7, ElemBytes: 4})
		ranks, place := p.Group(c.rank)
		same := len(ranks) == len(c.ranks) && place == c.place
		for i := range ranks {
			same = same && ranks[i] == c.ranks[i]
		}
		if !same {
			t.Errorf("%v: group %v, place %d, want %v, %d", c.axis, ranks, place, c.ranks, c.place)
		}
	}
}

func TestHashTellsPlansApart(t *testing.T) {
	base := collect.Spec{Mesh: mesh.Mesh{Head: 2, Ring: 2}, Axis: collect.World, Elements: 9,
		ElemBytes: 4}
	seen := map[plan.Hash]string{}
	for what, change := range map[string]func(s *collect.Spec){
		"base":      func(*collect.Spec) {},
		"kind":      func(s *collect.Spec) { s.Kind = collect.ReduceScatter },
		"axis":      func(s *collect.Spec) { s.Axis = collect.Head },
		"elements":  func(s *collect.Spec) { s.Elements = 10 },
		"width":     func(s *collect.Spec) { s.ElemBytes = 8 },
		"sums":      func(s *collect.Spec) { s.AccBytes = 8 },
		"placement": func(s *collect.Spec) { s.Mesh.Placement = mesh.ContextFirst },
		"mesh":      func(s *collect.Spec) { s.Mesh = mesh.Mesh{Head: 1, Ring: 4} },
	} {
		s := base
		change(&s)
		h := build(t, s).Hash()
		if other, ok := seen[h]; ok {
			t.Errorf("%s and %s have one hash", what, other)
		}
		seen[h] = what
	}
	s := base
	s.AccBytes = 4
	if build(t, s).Hash() != build(t, base).Hash() {
		t.Error("a default spelt out changes the hash")
	}
}

func TestRefusals(t *testing.T) {
	good := collect.Spec{Mesh: mesh.Mesh{Head: 2, Ring: 2}, Elements: 4, ElemBytes: 4}
	for _, c := range []struct {
		change func(s *collect.Spec)
		words  string
	}{
		{func(s *collect.Spec) { s.Mesh.Ring = 0 }, "degree below 1"},
		{func(s *collect.Spec) { s.Kind = 7 }, "kind ?7 is unknown: use all-reduce"},
		{func(s *collect.Spec) { s.Axis = 7 }, "axis ?7 is unknown: use head"},
		{func(s *collect.Spec) { s.Elements = 0 }, "elements 0: use 1 to 536870912 with 2 groups"},
		{func(s *collect.Spec) { s.Elements = 1 << 30 }, "cut a longer vector into parts"},
		{func(s *collect.Spec) { s.ElemBytes = 0 }, "element of 0 bytes"},
		{func(s *collect.Spec) { s.AccBytes = 2 }, "element of 4 bytes with a sum of 2"},
		{func(s *collect.Spec) {
			s.Mesh, s.Axis = mesh.Mesh{Head: 256, Ring: 256}, collect.World
		}, "a group of 65536 ranks (axis world) is above the limit of 16384"},
	} {
		s := good
		c.change(&s)
		if _, err := collect.New(s); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("want %q, got %v", c.words, err)
		}
	}
	p := build(t, good)
	if _, err := p.Program(plan.Backward, 0); err == nil {
		t.Error("a collective gave a backward program")
	}
	if _, err := p.Program(plan.Forward, 4); err == nil {
		t.Error("a mesh of 4 gave a program of rank 4")
	}
}

// TestTextIsReadBack: the text of a collective is a plan file like any other.
func TestTextIsReadBack(t *testing.T) {
	for _, s := range specs() {
		text, err := plan.AppendPlan(nil, build(t, s))
		if err != nil {
			t.Fatal(err)
		}
		back, err := plan.ParsePlan(text)
		if err != nil {
			t.Fatalf("%s: %v", name(s), err)
		}
		again, err := plan.AppendPlan(nil, back)
		if err != nil || !bytes.Equal(text, again) {
			t.Errorf("%s: read back (%v) it is\n%s\nwas\n%s", name(s), err, again, text)
		}
		if r, err := plan.Verify(back); err != nil || r.Err() != nil {
			t.Errorf("%s: read back: %v %v", name(s), err, r.Err())
		}
	}
}

// BenchmarkWorld builds and verifies an all-reduce over all ranks.
func BenchmarkWorld(b *testing.B) {
	for _, ranks := range []int{64, 256, 1024} {
		b.Run(fmt.Sprint(ranks), func(b *testing.B) {
			for range b.N {
				p := build(b, collect.Spec{Mesh: mesh.Mesh{Head: 1, Ring: ranks},
					Axis: collect.World, Elements: 1 << 20, ElemBytes: 4})
				if r, err := plan.Verify(p); err != nil || r.Err() != nil {
					b.Fatal(err, r.Err())
				}
			}
		})
	}
}
