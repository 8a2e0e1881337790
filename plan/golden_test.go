package plan_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/headshuffle"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/ringbus"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files with what is built now")

// goldenCase is one plan whose programs are kept as text in testdata/plans.
type goldenCase struct {
	name   string
	why    string // first line of the file
	mesh   mesh.Mesh
	layout mesh.Layout
	tokens int
	q, kv  int
	mask   func(q, k int) attn.Mask
	opt    plan.Options
	axis   plan.RingAxis // nil: the plain ring
	ranks  []int         // whose programs are kept; empty: all
}

func goldenCases() []goldenCase {
	causal, full := attn.Causal, attn.Full
	return []goldenCase{
		{name: "1x1", mesh: mesh.Mesh{Head: 1, Ring: 1}, tokens: 8, q: 2, kv: 1, mask: causal,
			why: "one rank alone: no exchange, no hop; dkv is written straight home, no partial"},
		{name: "1x2", mesh: mesh.Mesh{Head: 1, Ring: 2}, tokens: 8, q: 1, kv: 1, mask: full,
			why: "the smallest ring: one KV hop; dkv makes two, the second one home"},
		{name: "1x3_contiguous", mesh: mesh.Mesh{Head: 1, Ring: 3}, layout: mesh.Contiguous,
			tokens: 9, q: 1, kv: 1, mask: causal,
			why: "contiguous causal: rank 0 passes on blocks that it may not see, so steps have " +
				"no attend and no partial, and their slots come free out of the ring's order"},
		{name: "2x2", mesh: mesh.Mesh{Head: 2, Ring: 2}, tokens: 16, q: 2, kv: 1, mask: causal,
			why: "both axes; the one KV head is on both head ranks, so its dkv is summed on the " +
				"way home"},
		{name: "2x4", mesh: mesh.Mesh{Head: 2, Ring: 4}, tokens: 32, q: 4, kv: 2, mask: causal,
			ranks: []int{3},
			why: "heads 4/2 cut evenly, and a ring long enough to use a ring slot twice: rank 3 " +
				"is h1, c1"},
		{name: "2x4_context_first", mesh: mesh.Mesh{Head: 2, Ring: 4, Placement: mesh.ContextFirst},
			tokens: 32, q: 4, kv: 2, mask: causal, ranks: []int{5},
			why: "the same program as 2x4's, but for the ranks: placement moves peers and " +
				"nothing else"},
		{name: "3x2", mesh: mesh.Mesh{Head: 3, Ring: 2}, tokens: 13, q: 5, kv: 5, mask: causal,
			ranks: []int{0, 5},
			why: "an odd head degree with uneven heads, 2 2 1, and uneven homes: pieces of four " +
				"sizes"},
		{name: "2x3_tiny", mesh: mesh.Mesh{Head: 2, Ring: 3}, tokens: 2, q: 2, kv: 2, mask: causal,
			ranks: []int{0, 1, 4},
			why: "2 tokens on 6 ranks: of a head group only h0 has any at home (rank 0, not " +
				"rank 1), and shard c2 is empty: rank 4 only passes on what others hold"},
		{name: "1x4_slots", mesh: mesh.Mesh{Head: 1, Ring: 4}, tokens: 16, q: 1, kv: 1, mask: full,
			opt: plan.Options{KVSlots: 3, DKVSlots: 3, Partials: 1}, ranks: []int{0},
			why: "three slots for KV and dkv, one partial: the options show in the slot table " +
				"and in who waits for whom"},
	}
}

// goldenSchemes are plans of other schemes than the ring: rank 1, the middle one, of 3 or 4.
func goldenSchemes() []goldenCase {
	window := func(q, k int) attn.Mask { return attn.Window(q, k, 2, 0) }
	base := goldenCase{mesh: mesh.Mesh{Head: 1, Ring: 3}, layout: mesh.Contiguous, tokens: 9, q: 1,
		kv: 1, mask: attn.Causal, ranks: []int{1}}
	with := func(name, why string, change func(c *goldenCase)) goldenCase {
		c := base
		c.name, c.why = name, why
		change(&c)
		return c
	}
	return []goldenCase{
		with("1x3_allgather", "KV goes straight to all who see it and is held to the end of the "+
			"pass; parts of dkv go straight home", func(c *goldenCase) {
			c.axis = ringbus.AllGather{}
		}),
		with("1x3_halo", "under a window of 2 only 2 rows come in, and the gradients of 2 rows go "+
			"home", func(c *goldenCase) { c.axis, c.mask = ringbus.Halo{}, window }),
		with("1x3_passq", "queries go round, parts (out, lse) come back and are merged at home; "+
			"backward (q, do, lse, delta) go round, followed by dq", func(c *goldenCase) {
			c.axis = ringbus.PassQ{}
		}),
		with("1x3_rotate_q", "forward as the ring, backward as pass-Q: dkv stays and is added to",
			func(c *goldenCase) { c.axis = ringbus.Ring{Rotate: ringbus.RotateQ} }),
		with("1x3_narrow_dkv", "dkv is packed as bf16 for each hop and added up in f32",
			func(c *goldenCase) { c.opt.NarrowDKV = true }),
		with("1x4_local_lanes", "two windows of two, a window's dkv comes back to its beginning, "+
			"and the halves of a zigzag shard travel apart", func(c *goldenCase) {
			c.mesh.Ring, c.tokens, c.layout = 4, 16, mesh.Zigzag
			c.axis = ringbus.Ring{Inner: 2, DKV: ringbus.Local, Lanes: 2}
		}),
		with("2x2_head_chunks", "two chunks of heads: the second is exchanged while the first is "+
			"attended, and the backward pass exchanges all again", func(c *goldenCase) {
			c.mesh = mesh.Mesh{Head: 2, Ring: 2}
			c.tokens, c.q, c.kv, c.opt.HeadChunks = 8, 4, 2, 2
		}),
	}
}

