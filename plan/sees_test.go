package plan

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// dealt deals n tokens to a few shards in some way: in runs, a token at a time, or at random.
func dealt(t *rapid.T, n, shards int, name string) []mesh.Set {
	way, run := rapid.IntRange(0, 2).Draw(t, name+" way"), rapid.IntRange(1, 9).Draw(t, name+" run")
	out := make([]mesh.Set, shards)
	if way == 0 { // interleaved spans of stride shards*run
		for c := range shards {
			for first := c * run; first < min((c+1)*run, n); first++ {
				count := (n-1-first)/(shards*run) + 1
				out[c] = append(out[c], mesh.Span{Start: first, Stride: shards * run, Count: count})
			}
		}
		return out
	}
	for lo := 0; lo < n; {
		hi := min(lo+run, n)
		c := lo / run % shards
		if way == 2 {
			c = rapid.IntRange(0, shards-1).Draw(t, name+" shard")
			hi = min(lo+rapid.IntRange(1, run).Draw(t, name+" length"), n)
		}
		out[c] = append(out[c], mesh.Span{Start: lo, Stride: 1, Count: hi - lo})
		lo = hi
	}
	return out
}

// drawMask draws documents with a window in each, or a few slices anywhere, which may meet.
func drawMask(t *rapid.T, q, k int) attn.Mask {
	var m attn.Mask
	if rapid.Bool().Draw(t, "packed") {
		width := rapid.IntRange(0, 30).Draw(t, "width")
		for lo := 0; lo < min(q, k); {
			hi := min(lo+rapid.IntRange(1, 40).Draw(t, "document"), q, k)
			m = append(m, attn.Slice{Q0: lo, Q1: hi, K0: lo, K1: hi, Lo: -width})
			lo = hi
		}
		return m
	}
	for range rapid.IntRange(0, 4).Draw(t, "slices") {
		s := drawSlice(t, min(q, k))
		if rapid.Bool().Draw(t, "narrow") {
			s.Hi = s.Lo + rapid.IntRange(0, 5).Draw(t, "band")
		}
		m = append(m, s)
	}
	return m
}

// drawDealt draws a header of shards and halves, and its groups.
func drawDealt(t *rapid.T) (*Header, []group) {
	q, k := rapid.IntRange(1, 200).Draw(t, "q"), rapid.IntRange(1, 200).Draw(t, "k")
	h := &Header{Sets: []mesh.Set{nil}}
	h.QTokens, h.KTokens, h.Mask = q, k, drawMask(t, q, k)
	in := interner{header: h, seen: map[uint64][]SetID{}}
	groups := make([]group, rapid.IntRange(1, 70).Draw(t, "shards"))
	halves := rapid.Bool().Draw(t, "halves")
	qs, ks := dealt(t, q, len(groups), "q"), dealt(t, k, len(groups), "k")
	for c := range groups {
		g := &groups[c]
		g.q, g.k = in.id(qs[c], ""), in.id(ks[c], "")
		for i := 0; halves && i < 2; i++ {
			g.qLanes = append(g.qLanes, in.id(run(qs[c], 2, i), ""))
			g.kLanes = append(g.kLanes, in.id(run(ks[c], 2, i), ""))
		}
	}
	return h, groups
}

// TestSeesWhatTheMaskAllows: the table says of every two sets of it what counting pairs says, and
// so does the counter of pairs.
func TestSeesWhatTheMaskAllows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, groups := drawDealt(t)
		s, counter := newSees(h, groups), newPairCounter(h)
		for i := range groups {
			for j := range groups {
				for _, q := range append(groups[i].qLanes, groups[i].q) {
					for _, k := range append(groups[j].kLanes, groups[j].k) {
						pairs := h.Mask.Pairs(h.Sets[q], h.Sets[k])
						if yes, known := s.ask(q, k); !known || yes != (pairs > 0) {
							t.Fatalf("%v sees %v: %v, known %v; %d pairs", h.Sets[q], h.Sets[k],
								yes, known, pairs)
						}
						if n := counter.tile(q, k); n != pairs {
							t.Fatalf("%v x %v: %d pairs, want %d", h.Sets[q], h.Sets[k], n, pairs)
						}
					}
				}
			}
		}
	})
}

// TestSeesKnowsWhatItDoesNot: of sets that are no shard and no half the table says so, and a table
// that would be too large is none.
func TestSeesKnowsWhatItDoesNot(t *testing.T) {
	h := &Header{Sets: []mesh.Set{nil, {allTokens(4)}, {allTokens(2)}}, Names: make([]string, 3)}
	h.QTokens, h.KTokens, h.Mask = 4, 4, attn.Causal(4, 4)
	s := newSees(h, []group{{q: 1, k: 1}})
	for _, c := range []struct {
		q, k       SetID
		yes, known bool
	}{{1, 1, true, true}, {0, 1, false, true}, {1, 0, false, true}, {2, 1, false, false},
		{1, 2, false, false}} {
		if yes, known := s.ask(c.q, c.k); yes != c.yes || known != c.known {
			t.Errorf("%d sees %d: %v, %v", c.q, c.k, yes, known)
		}
	}
	if s := newSees(h, make([]group, 5)); s == nil || len(s.bits) > 0 {
		t.Error("shards without tokens have no table")
	}
	many := make([]group, 1<<15)
	for i := range many {
		many[i] = group{q: 1, k: 1}
	}
	if newSees(h, many) != nil {
		t.Error("a table of 2^30 bits is too large")
	}
	if _, known := (*sees)(nil).ask(1, 1); known {
		t.Error("no table knows nothing")
	}
}

// TestSweepsOfManySpans: tiles of dozens of spans and slices, against pairs one by one.
func TestSweepsOfManySpans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, groups := drawDealt(t)
		f := newField(rapid.Uint64().Draw(t, "seed"), 200, 1)
		sets := newSets(f, h, setHashes(h))
		x := newMaskIndex(h.Mask)
		i := rapid.IntRange(0, len(groups)-1).Draw(t, "i")
		j := rapid.IntRange(0, len(groups)-1).Draw(t, "j")
		q, k := groups[i].q, groups[j].k
		want := bruteTile(f, h.Mask, h.Sets[q].Positions(), h.Sets[k].Positions())
		if got := f.tile(x, &sets[q], &sets[k]); got != want {
			t.Fatalf("%v x %v of %v: %d, want %d", h.Sets[q], h.Sets[k], h.Mask, got, want)
		}
	})
}
