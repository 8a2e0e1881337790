package sim_test

import (
	"fmt"
	"testing"

	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/sim"
)

// BenchmarkThousandRanks runs a forward and a backward round of 8x128 ranks without arithmetic, on
// a modelled cluster in calm and in windy weather; the plan is built once. Events are virtual,
// seconds real.
func BenchmarkThousandRanks(b *testing.B) {
	s := spec(mesh.Mesh{Head: 8, Ring: 128}, 2048)
	book := book(b, s, plan.Forward, plan.Backward)
	for _, seed := range []uint64{0, 1} {
		b.Run(fmt.Sprintf("seed=%d", seed), func(b *testing.B) {
			events := int64(0)
			for b.Loop() {
				costs := sim.NewModelled(cluster(8, 128), book, 1024, seed)
				res := run(b, sim.Config{
					Ranks: 1024, Book: book, Costs: costs, Noise: costs.Noise(), Seed: seed,
				}, 2)
				events += res.Events
			}
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
