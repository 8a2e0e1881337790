package plan_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"pgregory.net/rapid"
)

// drawSpec draws any plan of the schemes there are, small enough to be verified in a moment.
func drawSpec(t *rapid.T) plan.Spec {
	kv := rapid.IntRange(1, 3).Draw(t, "kv heads")
	q := kv * rapid.IntRange(1, 3).Draw(t, "group")
	s := plan.Shape{
		QTokens: rapid.IntRange(1, 40).Draw(t, "tokens"), QHeads: q, KHeads: kv,
		Dim: rapid.IntRange(1, 8).Draw(t, "dim"), VDim: rapid.IntRange(1, 8).Draw(t, "v-dim"),
		ElemBytes: rapid.SampledFrom([]int{2, 4}).Draw(t, "bytes"), AccBytes: 4,
		Scale: rapid.Float64Range(-1e30, 1e30).Draw(t, "scale"),
	}
	s.KTokens = s.QTokens
	if rapid.Bool().Draw(t, "other keys") {
		s.KTokens = rapid.IntRange(1, 40).Draw(t, "key tokens")
	}
	s.Mask = drawMask(t, s.QTokens, s.KTokens)
	if rapid.Bool().Draw(t, "capped") {
		s.SoftCap = rapid.Float64Range(1e-3, 1e3).Draw(t, "softcap")
	}
	s.Sink = rapid.Bool().Draw(t, "sink")
	m := mesh.Mesh{
		Head: rapid.IntRange(1, min(q, 3)).Draw(t, "head"),
		Ring: rapid.IntRange(1, 6).Draw(t, "ring"),
		Placement: rapid.SampledFrom([]mesh.Placement{mesh.HeadFirst, mesh.ContextFirst}).
			Draw(t, "placement"),
	}
	pick := picker(func(what string, n int) int { return rapid.IntRange(0, n-1).Draw(t, what) })
	return pick.spec(s, m)
}

// drawMask draws disjoint slices: documents one after the other, each with a band of its own.
func drawMask(t *rapid.T, q, k int) attn.Mask {
	var m attn.Mask
	q0, k0 := 0, 0
	for range rapid.IntRange(0, 3).Draw(t, "slices") {
		q1, k1 := rapid.IntRange(q0, q).Draw(t, "q1"), rapid.IntRange(k0, k).Draw(t, "k1")
		lo := rapid.SampledFrom([]int{-attn.Unbounded, -5, 0}).Draw(t, "lo")
		hi := rapid.SampledFrom([]int{0, 7, attn.Unbounded}).Draw(t, "hi")
		m = append(m, attn.Slice{Q0: q0, Q1: q1, K0: k0, K1: k1, Lo: lo, Hi: hi})
		q0, k0 = q1, k1
	}
	return m
}

func mustText(t interface{ Fatal(...any) }, src plan.Source) []byte {
	text, err := plan.AppendPlan(nil, src)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func mustVerify(t interface{ Fatal(...any) }, src plan.Source) *plan.Report {
	r, err := plan.Verify(src)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestPlanTextReadsBack: what was read prints the same bytes, is the same plan and verifies the
// same.
func TestPlanTextReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := plan.New(drawSpec(t))
		if err != nil {
			t.Fatal(err)
		}
		text := mustText(t, p)
		read, err := plan.ParsePlan(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if again := mustText(t, read); !bytes.Equal(text, again) {
			t.Fatal(cmp.Diff(string(text), string(again)))
		}
		if diff := cmp.Diff(normal(p.Header()), normal(read.Header())); diff != "" {
			t.Fatal(diff)
		}
		for _, pass := range p.Passes() {
			for rank := range p.Header().Ranks {
				a, err := p.Program(pass, rank)
				if err != nil {
					t.Fatal(err)
				}
				b, err := read.Program(pass, rank)
				if err != nil {
					t.Fatal(err)
				}
				if a.Hash(p.Header()) != b.Hash(read.Header()) {
					t.Fatalf("%v rank %d has another hash", pass, rank)
				}
			}
		}
		a, b := mustVerify(t, p), mustVerify(t, read)
		if diff := cmp.Diff(a, b); diff != "" || a.Err() != nil {
			t.Fatalf("%v\n%s", a.Err(), diff)
		}
	})
}

// normal lets empty and absent lists be the same.
func normal(h *plan.Header) plan.Header {
	c := *h
	if len(c.Mask) == 0 {
		c.Mask = nil
	}
	return c
}

// smallText is the text of a plan of two ranks.
func smallText(t interface{ Fatal(...any) }) string {
	c := goldenCases()[1]
	p, err := plan.New(c.spec())
	if err != nil {
		t.Fatal(err)
	}
	return string(mustText(t, p))
}

