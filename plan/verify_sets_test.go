package plan

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

func setsOf(sets ...mesh.Set) *verifier {
	h := &Header{Sets: append([]mesh.Set{nil}, sets...)}
	f := newField(5, 200, 16)
	return &verifier{hdr: h, field: f, sets: newSets(f, h, setHashes(h))}
}

func TestSetsAgainstPositions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawSet(t, 60, "a"), drawSet(t, 60, "b")
		v := setsOf(a, b)
		if err := checkSet(a); err != nil {
			t.Fatalf("%v: %v", a, err)
		}
		pa, pb := a.Positions(), b.Positions()
		if got := v.sets[1].spans.Positions(); !slices.Equal(got, pa) {
			t.Fatalf("canonical %v has rows %v, want %v", a, got, pa)
		}
		n := 0
		for _, p := range pa {
			if slices.Contains(pb, p) {
				n++
			}
		}
		if got := v.common(1, 2); got != n {
			t.Fatalf("%v and %v share %d tokens, got %d", a, b, n, got)
		}
		if got := v.common(2, 1); got != n {
			t.Fatalf("%v and %v share %d tokens, got %d", b, a, n, got)
		}
		same := v.sets[1].same == v.sets[2].same
		if same != slices.Equal(pa, pb) {
			t.Fatalf("%v and %v: same is %v", a, b, same)
		}
		for i := range 60 {
			if v.has(1, i) != slices.Contains(pa, i) {
				t.Fatalf("%v has %d: %v", a, i, v.has(1, i))
			}
		}
	})
}

func TestSetsCutOtherwiseAreTheSame(t *testing.T) {
	v := setsOf(
		mesh.Set{{Start: 0, Stride: 1, Count: 6}},
		mesh.Set{{Start: 0, Stride: 1, Count: 2}, {Start: 2, Stride: 7, Count: 1},
			{Start: 3, Stride: 1, Count: 3}},
		mesh.Set{{Start: 0, Stride: 2, Count: 3}, {Start: 1, Stride: 2, Count: 3}},
	)
	if v.sets[1].same != v.sets[2].same || v.sets[1].wire == v.sets[2].wire {
		t.Error("rows 0..5 cut in three are the same rows, and another name in a block header")
	}
	if v.sets[1].same == v.sets[3].same {
		t.Error("the same tokens in another row order are another set")
	}
}

func TestCheckSetRefuses(t *testing.T) {
	for _, set := range []mesh.Set{
		{{Start: 0, Stride: 1, Count: 0}},
		{{Start: 0, Stride: 0, Count: 2}},
		{{Start: -1, Stride: 1, Count: 2}},
		{{Start: 5, Stride: 1, Count: 2}, {Start: 0, Stride: 1, Count: 2}},
		{{Start: 0, Stride: 1, Count: 4}, {Start: 3, Stride: 1, Count: 2}},
		{{Start: 0, Stride: 3, Count: 4}, {Start: 2, Stride: 2, Count: 3}},
		{{Start: 1, Stride: MaxTokens, Count: 2}},
	} {
		if checkSet(set) == nil {
			t.Errorf("%v is no set and passes", set)
		}
	}
}

