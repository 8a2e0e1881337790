package mesh_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
	"pgregory.net/rapid"
)

// drawStarts draws cumulative starts of packed documents that end at tokens; some are empty.
func drawStarts(t *rapid.T, tokens int) []int {
	lengths := rapid.SampledFrom([]int{0, 1, 2, 3, 5, 8, 17, 40, 150, 700})
	starts := []int{0}
	for at := 0; at < tokens; {
		at = min(at+lengths.Draw(t, "length"), tokens)
		starts = append(starts, at)
	}
	if rapid.Bool().Draw(t, "empty end") {
		starts = append(starts, tokens)
	}
	return starts
}

// drawLayout draws a layout of any kind for so many tokens on a ring.
func drawLayout(t *rapid.T, tokens, ring int) mesh.Layout {
	switch rapid.IntRange(0, 4).Draw(t, "layout") {
	case 0:
		return rapid.SampledFrom(layouts()).Draw(t, "basic")
	case 1:
		return mesh.Striped{Size: rapid.IntRange(1, 20).Draw(t, "stripe")}
	case 2:
		return mesh.Striped{Size: rapid.IntRange(1, tokens+2).Draw(t, "stripe")}
	case 3:
		return mesh.DocZigzag{Starts: drawStarts(t, tokens)}
	}
	l, err := mesh.NewWholeDoc(drawStarts(t, tokens), tokens, ring)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLayoutsPartTokens: any layout, tokens, ring and head degree. Shards hold each token once and
// keep the law of sets, homes cut their rows in order, halves too, and the same layout has the same
// name.
func TestLayoutsPartTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.IntRange(1, 700).Draw(t, "S")
		m := mesh.Mesh{Head: rapid.IntRange(1, 5).Draw(t, "H")}
		m.Ring = rapid.IntRange(1, 16).Draw(t, "C")
		l := drawLayout(t, tokens, m.Ring)
		if err := l.Validate(tokens, m.Ring); err != nil {
			t.Fatal(err)
		}
		var shards []mesh.Set
		for c := range m.Ring {
			set := l.Shard(tokens, m.Ring, c)
			checkLaw(t, set)
			checkHomes(t, l, tokens, m, c, set)
			var halves []int
			for i := range 2 {
				half := mesh.Half(l, tokens, m.Ring, c, i)
				checkLaw(t, half)
				halves = append(halves, half.Positions()...)
			}
			if !slices.Equal(halves, set.Positions()) {
				t.Fatalf("%v: halves of shard %d hold %v, the shard is %v", l, c, halves, set)
			}
			shards = append(shards, set)
		}
		owned(t, tokens, shards)
		if d, err := mesh.NewDealt("again", tokens, shards); err != nil {
			t.Fatalf("%v does not part the tokens: %v", l, err)
		} else if e, _ := mesh.NewDealt("again", tokens, shards); d.String() != e.String() {
			t.Fatalf("names %v and %v of the same shards", d, e)
		}
	})
}

// checkLaw: spans lie one after the other, none is empty, and one token has stride 1.
func checkLaw(t *rapid.T, set mesh.Set) {
	for i, s := range set {
		if s.Count < 1 || s.Stride < 1 || s.Count == 1 && s.Stride != 1 ||
			i > 0 && s.Start <= set[i-1].Last() {
			t.Fatalf("span %d of %v breaks the law of sets", i, set)
		}
	}
}

