package integration

import (
	"testing"

	kvloom "github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/ringbus"
)

// TestMemoryOfManyRounds: the gradients of a step are given up when the next one's forward pass
// begins, so that a training loop holds no more than its first step: what the plan says.
func TestMemoryOfManyRounds(t *testing.T) {
	const tokens = 44
	m := mesh.Mesh{Head: 1, Ring: 4}
	s, err := kvloom.Open[float32](t.Context(), kvloom.Config{Mesh: m,
		Layout: mesh.Striped{Size: 2},
		Ring:   ringbus.PassQ{Ring: ringbus.Ring{Lanes: 2}},
		Problems: []kvloom.Problem{{Tokens: tokens, Heads: 4, KVHeads: 2, Dim: 1, VDim: 64,
			Scale: 1, Mask: attn.Causal(tokens, tokens), ElemBytes: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	defer closeSession(t, s)
	q, k, v := make([]float32, tokens*4), make([]float32, tokens*2), make([]float32, tokens*2*64)
	in := kvloom.Inputs[float32]{Q: q, K: k, V: v, DO: make([]float32, tokens*4*64)}
	if err := s.Load(0, 0, in); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.Run(t.Context(), both...); err != nil {
			t.Fatal(err)
		}
	}
	for r := range m.Ranks() {
		var programs [2]*plan.Program
		for _, pass := range s.Plan(0).Passes() {
			if programs[pass], err = s.Plan(0).Program(pass, r); err != nil {
				t.Fatal(err)
			}
		}
		want := plan.PeakBytes(programs[0], programs[1])
		if got := s.Figures(0, r).PeakBytes; got != want {
			t.Errorf("rank %d held %d bytes over three steps, the plan says %d", r, got, want)
		}
	}
}
