package mesh_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/mesh"
	"pgregory.net/rapid"
)

func run(lo, hi int) mesh.Span { return mesh.Span{Start: lo, Stride: 1, Count: hi - lo} }

func TestDealtRefuses(t *testing.T) {
	odd := mesh.Span{Start: 1, Stride: 2, Count: 4}
	for _, tc := range []struct {
		shards []mesh.Set
		want   string
	}{
		{nil, "8 tokens over 0 shards: at least 1 shard"},
		{[]mesh.Set{{run(0, 4)}, {run(5, 8)}}, "token 4 is in no shard"},
		{[]mesh.Set{{run(0, 4)}, {run(4, 7)}}, "token 7 is in no shard"},
		{[]mesh.Set{{run(0, 5)}, {run(4, 8)}}, "token 4 is in shard 0 and again in shard 1"},
		{[]mesh.Set{{run(0, 9)}}, "its count at most 8"},
		{[]mesh.Set{{run(1, 9)}}, "it must lie inside the 8 tokens"},
		{[]mesh.Set{{run(-1, 4)}, {run(4, 8)}}, "it must lie inside the 8 tokens"},
		{[]mesh.Set{{run(4, 8), run(0, 4)}}, "span 1 starts at 0, the one before at 4"},
		{[]mesh.Set{{run(0, 0)}, {run(0, 8)}}, "shard 0: span 0 is {Start:0 Stride:1 Count:0}"},
		{[]mesh.Set{{{Start: 0, Stride: 0, Count: 8}}}, "stride and count must be at least 1"},
		{[]mesh.Set{{odd}, {{Start: 0, Stride: 2, Count: 3}}}, "token 6 is in no shard"},
		{[]mesh.Set{{odd}, {run(0, 8)}}, "token 1 is in shard 0 and again in shard 1"},
	} {
		_, err := mesh.NewDealt("hand", 8, tc.shards)
		wantError(t, err, tc.want)
	}
	l, err := mesh.NewDealt("hand", 8, []mesh.Set{{odd}, {{Start: 0, Stride: 2, Count: 4}}, nil})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(l.String(), "hand:") || l.Validate(8, 3) != nil {
		t.Errorf("%v: %v", l, l.Validate(8, 3))
	}
	wantError(t, l.Validate(9, 3), "deals 8 tokens over a ring of 3, not 9 over 3: deal these anew")
	wantError(t, l.Validate(8, 2), "not 8 over 2")
	wantError(t, (&mesh.Dealt{}).Validate(8, 2), "not 8 over 2")
}

func TestWholeDocTable(t *testing.T) {
	for _, tc := range []struct {
		name   string
		starts []int
		want   []string // spans by ring shard, as [first last]
	}{
		{"one a rank", []int{0, 4, 8, 12}, []string{"[0 3]", "[4 7]", "[8 11]"}},
		{"empty ones", []int{0, 0, 4, 4, 8, 8}, []string{"[0 3]", "[4 7]"}},
		{"fewer documents than ranks", []int{0, 1}, []string{"[0 0]", ""}},
		{"a long one is cut zigzag", []int{0, 1, 9}, []string{"[0 2] [7 8]", "[3 6]"}},
		{"over as many as it fills", []int{0, 8, 13, 18, 20},
			[]string{"[0 1] [6 7]", "[2 5]", "[8 12] [18 19]", "[13 17]"}},
		{"over more where that is more even", []int{0, 8, 12, 16, 20},
			[]string{"[0 0] [7 11]", "[1 1] [6 6] [12 15]", "[2 2] [5 5] [16 19]", "[3 4]"}},
		{"neighbours are joined", []int{0, 2, 4, 7}, []string{"[4 6]", "[0 3]"}},
	} {
		l, err := mesh.NewWholeDoc(tc.starts, tc.starts[len(tc.starts)-1], len(tc.want))
		if err != nil {
			t.Fatal(err)
		}
		for c, want := range tc.want {
			var got []string
			for _, s := range l.Shard(0, 0, c) {
				got = append(got, fmt.Sprintf("[%d %d]", s.Start, s.Last()))
			}
			if got := strings.Join(got, " "); got != want {
				t.Errorf("%s, shard %d: %s, want %s", tc.name, c, got, want)
			}
		}
	}
}

// TestWholeDocuments: a document of at most the fair share of the causal work is on one shard. No
// shard has more work than the mean, the largest whole document and, for each document that is cut,
// what zigzag is off by; a hundredth of it may go for even tokens.
func TestWholeDocuments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens, ring := rapid.IntRange(1, 700).Draw(t, "S"), rapid.IntRange(1, 16).Draw(t, "C")
		starts := drawStarts(t, tokens)
		l, err := mesh.NewWholeDoc(starts, tokens, ring)
		if err != nil {
			t.Fatal(err)
		}
		owner := make([]int, tokens)
		for c := range ring {
			for _, p := range l.Shard(tokens, ring, c).Positions() {
				owner[p] = c
			}
		}
		total, longest, off := 0, 0, 0
		for d := 1; d < len(starts); d++ {
			n := starts[d] - starts[d-1]
			total += n * (n + 1) / 2
		}
		work := make([]int, ring)
		for d := 1; d < len(starts); d++ {
			doc := owner[starts[d-1]:starts[d]]
			own := len(doc) * (len(doc) + 1) / 2
			for p, c := range doc {
				work[c] += p + 1
			}
			switch {
			case own*ring > total:
				off += len(doc)
			case slices.ContainsFunc(doc, func(c int) bool { return c != doc[0] }):
				t.Fatalf("document %d of %d tokens is on shards %v", d, len(doc), doc)
			default:
				longest = max(longest, own)
			}
		}
		if off > 0 { // shares of two long documents may meet on a shard
			longest = max(longest, (total+ring-1)/ring)
		}
		if most := (total/ring + longest + off + 1) * 102 / 100; slices.Max(work) > most {
			t.Fatalf("documents %v: work %v, a shard may have %d", starts, work, most)
		}
	})
}

// TestWholeDocTokens: where work allows it, tokens are even too: one long document over all shards
// leaves the short ones to be spread.
func TestWholeDocTokens(t *testing.T) {
	starts := []int{0, 4096}
	for range 256 {
		starts = append(starts, starts[len(starts)-1]+16)
	}
	l, err := mesh.NewWholeDoc(starts, 8192, 8)
	if err != nil {
		t.Fatal(err)
	}
	for c := range 8 {
		if n := l.Shard(8192, 8, c).Len(); n < 1000 || n > 1050 {
			t.Errorf("shard %d holds %d tokens of 8192 over 8", c, n)
		}
	}
	if round, _ := imbalance(l, packed(starts), 8192, 8); round > 1.01 {
		t.Errorf("%.4f of the mean", round)
	}
}