// TestParseAllowsComments: empty lines and comments are all that a text may have more.
func TestParseAllowsComments(t *testing.T) {
	text := smallText(t)
	loose := "# a plan\n\n" + strings.ReplaceAll(text, "\n", "\n# said by hand\n\n")
	read, err := plan.ParsePlan([]byte(strings.TrimSuffix(loose, "\n\n")))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(mustText(t, read)); got != text {
		t.Error(cmp.Diff(text, got))
	}
}

// TestParsePlanRefuses: each error names the line, what stands there and what was expected.
func TestParsePlanRefuses(t *testing.T) {
	text := smallText(t)
	for _, tc := range []struct{ from, to, want string }{
		{"kvloom plan 1\n", "kvloom plan 2\n", `line 1: found "kvloom plan 2", ` +
			`expected "kvloom plan 1"`},
		{"kvloom plan 1\n", "", `line 1: found "shape tokens 8", expected "kvloom plan 1"`},
		{"tokens 8 8", "tokens 08 8", `line 2: found "08" at column 14, expected query tokens, ` +
			`a number from 1 to 1073741824`},
		{"tokens 8 8", "tokens 8 1073741825", "from 1 to 1073741824"},
		{"heads 1 1", "heads 16385 1", "from 1 to 16384"},
		{"heads 1 1", "heads 3 2", "line 2: kv-heads 2 does not divide heads 3"},
		{"scale 0.5", "scale 0.50", `found "0.50" at column 52, expected the scale in its ` +
			`shortest form, 0.5`},
		{"scale 0.5", "scale NaN", "a finite number"},
		{"scale 0.5", "scale", `found " scale" at column 45, expected " scale "`},
		{"scale 0.5", "scale 0.5 softcap 0", `found "0" at column 64, expected the soft cap, a ` +
			`finite number above 0`},
		{"scale 0.5", "scale 0.5 softcap -3", "a finite number above 0"},
		{"scale 0.5", "scale 0.5 sink softcap 3", `found " softcap" at column 60, expected the ` +
			`end of the line`},
		{"mask q 0:8", "mask q 0:9", "line 3: the mask that begins here: attn: mask slice 0"},
		{"k-q -inf:inf", "k-q 3:2", "lo 3 is above hi 2"},
		{"k-q -inf:inf", "k-q -inf:in",
			`found "in" at column 27, expected a diagonal, -inf or inf`},
		{"set c0 0:2 6:8", "set none 0:2 6:8", `found "none" at column 5, expected a new name`},
		{"set c0 0:2 6:8", "set c0 2:2 6:8", `found "2:2" at column 8, expected tokens lo:hi`},
		{"set c0 0:2 6:8", "set c0 0:2:1 6:8", "a stride above 1"},
		{"set c0 0:2 6:8", "set c0 0:5:3 6:8", "a stride above 1"},
		{"set c1", "set c0", "a new name"},
		{"home 1", "home 2", `line 7: found "2" at column 6, expected the rank, 1`},
		{"home 0 q c0", "home 0 q c7", `found "c7" at column 10, expected the name of a token set`},
		{"passes forward backward", "passes backward forward", "expected the end of the line"},
		{"passes forward backward", "passes", `the line ends after "passes", expected forward`},
		{"rank 1 forward", "rank 0 forward", `found "rank 0 forward", expected "rank 1 forward"`},
		{"slot 1 home.q", "slot 2 home.q", "expected the slot's number, 1"},
		{"slot 1 home.q", "slot 1 home.x", `found "home.x" at column 8, expected a role: scratch`},
		{"slot 3 scratch 48 B", "slot 3 scratch 48", `expected " B"`},
		{"slot 3 scratch 48 B", "slot 3 scratch -48 B",
			"expected the slot's bytes, a number from 0"},
		{"\n1 send", "\n2 send", `found "2", expected the op's number, 1`},
		{"\n1 send", "\n1 sent", `found "sent" at column 3, expected a kind of op: pack unpack`},
		{"->1/0", "<-1/0", `expected "->"`},
		{"->1/0 t4", "->1/0 4", `found "4" at column 30, expected t and a tick`},
		{"rkv[c0", "rkw[c0", `found "kw[c0" at column 9, expected a tensor: q kv`},
		{"rkv[c0 h0:1]@s0", "rkv[c0 h0:1]@s0 ", `found " ->1/0" at column 24, expected "->"`},
		{"rkv[c0 h0:1]@s0", "xkv[c0 h0:1]@s0", `found "xkv[c0" at column 8, expected "->"`},
		{"after 3 2\n", "after\n", `expected " "`},
		{"after 3 2\n", "after 3 2,\n", `found "," at column 69, expected the end`},
	} {
		broken := strings.Replace(text, tc.from, tc.to, 1)
		if broken == text {
			t.Errorf("%q is not in the text:\n%s", tc.from, text)
			continue
		}
		_, err := plan.ParsePlan([]byte(broken))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q for %q: %v\nwant %q", tc.to, tc.from, err, tc.want)
		}
	}
	for _, cut := range []int{0, 3, len(text) / 2} {
		if _, err := plan.ParsePlan([]byte(text[:cut])); err == nil {
			t.Errorf("%d bytes of a text of %d are a plan", cut, len(text))
		}
	}
	_, err := plan.ParsePlan([]byte(text + "more\n"))
	if want := fmt.Sprintf(`line %d: found "more", expected the end`,
		strings.Count(text, "\n")+1); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// TestParseLimits: a text cannot ask for more than the limits, whatever it says.
