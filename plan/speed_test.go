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
		{"1x1024", spec(ring, 1024, mesh.Zigzag), both, 0},
	}
}

// onePass is a plan of some passes alone.
type onePass struct {
	*plan.Plan
	passes []plan.Pass
}

func (p onePass) Passes() []plan.Pass { return p.passes }

// prove builds the plan, every program of it, and proves it.
func (x *big) prove(t testing.TB) {
	t.Helper()
	p, err := plan.New(x.spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := mustVerify(t, onePass{p, x.passes}).Err(); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkBuildVerifyBig reports the CPU time of all threads, the garbage collector's too.
func BenchmarkBuildVerifyBig(b *testing.B) {
	for _, x := range bigPlans() {
		b.Run(x.name, func(b *testing.B) {
			b.ReportAllocs()
			before := cpuTime()
			for b.Loop() {
				x.prove(b)
			}
			b.ReportMetric((cpuTime()-before).Seconds()/float64(b.N), "cpu-s/op")
		})
	}
}

// TestBuildVerifyBudget is the budget as a test, for a machine that is known: KVLOOM_SPEED=1.
func TestBuildVerifyBudget(t *testing.T) {
	if os.Getenv("KVLOOM_SPEED") == "" {
		t.Skip("measures CPU time: KVLOOM_SPEED=1 go test ./plan -run TestBuildVerifyBudget -v")
	}
	if cpuTime() == 0 {
		t.Skip("this system does not tell CPU time")
	}
	for _, x := range bigPlans() {
		if x.budget == 0 {
			continue
		}
		least := time.Duration(0)
		for range 3 {
			runtime.GC()
			before := cpuTime()
			x.prove(t)
			if took := cpuTime() - before; least == 0 || took < least {
				least = took
			}
		}
		t.Logf("%s: %.2f s of CPU time, budget %v", x.name, least.Seconds(), x.budget)
		if least > x.budget {
			t.Errorf("%s: %v of CPU time, budget %v", x.name, least, x.budget)
		}
	}
}
