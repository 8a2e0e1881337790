package attn

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/mesh"
)

// mustEqual compares a mask with what its definition allows, and checks that its slices are valid
// and in order of their queries.
func mustEqual(m Mask, q, k int, allows func(i, j int) bool) error {
	if err := m.Validate(q, k); err != nil {
		return err
	}
	if !slices.IsSortedFunc(m, func(a, b Slice) int { return a.Q0 - b.Q0 }) {
		return fmt.Errorf("%v: slices are not in order", m)
	}
	for i := range q {
		for j := range k {
			if m.Allows(i, j) != allows(i, j) {
				return fmt.Errorf("%v: (%d,%d) is allowed: %v", m, i, j, m.Allows(i, j))
			}
		}
	}
	return nil
}

// family picks a mask word and gives its definition.
func (pick pick) family(n int) (word string, allows func(i, j int) bool) {
	x, y := pick(0, n+2), pick(-1, n+2)
	switch pick(0, 5) {
	case 0:
		return "causal", func(i, j int) bool { return j <= i }
	case 1:
		return "full", func(i, j int) bool { return true }
	case 2:
		return fmt.Sprintf("window:%d", x), func(i, j int) bool { return i-x <= j && j <= i }
	case 3:
		left := pick(-1, n+2)
		return fmt.Sprintf("window:%d,%d", left, y), func(i, j int) bool {
			return (left < 0 || i-left <= j) && (y < 0 || j <= i+y)
		}
	case 4:
		return fmt.Sprintf("prefix:%d", x), func(i, j int) bool { return j <= i || j < x }
	}
	return fmt.Sprintf("block-causal:%d", x+1), func(i, j int) bool { return j/(x+1) <= i/(x+1) }
}

func TestMaskFamilies(t *testing.T) {
	everyCase(t, func(pick pick) error {
		n := pick(0, 24)
		word, allows := pick.family(n)
		masks, err := ParseMask(word)
		if err != nil {
			return err
		}
		if err := mustEqual(masks(n), n, n, allows); err != nil {
			return fmt.Errorf("%s of %d tokens: %w", word, n, err)
		}
		return nil
	})
}

func TestWindowOfTwoLengths(t *testing.T) {
	everyCase(t, func(pick pick) error {
		q, k, left, right := pick(0, 12), pick(0, 12), pick(-1, 14), pick(-1, 14)
		return mustEqual(Window(q, k, left, right), q, k, func(i, j int) bool {
			return (left < 0 || i-left <= j) && (right < 0 || j <= i+right)
		})
	})
}

func TestDocuments(t *testing.T) {
	everyCase(t, func(pick pick) error {
		starts, doc := []int{0}, []int{}
		for d := range pick(1, 5) {
			n := pick(0, 7)
			starts = append(starts, starts[d]+n)
			for range n {
				doc = append(doc, d)
			}
		}
		word, allows := pick.family(7)
		inner, err := ParseMask(word)
		if err != nil {
			return err
		}
		over := func(tokens int) Mask { // allows what lies outside the document, too
			if pick(0, 1) == 1 {
				return inner(tokens)
			}
			return inner(tokens + 2)
		}
		m, err := Documents(starts, over)
		if err != nil {
			return err
		}
		n := starts[len(starts)-1]
		if err := mustEqual(m, n, n, func(i, j int) bool {
			return doc[i] == doc[j] && allows(i-starts[doc[i]], j-starts[doc[i]])
		}); err != nil {
			return fmt.Errorf("%s in documents %v: %w", word, starts, err)
		}
		for _, s := range m {
			if s.total() == 0 {
				return fmt.Errorf("%s in documents %v: slice %v allows nothing", word, starts, s)
			}
		}
		return nil
	})
}

func TestDocumentErrors(t *testing.T) {
	inner := func(tokens int) Mask { return Causal(tokens, tokens) }
	for _, c := range []struct {
		starts []int
		want   string
	}{
		{nil, "0 document starts: give the first, 0"},
		{[]int{0}, "1 document starts"},
		{[]int{1, 3}, "the first document starts at 1: it must start at 0"},
		{[]int{0, 5, 4, 9}, "document start 2 is 4, below the one before it, 5"},
		{[]int{0, -1}, "document start 1 is -1, below"},
		{[]int{0, MaxTokens + 1}, "there may be 1073741824 tokens at most"},
	} {
		_, err := Documents(c.starts, inner)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v, want %q", c.starts, err, c.want)
		}
	}
	if m, err := Documents([]int{0, 0, 0}, inner); err != nil || len(m) != 0 {
		t.Errorf("documents without tokens: %v, %v", m, err)
	}
}

