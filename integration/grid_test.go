package integration

import (
	"flag"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	kvloom "github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/ringbus"
	"github.com/kvloom/kvloom/sim"
)

// The whole grid, some 8,000 problems:
//
//	go test ./integration -run Grid -args -grid
var fullGrid = flag.Bool("grid", false, "run every problem of the f64 grid, not a draw")

// parallel gives the oracle all processors.
func parallel(n int, do func(int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wg.Wait()
}

// grid is every problem of the f64 promise: all meshes of up to 16 ranks, both placements and
// layouts, both masks, odd lengths, and heads that split, slice, straddle and replicate.
func grid() []problem {
	var out []problem
	for h := 1; h <= 16; h++ {
		for c := 1; h*c <= 16; c++ {
			for _, heads := range [][2]int{{8, 8}, {8, 2}, {8, 1}, {6, 3}, {5, 5}} {
				if h > heads[0] {
					continue
				}
				for _, tokens := range []int{1, 2, 5, 31, 97} {
					for i := range 8 {
						out = append(out, problem{
							mesh:   mesh.Mesh{Head: h, Ring: c, Placement: mesh.Placement(i & 1)},
							layout: mesh.Basic(i >> 1 & 1), full: i>>2 == 1, tokens: tokens,
							heads: heads[0], kvHeads: heads[1], dim: 8,
						})
					}
				}
			}
		}
	}
	return out
}

// drawn is a fixed draw of the grid, or all of it.
func drawn(n int) []problem {
	all := grid()
	if *fullGrid {
		return all
	}
	if testing.Short() {
		n /= 4
	}
	r := rand.New(rand.NewPCG(1, 2))
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:n]
}

// references caches the oracle: it does not depend on mesh, placement or layout.
type references map[problem]kvloom.Outputs[float64]

func (c references) of(p problem) kvloom.Outputs[float64] {
	key := p
	key.mesh, key.layout, key.ring = mesh.Mesh{}, nil, ringbus.Ring{}
	ref, ok := c[key]
	if !ok {
		ref = reference[float64](p)
		c[key] = ref
	}
	return ref
}

func TestGridF64Live(t *testing.T) {
	refs := references{}
	for _, p := range drawn(400) {
		within(t, p.String(), live[float64](t, p), refs.of(p), 1e-12, 1e-12)
	}
}

func TestGridF64Simulated(t *testing.T) {
	refs := references{}
	for i, p := range drawn(400) {
		s, _ := simulate[float64](t, p, sim.Config{
			Seed: uint64(i), Noise: sim.Noise{Mail: 5000, Transfer: 5000, Op: 5000}})
		within(t, p.String(), s.results(t), refs.of(p), 1e-12, 1e-12)
		s.store.Close()
	}
}

// TestDegreeOneF32 is the kernels' own accuracy: out and lse within 1e-6, gradients within 5e-6.
func TestDegreeOneF32(t *testing.T) {
	for _, tokens := range []int{97, 512, 1024, 4097} {
		for _, full := range []bool{false, true} {
			if tokens > 1024 && (full || testing.Short()) {
				continue // the oracle is slow
			}
			p := problem{mesh: mesh.Mesh{Head: 1, Ring: 1}, tokens: tokens, heads: 4, kvHeads: 2,
				dim: 16, full: full}
			within(t, p.String(), live[float32](t, p), reference[float32](p), 1e-6, 5e-6)
		}
	}
}

// TestMeshesF32 is the gate of attend --check on the meshes of the promise.
func TestMeshesF32(t *testing.T) {
	meshes := []mesh.Mesh{{Head: 1, Ring: 8}, {Head: 8, Ring: 1}, {Head: 2, Ring: 4},
		{Head: 4, Ring: 2}, {Head: 3, Ring: 5}, {Head: 5, Ring: 2}}
	lengths := []int{512, 4097}
	if testing.Short() {
		lengths = lengths[:1]
	}
	for _, tokens := range lengths {
		p := problem{tokens: tokens, heads: 8, kvHeads: 2, dim: 16}
		ref := reference[float32](p)
		for _, m := range meshes {
			p.mesh = m
			within(t, p.String(), live[float32](t, p), ref, 1e-5, 1e-5)
		}
	}
}
