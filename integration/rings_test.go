package integration

import (
	"testing"

	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/ringbus"
	"github.com/kvloom/kvloom/sim"
)

// TestDoubleRingF64: every inner window, both ways of dKV, one and two lanes, both placements: the
// oracle's numbers within 1e-12.
func TestDoubleRingF64(t *testing.T) {
	refs := references{}
	for c := 2; c <= 16; c++ {
		for w := 1; w <= c; w++ {
			if c%w != 0 {
				continue
			}
			for i := range 32 {
				p := problem{
					mesh: mesh.Mesh{
						Head: 1 + i>>3&1, Ring: c, Placement: mesh.Placement(i & 1)},
					layout: mesh.Basic(i >> 4 & 1),
					tokens: []int{97, 31, 5}[(c+w+i)%3], heads: 8, kvHeads: 2, dim: 8,
					full: (w+i)%3 == 0,
					ring: ringbus.Ring{
						Inner: w, DKV: ringbus.Window(i >> 1 & 1), Lanes: 1 + i>>2&1},
				}
				if testing.Short() && (c+w+i)%4 != 0 {
					continue
				}
				if (c+w+i)%8 == 0 {
					within(t, p.String(), live[float64](t, p), refs.of(p), 1e-12, 1e-12)
					continue
				}
				s, _ := simulate[float64](t, p, sim.Config{
					Seed: uint64(i), Noise: sim.Noise{Mail: 5000, Transfer: 9000, Op: 5000}})
				within(t, p.String(), s.results(t), refs.of(p), 1e-12, 1e-12)
				s.store.Close()
			}
		}
	}
}

// TestDoubleRingF32: the gate of attend --check on meshes that other systems get wrong.
func TestDoubleRingF32(t *testing.T) {
	for _, tc := range [][3]int{{1, 8, 2}, {1, 8, 4}, {2, 8, 4}, {1, 16, 4}, {2, 6, 3}} {
		p := problem{mesh: mesh.Mesh{Head: tc[0], Ring: tc[1]}, tokens: 512, heads: 8, kvHeads: 2,
			dim: 16, ring: ringbus.Ring{Inner: tc[2]}}
		within(t, p.String(), live[float32](t, p), reference[float32](p), 1e-5, 1e-5)
	}
}
