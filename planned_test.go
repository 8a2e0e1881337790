package kvloom

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/ringbus"
)

// batch is a problem of packed documents of one length.
func batch(length int) Problem {
	var mask attn.Mask
	for at := 0; at < testTokens; at += length {
		end := min(testTokens, at+length)
		mask = append(mask, attn.Slice{Q0: at, Q1: end, K0: at, K1: end, Lo: -attn.Unbounded})
	}
	return Problem{Tokens: testTokens, Heads: 4, KVHeads: 2, Dim: 8, Scale: 0.5, Mask: mask}
}

// TestPlansAreKept: an equal problem finds the plan that was made, another mask, layout or scheme
// does not, and beyond the limit the one used longest ago goes.
func TestPlansAreKept(t *testing.T) {
	s, err := Open[float32](t.Context(), Config{Mesh: mesh.Mesh{Head: 1, Ring: 2}, Plans: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	plans := map[string]*plan.Plan{}
	want := func(name string, p Problem, kept bool) {
		t.Helper()
		a, err := s.Attention(p)
		if err != nil {
			t.Fatal(err)
		}
		if old := plans[name]; (old == a.plan) != kept {
			t.Errorf("%s: kept is %v, want %v", name, !kept, kept)
		}
		a.Close()
		plans[name] = a.plan
	}
	other := batch(8)
	other.Layout = mesh.Contiguous
	passq := batch(8)
	passq.Ring = ringbus.PassQ{}
	want("8", batch(8), false)
	want("8", batch(8), true)
	want("8 contiguous", other, false)
	want("8 passq", passq, false)
	want("8", batch(8), true)
	want("16", batch(16), false) // three are kept: not 8 contiguous
	want("16", batch(16), true)
	want("8", batch(8), true)
	want("8 passq", passq, true)
	want("8 contiguous", other, false)
	if n := len(s.layers); n != 1 {
		t.Errorf("closed attentions leave %d places, want 1", n)
	}
}

// TestPlanKeyTellsProblemsApart: whatever a plan follows from is in its key, also what New would
// refuse: a plan that was kept must not stand for another problem.
func TestPlanKeyTellsProblemsApart(t *testing.T) {
	base := func() plan.Spec {
		cfg := Config{Mesh: mesh.Mesh{Head: 2, Ring: 4}, Problems: []Problem{batch(8)}}
		return cfg.spec(0)
	}
	seen := map[planKey]string{}
	for name, change := range map[string]func(*plan.Spec){
		"nothing":     func(*plan.Spec) {},
		"tokens":      func(s *plan.Spec) { s.Shape.QTokens++ },
		"key tokens":  func(s *plan.Spec) { s.Shape.KTokens++ },
		"heads":       func(s *plan.Spec) { s.Shape.QHeads *= 2 },
		"kv heads":    func(s *plan.Spec) { s.Shape.KHeads = 1 },
		"dim":         func(s *plan.Spec) { s.Shape.Dim++ },
		"v dim":       func(s *plan.Spec) { s.Shape.VDim++ },
		"elem":        func(s *plan.Spec) { s.Shape.ElemBytes = 2 },
		"acc":         func(s *plan.Spec) { s.Shape.AccBytes = 8 },
		"scale":       func(s *plan.Spec) { s.Shape.Scale *= 2 },
		"cap":         func(s *plan.Spec) { s.Shape.SoftCap = 5 },
		"sink":        func(s *plan.Spec) { s.Shape.Sink = true },
		"mask":        func(s *plan.Spec) { s.Shape.Mask = s.Shape.Mask[1:] },
		"placement":   func(s *plan.Spec) { s.Mesh.Placement = mesh.ContextFirst },
		"mesh":        func(s *plan.Spec) { s.Mesh = mesh.Mesh{Head: 4, Ring: 2} },
		"layout":      func(s *plan.Spec) { s.Layout = mesh.Contiguous },
		"key layout":  func(s *plan.Spec) { s.KeyLayout = mesh.Striped{Size: 3} },
		"kv slots":    func(s *plan.Spec) { s.Options.KVSlots = 5 },
		"head chunks": func(s *plan.Spec) { s.Options.HeadChunks = 2 },
		"narrow":      func(s *plan.Spec) { s.Options.NarrowDKV = true },
		"scheme":      func(s *plan.Spec) { s.Ring = ringbus.AllGather{} },
		"window":      func(s *plan.Spec) { s.Ring = ringbus.Ring{Inner: 2} },
		"refused": func(s *plan.Spec) {
			s.Ring = ringbus.AllGather{Ring: ringbus.Ring{Lanes: 2}}
		},
		"heads axis": func(s *plan.Spec) { s.Heads = nil },
	} {
		s := base()
		change(&s)
		key := keyOf(&s)
		if other, ok := seen[key]; ok {
			t.Errorf("%s and %s have one key", name, other)
		}
		seen[key] = name
	}
}

// TestPreparedPlansAreThere: plans are built ahead while rounds run, which hold the session, and
// what is wrong with one is told when it is asked for.
func TestPreparedPlansAreThere(t *testing.T) {
	s := open(t, testConfig(mesh.Mesh{Head: 1, Ring: 4}))
	for step := range 6 {
		next := batch(4 + step)
		s.mu.Lock() // as Run does from its beginning to its end
		err := s.Prepare(next)
		s.cache.build.Wait()
		s.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		next.widths(4)
		spec := (&Config{Mesh: s.cfg.Mesh, Problems: []Problem{next}}).spec(0)
		ahead := s.cache.plans[keyOf(&spec)]
		if ahead == nil || ahead.layer == nil {
			t.Fatalf("step %d: the plan is not there: %+v", step, ahead)
		}
		a, err := s.Attention(next)
		if err != nil {
			t.Fatal(err)
		}
		if a.plan != ahead.layer.plan {
			t.Fatalf("step %d: another plan was built", step)
		}
		if err := s.Run(t.Context(), forwardBackward...); err != nil {
			t.Fatal(err)
		}
		a.Close()
	}
	bad := batch(8)
	bad.Layout = mesh.Striped{}
	if err := s.Prepare(bad); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it is built anew
		if _, err := s.Attention(bad); err == nil || !strings.Contains(err.Error(), "strip") {
			t.Errorf("a stripe of no tokens: %v", err)
		}
	}
}

// TestPrepareHasALimit: plans that nobody asks for are few; while as many are being made no more
// are begun, and when they are made the first goes. A closed session makes none.
func TestPrepareHasALimit(t *testing.T) {
	s := open(t, testConfig(mesh.Mesh{Head: 1, Ring: 2}))
	own := len(s.cache.plans)
	s.cache.turn <- struct{}{} // nothing is made meanwhile
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		err = s.Prepare(batch(1 + n))
	}
	if n != MaxAhead+1 || !strings.Contains(err.Error(), "the limit is 8") {
		t.Errorf("the %dth plan ahead: %v", n, err)
	}
	if err := s.Prepare(batch(1)); err != nil {
		t.Errorf("a plan that is on its way: %v", err)
	}
	<-s.cache.turn
	s.cache.build.Wait()
	for n := range 20 {
		if err := s.Prepare(batch(30 + n)); err != nil {
			t.Errorf("the %dth plan when others are made: %v", n, err)
		}
		s.cache.build.Wait()
		if got := len(s.cache.plans); got > own+MaxAhead {
			t.Fatalf("%d plans are ahead, the limit is %d", got-own, MaxAhead)
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Prepare(batch(63)); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed session: %v", err)
	}
}

// TestClosedProblemIsRefused: what asks for a problem that was given up gets an error, not a fault,
// and a state of it runs nothing, also when another problem has taken its place.
func TestClosedProblemIsRefused(t *testing.T) {
	s := open(t, testConfig(mesh.Mesh{Head: 1, Ring: 2}))
	a, err := s.Attention(batch(8))
	if err != nil {
		t.Fatal(err)
	}
	n, old := a.problem, a.Begin()
	a.Close()
	a.Close()
	_, results := s.Results(n, 1, false)
	for name, err := range map[string]error{
		"Run":     s.Run(t.Context(), Round{Problem: n}),
		"Load":    s.Load(n, 1, testInputs()),
		"Results": results,
		"beyond":  s.Load(99, 1, testInputs()),
	} {
		if err == nil || !strings.Contains(err.Error(), "problem") {
			t.Errorf("%s of a closed problem: %v", name, err)
		}
	}
	if s.Plan(n) != nil || s.PlanHash(n) != (plan.Hash{}) || s.Figures(n, 0).Tokens != 0 {
		t.Error("a closed problem has a plan")
	}
	if _, err := s.Attention(batch(16)); err != nil {
		t.Fatal(err)
	}
	in := make([]QKV[float32], s.Ranks())
	if _, err := old.Forward(t.Context(), in); !errors.Is(err, errClosedLayer) {
		t.Errorf("a state of a closed attention: %v", err)
	}
}

// TestPassesOfOneProblem: the backward round of another problem with blocks of the same shapes is
// refused, as its numbers would be wrong.
func TestPassesOfOneProblem(t *testing.T) {
	cfg := testConfig(mesh.Mesh{Head: 1, Ring: 2})
	full := cfg.Problems[0]
	full.Mask = attn.Full(testTokens, testTokens)
	cfg.Problems = append(cfg.Problems, full)
	s := open(t, cfg)
	err := s.Run(t.Context(), Round{Pass: plan.Forward}, Round{Problem: 1, Pass: plan.Backward})
	if err == nil || !strings.Contains(err.Error(), "another problem") {
		t.Errorf("backward of another problem: %v", err)
	}
	if err := s.Run(t.Context(), forwardBackward...); err != nil {
		t.Error(err)
	}
}

// TestSinksAreCheckedWhereTheyComeIn: bad logits are refused at once, and new ones need a new
// forward pass.
func TestSinksAreCheckedWhereTheyComeIn(t *testing.T) {
	s := open(t, testConfig(mesh.Mesh{Head: 1, Ring: 1}))
	p := batch(8)
	p.Sink = true
	a, err := s.Attention(p)
	if err != nil {
		t.Fatal(err)
	}
	st := a.Begin()
	in := []QKV[float32]{{Q: make([]float32, testTokens*4*8), K: make([]float32, testTokens*2*8),
		V: make([]float32, testTokens*2*8)}}
	if _, err := st.Forward(t.Context(), in); err == nil {
		t.Error("a forward pass without the logits is run")
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, bad := range [][]float32{{0, nan, 0, 0}, {0, 0, 0, inf}, {0}} {
		if err := st.SetSink(bad); err == nil {
			t.Errorf("sinks %v are taken", bad)
		}
	}
	good := []float32{0, -inf, 1, 2}
	do := [][]float32{make([]float32, testTokens*4*8)}
	for range 2 {
		if err := st.SetSink(good); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Backward(t.Context(), do); !errors.Is(err, ErrEpoch) {
			t.Errorf("backward after new sinks: %v", err)
		}
		if _, err := st.Forward(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Backward(t.Context(), do); err != nil {
			t.Error(err)
		}
	}
}
