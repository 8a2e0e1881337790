package plan_test

import (
	"testing"

	"github.com/kvloom/kvloom/plan"
	"pgregory.net/rapid"
)

// TestCountsOfAnyPlan: what Count, StepFlops and Cost count in one go is what the ops say one by
// one.
func TestCountsOfAnyPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := plan.New(drawSpec(t))
		if err != nil {
			t.Fatal(err)
		}
		h := p.Header()
		top := cluster()
		top.Nodes = 3
		e, err := plan.Cost(p, top, plan.CostOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for rank := range h.Ranks {
			flops := int64(0)
			for _, pass := range p.Passes() {
				prog, err := p.Program(pass, rank)
				if err != nil {
					t.Fatal(err)
				}
				n, pairs, steps := plan.Count(h, prog), int64(0), int64(0)
				for i := range prog.Ops {
					pairs += h.OpPairs(prog, i)
				}
				for _, f := range plan.StepFlops(h, prog) {
					steps += f
				}
				if n.Pairs != pairs || n.Flops-steps > int64(len(prog.Ops)) || steps > n.Flops {
					t.Fatalf("%v rank %d: %d pairs and %d FLOP counted, %d and %d op by op", pass,
						rank, n.Pairs, n.Flops, pairs, steps)
				}
				flops += steps
			}
			if e.Ranks[rank].Flops != flops {
				t.Fatalf("rank %d costs %d FLOP, its steps have %d", rank, e.Ranks[rank].Flops,
					flops)
			}
		}
	})
}
