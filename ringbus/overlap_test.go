package ringbus_test

import (
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// behind lists, for each op, whether it waits for op first, directly or through others.
func behind(p *plan.Program, first int) []bool {
	out := make([]bool, len(p.Ops))
	out[first] = true
	for i := first + 1; i < len(p.Ops); i++ {
		for _, d := range p.Deps(i) {
			out[i] = out[i] || out[d]
		}
	}
	return out
}

// TestHopsHideBehindArithmetic: in a ring step the block goes on, and the next one comes, while
// this one is attended: neither waits for the attend. Backward, the attend of a step waits neither
// for the accumulator that follows a hop behind nor for the sum of the step before.
func TestHopsHideBehindArithmetic(t *testing.T) {
	for _, tc := range []struct {
		head int
		mask attn.Mask
	}{{1, attn.Causal(64, 64)}, {1, attn.Full(64, 64)}, {2, attn.Causal(64, 64)}} {
		m := mesh.Mesh{Head: tc.head, Ring: 8}
		r := newPlan(t, m, mesh.Zigzag, 64, 4, 2, tc.mask, plan.Options{})
		for pass := range r.progs {
			for _, p := range r.progs[pass] {
				attend := ops(p, attends(p.Pass), 0)
				send := ops(p, plan.Send, plan.LaneKV) // of step t at t
				recv := ops(p, plan.Recv, plan.LaneKV) // of step t+1 at t
				if len(attend) != 8 || len(send) != 7 || len(recv) != 7 {
					t.Fatalf("%v rank %d: %d attends, %d sends, %d receives", p.Pass, p.Rank,
						len(attend), len(send), len(recv))
				}
				for step := range 7 {
					late := behind(p, attend[step])
					if late[send[step]] || late[recv[step]] {
						t.Errorf("%v rank %d: a hop of step %d waits for its attend", p.Pass,
							p.Rank, step)
					}
				}
				if p.Pass == plan.Backward {
					checkTravel(t, p, attend)
				}
			}
		}
	}
}

// checkTravel: with two partials and two travelling slots the attend of step t+1 does not wait
// for the accumulator of step t to come, nor for step t's sum or hop; that of t+2 needs the
// partial back.
func checkTravel(t *testing.T, p *plan.Program, attend []int) {
	t.Helper()
	came := ops(p, plan.Recv, plan.LaneDKV) // of steps 1..7, then home
	sums := ops(p, plan.Accumulate, 0)      // of steps 1..7
	sent := ops(p, plan.Send, plan.LaneDKV) // of steps 0..7
	if len(came) != 8 || len(sums) != 7 || len(sent) != 8 {
		t.Fatalf("rank %d: %d dKV came, %d sums, %d sent", p.Rank, len(came), len(sums), len(sent))
	}
	for step := 1; step < 7; step++ {
		for _, op := range []int{came[step-1], sums[step-1], sent[step]} {
			if behind(p, op)[attend[step+1]] {
				t.Errorf("rank %d: the attend of step %d waits for op %d of the step before",
					p.Rank, step+1, op)
			}
		}
		if step < 6 && !behind(p, sums[step-1])[attend[step+2]] {
			t.Errorf("rank %d: the attend of step %d reuses a partial that is not yet summed",
				p.Rank, step+2)
		}
	}
}
