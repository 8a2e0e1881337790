package rank_test

import (
	"slices"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/headshuffle"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
	"github.com/kvloom/kvloom/ringbus"
)

// compiled is the plan of 2x2 ranks, made ready.
func compiled(t *testing.T, layout mesh.Layout, mask attn.Mask) *rank.Compiled {
	t.Helper()
	p, err := plan.New(plan.Spec{
		Shape: plan.Shape{
			QTokens: 32, KTokens: 32, QHeads: 4, KHeads: 2, Dim: 8, VDim: 8, ElemBytes: 4,
			AccBytes: 4, Scale: 0.25, Mask: mask,
		},
		Mesh: mesh.Mesh{Head: 2, Ring: 2}, Layout: layout, Ring: ringbus.Ring{},
		Heads: headshuffle.AllToAll{},
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := rank.CompilePlan(p, nil, p.Seal)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// with is a copy of a plan in which a rank holds another script for a pass.
func with(c *rank.Compiled, pass plan.Pass, at int, s *rank.Script) *rank.Compiled {
	own := *c
	own.Scripts[pass] = slices.Clone(c.Scripts[pass])
	own.Scripts[pass][at] = s
	return &own
}

// TestHoldsAndWants: a rank holds what is wanted of it when its scripts are those that were made
// for it, and then only: not one of another mask, layout, pass or rank, whatever plan it says it is
// of.
func TestHoldsAndWants(t *testing.T) {
	causal := attn.Causal(32, 32)
	c := compiled(t, mesh.Zigzag, causal)
	mask := compiled(t, mesh.Zigzag, attn.Full(32, 32))
	layout := compiled(t, mesh.Contiguous, causal)
	for _, tc := range []struct {
		name  string
		other *rank.Script
	}{
		{"its own", c.Scripts[plan.Forward][1]},
		{"its own, made again", compiled(t, mesh.Zigzag, causal).Scripts[plan.Forward][1]},
		{"another mask's", mask.Scripts[plan.Forward][1]},
		{"another layout's", layout.Scripts[plan.Forward][1]},
		{"another pass's", c.Scripts[plan.Backward][1]},
		{"another rank's", c.Scripts[plan.Forward][2]},
	} {
		same := tc.name == "its own" || tc.name == "its own, made again"
		b := rank.Rounds{First: 4, Entries: []rank.Entry{
			{Plan: c, Pass: plan.Backward}, {Plan: with(c, plan.Forward, 1, tc.other)}, {Plan: c},
		}}
		for r := range int32(4) {
			if agree := b.Holds(r, 4, 7) == b.Wants(r, 4, 7); agree != (same || r != 1) {
				t.Errorf("rank 1 holds %s script: rank %d agrees: %v", tc.name, r, agree)
			}
		}
		if b.Holds(1, 6, 7) != b.Wants(1, 6, 7) || b.Holds(1, 4, 5) != b.Wants(1, 4, 5) {
			t.Errorf("rank 1 holds %s script in round 5, and disagrees on another", tc.name)
		}
	}
}

// TestFoldNoticesAll: what a rank confirms has in it the program, the plan, the pass and the state
// of each round, how many they are and in which order, each for itself.
func TestFoldNoticesAll(t *testing.T) {
	c := compiled(t, mesh.Zigzag, attn.Causal(32, 32))
	same := with(c, plan.Backward, 1, c.Scripts[plan.Forward][1]) // both passes alike
	renamed, sealed := *c.Scripts[plan.Forward][1], *same
	renamed.Name++
	sealed.Hash[0]++
	book := func(entries ...rank.Entry) *rank.Rounds { return &rank.Rounds{Entries: entries} }
	first := rank.Entry{Plan: same, State: 3}
	holds := book(first, first).Holds(1, 0, 2)
	if again := book(first, first).Holds(1, 0, 2); again != holds {
		t.Fatalf("the same rounds give %x and %x", holds, again)
	}
	for name, other := range map[string]rank.Entry{
		"program": {Plan: with(same, plan.Forward, 1, &renamed), State: 3},
		"plan":    {Plan: &sealed, State: 3},
		"pass":    {Plan: same, State: 3, Pass: plan.Backward},
		"state":   {Plan: same, State: 4},
		"state 0": {Plan: same},
	} {
		if book(other, first).Holds(1, 0, 2) == holds || book(first, other).Holds(1, 0,
			2) == holds {
			t.Errorf("another %s in one of two rounds is not noticed", name)
		}
		if book(other, first).Holds(1, 0, 2) == book(first, other).Holds(1, 0, 2) {
			t.Errorf("another %s in the first or in the second round is the same", name)
		}
	}
	b := book(first, first)
	for _, other := range [][2]int32{{0, 1}, {1, 2}, {0, 3}, {-1, 2}, {0, 0}} {
		if b.Holds(1, other[0], other[1]) == holds {
			t.Errorf("rounds %d to %d give the same as 0 to 2", other[0], other[1])
		}
	}
}

// TestScriptNameKnowsTheSets: two programs of the same text over other token sets are two names.
func TestScriptNameKnowsTheSets(t *testing.T) {
	a := compiled(t, mesh.Zigzag, attn.Full(32, 32))
	b := compiled(t, mesh.Contiguous, attn.Full(32, 32))
	seen := map[uint64]string{}
	for name, c := range map[string]*rank.Compiled{"zigzag": a, "contiguous": b} {
		for pass, scripts := range c.Scripts {
			for r, s := range scripts {
				if other, ok := seen[s.Name]; ok {
					t.Errorf("%s pass %d rank %d has the name of %s", name, pass, r, other)
				}
				seen[s.Name] = name
			}
		}
	}
}
