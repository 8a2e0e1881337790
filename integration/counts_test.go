package integration

import (
	"testing"

	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/sim"
	"github.com/kvloom/kvloom/transport"
)

// TestTrafficEqualsPlan: what the links count is what the plan says: C-1 KV blocks forward, C-1 KV
// and C dKV backward (none when C = 1), and the pieces of the exchanges.
func TestTrafficEqualsPlan(t *testing.T) {
	for _, p := range []problem{
		{mesh: mesh.Mesh{Head: 1, Ring: 1}, tokens: 64, heads: 8, kvHeads: 8, dim: 8},
		{mesh: mesh.Mesh{Head: 1, Ring: 8}, tokens: 64, heads: 8, kvHeads: 2, dim: 8},
		{mesh: mesh.Mesh{Head: 8, Ring: 1}, tokens: 64, heads: 8, kvHeads: 1, dim: 8},
		{mesh: mesh.Mesh{Head: 2, Ring: 4}, tokens: 97, heads: 8, kvHeads: 2, dim: 8, full: true},
		{mesh: mesh.Mesh{Head: 3, Ring: 5}, tokens: 97, heads: 5, kvHeads: 5, dim: 8,
			layout: mesh.Contiguous},
	} {
		s := session[float64](t, p, config[float64](p))
		if err := s.Run(t.Context(), both...); err != nil {
			t.Fatal(err)
		}
		pl := s.Plan(0)
		simd, _ := simulate[float64](t, p, sim.Config{})
		for r := range p.mesh.Ranks() {
			var want [plan.NumClasses]transport.Traffic
			for _, pass := range pl.Passes() {
				prog, err := pl.Program(pass, r)
				if err != nil {
					t.Fatal(err)
				}
				n := plan.Count(pl.Header(), prog)
				for c := range want {
					want[c].Blocks += int64(n.Sends[c])
					want[c].Bytes += n.Bytes[c]
				}
			}
			ring := int64(p.mesh.Ring)
			if want[plan.KVForward].Blocks != ring-1 || want[plan.KVBackward].Blocks != ring-1 {
				t.Errorf("%v rank %d: the plan has %v KV blocks, want C-1", p, r, want)
			}
			wantDKV := ring
			if ring == 1 {
				wantDKV = 0
			}
			if dkv := want[plan.DKVHops].Blocks; dkv != wantDKV {
				t.Errorf("%v rank %d: the plan has %d dKV blocks", p, r, dkv)
			}
			f := s.Figures(0, r)
			for c := range plan.NumClasses {
				live := transport.Traffic{Blocks: f.Blocks[c], Bytes: f.Bytes[c]}
				if live != want[c] {
					t.Errorf("%v rank %d: links counted %+v of %v live, the plan says %+v",
						p, r, live, c, want[c])
				}
				if got := simd.meter.Sent(r, int(c)); got != want[c] {
					t.Errorf("%v rank %d: links counted %+v of %v in sim, the plan says %+v",
						p, r, got, c, want[c])
				}
			}
		}
		simd.store.Close()
		closeSession(t, s)
	}
}

// TestImbalance: zigzag gives every rank the same causal work, contiguous (2C-1)/C.
func TestImbalance(t *testing.T) {
	for _, c := range []int{2, 4, 8, 16} {
		p := problem{mesh: mesh.Mesh{Head: 2, Ring: c}, tokens: 4096, heads: 8, kvHeads: 8, dim: 8}
		if got := imbalance(t, p); got > 1.01 {
			t.Errorf("%v: imbalance %.4f, want at most 1.01", p, got)
		}
		p.layout = mesh.Contiguous
		want := float64(2*c-1) / float64(c)
		if got := imbalance(t, p); got < 0.99*want || got > 1.01*want {
			t.Errorf("%v: imbalance %.4f, want %.4f", p, got, want)
		}
	}
}

func imbalance(t *testing.T, p problem) float64 {
	t.Helper()
	cfg := config[float32](p)
	pl, err := cfg.Plan(0)
	if err != nil {
		t.Fatal(err)
	}
	most, sum := int64(0), int64(0)
	for r := range p.mesh.Ranks() {
		prog, err := pl.Program(plan.Forward, r)
		if err != nil {
			t.Fatal(err)
		}
		f := plan.Count(pl.Header(), prog).Flops
		most, sum = max(most, f), sum+f
	}
	return float64(most) * float64(p.mesh.Ranks()) / float64(sum)
}

// TestMemory: what a rank holds is counted where memory is taken, equals the plan's figure, and
// shrinks with the mesh: tensors are really sharded.
func TestMemory(t *testing.T) {
	const heads, dim = 8, 64
	tokens := 4096
	if testing.Short() {
		tokens = 512
	}
	tensor := float64(tokens * heads * dim * 4)
	peaks := map[string]float64{}
	for _, tc := range []struct {
		name     string
		m        mesh.Mesh
		backward bool
		bound    float64 // in sixteenths of a tensor; 0 none
	}{
		{"1x4 forward", mesh.Mesh{Head: 1, Ring: 4}, false, 0},
		{"1x4 backward", mesh.Mesh{Head: 1, Ring: 4}, true, 0},
		{"1x16 forward", mesh.Mesh{Head: 1, Ring: 16}, false, 8.1},
		{"1x16 backward", mesh.Mesh{Head: 1, Ring: 16}, true, 20.2},
		{"2x8 forward", mesh.Mesh{Head: 2, Ring: 8}, false, 15.1},
		{"2x8 backward", mesh.Mesh{Head: 2, Ring: 8}, true, 0},
	} {
		p := problem{mesh: tc.m, tokens: tokens, heads: heads, kvHeads: heads, dim: dim}
		peak := float64(measuredPeak(t, p, tc.backward))
		peaks[tc.name] = peak
		t.Logf("%s: %.3f/16 of a tensor", tc.name, peak/tensor*16)
		if tc.bound > 0 && peak/tensor*16 > tc.bound {
			t.Errorf("%s: a rank holds %.3f/16 of a tensor, the bound is %v/16", tc.name,
				peak/tensor*16, tc.bound)
		}
	}
	for _, pass := range []string{"forward", "backward"} {
		if ratio := peaks["1x4 "+pass] / peaks["1x16 "+pass]; ratio < 3.6 || ratio > 4.4 {
			t.Errorf("%s: 1x4 holds %.2f times 1x16, want 4 within 10%%", pass, ratio)
		}
	}
}

// measuredPeak runs the problem and gives the largest peak over ranks, each equal to the plan's.
func measuredPeak(t *testing.T, p problem, backward bool) int64 {
	t.Helper()
	s := session[float32](t, p, config[float32](p))
	defer closeSession(t, s)
	rounds := both[:1]
	if backward {
		rounds = both
	} else {
		s.Forget(0)
		in := inputs[float32](p)
		in.DO = nil
		if err := s.Load(0, 0, in); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Run(t.Context(), rounds...); err != nil {
		t.Fatal(err)
	}
	most := int64(0)
	for r := range p.mesh.Ranks() {
		var progs [2]*plan.Program
		for i := range rounds {
			prog, err := s.Plan(0).Program(plan.Pass(i), r)
			if err != nil {
				t.Fatal(err)
			}
			progs[i] = prog
		}
		want, got := plan.PeakBytes(progs[0], progs[1]), s.Figures(0, r).PeakBytes
		if got != want {
			t.Errorf("%v rank %d: holds %d bytes, the plan says %d", p, r, got, want)
		}
		most = max(most, got)
	}
	return most
}
