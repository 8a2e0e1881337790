package integration

import (
	"runtime"
	"testing"
	"time"

	kvloom "github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
	"github.com/kvloom/kvloom/sim"
)

// TestDigestsDoNotDependOnTiming: live runs at GOMAXPROCS 1 and 2 and 200 seeds of delays and
// reordering in virtual time give the same bits.
func TestDigestsDoNotDependOnTiming(t *testing.T) {
	seeds := 200
	if testing.Short() {
		seeds = 20
	}
	for _, p := range []problem{
		{mesh: mesh.Mesh{Head: 2, Ring: 4}, tokens: 97, heads: 8, kvHeads: 2, dim: 8},
		{mesh: mesh.Mesh{Head: 3, Ring: 2}, tokens: 61, heads: 6, kvHeads: 3, dim: 8,
			layout: mesh.Contiguous},
	} {
		want := ""
		for _, procs := range []int{1, 2} {
			before := runtime.GOMAXPROCS(procs)
			got := digests(live[float32](t, p))
			runtime.GOMAXPROCS(before)
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("%v: live at GOMAXPROCS %d gives other bits", p, procs)
			}
		}
		traces := map[uint64]bool{}
		for seed := range seeds {
			s, res := simulate[float32](t, p, sim.Config{Seed: uint64(seed), Noise: sim.Noise{
				Mail: 3000, Transfer: 9000, Op: 2000}})
			if digests(s.results(t)) != want {
				t.Fatalf("%v: seed %d gives other bits than the live run", p, seed)
			}
			traces[res.TraceHash] = true
			s.store.Close()
		}
		if len(traces) < seeds*9/10 {
			t.Errorf("%v: %d seeds gave only %d different orders: the test shows nothing", p, seeds,
				len(traces))
		}
	}
}

// pacedCosts is a ring step of 20 ms and hops of 0.9 steps.
type pacedCosts struct {
	ranks  int
	script func(rank, round int32) *plan.Program
}

const pacedStep = 20 * time.Millisecond

func (c pacedCosts) Op(r, round, op int32) actors.Time {
	if c.script(r, round).Ops[op].Kind == plan.Attend {
		return actors.Time(pacedStep)
	}
	return 0
}

func (c pacedCosts) Transfer(src, dst, _, op int32) (int, actors.Time, actors.Time) {
	if op < 0 {
		return 0, 0, 0
	}
	return int(src)*c.ranks + int(dst), actors.Time(pacedStep) * 9 / 10, 0
}

func (pacedCosts) Mail(_, _ actors.Addr) actors.Time { return 0 }

// TestPacedLiveAgreesWithSim: real actors with a device and links that take modelled time finish
// a forward round within 15% of virtual time. It is the one test that reads a clock: the bound is
// on the best of five runs, since a busy machine can only be late.
func TestPacedLiveAgreesWithSim(t *testing.T) {
	p := problem{mesh: mesh.Mesh{Head: 1, Ring: 4}, tokens: 64, heads: 8, kvHeads: 8, dim: 8}
	cfg := config[float32](p)
	pl, err := cfg.Plan(0)
	if err != nil {
		t.Fatal(err)
	}
	var progs []*plan.Program
	for r := range 4 {
		prog, err := pl.Program(plan.Forward, r)
		if err != nil {
			t.Fatal(err)
		}
		progs = append(progs, prog)
	}
	costs := pacedCosts{ranks: 4, script: func(r, _ int32) *plan.Program { return progs[r] }}
	w := sim.New(sim.Config{Ranks: 4, Costs: costs,
		Book: bookOf(t, pl, rank.Entry{Pass: plan.Forward})})
	res, err := w.Run(1)
	if err != nil {
		t.Fatal(err)
	}
	want := time.Duration(res.Nanos())
	if ideal := 4 * pacedStep; want < ideal || want > ideal*102/100 {
		t.Fatalf("sim takes %v, ideal is %v", want, ideal)
	}
	cfg.Pace = &kvloom.Pace{
		Op: func(r, round, op int32) time.Duration { return time.Duration(costs.Op(r, round, op)) },
		Link: func(src, dst, _, round, op int32) time.Duration {
			_, occupy, _ := costs.Transfer(src, dst, round, op)
			return time.Duration(occupy)
		},
	}
	best := time.Hour
	for range 5 {
		s := session[float32](t, p, cfg)
		began := time.Now()
		if err := s.Run(t.Context(), both[0]); err != nil {
			t.Fatal(err)
		}
		best = min(best, time.Since(began))
		closeSession(t, s)
	}
	t.Logf("live %v, sim %v: %.3f", best, want, float64(best)/float64(want))
	if best < want || best > want*115/100 {
		t.Errorf("live takes %v, sim %v: more than 15%% apart", best, want)
	}
}
