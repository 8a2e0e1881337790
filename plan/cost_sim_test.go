package plan_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/ringbus"
)

// costCase is a layer on a cluster.
type costCase struct {
	name   string
	top    *plan.Topology
	mesh   mesh.Mesh
	ring   plan.RingAxis
	change func(s *plan.Spec)
}

func (c costCase) spec() plan.Spec {
	s := layer(c.mesh, c.ring)
	if c.change != nil {
		c.change(&s)
	}
	return s
}

func costCases() []costCase {
	slow, lame := cluster(), cluster()
	slow.Remote.BytesPerS, slow.Remote.LatencyNanos = 5e9, 50_000
	lame.Ranks[5] = plan.RankModel{Speed: 0.6}
	ring, both := mesh.Mesh{Head: 1, Ring: 16}, mesh.Mesh{Head: 4, Ring: 4}
	late := mesh.Mesh{Head: 2, Ring: 8, Placement: mesh.ContextFirst}
	q := ringbus.RotateQ
	return []costCase{
		{"ring", cluster(), ring, ringbus.Ring{}, nil},
		{"ring, slow links", slow, ring, ringbus.Ring{}, nil},
		{"ring, a slow rank", lame, ring, ringbus.Ring{}, nil},
		{"double ring", cluster(), ring, ringbus.Ring{Inner: 8}, nil},
		{"double ring, slow links", slow, ring, ringbus.Ring{Inner: 8}, nil},
		{"double ring, sums of windows", slow, ring,
			ringbus.Ring{Inner: 4, DKV: ringbus.Local}, nil},
		{"two lanes", slow, ring, ringbus.Ring{Lanes: 2}, nil},
		{"both axes", cluster(), both, ringbus.Ring{}, nil},
		{"both axes, context first", slow, late, ringbus.Ring{Inner: 4}, nil},
		{"exchange alone", slow, mesh.Mesh{Head: 16, Ring: 1}, ringbus.Ring{}, nil},
		{"one rank", cluster(), mesh.Mesh{Head: 1, Ring: 1}, ringbus.Ring{}, nil},
		{"rotate q", cluster(), ring, ringbus.Ring{Rotate: q}, nil},
		{"rotate q, slow links", slow, ring, ringbus.Ring{Rotate: q}, nil},
		{"rotate q, double ring, two lanes", slow, ring,
			ringbus.Ring{Rotate: q, Inner: 4, Lanes: 2}, nil},
		{"rotate q, both axes", cluster(), late, ringbus.Ring{Rotate: q}, nil},
		{"all-gather", cluster(), ring, ringbus.AllGather{}, nil},
		{"all-gather, slow links", slow, ring, ringbus.AllGather{}, nil},
		{"halo, a window", slow, ring, ringbus.Halo{}, windowed},
		{"halo, documents", cluster(), both, ringbus.Halo{}, inDocuments},
		{"pass-q", cluster(), ring, ringbus.PassQ{}, nil},
		{"pass-q, slow links", slow, ring, ringbus.PassQ{}, nil},
		{"pass-q, two lanes", slow, both, ringbus.PassQ{Ring: ringbus.Ring{Lanes: 2}}, nil},
		{"dkv as bf16", slow, ring, ringbus.Ring{}, narrowed},
		{"dkv as bf16, windows", slow, ring, ringbus.Ring{Inner: 4, DKV: ringbus.Local}, narrowed},
		{"head chunks", cluster(), both, ringbus.Ring{}, inChunks},
		{"head chunks, slow links", slow, late, ringbus.Ring{}, inChunks},
		{"documents", cluster(), ring, ringbus.Ring{}, inDocuments},
	}
}

func narrowed(s *plan.Spec) { s.Options.NarrowDKV = true }
func inChunks(s *plan.Spec) { s.Options.HeadChunks = 4 }

func windowed(s *plan.Spec) {
	n := s.Shape.QTokens
	s.Shape.Mask = attn.Mask{{Q1: n, K1: n, Lo: -6000}}
	s.Layout = mesh.Contiguous
}

func inDocuments(s *plan.Spec) {
	var starts []int
	s.Shape.Mask, starts = packed(7, s.Shape.QTokens)
	s.Layout = mesh.DocZigzag{Starts: starts}
}

// TestCostAgreesWithSim: the static evaluation gives the simulator's makespan within 2%, with
// links that hide and links that do not, of every scheme.
func TestCostAgreesWithSim(t *testing.T) {
	both := []plan.Pass{plan.Forward, plan.Backward}
	seen := map[string]bool{}
	for _, tc := range costCases() {
		t.Run(tc.name, func(t *testing.T) {
			p := mustPlan(t, tc.spec())
			for _, passes := range [][]plan.Pass{both[:1], both[1:], both} {
				got := mustCost(t, p, tc.top, passes...).Nanos
				want := simNanos(t, p, tc.top, passes...)
				if off := math.Abs(float64(got)/float64(want) - 1); off > 0.02 {
					t.Errorf("%v: %d ns, the simulator says %d: %.1f%% off", passes, got, want,
						100*off)
				} else {
					t.Logf("%v: %d ns, %.2f%% off", passes, got, 100*off)
				}
			}
		})
		for _, s := range ringbus.Schemes() {
			seen[s.Name] = seen[s.Name] || sameScheme(s.New(ringbus.Ring{}), tc.ring)
		}
	}
	for _, s := range ringbus.Schemes() {
		if !seen[s.Name] {
			t.Errorf("scheme %s is not compared with the simulator", s.Name)
		}
	}
}

// sameScheme tells whether two axes are of one scheme, whatever else they choose.
func sameScheme(a, b plan.RingAxis) bool { return fmt.Sprintf("%T", a) == fmt.Sprintf("%T", b) }
