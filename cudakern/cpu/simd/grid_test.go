package simd

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// TestGridOrder: the numbers of pieces are a permutation in which each piece comes after those of
// the part and the pass before it, and needs just these.
func TestGridOrder(t *testing.T) {
	for heads := 1; heads <= 3; heads++ {
		for parts := 1; parts <= 9; parts++ {
			for passes := 1; passes <= 9; passes++ {
				g := Grid{heads, parts, passes}
				at := map[Piece]int{}
				for i := range g.Len() {
					at[g.Piece(i)] = i
				}
				if len(at) != heads*parts*passes {
					t.Fatalf("%+v: %d pieces", g, len(at))
				}
				for p, i := range at {
					if p.KVHead >= heads || p.Part >= parts || p.Pass >= passes {
						t.Fatalf("%+v: piece %d is %+v", g, i, p)
					}
					left, ok := at[Piece{p.KVHead, p.Part - 1, p.Pass}]
					if !ok {
						left = -1
					}
					above, ok := at[Piece{p.KVHead, p.Part, p.Pass - 1}]
					if !ok {
						above = -1
					}
					if a, b := g.Needs(i); a != left || b != above || a >= i || b >= i {
						t.Fatalf("%+v: piece %d, %+v, needs %d and %d, want %d and %d", g, i, p, a,
							b, left, above)
					}
				}
			}
		}
	}
}

// byHeads is Backward of a head at a time, which remembers whether a pass has set DK and DV.
func byHeads[E attn.Elem](p path, b *attn.Block[E], g attn.Grad[E, float32]) {
	if small := p.small(b); small != nil {
		byHeads(p, small, smallGrad(g))
		return
	}
	sc := p.sc
	for head := range b.KHeads {
		w := backward[E]{
			isa: pathOf(p.isa, b), b: b, g: &g, sc: sc, kvHead: head, curve: newCurve(b.SoftCap),
			set: !g.AddKV,
		}
		w.h0, w.h1 = readers(b, head)
		at, row0 := cursor{set: b.QSpans}, 0
		for w.h0 < w.h1 && len(at.set) > 0 {
			n := at.reach(max(1, backwardPack/(w.h1-w.h0)))
			sc.fitBackward(w.isa, b.D, b.DV, n*(w.h1-w.h0))
			first, last := sc.setRows(&at, n)
			sc.near = sift(sc.near, b.Mask, box{first, last, math.MinInt, math.MaxInt})
			if len(sc.near) > 0 {
				sc.setGroups(w.isa, row0, n, w.h0, w.h1, b.QHeads)
				sc.start(b.KSpans)
				w.pass(first, last, b.KSpans.Len())
				w.set = false
			}
			row0 += n
		}
		w.clear(0, b.KSpans.Len())
	}
}

// anyOrder is the pieces of a grid in a random order in which each comes after those it needs.
func anyOrder(g Grid, rng *rand.Rand) (order []int) {
	over := make([]bool, g.Len())
	ready := func(i int) bool {
		a, b := g.Needs(i)
		return !over[i] && (a < 0 || over[a]) && (b < 0 || over[b])
	}
	for len(order) < g.Len() {
		var may []int
		for i := range over {
			if ready(i) {
				may = append(may, i)
			}
		}
		i := may[rng.IntN(len(may))]
		over[i] = true
		order = append(order, i)
	}
	return order
}

// byPieces is descend by the pieces of a grid in a random order, each with a scratch of two.
func byPieces[E attn.Elem](p path, b *attn.Block[E], g attn.Grad[E, float32], parts int,
	rng *rand.Rand, sc [2]*Scratch,
) {
	if small := p.small(b); small != nil {
		byPieces(p, small, smallGrad(g), parts, rng, sc)
		return
	}
	grid := BackwardGrid(b, parts)
	for _, i := range anyOrder(grid, rng) {
		BackwardPiece(p.isa, b, g, grid.Piece(i), grid.Parts, sc[rng.IntN(2)])
	}
}

// drawGrid is a random block with several passes and tiles: some of many query heads a KV head, of
// which a pass takes few rows, the first KV head with fewer readers than the others.
func drawGrid(t *rapid.T) (b *attn.Block[float32], do []float32) {
	group := rapid.SampledFrom([]int{1, 2, 12, 48}).Draw(t, "group")
	rows := min(1500, 3000/group)
	b = &attn.Block[float32]{
		QSpans: drawLong(t, "query", rows), KSpans: drawLong(t, "key", 900), Group: group,
		D:  rapid.SampledFrom([]int{2, 5, 8, 20}).Draw(t, "dim"),
		DV: rapid.SampledFrom([]int{2, 4, 9, 16}).Draw(t, "v dim"),
	}
	b.KHead0 = rapid.IntRange(0, 1).Draw(t, "first KV head")
	b.KHeads = rapid.IntRange(1, 2).Draw(t, "KV heads")
	b.QHead0 = b.KHead0*group + rapid.IntRange(0, group).Draw(t, "heads of other ranks")
	b.QHeads = max(1, (b.KHead0+b.KHeads)*group-b.QHead0)
	b.QHead0 = (b.KHead0+b.KHeads)*group - b.QHeads
	if rapid.Bool().Draw(t, "all of the first") {
		b.QHead0 = b.KHead0 * group
	}
	b.Scale = 1 / math.Sqrt(float64(b.D))
	b.Mask = drawGridMask(t, extent(b.QSpans), extent(b.KSpans))
	b.SoftCap = rapid.SampledFrom([]float64{0, 0, 3}).Draw(t, "cap")
	return b, fillBlock(b, rapid.Uint64().Draw(t, "seed"))
}

