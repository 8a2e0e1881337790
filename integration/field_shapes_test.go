package integration

import (
	"strings"
	"testing"

	kvloom "github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/ringbus"
)

func TestFieldShapes(t *testing.T) {
	t.Run("odd sequence", fieldOddSequence)
	t.Run("tiny sequence", fieldTinySequence)
	t.Run("non-causal balance", fieldNonCausalBalance)
	t.Run("per-step shapes", fieldPerStepShapes)
	t.Run("stale KV", fieldStaleKV)
	t.Run("heads", fieldHeads)
	t.Run("odd head degree", fieldOddHeadDegree)
	t.Run("context-first windows", fieldContextFirstWindows)
	t.Run("exactly once", fieldExactlyOnce)
}

// sixteen are all meshes of up to 16 ranks.
func sixteen() []mesh.Mesh {
	var out []mesh.Mesh
	for h := 1; h <= 16; h++ {
		for c := 1; h*c <= 16; c++ {
			out = append(out, mesh.Mesh{Head: h, Ring: c, Placement: mesh.Placement((h + c) % 2)})
		}
	}
	return out
}

// onEach runs one problem on many meshes and judges all by one answer of the oracle.
func onEach[T attn.Float](t *testing.T, c task, meshes []mesh.Mesh) {
	t.Helper()
	c = c.full()
	in := taskInputs[T](&c)
	ref, err := oracle(&c, widened(in), parallel)
	if err != nil {
		t.Fatal(err)
	}
	for _, c.mesh = range meshes {
		got, err := run(t.Context(), &c, in)
		if err == nil {
			err = got.asPlanned()
		}
		if err == nil {
			_, err = judge(&c, in, got.Outputs, &ref)
		}
		if err != nil {
			t.Errorf("%v\n%s", err, c.command(nil))
		}
	}
}

// fieldOddSequence is [odd sequence]: lengths that nothing divides on every mesh of up to 16
// ranks, forward and backward. 4097 tokens have a window, for the oracle's sake; without it they
// are in TestMeshesF32.
func fieldOddSequence(t *testing.T) {
	for _, s := range []int{1, 2, 3, 5, 7, 31, 97} {
		for i, word := range []string{"causal", "full"} {
			onEach[float64](t, task{tokens: s, word: word, heads: 16, kvHeads: 4, dim: 8, vdim: 4,
				dtype: tensors.F64, live: (s+i)%2 == 0}, sixteen())
		}
	}
	meshes := sixteen()
	for h := 1; h <= 16; h++ {
		var some []mesh.Mesh
		for _, m := range meshes {
			if m.Head == h {
				some = append(some, m)
			}
		}
		if testing.Short() {
			some = some[len(some)-1:]
		}
		onEach[float32](t, task{tokens: 4097, word: "window:24,3", heads: h, kvHeads: 1, dim: 4,
			live: h%2 == 0}, some)
	}
}

// fieldTinySequence is [tiny sequence]: 4 tokens, 1 head, D = 4 on 2 ranks; and fewer tokens than
// 2C: ranks that own nothing take part and return empty shards of the right shape.
func fieldTinySequence(t *testing.T) {
	for _, way := range schemes(2) {
		way.tokens, way.dim, way.dtype, way.live = 4, 4, tensors.F64, true
		mustHold(t, way)
	}
	for _, s := range []int{1, 2, 5, 9} {
		for _, way := range schemes(8) {
			way.tokens, way.dim, way.dtype = s, 4, tensors.F64
			mustHold(t, way)
		}
		emptyShards(t, task{tokens: s, heads: 2, kvHeads: 1, dim: 4, vdim: 3, mesh: grids(2, 8)})
	}
}

// emptyShards looks at what the ranks without tokens give and get.
func emptyShards(t *testing.T, c task) {
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
	in, st := taskInputs[float32](&c), a.Begin()
	defer st.Release()
	var qkv []kvloom.QKV[float32]
	var do [][]float32
	for r := range s.Ranks() {
		sh := a.Shard(r)
		qkv = append(qkv, kvloom.QKV[float32]{Q: kvloom.Take(sh, in.Q, c.heads*c.dim),
			K: kvloom.Take(sh, in.K, c.kvHeads*c.dim), V: kvloom.Take(sh, in.V, c.kvHeads*c.vdim)})
		do = append(do, kvloom.Take(sh, in.DO, c.heads*c.vdim))
	}
	out, err := st.Forward(t.Context(), qkv)
	if err != nil {
		t.Fatal(err)
	}
	grads, err := st.Backward(t.Context(), do)
	if err != nil {
		t.Fatal(err)
	}
	total, none := 0, 0
	for r := range out {
		n := a.Shard(r).Len()
		total += n
		if n == 0 {
			none++
		}
		g := grads[r]
		if len(out[r].Out) != n*c.heads*c.vdim || len(out[r].LSE) != n*c.heads ||
			len(g.DQ) != n*c.heads*c.dim || len(g.DK) != n*c.kvHeads*c.dim ||
			len(g.DV) != n*c.kvHeads*c.vdim || out[r].Out == nil || g.DK == nil {
			t.Errorf("S=%d: rank %d of %d tokens returns out %d, lse %d, dq %d, dk %d, dv %d",
				c.tokens, r, n, len(out[r].Out), len(out[r].LSE), len(g.DQ), len(g.DK), len(g.DV))
		}
	}
	if total != c.tokens || none == 0 {
		t.Errorf("S=%d: ranks have %d tokens, %d ranks have none", c.tokens, total, none)
	}
}