func TestShift(t *testing.T) {
	everyCase(t, func(pick pick) error {
		q, k, dq, dk := pick(1, 9), pick(1, 9), pick(0, 5), pick(0, 5)
		m := pick.mask(q, k)
		moved := Shift(m, dq, dk)
		if err := moved.Validate(q+dq, k+dk); err != nil {
			return err
		}
		for i := range q + dq {
			for j := range k + dk {
				if want := m.Allows(i-dq, j-dk); moved.Allows(i, j) != want {
					return fmt.Errorf("%v moved by %d, %d: (%d,%d) is %v", m, dq, dk, i, j, !want)
				}
			}
		}
		return nil
	})
}

func TestBlockCausalPanics(t *testing.T) {
	defer func() {
		const want = "attn: blocks of 0 tokens: there must be 1 or more"
		if text, _ := recover().(string); text != want {
			t.Errorf("panic %q", text)
		}
	}()
	BlockCausal(0, 4)
}

func TestMaskWordErrors(t *testing.T) {
	for word, want := range map[string]string{
		"":               `mask "" is unknown: write causal, full, window:LEFT[,RIGHT]`,
		"casual":         `mask "casual" is unknown`,
		"window":         `mask "window" is unknown`,
		"causal:3":       `mask "causal:3" is unknown`,
		"window:":        `mask "window:": "" must be a number of tokens, 0 to`,
		"window:1,":      `"" must be a number of tokens`,
		"window:-2":      `"-2" must be a number of tokens, 0 to 1073741824, or -1`,
		"window:1,2,3":   `"2,3" must be`,
		"window:1.5":     `"1.5" must be`,
		"prefix:-1":      `mask "prefix:-1": "-1" must be a number of tokens, 0 to`,
		"prefix:2G":      `"2G" must be`,
		"block-causal:0": `mask "block-causal:0": "0" must be a number of tokens, 1 to`,
		"block-causal:x": `"x" must be a number`,
	} {
		if _, err := ParseMask(word); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", word, err, want)
		}
	}
	sized, err := ParseMask("window:2K,1K")
	if err != nil {
		t.Fatal(err)
	}
	if got := sized(9000)[0]; got.Lo != -2048 || got.Hi != 1024 {
		t.Errorf("2K,1K gave %v", got)
	}
}

// write is the mask as a file of slices, lines in the order given.
func write(m Mask, order []int) string {
	var b strings.Builder
	for _, n := range order {
		s := m[n]
		lo, hi := fmt.Sprint(s.Lo), fmt.Sprint(s.Hi)
		if s.Lo == -Unbounded {
			lo = "-inf"
		}
		if s.Hi == Unbounded {
			hi = "inf"
		}
		kind := fmt.Sprintf("band:%s,%s", lo, hi)
		switch {
		case s.Lo == -Unbounded && s.Hi == Unbounded:
			kind = "full"
		case s.Lo == -Unbounded && s.Hi == 0:
			kind = "causal"
		case s.Lo == 0 && s.Hi == Unbounded:
			kind = "inverse-causal"
		}
		fmt.Fprintf(&b, "%d %d\t%d  %d %s # slice\n\n", s.Q0, s.Q1, s.K0, s.K1, kind)
	}
	return b.String()
}

func TestSlicesOfAFile(t *testing.T) {
	everyCase(t, func(pick pick) error {
		q, k := pick(1, 20), pick(1, 20)
		m := pick.mask(q, k)
		order := firstN(len(m))
		slices.Reverse(order)
		text := "# a mask\n" + write(m, order)
		got, err := ParseSlices([]byte(text), q, k)
		if err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		return mustEqual(got, q, k, m.Allows)
	})
}