// drawLong is drawSpans, or half the limit and more in one run, which draws of spans seldom reach.
func drawLong(t *rapid.T, name string, limit int) mesh.Set {
	if rapid.Bool().Draw(t, name+" any") {
		return drawSpans(t, name, limit)
	}
	count := limit - rapid.IntRange(0, limit/2).Draw(t, name+" less")
	return mesh.Set{{
		Start: rapid.IntRange(0, 300).Draw(t, name+" start"), Stride: 1, Count: count,
	}}
}

// drawGridMask is drawMask, a window, packed documents, or none.
func drawGridMask(t *rapid.T, nq, nk int) attn.Mask {
	switch rapid.IntRange(0, 5).Draw(t, "sort of grid mask") {
	case 0:
		return nil
	case 1:
		m := attn.Causal(nq, nk)
		for i := range m {
			m[i].Lo = -rapid.IntRange(0, 400).Draw(t, "window")
		}
		return m
	case 2:
		var m attn.Mask
		for at := 0; at < max(nq, nk); {
			end := at + rapid.IntRange(1, 500).Draw(t, "document")
			m = append(m, attn.Slice{
				Q0: at, Q1: end, K0: at, K1: end, Lo: -attn.Unbounded, Hi: 0,
			})
			at = end
		}
		return m
	}
	return drawMask(t, nq, nk)
}

// clone is g with arrays of its own to be written.
func clone(g attn.Grad[float32, float32]) attn.Grad[float32, float32] {
	g.DQ, g.DK, g.DV = slices.Clone(g.DQ), slices.Clone(g.DK), slices.Clone(g.DV)
	return g
}

// TestPiecesGiveTheSameBits: whatever the parts and the order, the bits are those of whole heads
// in one go, from any sums that were there before; so are those of Backward.
func TestPiecesGiveTheSameBits(t *testing.T) {
	eachVector(t, func(t *testing.T, p path) {
		rapid.Check(t, func(t *rapid.T) {
			b, do := drawGrid(t)
			out, lse := forwardAll(p, b)
			want := newGrad(p, b, do, out, lse)
			rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 1))
			want.AddKV = rapid.Bool().Draw(t, "add")
			for i := range want.DQ {
				want.DQ[i] = float32(rng.NormFloat64())
			}
			if want.AddKV {
				for _, a := range [][]float32{want.DK, want.DV} {
					for i := range a {
						a[i] = float32(rng.NormFloat64())
					}
				}
			}
			sc := [2]*Scratch{dirty(b), dirty(b)}
			fresh := clone(want)
			byHeads(p, b, want)
			for parts := range 8 {
				got := clone(fresh)
				if parts == 0 {
					descend(p, b, got)
				} else {
					byPieces(p, b, got, parts, rng, sc)
				}
				mustMatch(t, want.DQ, got.DQ, want.DK, got.DK, want.DV, got.DV)
			}
		})
	})
}

// TestPiecesOfAShape has the cases that draws may miss: fewer tiles than parts, no keys, no
// queries, and passes that see nothing, first as in a rank's early chunk in a
// ring, or between others.
func TestPiecesOfAShape(t *testing.T) {
	late := mesh.Set{{Start: 0, Stride: 1, Count: 2600}, {Start: 8000, Stride: 1, Count: 1300}}
	far := mesh.Set{{Start: 4000, Stride: 1, Count: 1152}, {Start: 5000, Stride: 1, Count: 1152},
		{Start: 100, Stride: 1, Count: 2304}, {Start: 6500, Stride: 1, Count: 1152}}
	middle := mesh.Set{{Start: 5000, Stride: 1, Count: 700}}
	from := func(row int) attn.Mask {
		m := attn.Causal(10000, 10000)
		m[0].Q0 = row
		return m
	}
	first := func(n int) mesh.Set { return mesh.Set{{Stride: 1, Count: n}} }
	for _, c := range []struct {
		name   string
		qs, ks mesh.Set
		mask   attn.Mask
		grid   Grid // of 4 parts
	}{
		{"one tile", first(3000), first(90), from(0), Grid{1, 1, 3}},
		{"three tiles", first(3000), first(200), from(0), Grid{1, 3, 3}},
		{"no keys", first(3000), nil, from(0), Grid{1, 1, 3}},
		{"no queries", nil, first(500), from(0), Grid{1, 4, 1}},
		{"late queries", late, middle, from(2400), Grid{1, 4, 4}},
		{"passes between see nothing", far, middle, from(4000), Grid{1, 4, 5}},
		{"nothing is seen", first(3000), middle, from(0), Grid{1, 4, 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachVector(t, func(t *testing.T, p path) {
				b := contiguous(10000, 1, 1, 8, 8)
				b.QSpans, b.KSpans, b.Mask = c.qs, c.ks, c.mask
				do := fillBlock(b, 1)
				if g := BackwardGrid(b, 4); g != c.grid {
					t.Errorf("the grid is %+v, want %+v", g, c.grid)
				}
				out, lse := forwardAll(p, b)
				want := newGrad(p, b, do, out, lse)
				got := clone(want)
				byHeads(p, b, want)
				byPieces(p, b, got, 4, rand.New(rand.NewPCG(1, 1)), [2]*Scratch{p.sc, dirty(b)})
				if !sameBits(want.DQ, got.DQ) || !sameBits(want.DK, got.DK) ||
					!sameBits(want.DV, got.DV) {
					t.Error("pieces give other bits than whole heads")
				}
			})
		})
	}
}
