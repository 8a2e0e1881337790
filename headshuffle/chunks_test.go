package headshuffle_test

import (
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/headshuffle"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/ringbus"
)

// chunked is 16K causal tokens of 32 heads over 8 ranks of one exchange, in chunks of heads.
func chunked(t testing.TB, m mesh.Mesh, chunks int) *plan.Plan {
	t.Helper()
	const tokens = 16 << 10
	p, err := plan.New(plan.Spec{
		Shape: plan.Shape{
			QTokens: tokens, KTokens: tokens, QHeads: 32, KHeads: 32, Dim: 128, VDim: 128,
			ElemBytes: 2, AccBytes: 4, Scale: 1, Mask: attn.Causal(tokens, tokens),
		},
		Mesh: m, Options: plan.Options{HeadChunks: chunks}, Ring: ringbus.Ring{},
		Heads: headshuffle.AllToAll{},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestChunksHideTheExchange: where exchanging all heads takes about as long as attending them, two
// chunks hide half of it and four three quarters: only the first chunk's way in and the last one's
// way out are exposed. Two chunks are held at once, so that four need less memory than one.
func TestChunksHideTheExchange(t *testing.T) {
	link := plan.LinkModel{BytesPerS: 32e8, LatencyNanos: 2000}
	top := &plan.Topology{
		Nodes: 1, RanksPerNode: 8, Flops: 1e14, Memory: 3e12, Local: link, Remote: link,
	}
	m := mesh.Mesh{Head: 8, Ring: 1}
	var nanos, exposed, peak [5]int64
	for _, n := range []int{1, 2, 4} {
		p := chunked(t, m, n)
		report, err := plan.Verify(p)
		if err != nil || report.Err() != nil {
			t.Fatal(err, report.Err())
		}
		e, err := plan.Cost(p, top, plan.CostOptions{Passes: []plan.Pass{plan.Forward}})
		if err != nil {
			t.Fatal(err)
		}
		slow := e.Ranks[e.Slowest]
		nanos[n], exposed[n], peak[n] = e.Nanos, slow.ExposedNanos, slow.PeakBytes
	}
	t.Logf("nanos %v exposed %v peak %v", nanos, exposed, peak)
	if exposed[2]*100 > exposed[1]*52 || exposed[4]*100 > exposed[1]*27 {
		t.Errorf("exposed nanoseconds of 1, 2 and 4 chunks: %d, %d, %d: an exchange is not hidden",
			exposed[1], exposed[2], exposed[4])
	}
	if peak[4]*100 > peak[1]*75 {
		t.Errorf("peak bytes of 1 and 4 chunks: %d, %d: they should fall", peak[1], peak[4])
	}
}
