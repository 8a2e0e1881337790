package cpu

import (
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern/cpu/simd"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// TestGridOf has the cut of the backward pass for workers, heads and lengths: no grid where heads
// divide evenly, where one pass has all queries, or where keys are too few for two parts.
func TestGridOf(t *testing.T) {
	for _, c := range []struct {
		workers, heads, group, rows int
		want                        simd.Grid
	}{
		{0, 1, 1, 8192, simd.Grid{}},
		{1, 1, 1, 8192, simd.Grid{}},
		{2, 1, 1, 8192, simd.Grid{Heads: 1, Parts: 16, Passes: 8}},
		{2, 1, 1, 4096, simd.Grid{Heads: 1, Parts: 8, Passes: 4}},
		{2, 1, 1, 2304, simd.Grid{Heads: 1, Parts: 4, Passes: 2}},
		{2, 1, 1, 1152, simd.Grid{}},                                 // one pass
		{4, 3, 1, 65536, simd.Grid{Heads: 3, Parts: 16, Passes: 57}}, // two workers a head
		{4, 2, 1, 65536, simd.Grid{Heads: 2, Parts: 16, Passes: 57}},
		{8, 2, 1, 65536, simd.Grid{Heads: 2, Parts: 32, Passes: 57}},
		{2, 2, 1, 8192, simd.Grid{}},
		{2, 3, 1, 8192, simd.Grid{Heads: 3, Parts: 1, Passes: 8}},
		{2, 3, 1, 1152, simd.Grid{}},
		{4, 1, 8, 1023, simd.Grid{}}, // eight passes, one part
		{4, 1, 8, 1024, simd.Grid{Heads: 1, Parts: 2, Passes: 8}},
	} {
		set := mesh.Set{{Stride: 1, Count: c.rows}}
		b := &attn.Block[float32]{
			QSpans: set, KSpans: set, QHeads: c.heads * c.group, KHeads: c.heads, Group: c.group,
			D: 64, DV: 64, Mask: attn.Causal(c.rows, c.rows),
		}
		got, tasks := gridOf(b, c.workers)
		want := c.heads
		if got.Heads > 0 {
			want = got.Heads * got.Parts * got.Passes
		}
		if got != c.want || tasks != want {
			t.Errorf("%+v: %+v in %d tasks, want %+v in %d", c, got, tasks, c.want, want)
		}
	}
}

// TestYieldedTurn: a batch that yields, as its next task is not ready, leaves the next one a whole
// turn.
func TestYieldedTurn(t *testing.T) {
	first := func(task int) (int, int) { return min(task, 1) - 1, -1 } // all need task 0
	a, b := &Batch{Tasks: 9, Turn: 4, Needs: first}, &Batch{Tasks: 9, Turn: 4}
	a.reset()
	b.reset()
	p := &Pool{active: []*Batch{a, b}}
	var order []*Batch
	for i := range 6 {
		if !p.find() {
			t.Fatal("nothing is ready")
		}
		x, task := p.take()
		order = append(order, x)
		if i == 2 {
			p.finish(a, 0, 0, nil)
		}
		if x == a && i > 0 && i < 5 {
			t.Errorf("task %d of the first batch comes as number %d, in the other's turn", task, i)
		}
	}
	if order[0] != a || order[5] != a {
		t.Errorf("the first batch has not the first and the sixth task")
	}
}

// TestShareOfWorkers: ranks of one process share its workers, rounded up.
func TestShareOfWorkers(t *testing.T) {
	pool := NewPool(5)
	defer pool.Close()
	for ranks, want := range map[int]int{1: 5, 2: 3, 3: 2, 5: 1, 8: 1} {
		s := &Store[float32]{ranks: make([]rankMem[float32], ranks)}
		if d := NewDevice(0, s, pool, nil, DeviceOptions{}); d.runs[0].job.workers != want {
			t.Errorf("%d ranks: a share of %d, want %d", ranks, d.runs[0].job.workers, want)
		}
	}
}

// TestPastCaches: sums of 32 MiB of all ranks together go past the caches.
func TestPastCaches(t *testing.T) {
	for tokens, want := range map[int]bool{1024: false, 8191: false, 8192: true, 1 << 17: true} {
		h := &plan.Header{Shape: plan.Shape{
			QTokens: tokens, QHeads: 8, Dim: 128, VDim: 64, AccBytes: 4,
		}}
		j := Job[float32]{what: Round{Header: h}}
		if got := j.pastCaches(); got != want {
			t.Errorf("%d tokens: %v, want %v", tokens, got, want)
		}
	}
}