func TestSliceFileErrors(t *testing.T) {
	for text, want := range map[string]string{
		"0 8 0 8":                "line 1, \"0 8 0 8\": it has 4 words, a slice has 5: q0 q1 k0 k1",
		"\n0 8 0 8 full full":    "line 2, \"0 8 0 8 full full\": it has 6 words",
		"#\n#\n0 8 x 8 full":     "line 3, \"0 8 x 8 full\": \"x\" must be a whole number",
		"0 9 0 8 full":           "\"0 9 0 8 full\": its queries must be a range inside [0,8)",
		"0 8 5 4 full":           "its keys must be a range",
		"0 8 0 8 casual":         "\"casual\" must be full, causal, inverse-causal or band:LO,HI",
		"0 8 0 8 band:1":         "\"band:1\" must be",
		"0 8 0 8 band:1,x":       "\"band:1,x\" must be",
		"0 8 0 8 band:,2":        "must be",
		"0 8 0 8 band:inf,2":     "must be",
		"0 8 0 8 band:3,2":       "lo 3 is above hi 2",
		"0 8 0 8 1,2":            "must be",
		"0 8 0 8 band:0,9999999": "", // far beyond the keys is no mistake
		"0 8 0 8 causal\n1 2 1 2 full": "lines 1 (q[0,8) k[0,8) j-i in [-inf,0]) and 2 (q[1,2) " +
			"k[1,2) j-i in [-inf,inf]) share pairs",
	} {
		_, err := ParseSlices([]byte(text), 8, 8)
		if want == "" && err != nil || want != "" && (err == nil ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
	if m, err := ParseSlices([]byte("# nothing\n"), 8, 8); err != nil || len(m) != 0 {
		t.Errorf("no slice: %v, %v", m, err)
	}
	if _, err := ParseSlices(nil, -1, 8); err == nil {
		t.Error("-1 queries accepted")
	}
}

func FuzzParseSlices(f *testing.F) {
	f.Add([]byte("0 8 0 8 causal # c\n8 16 0 4 full\n8 16 4 16 band:-2,inf\n"))
	f.Add([]byte("0 1 0 1 inverse-causal\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := ParseSlices(text, 100, 90)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "attn: line") {
				t.Errorf("error %q names no line", err)
			}
			return
		}
		if err := m.Validate(100, 90); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		again, err := ParseSlices([]byte(write(m, firstN(len(m)))), 100, 90)
		if err != nil || !slices.Equal(again, m) {
			t.Errorf("%v written and read is %v, %v", m, again, err)
		}
	})
}

func FuzzParseMask(f *testing.F) {
	f.Add("window:3,-1", 7)
	f.Add("block-causal:1K", 5000)
	f.Fuzz(func(t *testing.T, word string, tokens int) {
		tokens = min(max(tokens, 0), 1<<12)
		masks, err := ParseMask(word)
		if err != nil {
			return
		}
		if err := masks(tokens).Validate(tokens, tokens); err != nil {
			t.Errorf("%q of %d tokens: %v", word, tokens, err)
		}
	})
}

func TestNeededEqualsBruteForce(t *testing.T) {
	everyCase(t, func(pick pick) error {
		q, k := pick(1, 40), pick(1, 40)
		m := pick.mask(q, k)
		qs, ks := pick.set(q), pick.set(k)
		if pick(0, 1) == 1 {
			qs = mesh.Set{pick.span(q)}
		}
		if pick(0, 1) == 1 {
			ks = mesh.Set{pick.span(k)}
		}
		var keys, queries []int
		for _, j := range ks.Positions() {
			if countPairs(m, qs.Positions(), []int{j}) > 0 {
				keys = append(keys, j)
			}
		}
		for _, i := range qs.Positions() {
			if countPairs(m, []int{i}, ks.Positions()) > 0 {
				queries = append(queries, i)
			}
		}
		if err := mustNeed(NeededKeys(m, qs, ks), keys); err != nil {
			return fmt.Errorf("%v: keys of %v for %v: %w", m, ks, qs, err)
		}
		if err := mustNeed(NeededQueries(m, qs, ks), queries); err != nil {
			return fmt.Errorf("%v: queries of %v for %v: %w", m, qs, ks, err)
		}
		return nil
	})
}