// fieldNonCausalBalance is [non-causal balance]: a full mask with zigzag works, and all ranks have
// the same work.
func fieldNonCausalBalance(t *testing.T) {
	for _, degree := range []int{2, 4, 5} {
		for _, way := range schemes(degree) {
			way.tokens, way.word, way.heads, way.dtype = 97, "full", 2, tensors.F64
			mustHold(t, way)
		}
	}
	p := problem{mesh: grids(2, 8), tokens: 512, heads: 8, kvHeads: 8, dim: 8, full: true}
	if got := imbalance(t, p); got != 1 {
		t.Errorf("zigzag with a full mask: imbalance %g", got)
	}
}

// fieldPerStepShapes is [per-step shapes]: blocks differ in size at each step, 1 token beside 20.
func fieldPerStepShapes(t *testing.T) {
	cuts, at := []int{1, 20, 0, 5, 3, 12}, 0
	var shards []mesh.Set
	for _, n := range cuts {
		var set mesh.Set
		if n > 0 {
			set = mesh.Set{{Start: at, Stride: 1, Count: n}}
		}
		shards, at = append(shards, set), at+n
	}
	layout, err := mesh.NewDealt("uneven", at, shards)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"full", "causal", "window:4,2"} {
		for _, way := range schemes(len(cuts)) {
			way.tokens, way.layout, way.word, way.dtype = at, layout, word, tensors.F64
			way.heads, way.kvHeads, way.mesh.Head = 3, 1, 2
			mustHold(t, way)
		}
	}
}

// fieldStaleKV is [stale KV]: backward meets every rank's KV, not the local one: gradients are one
// rank's at ring 2, 3 and 4.
func fieldStaleKV(t *testing.T) {
	for _, degree := range []int{2, 3, 4} {
		for _, way := range schemes(degree) {
			for _, word := range []string{"full", "causal"} {
				way.tokens, way.word, way.heads, way.dtype = 61, word, 2, tensors.F64
				way.live = true
				mustHold(t, way)
			}
		}
	}
}

// fieldHeads is [heads]: splits that slice, replicate and straddle KV heads; two problems with
// different heads in one process; and a head degree above the query heads is refused.
func fieldHeads(t *testing.T) {
	for _, x := range []struct{ q, kv, degree int }{
		{40, 8, 5}, {40, 8, 8}, {40, 8, 16}, {40, 8, 40}, {8, 2, 4}, {8, 2, 8}, {28, 7, 2},
		{12, 12, 4}, {12, 12, 5}, {6, 3, 2}, {8, 1, 8},
	} {
		for _, chunks := range []int{1, x.q / x.degree} {
			for c := 1; c <= 2; c++ {
				way := task{tokens: 23, heads: x.q, kvHeads: x.kv, dim: 8, vdim: 4,
					dtype: tensors.F64, mesh: grids(x.degree, c), live: c == 1}
				way.opt.HeadChunks = chunks
				mustHold(t, way)
			}
		}
	}
	twoProblems(t)
	refused := task{tokens: 8, heads: 3, kvHeads: 1, mesh: grids(4, 1)}
	_, err := refused.check(t.Context())
	if err == nil || !strings.Contains(err.Error(),
		"head degree 4 is above the 3 query heads: each head rank needs a query head, so use a "+
			"head degree of at most 3") {
		t.Errorf("3 heads on head degree 4: %v", err)
	}
}

