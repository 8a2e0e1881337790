package plan_test

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/headshuffle"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/ringbus"
)

// packed is a batch of equal documents, causal inside each: the mask, and where they start.
func packed(documents, tokens int) (mask attn.Mask, starts []int) {
	for d := range documents {
		lo, hi := mesh.CutEven(tokens, documents, d)
		starts = append(starts, lo)
		mask = append(mask, attn.Slice{Q0: lo, Q1: hi, K0: lo, K1: hi, Lo: -attn.Unbounded})
	}
	return mask, append(starts, tokens)
}

// big are the plans whose building and proving has a budget of CPU time.
type big struct {
	name   string
	spec   plan.Spec
	passes []plan.Pass
	budget time.Duration
}

func bigPlans() []big {
	const tokens = 128 << 10
	shape := plan.Shape{QTokens: tokens, KTokens: tokens, QHeads: 32, KHeads: 8, Dim: 128,
		VDim: 128, ElemBytes: 2, AccBytes: 4, Scale: 1}
	documents, ring := shape, shape
	var starts []int
	documents.Mask, starts = packed(1000, tokens)
	ring.Mask = attn.Causal(tokens, tokens)
	both := []plan.Pass{plan.Forward, plan.Backward}
	spec := func(s plan.Shape, degree int, l mesh.Layout) plan.Spec {
		return plan.Spec{Shape: s, Mesh: mesh.Mesh{Head: 1, Ring: degree}, Layout: l,
			Ring: ringbus.Ring{}, Heads: headshuffle.AllToAll{}}
	}
	return []big{
		{"1x64_1000docs", spec(documents, 64, mesh.DocZigzag{Starts: starts}), both, time.Second},
		{"1x1024_forward", spec(ring, 1024, mesh.Zigzag), both[:1], 2 * time.Second},
		{"1x1024", spec(ring, 1024, mesh.Zigzag), both, 5 * time.Second},
	}
}

// watched is a plan of some passes alone, which notes what the heap holds while its programs are
// asked for.
type watched struct {
	*plan.Plan
	passes []plan.Pass
	every  int    // ranks between looks; 0: none
	held   uint64 // most bytes seen alive
}

func (w *watched) Passes() []plan.Pass { return w.passes }

func (w *watched) Program(pass plan.Pass, rank int) (*plan.Program, error) {
	if w.every > 0 && rank%w.every == w.every-1 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		w.held = max(w.held, m.HeapAlloc)
	}
	return w.Plan.Program(pass, rank)
}

// prove builds the plan, every program of it, and proves it. It gives the bytes that were alive, if
// it is to look.
func (x *big) prove(t testing.TB, every int) (held uint64) {
	t.Helper()
	p, err := plan.New(x.spec)
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{Plan: p, passes: x.passes, every: every}
	if err := mustVerify(t, w).Err(); err != nil {
		t.Fatal(err)
	}
	return w.held
}

// BenchmarkBuildVerifyBig reports the CPU time of all threads, the garbage collector's too.
func BenchmarkBuildVerifyBig(b *testing.B) {
	for _, x := range bigPlans() {
		b.Run(x.name, func(b *testing.B) {
			b.ReportAllocs()
			before := cpuTime()
			for b.Loop() {
				x.prove(b, 0)
			}
			b.ReportMetric((cpuTime()-before).Seconds()/float64(b.N), "cpu-s/op")
		})
	}
}

// maxHeld is what may be alive while a big plan is proven: the header, tables of it, the programs
// of one rank. The whole plan of 1x1024 has a hundred times as much.
const maxHeld = 32 << 20

// TestBuildVerifyBudget: CPU time and memory of building and proving, on a machine that is known.
func TestBuildVerifyBudget(t *testing.T) {
	if os.Getenv("KVLOOM_SPEED") == "" {
		t.Skip("measures CPU time: KVLOOM_SPEED=1 go test ./plan -run TestBuildVerifyBudget -v")
	}
	for _, x := range bigPlans() {
		least := time.Duration(0)
		for range 3 {
			runtime.GC()
			before := cpuTime()
			x.prove(t, 0)
			if took := cpuTime() - before; least == 0 || took < least {
				least = took
			}
		}
		held := x.prove(t, x.spec.Mesh.Ranks()/4)
		t.Logf("%s: %.2f s of CPU time, budget %v; %.1f MB alive", x.name, least.Seconds(),
			x.budget, float64(held)/1e6)
		if least > x.budget {
			t.Errorf("%s: %v of CPU time, budget %v", x.name, least, x.budget)
		}
		if held > maxHeld {
			t.Errorf("%s: %d bytes alive, at most %d are expected", x.name, held, maxHeld)
		}
	}
}
