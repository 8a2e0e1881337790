package sim_test

import (
	"testing"

	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
	"github.com/kvloom/kvloom/sim"
)

// lockstep is a plan in which every rank receives, computes and sends in turn: what most ring codes
// do, and what the bounds below must refuse.
type lockstep struct{ plan.Source }

func (l lockstep) Program(pass plan.Pass, r int) (*plan.Program, error) {
	p, err := l.Source.Program(pass, r)
	if err != nil {
		return nil, err
	}
	type block struct {
		slot int32
		set  plan.SetID
	}
	attends := map[block]int32{}
	for i := range p.Ops {
		if k := p.Ops[i].Kind; k == plan.Attend || k == plan.AttendBackward {
			a := p.Args(i)[1]
			attends[block{a.Slot, a.Set}] = int32(i)
		}
	}
	out := &plan.Program{Rank: p.Rank, Pass: p.Pass, Slots: p.Slots}
	last := int32(-1)
	for i := range p.Ops {
		op, deps := p.Ops[i], append([]int32(nil), p.Deps(i)...)
		switch {
		case op.Kind == plan.Attend || op.Kind == plan.AttendBackward:
			last = int32(i)
		case op.Kind == plan.Send && op.Lane == plan.LaneKV:
			a := p.Args(i)[0]
			deps = append(deps, attends[block{a.Slot, a.Set}])
		case op.Kind == plan.Recv && op.Lane == plan.LaneKV && last >= 0:
			deps = append(deps, last)
		}
		out.Append(op, p.Args(i), deps)
	}
	return out, nil
}

// steps runs one round and gives its makespan in ring-step times.
func steps(t *testing.T, src plan.Source, pass plan.Pass, c costs) float64 {
	t.Helper()
	b := bookOf(t, src, plan.Hash{1}, pass)
	c.book, c.ranks, c.attend = b, src.Header().Ranks, 1
	res := run(t, sim.Config{Ranks: c.ranks, Book: b, Costs: c}, 1)
	return float64(res.Nanos()) / float64(step)
}

func mustPlan(t testing.TB, s plan.Spec) *plan.Plan {
	t.Helper()
	p, err := plan.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestForwardHidesHops: with two ring slots a hop of at most one step costs nothing, a longer one
// only itself; exchanges stand before and after. Each piece takes 0.1: q and kv before, out after.
func TestForwardHidesHops(t *testing.T) {
	for _, m := range []mesh.Mesh{
		{Head: 1, Ring: 4}, {Head: 1, Ring: 16}, {Head: 2, Ring: 8}, {Head: 4, Ring: 4},
		{Head: 8, Ring: 2}, {Head: 4, Ring: 4, Placement: mesh.ContextFirst},
	} {
		p := mustPlan(t, spec(m, 512))
		for _, hop := range []float64{0.2, 0.9, 1, 1.5, 3} {
			for _, port := range []bool{false, true} {
				pieces := 0.0
				if m.Head > 1 {
					pieces = 3
				}
				if port {
					pieces *= float64(m.Head - 1)
				}
				ideal := float64(m.Ring)
				if hop > 1 {
					ideal = 1 + float64(m.Ring-1)*hop
				}
				ideal += 0.1 * pieces
				c := costs{kv: hop, piece: 0.1, port: port}
				got := steps(t, p, plan.Forward, c)
				if got > 1.02*ideal || got < float64(m.Ring) {
					t.Errorf("%dx%d hop %v port %v: %.3f steps, ideal %.3f", m.Head, m.Ring, hop,
						port, got, ideal)
				}
				if twin := steps(t, lockstep{p}, plan.Forward, c); twin <= 1.02*ideal {
					t.Errorf("%dx%d hop %v: lockstep takes %.3f steps, within the bound of %.3f: "+
						"the test cannot fail", m.Head, m.Ring, hop, twin, 1.02*ideal)
				}
			}
		}
	}
}

// TestBackwardHidesHops: dKV follows one hop behind and is added on a stream of its own.
func TestBackwardHidesHops(t *testing.T) {
	m := mesh.Mesh{Head: 1, Ring: 16}
	p := mustPlan(t, spec(m, 512))
	for _, tc := range []struct {
		name    string
		dkv     float64
		oneLink bool
		bound   float64
	}{
		{"kv 0.45 and dkv 0.45 on one link", 0.45, true, 1.06},
		{"dkv 0.9 on a link of its own", 0.9, false, 1.09},
	} {
		c := costs{kv: 0.45, dkv: tc.dkv, acc: 0.05, oneLink: tc.oneLink}
		got := steps(t, p, plan.Backward, c) / 16
		t.Logf("%s: %.3f of its arithmetic", tc.name, got)
		if got > tc.bound {
			t.Errorf("%s: %.3f times its arithmetic, the bound is %v", tc.name, got, tc.bound)
		}
		if twin := steps(t, lockstep{p}, plan.Backward, c) / 16; twin <= tc.bound {
			t.Errorf("%s: lockstep takes %.3f, within the bound: the test cannot fail", tc.name,
				twin)
		}
	}
}

// TestFewerSlotsCost shows that the slots are what hides the hops.
func TestFewerSlotsCost(t *testing.T) {
	m := mesh.Mesh{Head: 1, Ring: 16}
	s := spec(m, 512)
	s.Options = plan.Options{Partials: 1}
	c := costs{kv: 0.45, dkv: 0.45, acc: 0.05, oneLink: true}
	one := steps(t, mustPlan(t, s), plan.Backward, c)
	s.Options = plan.Options{}
	two := steps(t, mustPlan(t, s), plan.Backward, c)
	if one < 1.02*two {
		t.Errorf("one partial takes %.3f steps, two %.3f: no difference shown", one, two)
	}
}

// TestLatency: with latency L two ring slots cost max(1, T + 3L) a step, three max(1, T + L).
func TestLatency(t *testing.T) {
	s := spec(mesh.Mesh{Head: 1, Ring: 16}, 512)
	for _, tc := range []struct {
		slots int
		want  float64
	}{{2, 0.8 + 3*0.2}, {3, 1}} {
		s.Options = plan.Options{KVSlots: tc.slots}
		got := steps(t, mustPlan(t, s), plan.Forward, costs{kv: 0.8, latency: 0.2}) / 16
		if got > 1.03*tc.want {
			t.Errorf("%d slots: %.3f a step, want %.3f", tc.slots, got, tc.want)
		}
	}
}

// TestQueueDepth: at a mail latency of 0.05 steps, launches queued ahead keep the device busy.
func TestQueueDepth(t *testing.T) {
	m := mesh.Mesh{Head: 1, Ring: 16}
	p := mustPlan(t, spec(m, 512))
	b := bookOf(t, p, plan.Hash{1}, plan.Forward)
	var took [3]float64
	for depth := 1; depth <= 2; depth++ {
		c := costs{book: b, ranks: 16, kv: 0.5, attend: 1, mail: 0.05}
		res := run(t, sim.Config{Ranks: 16, Book: b, Costs: c, Depth: depth}, 1)
		took[depth] = float64(res.Nanos()) / float64(step)
	}
	if took[2] > 17 || took[1] < 1.05*took[2] {
		t.Errorf("depth 1 takes %.2f steps, depth 2 %.2f: want 10%% apart", took[1], took[2])
	}
}

var _ rank.Book = (*rank.Rounds)(nil)