// Partitions and covers against counting cells.
func TestUnpackAgainstCells(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cut := rapid.IntRange(1, 5).Draw(t, "cut")
		v := setsOf(
			mesh.Set{{Start: 0, Stride: 1, Count: 6}},
			mesh.Set{{Start: 0, Stride: 1, Count: cut}},
			mesh.Set{{Start: cut, Stride: 1, Count: 6 - cut}},
			mesh.Set{{Start: 0, Stride: 2, Count: 3}},
			mesh.Set{{Start: 1, Stride: 2, Count: 3}},
			mesh.Set{{Start: 4, Stride: 1, Count: 4}},
		)
		dst := region{1, mesh.Heads{Lo: 1, Hi: 4}}
		var srcs []Operand
		var cells [10][8]int
		for range rapid.IntRange(1, 5).Draw(t, "sources") {
			lo := int32(rapid.IntRange(1, 3).Draw(t, "lo"))
			o := Operand{Set: SetID(rapid.IntRange(1, 6).Draw(t, "set")),
				Heads: mesh.Heads{Lo: lo, Hi: int32(rapid.IntRange(int(lo)+1, 4).Draw(t, "hi"))}}
			srcs = append(srcs, o)
			for _, p := range v.hdr.Sets[o.Set].Positions() {
				for h := o.Heads.Lo; h < o.Heads.Hi; h++ {
					cells[p][h]++
				}
			}
		}
		exact, covers := true, true
		for p := range cells {
			for h, n := range cells[p] {
				in := p < 6 && h >= 1 && h < 4
				exact = exact && (n == 1) == in && (n == 0) == !in
				covers = covers && (n > 0) == in
			}
		}
		if got := v.exact(srcs, dst); got != exact {
			t.Fatalf("%v: exact %v, want %v", srcs, got, exact)
		}
		if got := v.covers(srcs, dst); got != covers {
			t.Fatalf("%v: covers %v, want %v", srcs, got, covers)
		}
	})
}

// Documents give sets of many spans and masks of many slices, which are searched, not walked.
func TestManySpansAndSlicesAgainstPairs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 150
		many := func(label string) mesh.Set {
			var set mesh.Set
			at := 0
			for at < n-8 {
				at += rapid.IntRange(0, 6).Draw(t, label+" gap")
				c := rapid.IntRange(1, 6).Draw(t, label)
				set = append(set, mesh.Span{Start: at, Stride: 1, Count: c})
				at += c + 1
			}
			return set
		}
		v := setsOf(many("q"), many("k"), drawSet(t, n, "few"))
		var m attn.Mask
		for lo := 0; lo < n; lo += 10 {
			m = append(m, attn.Slice{Q0: lo, Q1: lo + 10, K0: lo / 2, K1: lo + 5, Lo: -9, Hi: 2})
		}
		x := newMaskIndex(m).within(rect{0, n, 0, n})
		qs, ks := v.hdr.Sets[1].Positions(), v.hdr.Sets[2].Positions()
		got := v.field.tile(x, &v.sets[1], &v.sets[2])
		if want := bruteTile(v.field, m, qs, ks); got != want {
			t.Fatalf("tile of %v x %v: %d, want %d", v.hdr.Sets[1], v.hdr.Sets[2], got, want)
		}
		for _, b := range []SetID{2, 3} {
			shared := 0
			for _, p := range v.hdr.Sets[b].Positions() {
				if slices.Contains(qs, p) {
					shared++
				}
			}
			if got := v.common(1, b); got != shared {
				t.Fatalf("set %d shares %d tokens, got %d", b, shared, got)
			}
		}
	})
}

func TestHeaderIsCheckedFirst(t *testing.T) {
	for _, c := range []struct {
		do   func(h *Header)
		kind string
		want string
	}{
		{func(h *Header) { h.KHeads = 0 }, "home", "kv-heads 0"},
		{func(h *Header) { h.QTokens = 0 }, "home", "tokens 0"},
		{func(h *Header) { h.Ranks = 0 }, "home", "on 0 ranks"},
		{func(h *Header) { h.Sets[0] = h.Sets[1] }, "home", "token set 0 is not the empty set"},
		{func(h *Header) { h.HomeK[1] = 9 }, "ownership", "home sets 2 and 9 of rank 1"},
	} {
		p := ringByHand()
		c.do(p.h)
		r, err := Verify(p)
		if err != nil || len(r.Violations) != 1 || r.Violations[0].Kind != c.kind ||
			!strings.Contains(r.Violations[0].Text, c.want) {
			t.Errorf("%v, %v, want %s", err, r.Violations, c.want)
		}
		s, found := VerifyRank(p.h, p.progs[fw][0])
		live := CheckLive(p.h, p.progs[fw][0], p.progs[bw][0])
		if s.Broken != 1 || len(found) != 1 || len(CheckSums(p.h, fw, s)) != 1 || len(live) != 1 {
			t.Errorf("%s: a rank by itself: %+v %v %v", c.want, s, found, live)
		}
	}
}
