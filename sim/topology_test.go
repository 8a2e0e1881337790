package sim_test

import (
	"testing"

	"github.com/kvloom/kvloom/plan"
)

// cluster is nodes of so many ranks, with a device of 1 TFLOP/s each.
func cluster(perNode, nodes int) *plan.Topology {
	return &plan.Topology{
		Nodes: nodes, RanksPerNode: perNode, Flops: 1e12, Memory: 1e12,
		Local:  plan.LinkModel{BytesPerS: 1e11, LatencyNanos: 1000},
		Remote: plan.LinkModel{BytesPerS: 1e10, LatencyNanos: 5000},
	}
}

var _ = testing.Short