// mustNeed checks that a set holds the positions, in well-formed spans of which no two neighbours
// could be one.
func mustNeed(set mesh.Set, want []int) error {
	for n, p := range set {
		if p.Stride < 1 || p.Count < 1 {
			return fmt.Errorf("span %v", p)
		}
		if n == 0 {
			continue
		}
		before := set[n-1]
		if before.Start >= p.Start {
			return fmt.Errorf("%v does not rise", set)
		}
		if before.Stride == p.Stride && before.Last()+p.Stride == p.Start {
			return fmt.Errorf("%v and %v of %v are one", before, p, set)
		}
	}
	got := set.Positions()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Errorf("needed %v, want %v", set, want)
	}
	return nil
}

// TestNeededKeysOfAWindow is what a rank of a ring must get: no more than the window reaches.
func TestNeededKeysOfAWindow(t *testing.T) {
	m := Window(1000, 1000, 30, 2)
	mine := mesh.Set{{Start: 400, Stride: 1, Count: 100}}
	all := mesh.Set{{Start: 0, Stride: 1, Count: 1000}}
	want := mesh.Set{{Start: 370, Stride: 1, Count: 132}}
	if got := NeededKeys(m, mine, all); !slices.Equal(got, want) {
		t.Errorf("keys %v, want %v", got, want)
	}
	if got := NeededKeys(m, mine, mesh.Set{{Start: 0, Stride: 1, Count: 370}}); got != nil {
		t.Errorf("keys %v out of reach", got)
	}
	stripe := mesh.Set{{Start: 3, Stride: 8, Count: 125}} // one span, not one a token
	if got := NeededKeys(Window(1000, 1000, 1, 0), stripe, stripe); !slices.Equal(got, stripe) {
		t.Errorf("keys %v of a stripe, want it whole", got)
	}
}

func TestIndexNear(t *testing.T) {
	everyCase(t, func(pick pick) error {
		q, k := pick(1, 20), pick(1, 20)
		m := pick.mask(q, k)
		x := NewIndex(m)
		q0 := pick(0, q-1)
		q1 := pick(q0+1, q)
		near := x.Near(q0, q1)
		for i := q0; i < q1; i++ {
			for j := range k {
				if near.Allows(i, j) != m.Allows(i, j) {
					return fmt.Errorf("%v near [%d,%d) is %v", m, q0, q1, near)
				}
			}
		}
		return nil
	})
	starts := make([]int, 1001)
	for n := range starts {
		starts[n] = 10 * n
	}
	m, err := Documents(starts, func(n int) Mask { return Causal(n, n) })
	if err != nil {
		t.Fatal(err)
	}
	x := NewIndex(m)
	if got := x.Near(105, 125); len(got) != 3 || got[0].Q0 != 100 {
		t.Errorf("near [105,125): %v, want documents 10 to 12", got)
	}
	if n := testing.AllocsPerRun(10, func() { x.Near(105, 125) }); n != 0 {
		t.Errorf("Near allocates %v times", n)
	}
}

// BenchmarkNeededKeys asks what two ranks of 64 under per-document zigzag need of each other's KV,
// 1,000 documents of 1,024 tokens each, and what two stripes of 64 need under a narrow window.
func BenchmarkNeededKeys(b *testing.B) {
	const docs, length, chunk = 1000, 1024, 8
	starts := make([]int, docs+1)
	var qs, ks mesh.Set
	for d := range docs {
		starts[d+1] = (d + 1) * length
		for _, c := range []int{3, 124} {
			qs = append(qs, mesh.Span{Start: starts[d] + c*chunk, Stride: 1, Count: chunk})
			ks = append(ks, mesh.Span{Start: starts[d] + (c-2)*chunk, Stride: 1, Count: chunk})
		}
	}
	packed := func(word string) Mask {
		inner, err := ParseMask(word)
		if err != nil {
			b.Fatal(err)
		}
		m, err := Documents(starts, inner)
		if err != nil {
			b.Fatal(err)
		}
		return m
	}
	stripe := func(r int) mesh.Set {
		return mesh.Set{{Start: r, Stride: 64, Count: docs * length / 64}}
	}
	all := docs * length
	for _, c := range []struct {
		name   string
		mask   Mask
		qs, ks mesh.Set
	}{
		{"zigzag documents", packed("causal"), qs, ks},
		{"zigzag causal", Causal(all, all), qs, ks},
		{"stripes window", Window(all, all, 8, 0), stripe(5), stripe(3)},
		{"stripes documents window", packed("window:8"), stripe(5), stripe(3)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				NeededKeys(c.mask, c.qs, c.ks)
			}
		})
	}
}
