package mesh_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kvloom/kvloom/mesh"
	"pgregory.net/rapid"
)

func layouts() []mesh.Layout { return []mesh.Layout{mesh.Zigzag, mesh.Contiguous} }

// chunkOf lists the chunk of each token when tokens are cut into chunks, sizes differing by at
// most one and the larger first: the definition, written another way than CutEven.
func chunkOf(tokens, chunks int) []int {
	sizes := make([]int, chunks)
	for i := range tokens {
		sizes[i%chunks]++
	}
	var out []int
	for chunk, n := range sizes {
		out = append(out, slices.Repeat([]int{chunk}, n)...)
	}
	return out
}

// owned marks the positions of each set with its index; it fails on a doubled or lost one.
func owned(t interface{ Fatalf(string, ...any) }, tokens int, sets []mesh.Set) []int {
	owner := slices.Repeat([]int{-1}, tokens)
	for who, set := range sets {
		for _, p := range set.Positions() {
			if p < 0 || p >= tokens {
				t.Fatalf("set %d has token %d, there are %d", who, p, tokens)
			}
			if owner[p] >= 0 {
				t.Fatalf("token %d of %d is in sets %d and %d", p, tokens, owner[p], who)
			}
			owner[p] = who
		}
	}
	if i := slices.Index(owner, -1); i >= 0 {
		t.Fatalf("token %d of %d is in no set", i, tokens)
	}
	return owner
}

func TestShardTable(t *testing.T) {
	for _, tc := range []struct {
		layout mesh.Layout
		tokens int
		want   [][]int // by ring shard
	}{
		{mesh.Zigzag, 8, [][]int{{0, 7}, {1, 6}, {2, 5}, {3, 4}}},
		{mesh.Contiguous, 8, [][]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}}},
		// 10 tokens in 8 chunks: 2 2 1 1 1 1 1 1
		{mesh.Zigzag, 10, [][]int{{0, 1, 9}, {2, 3, 8}, {4, 7}, {5, 6}}},
		{mesh.Contiguous, 10, [][]int{{0, 1, 2}, {3, 4, 5}, {6, 7}, {8, 9}}},
		// [tiny sequence] fewer tokens than 2C: the later chunks are empty
		{mesh.Zigzag, 5, [][]int{{0}, {1}, {2}, {3, 4}}},
		{mesh.Zigzag, 3, [][]int{{0}, {1}, {2}, {}}},
		{mesh.Zigzag, 1, [][]int{{0}, {}, {}, {}}},
		{mesh.Contiguous, 3, [][]int{{0}, {1}, {2}, {}}},
	} {
		for c, want := range tc.want {
			got := tc.layout.Shard(tc.tokens, len(tc.want), c).Positions()
			if !slices.Equal(got, want) {
				t.Errorf("%v, %d tokens, shard %d of %d: %v, want %v", tc.layout, tc.tokens, c,
					len(tc.want), got, want)
			}
		}
	}
}

// TestShardsPartitionTokens: any tokens, ring and head degree. Shards hold each token once; under
// zigzag shard c is chunks c and 2C-1-c; the homes of a head group partition its shard in row
// order; sizes of shards, and of homes in a group, differ by at most one.
func TestShardsPartitionTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.IntRange(1, 200).Draw(t, "S")
		m := drawMesh(t)
		layout := rapid.SampledFrom(layouts()).Draw(t, "layout")
		var shards []mesh.Set
		for c := range m.Ring {
			shards = append(shards, layout.Shard(tokens, m.Ring, c))
			checkSpans(t, shards[c])
			checkHomes(t, layout, tokens, m, c, shards[c])
		}
		owner := owned(t, tokens, shards)
		if layout == mesh.Zigzag {
			for i, chunk := range chunkOf(tokens, 2*m.Ring) {
				if want := min(chunk, 2*m.Ring-1-chunk); owner[i] != want {
					t.Fatalf("token %d is in chunk %d of %d: shard %d, want %d", i, chunk, 2*m.Ring,
						owner[i], want)
				}
			}
		} else if !slices.Equal(owner, chunkOf(tokens, m.Ring)) {
			t.Fatalf("contiguous shards of %d tokens over %d: %v", tokens, m.Ring, owner)
		}
		checkSizes(t, layout, shards)
	})
}

