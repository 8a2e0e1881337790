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
			sc.cutQueries(&qc, rows)
			sc.sift(b.Mask, sc.queries.first, sc.queries.last, math.MinInt, math.MaxInt)
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