func (c *goldenCase) spec() plan.Spec {
	axis := c.axis
	if axis == nil {
		axis = ringbus.Ring{}
	}
	return plan.Spec{
		Shape: plan.Shape{
			QTokens: c.tokens, KTokens: c.tokens, QHeads: c.q, KHeads: c.kv, Dim: 4, VDim: 2,
			ElemBytes: 2, AccBytes: 4, Scale: 0.5, Mask: c.mask(c.tokens, c.tokens),
		},
		Mesh: c.mesh, Layout: c.layout, Options: c.opt, Ring: axis,
		Heads: headshuffle.AllToAll{},
	}
}

// text is the golden file's: why it is there, the plan's hash, then the programs.
func (c *goldenCase) text(t *testing.T) []byte {
	t.Helper()
	p, err := plan.New(c.spec())
	if err != nil {
		t.Fatal(err)
	}
	hash, err := p.Hash()
	if err != nil {
		t.Fatal(err)
	}
	out := fmt.Appendf(nil, "# %s\nplan %v\n", c.why, hash)
	ranks := c.ranks
	if len(ranks) == 0 {
		for r := range c.mesh.Ranks() {
			ranks = append(ranks, r)
		}
	}
	for _, pass := range p.Passes() {
		for _, r := range ranks {
			prog, err := p.Program(pass, r)
			if err != nil {
				t.Fatal(err)
			}
			out = prog.AppendText(append(out, '\n'), p.Header())
		}
	}
	return out
}

