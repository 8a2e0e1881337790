package simd

import (
	"math"
	"math/rand/v2"

	"pgregory.net/rapid"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// drawSpans is a set of about limit positions at most: runs with gaps, strided runs, or two runs
// that interleave, whose row order is then not the order of the positions.
func drawSpans(t *rapid.T, name string, limit int) mesh.Set {
	rows := rapid.IntRange(0, limit).Draw(t, name+" rows")
	at := rapid.IntRange(0, 5).Draw(t, name+" first")
	var set mesh.Set
	for rows > 0 {
		count := rapid.IntRange(1, rows).Draw(t, name+" count")
		stride := rapid.IntRange(1, 3).Draw(t, name+" stride")
		rows -= count
		set = append(set, mesh.Span{Start: at, Stride: stride, Count: count})
		end := at + (count-1)*stride + 1
		if stride > 1 && rows > 0 && rapid.Bool().Draw(t, name+" interleave") {
			twin := min(rows, count)
			set = append(set, mesh.Span{Start: at + 1, Stride: stride, Count: twin})
			rows -= twin
			end++
		}
		at = end + rapid.SampledFrom([]int{0, 0, 1, 7}).Draw(t, name+" gap")
	}
	return set
}

// extent is one more than the largest position of a set.
func extent(set mesh.Set) int {
	n := 0
	for _, s := range set {
		n = max(n, s.Last()+1)
	}
	return n
}

// drawMask covers nq queries and nk keys causally, or with a grid of cells, each full, causal,
// inverse-causal, a band, or empty.
func drawMask(t *rapid.T, nq, nk int) attn.Mask {
	switch rapid.IntRange(0, 4).Draw(t, "sort of mask") {
	case 0:
		return attn.Causal(nq, nk)
	case 1:
		return attn.Full(nq, nk)
	}
	cuts := func(n int, name string) []int {
		all := []int{0}
		for range rapid.IntRange(0, 2).Draw(t, name+" cuts") {
			all = append(all, rapid.IntRange(all[len(all)-1], n).Draw(t, name+" cut"))
		}
		return append(all, n)
	}
	qc, kc := cuts(nq, "query"), cuts(nk, "key")
	var mask attn.Mask
	for i := range len(qc) - 1 {
		for j := range len(kc) - 1 {
			s := attn.Slice{
				Q0: qc[i], Q1: qc[i+1], K0: kc[j], K1: kc[j+1],
				Lo: -attn.Unbounded, Hi: attn.Unbounded,
			}
			shift := rapid.IntRange(-20, 20).Draw(t, "diagonal")
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				continue
			case 1:
				s.Hi = shift
			case 2:
				s.Lo = shift
			case 3:
				s.Lo, s.Hi = shift, shift+rapid.IntRange(0, 40).Draw(t, "band")
			}
			mask = append(mask, s)
		}
	}
	return mask
}

// drawDim is a head dimension: any small one, or a larger one with any remainder.
func drawDim(t *rapid.T, name string) int {
	return rapid.OneOf(rapid.IntRange(1, 20), rapid.SampledFrom([]int{32, 40, 64, 72, 100})).
		Draw(t, name)
}

// drawBlock is a random block, its heads any cut of a global problem, its logits capped or not, and
// a do.
func drawBlock(t *rapid.T, limit int) (b *attn.Block[float32], do []float32) {
	b = &attn.Block[float32]{
		QSpans: drawSpans(t, "query", limit), KSpans: drawSpans(t, "key", limit),
		Group: rapid.IntRange(1, 4).Draw(t, "group"),
		D:     drawDim(t, "dim"), DV: drawDim(t, "v dim"),
	}
	b.QHead0 = rapid.IntRange(0, 4).Draw(t, "first head")
	b.QHeads = rapid.IntRange(1, 5).Draw(t, "heads")
	b.KHead0 = b.QHead0 / b.Group
	b.KHeads = (b.QHead0+b.QHeads-1)/b.Group - b.KHead0 + 1
	if b.KHead0 > 0 && rapid.IntRange(0, 3).Draw(t, "idle KV head") == 0 {
		b.KHead0--
		b.KHeads++
	}
	b.Scale = 1 / math.Sqrt(float64(b.D))
	b.Mask = drawMask(t, extent(b.QSpans), extent(b.KSpans))
	b.SoftCap = rapid.SampledFrom([]float64{0, 0, 0, 0.7, 3, 50, 1e4}).Draw(t, "cap")
	return b, fillBlock(b, rapid.Uint64().Draw(t, "seed"))
}

// fillBlock gives the block normal inputs and returns a do.
func fillBlock(b *attn.Block[float32], seed uint64) (do []float32) {
	rng := rand.New(rand.NewPCG(seed, 7))
	normal := func(n int) []float32 {
		a := make([]float32, n)
		for i := range a {
			a[i] = float32(rng.NormFloat64())
		}
		return a
	}
	nq, nk := b.QSpans.Len(), b.KSpans.Len()
	b.Q, b.K = normal(nq*b.QHeads*b.D), normal(nk*b.KHeads*b.D)
	b.V = normal(nk * b.KHeads * b.DV)
	return normal(nq * b.QHeads * b.DV)
}

// contiguous is a causal problem of n rows of heads query heads with group to a KV head.
func contiguous(n, heads, group, d, dv int) *attn.Block[float32] {
	return &attn.Block[float32]{
		QSpans: mesh.Set{{Stride: 1, Count: n}}, KSpans: mesh.Set{{Stride: 1, Count: n}},
		QHeads: heads, KHeads: heads / group, Group: group, D: d, DV: dv,
		Scale: 1 / math.Sqrt(float64(d)), Mask: attn.Causal(n, n),
	}
}

// pickHeads is src [rows, heads, w] with heads [lo,hi) alone.
func pickHeads(src []float32, heads, w, lo, hi int) []float32 {
	var out []float32
	for at := 0; at < len(src); at += heads * w {
		out = append(out, src[at+lo*w:at+hi*w]...)
	}
	return out
}

// queryHeads is the block with held query heads [lo,hi) and the KV heads that they read alone.
func queryHeads(b *attn.Block[float32], lo, hi int) *attn.Block[float32] {
	part := *b
	k0, k1 := b.KVHead(lo), b.KVHead(hi-1)+1
	part.QHead0, part.QHeads = b.QHead0+lo, hi-lo
	part.KHead0, part.KHeads = b.KHead0+k0, k1-k0
	part.Q = pickHeads(b.Q, b.QHeads, b.D, lo, hi)
	part.K = pickHeads(b.K, b.KHeads, b.D, k0, k1)
	part.V = pickHeads(b.V, b.KHeads, b.DV, k0, k1)
	return &part
}

// keyRows is the block with keys [lo,hi) alone.
func keyRows(b *attn.Block[float32], lo, hi int) *attn.Block[float32] {
	part := *b
	part.KSpans = b.KSpans.Rows(lo, hi)
	part.K = b.K[lo*b.KHeads*b.D : hi*b.KHeads*b.D]
	part.V = b.V[lo*b.KHeads*b.DV : hi*b.KHeads*b.DV]
	return &part
}
