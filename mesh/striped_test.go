package mesh_test

import (
	"slices"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
	"pgregory.net/rapid"
)

func TestStripedTable(t *testing.T) {
	for _, tc := range []struct {
		size, tokens, ring, c int
		want                  mesh.Set
	}{
		{1, 10, 4, 1, mesh.Set{{Start: 1, Stride: 4, Count: 3}}},
		{1, 10, 4, 2, mesh.Set{{Start: 2, Stride: 4, Count: 2}}},
		{1, 6, 4, 3, mesh.Set{{Start: 3, Stride: 1, Count: 1}}},
		{1, 3, 4, 3, nil},
		{1, 9, 1, 0, mesh.Set{{Start: 0, Stride: 1, Count: 9}}},
		// A run a stripe; the last one is short.
		{4, 15, 2, 0, mesh.Set{{Start: 0, Stride: 1, Count: 4}, {Start: 8, Stride: 1, Count: 4}}},
		{4, 15, 2, 1, mesh.Set{{Start: 4, Stride: 1, Count: 4}, {Start: 12, Stride: 1, Count: 3}}},
		{100, 7, 2, 0, mesh.Set{{Start: 0, Stride: 1, Count: 7}}},
		{100, 7, 2, 1, nil},
	} {
		l := mesh.Striped{Size: tc.size}
		if got := l.Shard(tc.tokens, tc.ring, tc.c); !slices.Equal(got, tc.want) {
			t.Errorf("%v, %d tokens, shard %d of %d: %v, want %v", l, tc.tokens, tc.c, tc.ring, got,
				tc.want)
		}
	}
}

// TestStripes: token p is in stripe p/size, which goes to that shard mod ring; a stripe is one
// span, and all stripes of one token are.
func TestStripes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens, ring := rapid.IntRange(1, 700).Draw(t, "S"), rapid.IntRange(1, 16).Draw(t, "C")
		l := mesh.Striped{Size: rapid.IntRange(1, 40).Draw(t, "stripe")}
		stripes := (tokens + l.Size - 1) / l.Size
		for c := range ring {
			set := l.Shard(tokens, ring, c)
			for _, p := range set.Positions() {
				if p/l.Size%ring != c {
					t.Fatalf("%v: token %d is on shard %d of %d", l, p, c, ring)
				}
			}
			most := (stripes + ring - 1) / ring
			if l.Size == 1 {
				most = 1
			}
			if len(set) > most {
				t.Fatalf("%v: shard %d of %d tokens has %d spans, not %d", l, c, tokens, len(set),
					most)
			}
		}
	})
}

// TestStripedBalance: the largest over mean causal work grows with the stripe as its comment says,
// in every step too.
func TestStripedBalance(t *testing.T) {
	const tokens, ring = 4096, 8
	for _, size := range []int{1, 4, 16, 64} {
		l := mesh.Striped{Size: size}
		round, step := imbalance(l, attn.Causal(tokens, tokens), tokens, ring)
		most := 1 + float64((ring-1)*size)/tokens
		if round > most+0.001 || round < 1+(most-1)/2 {
			t.Errorf("stripes of %d: %.4f of the mean, want about %.4f", size, round, most)
		}
		if step > 1+(2*ring-1)*(most-1) {
			t.Errorf("stripes of %d: %.4f of the mean in a step", size, step)
		}
	}
}

func TestParseStriped(t *testing.T) {
	for word, want := range map[string]int{"striped": 1, "striped:1": 1, "striped:64": 64} {
		l, err := mesh.ParseStriped(word)
		if err != nil || l.Size != want {
			t.Errorf("%q: %v, %v", word, l, err)
		}
		if again, err := mesh.ParseStriped(l.String()); err != nil || again != l {
			t.Errorf("%v reads back as %v, %v", l, again, err)
		}
	}
	for word, want := range map[string]string{
		"stripes":              `layout "stripes" is not striped: use striped or striped:N`,
		"striped:":             `its stripe size "" is no whole number`,
		"striped:x":            "use striped:N with N from 1 to 1073741824, such as striped:64",
		"striped:0":            "striped:0: its stripe size must be 1 to 1073741824, such as",
		"striped:-3":           "striped:-3: its stripe size must be 1",
		"striped:999999999999": "such as striped:1073741824",
	} {
		_, err := mesh.ParseStriped(word)
		wantError(t, err, want)
	}
}