// TestNamesTellLayoutsApart: what deals differently is named differently.
func TestNamesTellLayoutsApart(t *testing.T) {
	whole := func(starts ...int) mesh.Layout {
		l, err := mesh.NewWholeDoc(starts, starts[len(starts)-1], 2)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	var names []string
	for _, l := range []mesh.Layout{mesh.Zigzag, mesh.Contiguous, mesh.Striped{Size: 1},
		mesh.Striped{Size: 2}, mesh.DocZigzag{Starts: []int{0, 4, 8}},
		mesh.DocZigzag{Starts: []int{0, 3, 8}}, mesh.DocZigzag{Starts: []int{0, 0, 4, 8}},
		whole(0, 4, 8), whole(0, 3, 8)} {
		if slices.Contains(names, l.String()) {
			t.Errorf("the name %v is there twice", l)
		}
		names = append(names, l.String())
	}
}

func TestValidateStarts(t *testing.T) {
	for _, tc := range []struct {
		starts []int
		want   string
	}{
		{nil, "starts are missing: give 0, the start of each further document and the number of " +
			"tokens, such as 0,8"},
		{[]int{2, 8}, "begin with 2: the first document starts at 0"},
		{[]int{0, 5, 3, 8}, "start 3 (number 2) is below the one before it, 5"},
		{[]int{0, 5}, "end with 5, there are 8 tokens"},
		{[]int{0, 5, 9}, "so end them with 8"},
		{[]int{0}, "end with 0, there are 8 tokens"},
	} {
		wantError(t, mesh.ValidateStarts(tc.starts, 8), tc.want)
		wantError(t, mesh.DocZigzag{Starts: tc.starts}.Validate(8, 2), "layout doc-zigzag: doc")
		_, err := mesh.NewWholeDoc(tc.starts, 8, 2)
		wantError(t, err, tc.want)
	}
	for _, starts := range [][]int{{0, 8}, {0, 0, 3, 3, 8, 8}} {
		if err := mesh.ValidateStarts(starts, 8); err != nil {
			t.Error(err)
		}
	}
	if err := mesh.ValidateStarts([]int{0}, 0); err != nil {
		t.Error(err)
	}
	_, err := mesh.NewWholeDoc([]int{0, 8}, 8, 0)
	wantError(t, err, "ring degree 0: use 1 or more")
}

func TestDocZigzagTable(t *testing.T) {
	for _, tc := range []struct {
		starts []int
		want   []string // spans by ring shard, as [first last]
	}{
		// Lengths that divide: chunks c and 3-c, joined inside and across documents.
		{[]int{0, 8}, []string{"[0 1] [6 7]", "[2 5]"}},
		{[]int{0, 4, 4, 12}, []string{"[0 0] [3 5] [10 11]", "[1 2] [6 9]"}},
		// 5 tokens: shard 0 has one more; then 3: shard 1 has, in the first role.
		{[]int{0, 5, 8}, []string{"[0 1] [4 4] [6 6]", "[2 3] [5 5] [7 7]"}},
		// One token a document: in turn.
		{[]int{0, 1, 2, 3}, []string{"[0 0] [2 2]", "[1 1]"}},
	} {
		l := mesh.DocZigzag{Starts: tc.starts}
		for c, want := range tc.want {
			var got []string
			for _, s := range l.Shard(tc.starts[len(tc.starts)-1], len(tc.want), c) {
				got = append(got, fmt.Sprintf("[%d %d]", s.Start, s.Last()))
			}
			if got := strings.Join(got, " "); got != want {
				t.Errorf("documents %v, shard %d: %s, want %s", tc.starts, c, got, want)
			}
		}
	}
}

// TestDocZigzagBalance: in each document shards have equally many tokens or one more, over all
// documents too; the causal work of each inside a document of L tokens is less than L pairs above
// the mean. Under a ring that divides, shard c is chunks c and 2C-1-c.
func TestDocZigzagBalance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens, ring := rapid.IntRange(1, 700).Draw(t, "S"), rapid.IntRange(1, 16).Draw(t, "C")
		l := mesh.DocZigzag{Starts: drawStarts(t, tokens)}
		all := make([]int, ring)
		for d := 1; d < len(l.Starts); d++ {
			lo, hi := l.Starts[d-1], l.Starts[d]
			work, held := make([]int, ring), make([]int, ring)
			for c := range ring {
				for _, p := range l.Shard(tokens, ring, c).Positions() {
					if lo <= p && p < hi {
						work[c] += p - lo + 1
						held[c]++
						all[c]++
					}
				}
			}
			n := hi - lo
			if slices.Max(held)-slices.Min(held) > 1 || slices.Max(all)-slices.Min(all) > 1 {
				t.Fatalf("document %d of %d tokens: shards hold %v, %v up to it", d, n, held, all)
			}
			if slices.Max(work)*ring-n*(n+1)/2 > n*ring {
				t.Fatalf("document %d of %d tokens: work %v is more than %d above the mean", d, n,
					work, n)
			}
		}
	})
}

