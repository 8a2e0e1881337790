package kernel

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvloom/kvloom/attn"
)

// TestPermit holds the words of each tile against the mask, pair by pair: a tile is passed by
// exactly when it allows nothing.
func TestPermit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := attn.Block[float32]{
			QSpans: drawSpans(t, "query", 200), KSpans: drawSpans(t, "key", 200),
		}
		b.Mask = drawMask(t, extent(b.QSpans), extent(b.KSpans))
		qpos, kpos := b.QSpans.Positions(), b.KSpans.Positions()
		var sc Scratch[float32]
		qc := cursor{set: b.QSpans}
		for q0 := 0; q0 < len(qpos); q0 += tileRows {
			rows := min(tileRows, len(qpos)-q0)
			sc.queries.cut(&qc, rows)
			sc.sift(b.Mask, box{sc.queries.first, sc.queries.last, math.MinInt, math.MaxInt})
			kc := cursor{set: b.KSpans}
			for k0 := 0; k0 < len(kpos); k0 += tileRows {
				keys := min(tileRows, len(kpos)-k0)
				sc.keys.cut(&kc, keys)
				got, any := sc.permit(), false
				for r := range rows {
					var want uint64
					for c := range keys {
						if b.Mask.Allows(qpos[q0+r], kpos[k0+c]) {
							want |= 1 << c
							any = true
						}
					}
					if got && sc.allow[r] != want {
						t.Fatalf("row %d: word %b, want %b", q0+r, sc.allow[r], want)
					}
				}
				if got != any {
					t.Fatalf("tile %d,%d: permit %v, want %v", q0, k0, got, any)
				}
			}
		}
	})
}

// TestReach passes by tiles that lie beyond the reach of a task's slices: each of them, and those
// alone, that lie within one span.
func TestReach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := drawSpans(t, "key", 700)
		pos := set.Positions()
		lo := rapid.IntRange(0, 700).Draw(t, "lo")
		hi := lo + rapid.IntRange(0, 200).Draw(t, "width")
		at := cursor{set: set}
		for row := 0; row < len(pos); {
			span, off := at.set[0], at.off
			n := at.passBeyond(lo, hi)
			if n%tileRows != 0 {
				t.Fatalf("row %d: passed %d rows, no whole tiles", row, n)
			}
			for _, p := range pos[row : row+n] {
				if lo <= p && p <= hi {
					t.Fatalf("row %d: position %d of [%d,%d] was passed", row, p, lo, hi)
				}
			}
			row += n
			if off += n; span.Count-off >= tileRows {
				if first, last := span.At(off), span.At(off+tileRows-1); last < lo || first > hi {
					t.Fatalf("row %d: tile [%d,%d] was not passed", row, first, last)
				}
			}
			if row < len(pos) {
				n = min(tileRows, len(pos)-row)
				at.skip(n)
				row += n
			}
		}
	})
}

// TestSliceReach: the box around what a slice may allow holds all that it does allow.
func TestSliceReach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nq, nk := rapid.IntRange(1, 30).Draw(t, "queries"), rapid.IntRange(1, 30).Draw(t, "keys")
		mask := drawMask(t, nq, nk)
		in := box{math.MinInt, math.MaxInt, math.MinInt, math.MaxInt}
		if rapid.Bool().Draw(t, "queries bound") {
			in.q0 = rapid.IntRange(0, nq).Draw(t, "q0")
			in.q1 = rapid.IntRange(in.q0, nq).Draw(t, "q1")
		}
		if rapid.Bool().Draw(t, "keys bound") {
			in.k0 = rapid.IntRange(0, nk).Draw(t, "k0")
			in.k1 = rapid.IntRange(in.k0, nk).Draw(t, "k1")
		}
		var sc Scratch[float32]
		sc.sift(mask, in)
		near := attn.Mask(sc.near)
		for i := range nq {
			for j := range nk {
				if i < in.q0 || i > in.q1 || j < in.k0 || j > in.k1 || !mask.Allows(i, j) {
					continue
				}
				r := sc.reach
				if !near.Allows(i, j) || i < r.q0 || i > r.q1 || j < r.k0 || j > r.k1 {
					t.Fatalf("(%d,%d) is out of reach %v of %v", i, j, r, near)
				}
			}
		}
	})
}

func TestCursorSkip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := drawSpans(t, "", 200)
		pos := set.Positions()
		if len(pos) == 0 {
			t.Skip("no rows")
		}
		n := rapid.IntRange(0, len(pos)-1).Draw(t, "skip")
		c := cursor{set: set}
		c.skip(n)
		var tile axisTile
		tile.cut(&c, 1)
		if tile.runs[0].start != pos[n] || tile.first != pos[n] || tile.last != pos[n] {
			t.Fatalf("row %d is %+v, want position %d", n, tile.runs[0], pos[n])
		}
	})
}

func TestTranspose(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var w [tileRows]uint64
	for i := range w {
		w[i] = rng.Uint64() & rng.Uint64()
	}
	got := w
	transpose(&got)
	for r := range w {
		for c := range w {
			if w[r]>>c&1 != got[c]>>r&1 {
				t.Fatalf("bit %d of word %d is not bit %d of word %d", c, r, r, c)
			}
		}
	}
}

func TestHull(t *testing.T) {
	for _, word := range []uint64{1, 1 << 63, 0b1110, 0b1001000, ^uint64(0)} {
		lo, hi := evenHull(word)
		inside := word >> lo << lo
		if hi < 64 {
			inside &= 1<<hi - 1
		}
		if inside != word || (lo|hi)&1 != 0 || hi-lo > 2+64-bits.LeadingZeros64(word) {
			t.Errorf("%b: hull [%d,%d)", word, lo, hi)
		}
	}
}
