package sim_test

import (
	"testing"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/ringbus"
	"github.com/kvloom/kvloom/sim"
)

// nodeCosts has nodes of w ranks: hops inside a node take one time, hops between nodes another.
type nodeCosts struct {
	costs
	w        int32
	kv, dkv  [2]float64 // inside, between
	perChunk float64    // what an attend of one lane takes
	oneLink  bool       // both chunks of a KV block go over one link
}

func (c nodeCosts) Op(r, round, op int32) actors.Time {
	if c.perChunk > 0 {
		switch c.book.Script(r, round).Program.Ops[op].Kind {
		case plan.Attend, plan.AttendBackward:
			return units(c.perChunk)
		}
	}
	return c.costs.Op(r, round, op)
}

func (c nodeCosts) Transfer(src, dst, round, op int32) (int, actors.Time, actors.Time) {
	if op < 0 {
		return 0, 0, 0
	}
	between := 0
	if src/c.w != dst/c.w {
		between = 1
	}
	lane := c.book.Script(src, round).Program.Ops[op].Lane
	took := c.kv[between]
	if plan.ClassOf(plan.Backward, lane) == plan.DKVHops {
		took = c.dkv[between]
	}
	if c.oneLink && plan.ClassOf(plan.Forward, lane) == plan.KVForward {
		lane = plan.LaneKV
	}
	return (int(src)*c.ranks+int(dst))*int(plan.NumLanes) + int(lane), units(took), 0
}

func nodeSteps(t *testing.T, ring ringbus.Ring, opt plan.Options, pass plan.Pass,
	c nodeCosts) float64 {
	t.Helper()
	s := spec(mesh.Mesh{Head: 1, Ring: 16}, 512)
	s.Ring, s.Options = ring, opt
	p := mustPlan(t, s)
	b := bookOf(t, p, plan.Hash{1}, pass)
	c.book, c.ranks, c.attend = b, 16, 1
	res := run(t, sim.Config{Ranks: 16, Book: b, Costs: c}, 1)
	return float64(res.Nanos()) / float64(step)
}

// TestDoubleRingHidesSlowLinks: a hop of 3 steps between nodes hides behind a window of 4 inner
// steps; the plain ring over the same links pays for it at every step.
func TestDoubleRingHidesSlowLinks(t *testing.T) {
	c := nodeCosts{w: 4, kv: [2]float64{0.2, 3}}
	double := nodeSteps(t, ringbus.Ring{Inner: 4}, plan.Options{}, plan.Forward, c)
	single := nodeSteps(t, ringbus.Ring{}, plan.Options{}, plan.Forward, c)
	t.Logf("forward: double ring %.2f steps, single ring %.2f", double, single)
	if double > 1.03*16 {
		t.Errorf("double ring forward takes %.2f steps, want at most %.2f", double, 1.03*16)
	}
	if single < 44 || single > 48 {
		t.Errorf("single ring forward takes %.2f steps over the same links, want about 46", single)
	}
	c = nodeCosts{w: 4, kv: [2]float64{0.1, 1.5}, dkv: [2]float64{0.2, 3}}
	c.acc = 0.05
	var took [4]float64
	for partials := 1; partials <= 3; partials++ {
		took[partials] = nodeSteps(t, ringbus.Ring{Inner: 4}, plan.Options{Partials: partials},
			plan.Backward, c)
	}
	local := nodeSteps(t, ringbus.Ring{Inner: 4, DKV: ringbus.Local}, plan.Options{},
		plan.Backward, c)
	t.Logf("backward, fold: %.2f, %.2f, %.2f steps with 1, 2, 3 partials; local: %.2f with 2",
		took[1], took[2], took[3], local)
	if took[3] > 1.02*(16+3) {
		t.Errorf("3 partials take %.2f steps, want at most %.2f", took[3], 1.02*(16+3))
	}
	if took[1] < 1.1*took[2] || took[2] < 1.1*took[3] {
		t.Errorf("fewer partials cost nothing (%v): the test cannot fail", took)
	}
	if local > took[3]+1 {
		t.Errorf("window sums of their own take %.2f steps, folded %.2f", local, took[3])
	}
}

// TestTwoLanes: on one link a step begins when the first of the two chunks has come, half a hop
// early; and two lanes are never slower than one by more than 2%.
func TestTwoLanes(t *testing.T) {
	for _, pass := range []plan.Pass{plan.Forward, plan.Backward} {
		for i, hop := range []float64{0.2, 0.9, 1.5, 3, 0.2, 0.9, 1.5, 3} {
			one := nodeCosts{w: 16, kv: [2]float64{hop, hop}, dkv: [2]float64{0.4, 0.4}}
			two := nodeCosts{w: 16, kv: [2]float64{hop / 2, hop / 2}, dkv: [2]float64{0.2, 0.2},
				perChunk: 0.5, oneLink: i < 4}
			a := nodeSteps(t, ringbus.Ring{}, plan.Options{}, pass, one)
			b := nodeSteps(t, ringbus.Ring{Lanes: 2}, plan.Options{}, pass, two)
			t.Logf("%v hop %v, one link %v: one lane %.2f steps, two %.2f", pass, hop, two.oneLink,
				a, b)
			if b > 1.02*a {
				t.Errorf("%v hop %v: two lanes take %.2f steps, one %.2f", pass, hop, b, a)
			}
			if early := a - 0.4; hop > 1 && b > early {
				t.Errorf("%v hop %v: two lanes take %.2f steps, one %.2f: the last step does "+
					"not begin "+
					"with its first chunk", pass, hop, b, a)
			}
		}
	}
}