func TestParseLimits(t *testing.T) {
	text := smallText(t)
	head, _, _ := strings.Cut(text, "set c0")
	for _, tc := range []struct{ text, want string }{
		{head + "set " + strings.Repeat("x", plan.MaxNameBytes+1) + " 0:1\n", "at most 64"},
		{strings.Replace(text, "mask ", strings.Repeat("mask q 0:0 k 0:0 k-q 0:0\n",
			plan.MaxMaskSlices)+"mask ", 1), "more than the limit of 65536 mask slices"},
		{strings.Replace(text, "scratch 48 B", "scratch 1152921504606846977 B", 1),
			"from 0 to 1152921504606846976"},
		{strings.Replace(text, "scratch 48 B", "scratch 1152921504606846976 B", 1),
			"more than the limit of 1152921504606846976 bytes of a program's slots"},
		{strings.Replace(text, "@s0 ->1", "@s2147483648 ->1", 1), "from 0 to 2147483647"},
		{strings.Replace(text, "@s0 ->1", "@s99999999999999999999999 ->1", 1), "to 2147483647"},
	} {
		_, err := plan.ParsePlan([]byte(tc.text))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v, want %q", err, tc.want)
		}
	}
}

// unnamed is a plan whose sets have other names.
type unnamed struct {
	plan.Source
	names []string
}

func (u unnamed) Header() *plan.Header {
	h := *u.Source.Header()
	h.Names = u.names
	return &h
}

// TestPrintRefusesNames that would not read back.
func TestPrintRefusesNames(t *testing.T) {
	c := goldenCases()[1]
	p, err := plan.New(c.spec())
	if err != nil {
		t.Fatal(err)
	}
	for _, names := range [][]string{
		{"none", "c0"}, {"zero", "c0", "c1"}, {"none", "c0", "c0"}, {"none", "c0", ""},
		{"none", "c0", "c 1"}, {"none", "c0", "none"}, {"none", "c0", "c[1"},
	} {
		if _, err := plan.AppendPlan(nil, unnamed{p, names}); err == nil {
			t.Errorf("sets may be named %q", names)
		}
	}
}

type failingWriter struct{ after int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.after--; w.after < 0 {
		return 0, fmt.Errorf("disk full")
	}
	return len(p), nil
}

func TestWritePlanFails(t *testing.T) {
	c := goldenCases()[1]
	p, err := plan.New(c.spec())
	if err != nil {
		t.Fatal(err)
	}
	for after := range 5 {
		err := plan.WritePlan(&failingWriter{after}, p)
		if err == nil || !strings.Contains(err.Error(), "disk full") {
			t.Errorf("write %d fails and WritePlan says %v", after, err)
		}
	}
	if err := plan.WritePlan(&failingWriter{5}, p); err != nil {
		t.Error(err)
	}
}

// FuzzParsePlan: no text makes the parser fail in another way than by an error, and what it accepts
// prints to a text that reads back the same. Small plans are verified too: whatever they say,
// Verify answers.
func FuzzParsePlan(f *testing.F) {
	for _, c := range goldenCases() {
		p, err := plan.New(c.spec())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(mustText(f, p))
	}
	f.Add(mustText(f, visits()))
	f.Add(mustText(f, narrow()))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := plan.ParsePlan(data)
		if err != nil {
			if !strings.Contains(err.Error(), "plan: line ") {
				t.Fatalf("the error names no line: %v", err)
			}
			return
		}
		text := mustText(t, p)
		again, err := plan.ParsePlan(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if !bytes.Equal(mustText(t, again), text) {
			t.Fatalf("prints another text the second time:\n%s", text)
		}
		if h := p.Header(); max(h.QTokens, h.KTokens) <= 1<<10 && len(data) < 1<<14 {
			if _, err := plan.Verify(p); err != nil {
				t.Fatal(err)
			}
		}
	})
}