// checkSpans: contiguous runs in rising order, none empty, with a gap between two; so one content
// has one form.
func checkSpans(t *rapid.T, shard mesh.Set) {
	for i, s := range shard {
		if s.Count < 1 || s.Stride != 1 || i > 0 && s.Start <= shard[i-1].Last()+1 {
			t.Fatalf("shard %v: span %d is empty or touches the one before", shard, i)
		}
	}
}

// checkHomes checks that the homes of head group c are the shard's rows, cut in order and evenly.
func checkHomes(t *rapid.T, l mesh.Layout, tokens int, m mesh.Mesh, c int, shard mesh.Set) {
	var rows []int
	for h := range m.Head {
		home := mesh.Home(l, tokens, m, mesh.Coord{H: h, C: c})
		if n := home.Len(); n < shard.Len()/m.Head || n > shard.Len()/m.Head+1 {
			t.Fatalf("home of head rank %d has %d of %d tokens, group of %d", h, n, shard.Len(),
				m.Head)
		}
		rows = append(rows, home.Positions()...)
	}
	if !slices.Equal(rows, shard.Positions()) {
		t.Fatalf("homes of group %d hold %v, the shard is %v", c, rows, shard.Positions())
	}
}

// checkSizes: shards differ by at most one token. Under zigzag too: the larger chunks are the first
// ones, and a pair has one of the first C chunks.
func checkSizes(t *rapid.T, l mesh.Layout, shards []mesh.Set) {
	least, most := shards[0].Len(), 0
	for _, s := range shards {
		least, most = min(least, s.Len()), max(most, s.Len())
	}
	if most-least > 1 {
		t.Fatalf("%v: shards of %d to %d tokens", l, least, most)
	}
}

// TestHomesOwnEachTokenOnce: [odd head degree] and [tiny sequence] of the field cases, in both
// placements. Homes do not depend on the placement.
func TestHomesOwnEachTokenOnce(t *testing.T) {
	for _, tc := range []struct {
		name       string
		head, ring int
		tokens     []int
	}{
		{"[odd head degree]", 3, 2, []int{1, 12, 13, 97}},
		{"[odd head degree]", 3, 4, []int{5, 24, 31, 97}},
		{"[odd head degree]", 5, 2, []int{7, 20, 31, 97}},
		{"[tiny sequence]", 1, 2, []int{1, 2, 3, 4}},
		{"[tiny sequence]", 2, 1, []int{1, 4}},
		{"[tiny sequence]", 4, 4, []int{1, 2, 3, 5, 7}},
	} {
		for _, layout := range layouts() {
			for _, tokens := range tc.tokens {
				name := fmt.Sprintf("%s/%dx%d/%v/S=%d", tc.name, tc.head, tc.ring, layout, tokens)
				t.Run(name, func(t *testing.T) {
					m := mesh.Mesh{Head: tc.head, Ring: tc.ring}
					o := mesh.Mesh{Head: tc.head, Ring: tc.ring, Placement: mesh.ContextFirst}
					homes, others := make([]mesh.Set, m.Ranks()), make([]mesh.Set, m.Ranks())
					for g := range homes {
						homes[g] = mesh.Home(layout, tokens, m, m.Coord(g))
						others[g] = mesh.Home(layout, tokens, o, o.Coord(g))
						at := m.Coord(g)
						if !slices.Equal(homes[g], mesh.Home(layout, tokens, o, at)) {
							t.Errorf("the home at %+v depends on the placement", at)
						}
					}
					owned(t, tokens, homes)
					owned(t, tokens, others)
				})
			}
		}
	}
}