// TestDocZigzagOverDocuments: differences inside documents do not add up, whatever rhythm their
// lengths have.
func TestDocZigzagOverDocuments(t *testing.T) {
	for _, lengths := range [][]int{{1}, {2}, {3}, {4}, {7}, {8}, {12}, {3, 8}, {24}, {5, 40, 8}} {
		for _, ring := range []int{3, 4, 8} {
			starts := []int{0}
			for d := range 1200 {
				starts = append(starts, starts[d]+lengths[d%len(lengths)])
			}
			l, mask := mesh.DocZigzag{Starts: starts}, packed(starts)
			if round, _ := imbalance(l, mask, starts[1200], ring); round > 1.08 {
				t.Errorf("documents of %v on %d: %.4f of the mean", lengths, ring, round)
			}
		}
	}
}

// packed is a causal mask inside each document.
func packed(starts []int) attn.Mask {
	var m attn.Mask
	for d := 1; d < len(starts); d++ {
		m = append(m, attn.Slice{Q0: starts[d-1], Q1: starts[d], K0: starts[d-1], K1: starts[d],
			Lo: -attn.Unbounded})
	}
	return m
}

// TestRopePositions: [rope] documents 0,4,8 on ring 2, per-document zigzag: every rank knows the
// global positions of its rows and those inside their documents.
func TestRopePositions(t *testing.T) {
	t.Run("[rope]", func(t *testing.T) {
		l := mesh.DocZigzag{Starts: []int{0, 4, 8}}
		for c, want := range [][2][]int{
			{{0, 3, 4, 7}, {0, 3, 0, 3}},
			{{1, 2, 5, 6}, {1, 2, 1, 2}},
		} {
			set := l.Shard(8, 2, c)
			if got := set.Positions(); !slices.Equal(got, want[0]) {
				t.Errorf("shard %d has positions %v, want %v", c, got, want[0])
			}
			if got := mesh.DocPositions(l.Starts, set); !slices.Equal(got, want[1]) {
				t.Errorf("shard %d has positions %v inside documents, want %v", c, got, want[1])
			}
		}
	})
}

// TestDocPositions: a token's document is the last one that starts at or before it and is not
// empty.
func TestDocPositions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.IntRange(1, 100).Draw(t, "S")
		starts := drawStarts(t, tokens)
		var want []int
		for d := 1; d < len(starts); d++ {
			for p := range starts[d] - starts[d-1] {
				want = append(want, p)
			}
		}
		if got := mesh.DocPositions(starts, mesh.Contiguous.Shard(tokens, 1, 0)); !slices.Equal(got,
			want) {
			t.Fatalf("documents %v: positions %v, want %v", starts, got, want)
		}
	})
}

// TestShiftedLabels: [labels] tokens 1..8 on 2 ranks. The label of a row is the token after its
// global position, so labels are shifted before they are sharded, by the same layout.
func TestShiftedLabels(t *testing.T) {
	token := []int{1, 2, 3, 4, 5, 6, 7, 8}
	for _, tc := range []struct {
		layout mesh.Layout
		want   [2]string
	}{
		{mesh.Contiguous, [2]string{"[2 3 4 5]", "[6 7 8 ignore]"}},
		{mesh.Zigzag, [2]string{"[2 3 8 ignore]", "[4 5 6 7]"}},
	} {
		t.Run(fmt.Sprintf("[labels]/%v", tc.layout), func(t *testing.T) {
			for c, want := range tc.want {
				var labels []any
				for _, p := range tc.layout.Shard(8, 2, c).Positions() {
					if p+1 < len(token) {
						labels = append(labels, token[p+1])
					} else {
						labels = append(labels, "ignore")
					}
				}
				if got := fmt.Sprint(labels); got != want {
					t.Errorf("rank %d has labels %s, want %s", c, got, want)
				}
			}
		})
	}
}
