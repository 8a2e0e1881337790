package simd

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvloom/kvloom/attn"
)

// TestPoison puts a NaN or an infinity into one vector. What the mask lets see it shows NaN; all
// else keeps its bits.
func TestPoison(t *testing.T) {
	eachVector(t, func(t *testing.T, p path) {
		rapid.Check(t, func(t *rapid.T) {
			b, do := drawBlock(t, 200)
			nq, nk := b.QSpans.Len(), b.KSpans.Len()
			if nq == 0 || nk == 0 {
				t.Skip("nothing to poison")
			}
			out, lse := forwardAll(p, b)
			g := backwardAll(p, b, do, out, lse)

			bad := float32(math.NaN())
			array := rapid.SampledFrom([]string{"q", "k", "v", "do"}).Draw(t, "array")
			if array == "v" && rapid.Bool().Draw(t, "infinity") {
				bad = float32(math.Inf(1))
			}
			i := rapid.IntRange(0, nq-1).Draw(t, "row")
			h := rapid.IntRange(0, b.QHeads-1).Draw(t, "head")
			j, kv := rapid.IntRange(0, nk-1).Draw(t, "key"), b.KVHead(h)
			switch array {
			case "q":
				b.Q[(i*b.QHeads+h)*b.D] = bad
			case "do":
				do[(i*b.QHeads+h)*b.DV] = bad
			case "k":
				b.K[(j*b.KHeads+kv)*b.D] = bad
			case "v":
				b.V[(j*b.KHeads+kv)*b.DV] = bad
			}
			hit := poisoned{b: b, array: array, i: i, h: h, j: j, kv: kv}
			out2, lse2 := forwardAll(p, b)
			g2 := backwardAll(p, b, do, out2, lse2)
			hit.check(t, "out", out, out2, b.QHeads, b.DV, hit.out)
			hit.check(t, "lse", lse, lse2, b.QHeads, 1, hit.lse)
			hit.check(t, "dq", g.DQ, g2.DQ, b.QHeads, b.D, hit.row)
			hit.check(t, "dk", g.DK, g2.DK, b.KHeads, b.D, hit.key)
			hit.check(t, "dv", g.DV, g2.DV, b.KHeads, b.DV, hit.value)
		})
	})
}

// poisoned says which items must show a poison in one row (i,h) of q or do or one key (j,kv).
type poisoned struct {
	b           *attn.Block[float32]
	array       string
	i, h, j, kv int
}

func (p *poisoned) sees(i, j int) bool {
	return p.b.Mask.Allows(p.b.QSpans.Positions()[i], p.b.KSpans.Positions()[j])
}

// row reports whether the gradients of query row i, head h are poisoned.
func (p *poisoned) row(i, h int) bool {
	if p.array == "q" || p.array == "do" {
		return i == p.i && h == p.h && p.any(i)
	}
	return p.b.KVHead(h) == p.kv && p.sees(i, p.j)
}

// any reports whether row i sees a key at all.
func (p *poisoned) any(i int) bool {
	for j := range p.b.KSpans.Len() {
		if p.sees(i, j) {
			return true
		}
	}
	return false
}

func (p *poisoned) out(i, h int) bool { return p.array != "do" && p.row(i, h) }
func (p *poisoned) lse(i, h int) bool { return (p.array == "q" || p.array == "k") && p.row(i, h) }

// key reports whether dk of key j is poisoned: some poisoned row sees it.
func (p *poisoned) key(j, kv int) bool {
	for i := range p.b.QSpans.Len() {
		for h := range p.b.QHeads {
			if p.b.KVHead(h) == kv && p.sees(i, j) && p.row(i, h) {
				return true
			}
		}
	}
	return false
}

// value is key for dv, which does not depend on v.
func (p *poisoned) value(j, kv int) bool { return p.array != "v" && p.key(j, kv) }

// check wants a NaN or an infinity in each poisoned vector of w elements, and the clean bits in
// all others.
func (p *poisoned) check(t *rapid.T, name string, clean, got []float32, heads, w int,
	hit func(row, head int) bool,
) {
	for x := range len(got) / w {
		v := got[x*w : (x+1)*w]
		if !hit(x/heads, x%heads) {
			if !sameBits(v, clean[x*w:(x+1)*w]) {
				t.Fatalf("%s row %d head %d: another row's %s came in: %v", name, x/heads,
					x%heads, p.array, v)
			}
			continue
		}
		if !slices.ContainsFunc(v, func(y float32) bool {
			return math.IsNaN(float64(y)) || math.IsInf(float64(y), 0)
		}) {
			t.Fatalf("%s row %d head %d hides the bad %s: %v", name, x/heads, x%heads, p.array, v)
		}
	}
}