func goldenHash(t *testing.T, s plan.Spec) plan.Hash {
	t.Helper()
	p, err := plan.New(s)
	if err != nil {
		t.Fatal(err)
	}
	h, err := p.Hash()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestGoldenPlans compares the programs of small plans with the files in testdata/plans. After a
// wanted change, read the difference, then run with -rewrite.
func TestGoldenPlans(t *testing.T) {
	kept := map[string]bool{}
	for _, c := range append(goldenCases(), goldenSchemes()...) {
		kept[c.name+".txt"] = true
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join("testdata", "plans", c.name+".txt")
			got := c.text(t)
			if *rewrite {
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("%v: make it with -rewrite", err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s differs (-file +built); -rewrite accepts it:\n%s", file,
					cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")))
			}
		})
	}
	files, err := os.ReadDir(filepath.Join("testdata", "plans"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !kept[f.Name()] {
			t.Errorf("testdata/plans/%s belongs to no case: delete it", f.Name())
		}
	}
}

// TestSchemesDiffer: of one problem, with a window, each scheme makes other programs than the ring
// and than every other scheme, in either pass unless it is said to be like it there.
func TestSchemesDiffer(t *testing.T) {
	texts := map[plan.Pass]map[string]string{plan.Forward: {}, plan.Backward: {}}
	alike := map[string]string{ // by name: what is as in the ring, or as in pass-Q
		"1x3_rotate_q forward": "ring", "1x3_narrow_dkv forward": "ring",
		"1x3_rotate_q backward": "1x3_passq",
	}
	cases := goldenSchemes()
	ringCase := cases[0]
	ringCase.name, ringCase.axis = "ring", nil
	for _, c := range append([]goldenCase{ringCase}, cases...) {
		c.mesh, c.tokens, c.layout, c.mask = ringCase.mesh, 9, mesh.Contiguous, cases[1].mask
		if c.opt.HeadChunks > 1 || c.name == "1x4_local_lanes" {
			continue // of another mesh
		}
		p, err := plan.New(c.spec())
		if err != nil {
			t.Fatal(err)
		}
		for _, pass := range p.Passes() {
			prog, err := p.Program(pass, 1)
			if err != nil {
				t.Fatal(err)
			}
			text := string(prog.AppendText(nil, p.Header()))
			as := alike[fmt.Sprintf("%s %v", c.name, pass)]
			for other, its := range texts[pass] {
				if same := text == its; same != (other == as) {
					t.Errorf("%v of %s and %s: the same %v", pass, c.name, other, same)
				}
			}
			if as == "" {
				texts[pass][c.name] = text
			}
		}
	}
}

// TestProgramsAreBuiltOnDemand: a program is the same whenever and in whatever order it is built,
// and a rank that is not there is refused.
func TestProgramsAreBuiltOnDemand(t *testing.T) {
	c := goldenCases()[3]
	p, err := plan.New(c.spec())
	if err != nil {
		t.Fatal(err)
	}
	text := func(pass plan.Pass, rank int) string {
		prog, err := p.Program(pass, rank)
		if err != nil {
			t.Fatal(err)
		}
		return string(prog.AppendText(nil, p.Header()))
	}
	first := text(plan.Forward, 1)
	for _, pass := range p.Passes() {
		for rank := range c.mesh.Ranks() {
			text(pass, rank)
		}
	}
	if again := text(plan.Forward, 1); again != first {
		t.Errorf("rank 1's program changed:\n%s", cmp.Diff(first, again))
	}
	for _, rank := range []int{-1, 4} {
		if _, err := p.Program(plan.Forward, rank); err == nil {
			t.Errorf("rank %d of 4 has a program", rank)
		}
	}
}

// TestDependenciesPointBack: the list of ops is an order in which they could run.
func TestDependenciesPointBack(t *testing.T) {
	for _, c := range append(goldenCases(), goldenSchemes()...) {
		p, err := plan.New(c.spec())
		if err != nil {
			t.Fatal(err)
		}
		for _, pass := range p.Passes() {
			for rank := range c.mesh.Ranks() {
				prog, err := p.Program(pass, rank)
				if err != nil {
					t.Fatal(err)
				}
				for i := range prog.Ops {
					for _, d := range prog.Deps(i) {
						if d < 0 || int(d) >= i {
							t.Errorf("%s: %v rank %d op %d waits for op %d", c.name, pass, rank,
								i, d)
						}
					}
				}
			}
		}
	}
}

// TestPlanHashTellsPlansApart: equal specs have equal hashes; each thing that a plan follows from
// changes the hash, also where programs stay the same.
func TestPlanHashTellsPlansApart(t *testing.T) {
	base := goldenCase{mesh: mesh.Mesh{Head: 2, Ring: 2}, tokens: 16, q: 4, kv: 2,
		mask: attn.Causal}
	seen := map[plan.Hash]string{goldenHash(t, base.spec()): "the base"}
	if seen[goldenHash(t, base.spec())] == "" {
		t.Fatal("two plans of one spec have two hashes")
	}
	for _, change := range []struct {
		name string
		do   func(s *plan.Spec)
	}{
		{"scale", func(s *plan.Spec) { s.Shape.Scale = 0.25 }},
		{"mask", func(s *plan.Spec) { s.Shape.Mask = attn.Full(16, 16) }},
		{"mask, no attend changed", func(s *plan.Spec) { s.Shape.Mask[0].Hi = 1 }},
		{"tokens", func(s *plan.Spec) {
			s.Shape.QTokens, s.Shape.KTokens, s.Shape.Mask = 17, 17, attn.Causal(17, 17)
		}},
		{"key tokens", func(s *plan.Spec) {
			s.Shape.KTokens, s.Shape.Mask = 17, attn.Causal(16, 17)
		}},
		{"heads", func(s *plan.Spec) { s.Shape.QHeads = 6 }},
		{"kv heads", func(s *plan.Spec) { s.Shape.KHeads = 4 }},
		{"dim", func(s *plan.Spec) { s.Shape.Dim = 8 }},
		{"v-dim", func(s *plan.Spec) { s.Shape.VDim = 4 }},
		{"element", func(s *plan.Spec) { s.Shape.ElemBytes = 4 }},
		{"accumulator", func(s *plan.Spec) { s.Shape.AccBytes = 8 }},
		{"mesh", func(s *plan.Spec) { s.Mesh = mesh.Mesh{Head: 1, Ring: 4} }},
		{"mesh turned", func(s *plan.Spec) { s.Mesh = mesh.Mesh{Head: 4, Ring: 1} }},
		{"placement", func(s *plan.Spec) { s.Mesh.Placement = mesh.ContextFirst }},
		{"layout", func(s *plan.Spec) { s.Layout = mesh.Contiguous }},
		{"kv slots", func(s *plan.Spec) { s.Options.KVSlots = 3 }},
		{"dkv slots", func(s *plan.Spec) { s.Options.DKVSlots = 3 }},
		{"partials", func(s *plan.Spec) { s.Options.Partials = 3 }},
	} {
		s := base.spec()
		change.do(&s)
		h := goldenHash(t, s)
		if other, taken := seen[h]; taken {
			t.Errorf("another %s has the hash of %s", change.name, other)
		}
		seen[h] = change.name
	}
	s := base.spec()
	s.Options = plan.Options{KVSlots: 2, DKVSlots: 2, Partials: 2}
	if goldenHash(t, s) != goldenHash(t, base.spec()) {
		t.Error("the defaults spelt out have another hash")
	}
}
