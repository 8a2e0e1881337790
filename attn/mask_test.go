package attn

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/mesh"
	"pgregory.net/rapid"
)

// pick chooses a number in [lo,hi]. Rapid's picks lean to the small and to the ends, and shrink;
// the even ones of everyCase reach the middles.
type pick func(lo, hi int) int

// everyCase runs check with picks of both sorts.
func everyCase(t *testing.T, check func(pick pick) error) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		err := check(func(lo, hi int) int { return rapid.IntRange(lo, hi).Draw(t, "pick") })
		if err != nil {
			t.Fatal(err)
		}
	})
	rng := rand.New(rand.NewPCG(17, 18))
	for n := range 1000 {
		if err := check(func(lo, hi int) int { return lo + rng.IntN(hi-lo+1) }); err != nil {
			t.Fatalf("case %d: %v", n, err)
		}
	}
}

// mask picks slices of all four kinds and keeps those that share no pair with those before.
func (pick pick) mask(q, k int) Mask {
	var m Mask
	for range pick(0, 6) {
		s := Slice{Q0: pick(0, q), K0: pick(0, k), Lo: -Unbounded, Hi: Unbounded}
		s.Q1, s.K1 = pick(s.Q0, q), pick(s.K0, k)
		if pick(0, 1) == 1 {
			s.Lo = pick(-q, k)
		}
		if pick(0, 1) == 1 {
			s.Hi = max(s.Lo, -q) + pick(0, k+q)
		}
		if !sharesPair(m, s, q, k) {
			m = append(m, s)
		}
	}
	return m
}

func sharesPair(m Mask, s Slice, q, k int) bool {
	for i := range q {
		for j := range k {
			if m.Allows(i, j) && (Mask{s}).Allows(i, j) {
				return true
			}
		}
	}
	return false
}

// span picks a run of up to n positions of any stride up to 5.
func (pick pick) span(n int) mesh.Span {
	s := mesh.Span{Start: pick(0, n-1), Stride: pick(1, 5)}
	s.Count = pick(1, (n-1-s.Start)/s.Stride+1)
	return s
}

// set picks runs with gaps, or some stripes of one modulus, which interleave.
func (pick pick) set(n int) mesh.Set {
	var set mesh.Set
	if pick(0, 1) == 1 {
		mod := pick(1, 4)
		for r := range min(mod, n) {
			if pick(0, 1) == 1 {
				set = append(set, mesh.Span{Start: r, Stride: mod, Count: (n-1-r)/mod + 1})
			}
		}
		return set
	}
	for at := pick(0, 5); at < n; at += pick(0, 5) {
		count := min(pick(1, 8), n-at)
		set = append(set, mesh.Span{Start: at, Stride: 1, Count: count})
		at += count
	}
	return set
}

func countPairs(m Mask, qs, ks []int) int64 {
	var n int64
	for _, i := range qs {
		for _, j := range ks {
			if m.Allows(i, j) {
				n++
			}
		}
	}
	return n
}

func TestPairsAndClassEqualBruteForce(t *testing.T) {
	everyCase(t, func(pick pick) error {
		q, k := pick(1, 30), pick(1, 30)
		m := pick.mask(q, k)
		if err := m.Validate(q, k); err != nil {
			return fmt.Errorf("disjoint mask refused: %w", err)
		}
		if got, want := m.TotalPairs(), countPairs(m, firstN(q), firstN(k)); got != want {
			return fmt.Errorf("%v: TotalPairs = %d, counted %d", m, got, want)
		}
		qs, ks := pick.set(q), pick.set(k)
		counted := countPairs(m, qs.Positions(), ks.Positions())
		if got := m.Pairs(qs, ks); got != counted {
			return fmt.Errorf("%v: Pairs(%v, %v) = %d, counted %d", m, qs, ks, got, counted)
		}
		a, b := pick.span(q), pick.span(k)
		n := countPairs(m, mesh.Set{a}.Positions(), mesh.Set{b}.Positions())
		if got := m.Pairs(mesh.Set{a}, mesh.Set{b}); got != n {
			return fmt.Errorf("%v: Pairs(%v, %v) = %d, counted %d", m, a, b, got, n)
		}
		want := Border
		if n == 0 {
			want = Empty
		} else if n == int64(a.Count)*int64(b.Count) {
			want = Whole
		}
		if got := m.Class(a, b); got != want {
			return fmt.Errorf("%v: Class(%v, %v) = %v, %d pairs allowed", m, a, b, got, n)
		}
		return nil
	})
}

