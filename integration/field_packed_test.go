package integration

import (
	"fmt"
	"slices"
	"testing"

	kvloom "github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/kvloom/kvloom/mesh"
)

func TestFieldPacked(t *testing.T) {
	t.Run("rope", fieldRope)
	t.Run("labels", fieldLabels)
	t.Run("mask is never dropped", fieldMaskIsNeverDropped)
	t.Run("per-layer masks", fieldPerLayerMasks)
	t.Run("cross attention", fieldCrossAttention)
}

// shardsOf are the shards of all ranks of an attention.
func shardsOf(t *testing.T, c task) []kvloom.Shard {
	t.Helper()
	c = c.full()
	cfg, err := c.config()
	if err != nil {
		t.Fatal(err)
	}
	s, err := kvloom.Open[float32](t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer closeSession(t, s)
	a, err := s.Attention(cfg.Problems[0])
	if err != nil {
		t.Fatal(err)
	}
	var out []kvloom.Shard
	for r := range s.Ranks() {
		out = append(out, a.Shard(r))
	}
	return out
}

// fieldRope is [rope]: documents 0,4,8 on a ring of 2, per-document zigzag: every rank has the
// global positions of its rows and those inside their documents.
func fieldRope(t *testing.T) {
	docs := []int{0, 4, 8}
	shards := shardsOf(t, task{tokens: 8, docs: docs, mesh: ring(2),
		layout: mesh.DocZigzag{Starts: docs}})
	seen := map[int]bool{}
	for r, s := range shards {
		global, inside := s.Positions(), mesh.DocPositions(docs, s.Set)
		if len(global) != 4 || len(inside) != 4 {
			t.Fatalf("rank %d has positions %v and %v", r, global, inside)
		}
		perDoc := [2]int{}
		for i, p := range global {
			seen[p] = true
			perDoc[p/4]++
			if inside[i] != p%4 {
				t.Errorf("rank %d, row %d: token %d is said to be number %d of its document", r, i,
					p, inside[i])
			}
		}
		if perDoc != [2]int{2, 2} {
			t.Errorf("rank %d has %v tokens of the documents: zigzag in each gives 2 and 2", r,
				perDoc)
		}
		for d := range 2 { // of each document its ends, or its middle
			ends := [2]bool{slices.Contains(global, 4*d), slices.Contains(global, 4*d+3)}
			if ends[0] != ends[1] {
				t.Errorf("rank %d has tokens %v: half of a pair of chunks of document %d", r,
					global, d)
			}
		}
	}
	if len(seen) != 8 {
		t.Errorf("ranks have %d of 8 tokens", len(seen))
	}
}

// fieldLabels is [labels]: labels are shifted before they are cut: tokens 1 to 8 on 2 ranks.
func fieldLabels(t *testing.T) {
	const ignore = -100
	labels := []int{2, 3, 4, 5, 6, 7, 8, ignore}
	for _, x := range []struct {
		layout mesh.Layout
		want   [2][]int
	}{
		{mesh.Contiguous, [2][]int{{2, 3, 4, 5}, {6, 7, 8, ignore}}},
		{mesh.Zigzag, [2][]int{{2, 3, 8, ignore}, {4, 5, 6, 7}}},
	} {
		back := make([]int, len(labels))
		for r, s := range shardsOf(t, task{tokens: 8, mesh: ring(2), layout: x.layout}) {
			got := kvloom.Take(s, labels, 1)
			if !slices.Equal(got, x.want[r]) {
				t.Errorf("%v: rank %d has labels %v, want %v", x.layout, r, got, x.want[r])
			}
			kvloom.Put(s, back, got, 1)
		}
		if !slices.Equal(back, labels) {
			t.Errorf("%v: put together again the labels are %v", x.layout, back)
		}
	}
}

// fieldMaskIsNeverDropped is [mask is never dropped]: windows, documents, prefixes, blocks and
// slices with every scheme: what queries met is what the mask allows, or the request is refused.
func fieldMaskIsNeverDropped(t *testing.T) {
	docs := []int{0, 9, 9, 26, 40}
	custom := attn.Mask{
		{Q1: 13, K0: 20, K1: 40, Lo: -attn.Unbounded, Hi: attn.Unbounded},
		{Q0: 13, Q1: 30, K1: 40, Lo: 0, Hi: attn.Unbounded},
		{Q0: 30, Q1: 40, K0: 5, K1: 30, Lo: -20, Hi: -10},
	}
	for _, word := range []string{"window:7", "window:0", "window:3,2", "window:-1,4", "prefix:11",
		"block-causal:7", "causal", "full", ""} {
		for _, packed := range []bool{false, true} {
			for _, way := range schemes(4) {
				way.tokens, way.word, way.heads, way.kvHeads = 40, word, 2, 1
				if word == "" {
					way.slices = custom
				} else if packed {
					way.docs = docs
				}
				way.layout = mesh.Contiguous
				if packed {
					way.layout = mesh.Striped{Size: 2}
				}
				if err := meetsOnce(t.Context(), way); err != nil {
					t.Errorf("%v %q %v: %v", way, word, way.docs, err)
				}
			}
		}
	}
	for _, m := range []attn.Mask{
		nil, // not said
		{{Q1: 41, K1: 40, Lo: -attn.Unbounded, Hi: 0}},            // of another length
		{{Q1: 40, K1: 40, Hi: 5}, {Q1: 40, K1: 40, Lo: 5, Hi: 9}}, // pairs twice
	} {
		cfg := kvloom.Config{Mesh: ring(4), Problems: []kvloom.Problem{{Tokens: 40, Heads: 1,
			KVHeads: 1, Dim: 8, Scale: 1, Mask: m, ElemBytes: 4, AccBytes: 4}}}
		if _, err := cfg.Plan(0); err == nil {
			t.Errorf("mask %v is not refused", m)
		}
	}
}

// fieldPerLayerMasks is [per-layer masks]: layers that alternate a sliding window and full causal
// in one session: each gets its own mask, also where both are in flight.
func fieldPerLayerMasks(t *testing.T) {
	const tokens, count = 67, 4
	base := task{tokens: tokens, heads: 4, kvHeads: 2, dim: 8, dtype: tensors.F64,
		mesh: grids(2, 3)}
	cfg := kvloom.Config{Mesh: base.mesh}
	var refs []answer
	var ins []kvloom.Inputs[float64]
	for i := range count {
		c := base.full()
		c.seed = uint64(i + 1)
		if i%2 == 0 {
			c.word = "window:12"
		}
		one, err := c.config()
		if err != nil {
			t.Fatal(err)
		}
		in := taskInputs[float64](&c)
		ref, err := oracle(&c, in, parallel)
		if err != nil {
			t.Fatal(err)
		}
		p := one.Problems[0]
		if i%2 == 0 { // a layer has a scheme and a layout of its own
			if p.Ring, err = (&task{scheme: "halo"}).axis(); err != nil {
				t.Fatal(err)
			}
			p.Layout = mesh.Contiguous
		}
		cfg.Problems, refs, ins = append(cfg.Problems, p), append(refs, ref), append(ins, in)
	}
	s, err := kvloom.Open[float64](t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer closeSession(t, s)
	for i, in := range ins {
		if err := s.Load(i, i, in); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Run(t.Context(), crossRounds(count)...); err != nil {
		t.Fatal(err)
	}
	for i := range count {
		got, err := s.Results(i, i, true)
		if err != nil {
			t.Fatal(err)
		}
		within(t, fmt.Sprintf("layer %d", i), got, refs[i].Outputs, 1e-12, 1e-12)
		other := attn.Compare(got.Out, refs[(i+1)%count].Out)
		if other.Rel < 1e-3 {
			t.Errorf("layers %d and %d give the same: the test shows nothing", i, (i+1)%count)
		}
	}
}

// fieldCrossAttention is [cross attention]: queries and keys of different lengths and owners, each
// with a layout of its own: a decoder's few queries, and an encoder's keys.
func fieldCrossAttention(t *testing.T) {
	for _, way := range schemes(4) {
		for _, n := range [][2]int{{1, 61}, {5, 61}, {61, 7}, {40, 40}} {
			way.tokens, way.keys, way.word = n[0], n[1], "full"
			way.heads, way.kvHeads, way.dim, way.vdim = 4, 2, 8, 12
			way.mesh.Head, way.dtype = 2, tensors.F64
			way.layout, way.keyLayout = mesh.Zigzag, mesh.Striped{Size: 2}
			mustHold(t, way)
		}
	}
	c := task{tokens: 6, keys: 24, word: "full", mesh: ring(4), keyLayout: mesh.Contiguous}.full()
	cfg, err := c.config()
	if err != nil {
		t.Fatal(err)
	}
	p, err := cfg.Plan(0)
	if err != nil {
		t.Fatal(err)
	}
	h := p.Header()
	for r := range h.Ranks {
		q, k := h.Sets[h.HomeQ[r]].Len(), h.Sets[h.HomeK[r]].Len()
		if k != 6 || q < 1 || q > 2 {
			t.Errorf("rank %d of 4 has %d of 6 queries and %d of 24 keys", r, q, k)
		}
	}
}