// twoProblems runs problems of other heads in turn, in one session and in two at once: each gives
// the bits that it gives alone.
func twoProblems(t *testing.T) {
	a := task{tokens: 33, heads: 8, kvHeads: 2, dim: 8, mesh: grids(2, 2), live: true}.full()
	b := task{tokens: 29, heads: 6, kvHeads: 3, dim: 8, mesh: grids(2, 2), live: true}.full()
	var alone [2]string
	var cfgs [2]kvloom.Config
	for i, c := range []*task{&a, &b} {
		got, err := run(t.Context(), c, taskInputs[float32](c))
		if err != nil {
			t.Fatal(err)
		}
		alone[i] = digests(got.Outputs)
		if cfgs[i], err = c.config(); err != nil {
			t.Fatal(err)
		}
	}
	cfg := cfgs[0]
	cfg.Problems = append(cfg.Problems, cfgs[1].Problems...)
	s, err := kvloom.Open[float32](t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer closeSession(t, s)
	for i, c := range []*task{&a, &b} {
		if err := s.Load(i, i, taskInputs[float32](c)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Run(t.Context(), crossRounds(2)...); err != nil {
		t.Fatal(err)
	}
	for i := range alone {
		got, err := s.Results(i, i, true)
		if err != nil {
			t.Fatal(err)
		}
		if digests(got) != alone[i] {
			t.Errorf("problem %d gives other bits beside another problem", i)
		}
	}
}

// fieldOddHeadDegree is [odd head degree]: 3x2, 3x4, 5x2: each token is owned once.
func fieldOddHeadDegree(t *testing.T) {
	for _, m := range []mesh.Mesh{grids(3, 2), grids(3, 4), grids(5, 2)} {
		for _, s := range []int{1, 7, 31, 64} {
			for _, layout := range []mesh.Layout{mesh.Zigzag, mesh.Contiguous,
				mesh.Striped{Size: 1}, mesh.Striped{Size: 3}} {
				c := task{tokens: s, heads: 6, kvHeads: 3, dim: 8, dtype: tensors.F64, mesh: m,
					layout: layout}.full()
				cfg, err := c.config()
				if err != nil {
					t.Fatal(err)
				}
				p, err := cfg.Plan(0)
				if err != nil {
					t.Fatal(err)
				}
				owners, h := make([]int, s), p.Header()
				for _, id := range h.HomeQ {
					for _, at := range h.Sets[id].Positions() {
						owners[at]++
					}
				}
				for at, n := range owners {
					if n != 1 {
						t.Errorf("%v, S=%d: token %d is owned %d times", c, s, at, n)
					}
				}
				mustHold(t, c)
			}
		}
	}
}

// fieldContextFirstWindows is [context-first windows]: each query meets each allowed key once,
// none in the future.
func fieldContextFirstWindows(t *testing.T) {
	for _, x := range []struct{ head, ring, w int }{{1, 8, 2}, {1, 8, 4}, {1, 16, 4}, {2, 8, 4}} {
		for _, placement := range []mesh.Placement{mesh.HeadFirst, mesh.ContextFirst} {
			for _, layout := range []mesh.Layout{mesh.Zigzag, mesh.Contiguous} {
				for _, way := range schemes(x.ring) {
					if way.ring.Inner != x.w {
						continue
					}
					way.mesh = mesh.Mesh{Head: x.head, Ring: x.ring, Placement: placement}
					way.tokens, way.heads, way.kvHeads, way.layout = 37, 4, 2, layout
					if err := meetsOnce(t.Context(), way); err != nil {
						t.Errorf("%v: %v", way, err)
					}
				}
			}
		}
	}
}

// fieldExactlyOnce is [exactly once]: levels that are mis-sized are a configuration error, and a
// count at run time, of every scheme, layout and mask, shows that each query met each allowed key
// once. The count can fail: it sees another mask.
func fieldExactlyOnce(t *testing.T) {
	for _, x := range []struct {
		c    task
		want string
	}{
		{task{mesh: ring(8), ring: ringbus.Ring{Inner: 3}}, "inner window 3 does not divide the " +
			"ring degree 8: use a divisor of it, such as 2"},
		{task{mesh: ring(8), ring: ringbus.Ring{Inner: 16}}, "inner window 16 does not divide " +
			"the ring degree 8: use a divisor of it, such as 8"},
		{task{mesh: ring(8), scheme: "halo", ring: ringbus.Ring{Inner: 4}}, "inner window 4 with " +
			"scheme halo: blocks do not go round a ring"},
	} {
		x.c.tokens = 32
		if _, err := x.c.check(t.Context()); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%v: %v", x.c, err)
		}
	}
	layouts := []mesh.Layout{mesh.Zigzag, mesh.Contiguous, mesh.Striped{Size: 1},
		mesh.Striped{Size: 3}, mesh.DocZigzag{Starts: []int{0, 11, 11, 41}}}
	words := []string{"causal", "full", "window:5,3", "prefix:9", "block-causal:4"}
	for n, way := range schemes(6) {
		for i, layout := range layouts {
			way.tokens, way.heads, way.kvHeads, way.mesh.Head = 41, 4, 2, 2
			way.layout, way.word, way.live = layout, words[(n+i)%len(words)], n%4 == 0
			if i%2 == 1 {
				way.docs = []int{0, 11, 11, 41}
			}
			m, err := meet(t.Context(), way)
			if err == nil {
				err = m.once(way)
			}
			if err != nil {
				t.Errorf("%v %s %v: %v", way, way.word, way.docs, err)
				continue
			}
			other := way
			if other.word = "window:2"; m.once(other) == nil {
				t.Errorf("%v: the count does not tell %s from %s", way, way.word, other.word)
			}
		}
	}
}