func TestRowsAndKeysEqualAllows(t *testing.T) {
	everyCase(t, func(pick pick) error {
		q, k := pick(1, 20), pick(1, 20)
		m := pick.mask(q, k)
		for i := range q {
			keys := m.keys(nil, i)
			want := int(countPairs(m, []int{i}, firstN(k)))
			if len(keys) != want || int(countPairs(m, []int{i}, keys)) != want {
				return fmt.Errorf("%v: row %d sees %v, counted %d", m, i, keys, want)
			}
		}
		for j := range k {
			rows := m.queries(nil, j)
			want := int(countPairs(m, firstN(q), []int{j}))
			if len(rows) != want || int(countPairs(m, rows, []int{j})) != want {
				return fmt.Errorf("%v: key %d is seen by %v, counted %d", m, j, rows, want)
			}
		}
		return nil
	})
}

func TestValidateFindsSharedPairs(t *testing.T) {
	everyCase(t, func(pick pick) error {
		q, k := pick(1, 12), pick(1, 12)
		a, b := pick.mask(q, k), pick.mask(q, k)
		both := append(append(Mask{}, a...), b...)
		shared := false
		for _, s := range b {
			shared = shared || sharesPair(a, s, q, k)
		}
		if err := both.Validate(q, k); (err != nil) != shared {
			return fmt.Errorf("%v: shared pairs %v, error %v", both, shared, err)
		}
		return nil
	})
}

func TestPairsOfLongSequences(t *testing.T) {
	const s = 1 << 20
	whole := mesh.Set{{Start: 0, Stride: 1, Count: s}}
	if got, want := Causal(s, s).TotalPairs(), int64(s)*(s+1)/2; got != want {
		t.Errorf("causal pairs of 1M tokens = %d, want %d", got, want)
	}
	if got, want := Causal(s, s).Pairs(whole, whole), int64(s)*(s+1)/2; got != want {
		t.Errorf("causal tile of 1M tokens = %d, want %d", got, want)
	}
	if got, want := Full(MaxTokens, MaxTokens).TotalPairs(), int64(1)<<60; got != want {
		t.Errorf("full pairs of 2^30 tokens = %d, want %d", got, want)
	}
	band := Mask{{Q1: MaxTokens, K1: MaxTokens, Lo: -1, Hi: 1}}
	if got, want := band.TotalPairs(), int64(3*MaxTokens-2); got != want {
		t.Errorf("band pairs of 2^30 tokens = %d, want %d", got, want)
	}
	odd := mesh.Set{{Start: 1, Stride: 2, Count: s / 2}}
	third := mesh.Set{{Start: 0, Stride: 3, Count: s / 3}}
	var want int64
	for i := 1; i < s; i += 2 {
		want += int64(min(i/3+1, s/3))
	}
	if got := Causal(s, s).Pairs(odd, third); got != want {
		t.Errorf("strides 2 and 3: %d pairs, want %d", got, want)
	}
}

