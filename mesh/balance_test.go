package mesh_test

import (
	"math"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// imbalance is the largest over the mean of the pairs that ring shards attend: over the whole
// round, and in the ring step where it is worst (step t: shard c meets the block of shard c-t).
func imbalance(l mesh.Layout, mask attn.Mask, tokens, ring int) (round, step float64) {
	shards := make([]mesh.Set, ring)
	for c := range ring {
		shards[c] = l.Shard(tokens, ring, c)
	}
	work := make([]int64, ring)
	for t := range ring {
		now := make([]int64, ring)
		for c := range ring {
			now[c] = mask.Pairs(shards[c], shards[(c-t+ring)%ring])
			work[c] += now[c]
		}
		step = max(step, overMean(now))
	}
	return overMean(work), step
}

func overMean(work []int64) float64 {
	most, sum := int64(0), int64(0)
	for _, w := range work {
		most, sum = max(most, w), sum+w
	}
	return float64(most) * float64(len(work)) / float64(sum)
}

// TestCausalBalance: attention.md, "Work and traffic". Zigzag gives each rank the same work, in
// every step too; contiguous gives the last rank (2C-1)/C of the mean.
func TestCausalBalance(t *testing.T) {
	const tokens = 4096
	mask := attn.Causal(tokens, tokens)
	for ring := 1; ring <= 16; ring++ {
		round, step := imbalance(mesh.Zigzag, mask, tokens, ring)
		if round > 1.01 || step > 1.02 {
			t.Errorf("zigzag, C = %d: %.4f of the mean in a round, %.4f in a step", ring, round,
				step)
		}
		round, _ = imbalance(mesh.Contiguous, mask, tokens, ring)
		want := float64(2*ring-1) / float64(ring)
		if math.Abs(round/want-1) > 0.01 {
			t.Errorf("contiguous, C = %d: %.4f of the mean, want %.4f", ring, round, want)
		}
	}
}

// TestFullMaskBalance: [non-causal balance], both layouts.
func TestFullMaskBalance(t *testing.T) {
	for _, l := range layouts() {
		round, step := imbalance(l, attn.Full(4096, 4096), 4096, 12)
		if round > 1.01 || step > 1.01 {
			t.Errorf("%v: %.4f of the mean in a round, %.4f in a step", l, round, step)
		}
	}
}
