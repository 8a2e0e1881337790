package kernel

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

// drawMask covers nq queries and nk keys by a family of masks, whole or in packed documents, or
// with a grid of cells, each full, causal, inverse-causal, a band, or empty.
func drawMask(t *rapid.T, nq, nk int) attn.Mask {
	switch rapid.IntRange(0, 3).Draw(t, "sort of mask") {
	case 0:
		return attn.Causal(nq, nk)
	case 1:
		inner, err := attn.ParseMask(rapid.SampledFrom([]string{"causal", "full", "window:9,-1",
			"window:5", "window:20,3", "prefix:30", "block-causal:7"}).Draw(t, "mask"))
		if err != nil {
			t.Fatal(err)
		}
		starts, end := []int{0}, max(nq, nk)
		most := rapid.IntRange(1, 90).Draw(t, "longest document")
		for at := 0; at < end; {
			at = min(end, at+rapid.IntRange(most/3, most).Draw(t, "document"))
			starts = append(starts, at)
		}
		if len(starts) == 1 {
			return nil
		}
		mask, err := attn.Documents(starts, inner)
		if err != nil {
			t.Fatal(err)
		}
		return mask
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

// drawBlock is a random block, its heads any cut of a global problem, and a do.
func drawBlock[T attn.Float](t *rapid.T, limit int) (b *attn.Block[T], do []T) {
	b = &attn.Block[T]{
		QSpans: drawSpans(t, "query", limit), KSpans: drawSpans(t, "key", limit),
		Group: rapid.IntRange(1, 3).Draw(t, "group"),
		D:     rapid.IntRange(1, 19).Draw(t, "dim"), DV: rapid.IntRange(1, 19).Draw(t, "v dim"),
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
	b.SoftCap = rapid.SampledFrom([]float64{0, 0, 0.7, 3, 50}).Draw(t, "soft cap")
	b.Mask = drawMask(t, extent(b.QSpans), extent(b.KSpans))
	return b, fillBlock(b, rapid.Uint64().Draw(t, "seed"))
}

// fillBlock gives the block normal inputs and returns a do.
func fillBlock[T attn.Float](b *attn.Block[T], seed uint64) (do []T) {
	rng := rand.New(rand.NewPCG(seed, 7))
	normal := func(n int) []T {
		a := make([]T, n)
		for i := range a {
			a[i] = T(rng.NormFloat64())
		}
		return a
	}
	nq, nk := b.QSpans.Len(), b.KSpans.Len()
	b.Q, b.K = normal(nq*b.QHeads*b.D), normal(nk*b.KHeads*b.D)
	b.V = normal(nk * b.KHeads * b.DV)
	return normal(nq * b.QHeads * b.DV)
}

// keyRows is the block with keys [lo,hi) alone.
func keyRows[T attn.Float](b *attn.Block[T], lo, hi int) *attn.Block[T] {
	part := *b
	part.KSpans = b.KSpans.Rows(lo, hi)
	part.K = b.K[lo*b.KHeads*b.D : hi*b.KHeads*b.D]
	part.V = b.V[lo*b.KHeads*b.DV : hi*b.KHeads*b.DV]
	return &part
}

// pickHeads is src [rows, heads, w] with heads [lo,hi) alone.
func pickHeads[T attn.Float](src []T, heads, w, lo, hi int) []T {
	var out []T
	for at := 0; at < len(src); at += heads * w {
		out = append(out, src[at+lo*w:at+hi*w]...)
	}
	return out
}

// queryHeads is the block with held query heads [lo,hi) and the KV heads that they read alone.
func queryHeads[T attn.Float](b *attn.Block[T], lo, hi int) *attn.Block[T] {
	part := *b
	k0, k1 := b.KVHead(lo), b.KVHead(hi-1)+1
	part.QHead0, part.QHeads = b.QHead0+lo, hi-lo
	part.KHead0, part.KHeads = b.KHead0+k0, k1-k0
	part.Q = pickHeads(b.Q, b.QHeads, b.D, lo, hi)
	part.K = pickHeads(b.K, b.KHeads, b.D, k0, k1)
	part.V = pickHeads(b.V, b.KHeads, b.DV, k0, k1)
	return &part
}

// sameBits compares bit for bit, so that NaN equals itself and 0 is not -0.
func sameBits[T attn.Float](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if math.Float64bits(float64(a[i])) != math.Float64bits(float64(b[i])) {
			return false
		}
	}
	return true
}