func TestMaskErrors(t *testing.T) {
	const u = Unbounded
	cases := []struct {
		name string
		mask Mask
		want string // "" is no error
	}{
		{"none", nil, ""},
		{"full", Full(8, 4), ""},
		{
			"documents, one empty",
			Mask{{0, 3, 0, 3, -u, 0}, {3, 3, 3, 3, -u, 0}, {3, 8, 3, 4, -u, 0}}, "",
		},
		{
			"queries", Mask{{0, 9, 0, 4, -u, u}},
			"slice 0 (q[0,9) k[0,4) j-i in [-inf,inf]): its queries",
		},
		{"keys", Full(8, 5), "its keys must be a range inside [0,4)"},
		{"reversed", Mask{{5, 4, 0, 4, -u, u}}, "its queries"},
		{"lo above hi", Mask{{0, 8, 0, 4, 1, 0}}, "lo 1 is above hi 0"},
		{"offset", Mask{{0, 8, 0, 4, -u - 1, 0}}, "offsets"},
		{
			"shared", Mask{{4, 8, 0, 4, -u, u}, {0, 4, 0, 4, -u, 0}, {3, 6, 3, 4, -u, u}},
			"slices 1 (q[0,4) k[0,4) j-i in [-inf,0]) and 2 (q[3,6) k[3,4) j-i in [-inf,inf])",
		},
	}
	for _, c := range cases {
		err := c.mask.Validate(8, 4)
		if c.want == "" && err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	if err := Full(1, 1).Validate(MaxTokens+1, 1); err == nil {
		t.Error("more than MaxTokens queries accepted")
	}
}

func TestClassWords(t *testing.T) {
	m := Mask{{0, 4, 0, 4, -Unbounded, 0}, {0, 4, 0, 4, 1, Unbounded}}
	tile := mesh.Span{Start: 0, Stride: 1, Count: 4}
	if got := m.Class(tile, tile).String(); got != "whole" {
		t.Errorf("two triangles make a %s tile, want whole", got)
	}
	if got := m[:1].Class(tile, tile).String(); got != "border" {
		t.Errorf("one triangle makes a %s tile, want border", got)
	}
	if got := (Mask{}).Class(tile, tile).String(); got != "empty" {
		t.Errorf("no mask makes a %s tile, want empty", got)
	}
	if got := m.Class(tile, mesh.Span{Stride: 1}); got != Empty {
		t.Errorf("a tile without keys is %v, want empty", got)
	}
}

func TestPairsDoNotAllocate(t *testing.T) {
	m := Causal(1000, 1000)
	q, k := mesh.Span{Start: 100, Stride: 1, Count: 50}, mesh.Span{Start: 120, Stride: 2, Count: 50}
	qs, ks := mesh.Set{q, {Start: 500, Stride: 1, Count: 9}}, mesh.Set{k}
	if n := testing.AllocsPerRun(10, func() { m.Class(q, k); m.Pairs(qs, ks) }); n != 0 {
		t.Errorf("Class and Pairs allocate %v times", n)
	}
}

func BenchmarkClass(b *testing.B) {
	q := mesh.Span{Start: 1000, Stride: 1, Count: 500}
	tiles := []struct {
		name string
		k    mesh.Span
	}{
		{"whole", mesh.Span{Start: 0, Stride: 1, Count: 500}},
		{"empty", mesh.Span{Start: 2000, Stride: 1, Count: 500}},
		{"border", mesh.Span{Start: 1200, Stride: 1, Count: 500}},
		{"border-strided", mesh.Span{Start: 1200, Stride: 4, Count: 100}},
	}
	m := Causal(4096, 4096)
	for _, tile := range tiles {
		b.Run(tile.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.Class(q, tile.k)
			}
		})
	}
}

// BenchmarkPairs counts a tile of two ranks of 64 under per-document zigzag, 1,000 documents.
func BenchmarkPairs(b *testing.B) {
	const docs, length, chunk = 1000, 1024, 8
	var m Mask
	var qs, ks mesh.Set
	for d := range docs {
		at := d * length
		m = append(m, Slice{at, at + length, at, at + length, -Unbounded, 0})
		for _, c := range []int{3, 124} {
			qs = append(qs, mesh.Span{Start: at + c*chunk, Stride: 1, Count: chunk})
			ks = append(ks, mesh.Span{Start: at + (c-2)*chunk, Stride: 1, Count: chunk})
		}
	}
	for b.Loop() {
		m.Pairs(qs, ks)
	}
}
