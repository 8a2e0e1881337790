package simd

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// TestLook holds what look finds against the mask, pair by pair, where a border of a slice lies at
// the edge of a tile and of a group, or a little beside it: of one that is a key off, a random
// block seldom tells.
func TestLook(t *testing.T) {
	for _, isa := range []ISA{AVX2, AVX512} {
		t.Run(isa.String(), rapid.MakeCheck(func(t *rapid.T) {
			b := &attn.Block[float32]{
				QSpans: drawRun(t, "queries", isa.lanes()), KSpans: drawRun(t, "keys", maxKeys),
			}
			q0, q1 := b.QSpans[0].Start, b.QSpans[0].Last()
			k0, k1 := b.KSpans[0].Start, b.KSpans[0].Last()
			border := rapid.SampledFrom([]string{"", "Q0", "Q1", "K0", "K1", "Lo", "Hi"}).
				Draw(t, "border")
			inside := func(name string) int { // by how much this border takes something away
				if name == border {
					return rapid.IntRange(1, 2).Draw(t, name)
				}
				return -rapid.SampledFrom([]int{0, 0, 1, 9}).Draw(t, name)
			}
			b.Mask = attn.Mask{{
				Q0: max(0, q0+inside("Q0")), Q1: q1 + 1 - inside("Q1"),
				K0: max(0, k0+inside("K0")), K1: k1 + 1 - inside("K1"),
				Lo: k0 - q1 + inside("Lo"), Hi: k1 - q0 - inside("Hi"),
			}}
			if sometimes(t, "cut in two") {
				s := b.Mask[0]
				s.K0 = rapid.IntRange(k0, k1).Draw(t, "cut")
				b.Mask[0].K1 = s.K0
				b.Mask = append(b.Mask, s)
			}
			dead := uint64(0)
			if sometimes(t, "dead lanes") {
				dead = rapid.Uint64().Draw(t, "dead")
			}
			mustLook(t, isa, b, dead)
		}))
	}
}

// sometimes is once in four times.
func sometimes(t *rapid.T, what string) bool { return rapid.IntRange(0, 3).Draw(t, what) == 3 }

// drawRun is up to most rows in one span.
func drawRun(t *rapid.T, name string, most int) mesh.Set {
	return mesh.Set{{
		Start:  rapid.IntRange(0, 50).Draw(t, name+" first"),
		Count:  rapid.IntRange(1, most).Draw(t, name),
		Stride: rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, name+" stride"),
	}}
}

// mustLook looks at the one tile by the one group, of which the lanes dead do not count.
func mustLook(t *rapid.T, isa ISA, b *attn.Block[float32], dead uint64) {
	sc, n := &Scratch{}, b.QSpans.Len()
	sc.fitForward(isa, 8, 8, n)
	first, last := sc.setRows(&cursor{set: b.QSpans}, n)
	sc.near = sift(nil, b.Mask, box{first, last, math.MinInt, math.MaxInt})
	sc.setGroups(isa, 0, n, 0, 1, 1)
	sc.start(b.KSpans)
	met := sc.next(box{q0: first, q1: last})
	g, tile := &sc.groups[0], &sc.tile
	for lane := range maxLanes {
		g.live &^= dead >> min(lane, n-1) & 1 << lane // as doubles are dead where their row is
	}
	fill(sc.words[:], 0x5555555555555555)
	see, every := seen{}, true
	if met {
		see = sc.look(g, tile)
	}
	if see.hi != 0 && see.hi-see.lo < minKeys {
		t.Fatalf("keys [%d,%d) are less than a kernel takes", see.lo, see.hi)
	}
	for key := range max(tile.n, see.hi) {
		for lane := range g.vecs * isa.lanes() / panelVecs {
			row := min(lane, n-1)
			want := key < tile.n && g.live>>row&1 != 0 &&
				b.Mask.Allows(g.pos[row], b.KSpans[0].At(key))
			every = every && want
			got := see.all
			if !see.all && key >= see.lo && key < see.hi {
				got = sc.words[key]>>lane&1 != 0
			}
			if got != want {
				t.Fatalf("lane %d of %d, key %d of %d: seen %v, want %v (%+v)", lane, n, key,
					tile.n, got, want, see)
			}
		}
	}
	if every != see.all && tile.n >= minKeys {
		t.Fatalf("all see all: %v, found: %v", every, see.all)
	}
}

// TestRowsInPlace: what a kernel can read where it is is not copied.
func TestRowsInPlace(t *testing.T) {
	for _, c := range []struct {
		isa         ISA
		w, heads, n int
		weigh, want bool
	}{
		{AVX512, 64, 2, 96, true, true}, {AVX512, 128, 8, 96, true, true},
		{AVX2, 128, 8, 96, true, false}, {AVX2, 128, 8, 96, false, true},
		{AVX2, 128, 7, 96, true, true}, {AVX2, 20, 1, 96, true, false},
		{AVX2, 20, 1, 96, false, true}, {AVX512, 64, 1, 7, false, false},
		{AVX512, 64, 1, 8, false, true}, {AVX512, 7, 3, 8, false, true},
	} {
		src, buf := make([]float32, c.n*c.heads*c.w), make([]float32, maxKeys*padded(c.w))
		r := headRows(c.isa, buf, src, &tile{n: c.n}, c.heads, c.heads-1, c.w, c.weigh)
		if got := &r.data[0] == &src[(c.heads-1)*c.w]; got != c.want {
			t.Errorf("%+v: in place %v", c, got)
		}
	}
}

// TestLateQueries has a mask that allows nothing to the first queries that backward packs, nor to
// the first tasks of forward.
func TestLateQueries(t *testing.T) {
	eachVector(t, func(t *testing.T, p path) {
		const rows, keys = backwardPack + 200, 40
		b := contiguous(rows, 1, 1, 8, 8)
		b.KSpans = mesh.Set{{Stride: 1, Count: keys}}
		b.Mask = attn.Mask{{Q0: backwardPack + 60, Q1: rows, K1: keys,
			Lo: -attn.Unbounded, Hi: attn.Unbounded}}
		do := fillBlock(b, 1)
		p.fit(b, do)
		want, got := path{isa: Portable}.run(b, do), p.run(b, do)
		for i, e := range got.errors(&want, 1e-3) {
			if !(e <= p.bound(i, 2e-6)) {
				t.Errorf("%s is off by %.3g", names[i], e)
			}
		}
	})
}
