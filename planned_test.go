package kvloom

import (
	"errors"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
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
	plans := map[string]*Attention[float32]{}
	want := func(name string, p Problem, kept bool) {
		t.Helper()
		a, err := s.Attention(p)
		if err != nil {
			t.Fatal(err)
		}
		if old := plans[name]; (old != nil && old.plan == a.plan) != kept {
			t.Errorf("%s: kept is %v, want %v", name, !kept, kept)
		}
		a.Close()
		plans[name] = a
	}
	other := batch(8)
	other.Layout = mesh.Contiguous
	passq := batch(8)
	passq.Ring = ringbus.PassQ{}
	want("8", batch(8), false)
	want("8", batch(8), true)
	want("8", other, false)
	want("8", passq, false)
	want("16", batch(16), false) // three are kept: not the first "8"
	want("16", batch(16), true)
	plans["8"] = nil
	want("8", batch(8), false)
	if n := len(s.layers); n != 1 {
		t.Errorf("closed attentions leave %d places, want 1", n)
	}
}

// TestPreparedPlansAreThere: plans are built ahead while rounds run, and what is wrong with one is
// told when it is asked for.
func TestPreparedPlansAreThere(t *testing.T) {
	cfg := testConfig(mesh.Mesh{Head: 1, Ring: 4})
	s := open(t, cfg)
	for step := range 6 {
		next := batch(4 + step)
		if err := s.Prepare(next); err != nil {
			t.Fatal(err)
		}
		if err := s.Run(t.Context(), forwardBackward...); err != nil {
			t.Fatal(err)
		}
		a, err := s.Attention(next)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.plan.Header().Mask; len(got) != len(next.Mask) {
			t.Fatalf("step %d: the plan has %d documents, want %d", step, len(got), len(next.Mask))
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

// TestPrepareHasALimit: plans that nobody asks for are few, and a closed session makes none.
func TestPrepareHasALimit(t *testing.T) {
	s := open(t, testConfig(mesh.Mesh{Head: 1, Ring: 2}))
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		err = s.Prepare(batch(1 + n))
	}
	if n != MaxAhead+1 || !strings.Contains(err.Error(), "the limit is 8") {
		t.Errorf("the %dth plan ahead: %v", n, err)
	}
	if err := s.Prepare(batch(1)); err != nil {
		t.Errorf("a plan that is there: %v", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Prepare(batch(63)); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed session: %v", err)
	}
}

// TestClosedProblemIsRefused: a round of a problem that was given up is an error, not a fault.
func TestClosedProblemIsRefused(t *testing.T) {
	s := open(t, testConfig(mesh.Mesh{Head: 1, Ring: 2}))
	a, err := s.Attention(batch(8))
	if err != nil {
		t.Fatal(err)
	}
	n := a.problem
	a.Close()
	a.Close()
	err = s.Run(t.Context(), Round{Problem: n})
	if err == nil || !strings.Contains(err.Error(), "was closed") {
		t.Errorf("a round of a closed problem: %v", err)
	}
}
