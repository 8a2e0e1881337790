package integration

import (
	"flag"
	"math"
	"slices"
	"strconv"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/balance"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/ringbus"
	"pgregory.net/rapid"
)

// The soak of 5,000 draws takes minutes:
//
//	go test ./integration -run AnyProblem -args -draws 5000
var draws = flag.Int("draws", 500, "problems that TestAnyProblem draws")

// drawTask draws any problem, small enough for the oracle, and any way to run it.
func drawTask(t *rapid.T) task {
	c := task{tokens: drawTokens(t), seed: rapid.Uint64Range(1, 1<<20).Draw(t, "seed")}
	c.keys = c.tokens
	if odds(t, 8, "cross attention") {
		c.keys = drawTokens(t)
	}
	c.drawHeads(t)
	c.drawMask(t)
	c.dtype = rapid.SampledFrom([]tensors.DType{tensors.F64, tensors.F64, tensors.F64, tensors.F64,
		tensors.F64, tensors.F32, tensors.BF16}).Draw(t, "dtype")
	if odds(t, 4, "soft cap") {
		c.softCap = float64(rapid.IntRange(1, 60).Draw(t, "cap"))
	}
	c.sink = odds(t, 4, "sink")
	if odds(t, 8, "large logits") {
		c.scale = float64(rapid.IntRange(2, 40).Draw(t, "scale"))
	}
	c.drawWay(t)
	return c.full()
}

// odds is true once in n draws, and false where draws shrink.
func odds(t *rapid.T, n int, what string) bool {
	return rapid.IntRange(1, n).Draw(t, what) == n
}

// drawTokens is a length of mostly up to 256, few up to 700.
func drawTokens(t *rapid.T) int {
	switch size := rapid.IntRange(0, 39).Draw(t, "size"); {
	case size < 18:
		return rapid.IntRange(1, 64).Draw(t, "S")
	case size < 28:
		return rapid.IntRange(64, 128).Draw(t, "S")
	case size < 38:
		return rapid.IntRange(128, 256).Draw(t, "S")
	}
	return rapid.IntRange(257, 700).Draw(t, "S")
}

// drawBudget is the most tokens x keys x heads x (dim + vdim) that the oracle is given.
const drawBudget = 1e7

// drawHeads draws heads and dims of 8 to 64, as many as the oracle has time for.
func (c *task) drawHeads(t *rapid.T) {
	pairs := c.tokens * c.keys
	room := max(1, int(drawBudget/16)/pairs) // heads of dimension 8
	c.kvHeads = rapid.IntRange(1, min(room, 7)).Draw(t, "kv heads")
	c.heads = c.kvHeads * rapid.IntRange(1, max(1, min(room/c.kvHeads, 8))).Draw(t, "group")
	most := min(64, max(8, int(drawBudget/2)/(pairs*c.heads)))
	c.dim = rapid.IntRange(8, most).Draw(t, "dim")
	if odds(t, 4, "other values") {
		c.vdim = rapid.IntRange(1, most).Draw(t, "v-dim")
	}
}

// drawMask draws documents and a mask: by a word, or slices.
func (c *task) drawMask(t *rapid.T) {
	s := c.tokens
	if c.keys != s {
		c.word = rapid.SampledFrom([]string{"full", "causal", ""}).Draw(t, "mask")
		if c.word == "" {
			c.slices = drawSlices(t, s, c.keys)
		}
		return
	}
	if rapid.Bool().Draw(t, "packed") {
		cuts := rapid.SliceOfN(rapid.IntRange(0, s), 0, 6).Draw(t, "documents")
		slices.Sort(cuts)
		c.docs = append(append([]int{0}, cuts...), s)
	}
	number := func(what string, lo int) string {
		return strconv.Itoa(rapid.IntRange(lo, s).Draw(t, what))
	}
	switch c.word = rapid.SampledFrom([]string{"causal", "full", "window", "prefix", "block-causal",
		"slices"}).Draw(t, "mask"); c.word {
	case "window":
		c.word += ":" + number("left", -1) + "," + number("right", -1)
	case "prefix":
		c.word += ":" + number("prefix", 0)
	case "block-causal":
		c.word += ":" + number("block", 1)
	case "slices":
		c.word, c.slices = "", drawSlices(t, s, s)
	}
}

// drawSlices draws disjoint slices: bands of queries, in each up to three runs of keys of any
// kind. Queries between and keys outside see nothing.
func drawSlices(t *rapid.T, q, k int) attn.Mask {
	m := attn.Mask{}
	for at := 0; at < q; {
		end := rapid.IntRange(at+1, q).Draw(t, "queries to")
		key := 0
		for range rapid.IntRange(0, 3).Draw(t, "runs of keys") {
			lo := rapid.IntRange(key, k).Draw(t, "keys from")
			hi := rapid.IntRange(lo, k).Draw(t, "keys to")
			s := attn.Slice{Q0: at, Q1: end, K0: lo, K1: hi, Lo: -attn.Unbounded,
				Hi: attn.Unbounded}
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 1:
				s.Hi = 0
			case 2:
				s.Lo = 0
			case 3:
				s.Lo = rapid.IntRange(-q, k).Draw(t, "band from")
				s.Hi = rapid.IntRange(s.Lo, k+1).Draw(t, "band to")
			}
			m, key = append(m, s), hi
		}
		at = end
	}
	return m
}

// drawWay draws a mesh of up to 16 ranks, a layout, a scheme and its choices.
func (c *task) drawWay(t *rapid.T) {
	var meshes []mesh.Mesh
	for h := 1; h <= min(16, c.heads); h++ {
		for r := 1; r*h <= 16; r++ {
			meshes = append(meshes, mesh.Mesh{Head: h, Ring: r})
		}
	}
	c.mesh = rapid.SampledFrom(meshes).Draw(t, "mesh")
	c.mesh.Placement = rapid.SampledFrom([]mesh.Placement{
		mesh.HeadFirst, mesh.ContextFirst}).Draw(t, "placement")
	c.layout = c.drawLayout(t, c.tokens, "layout")
	if c.keys != c.tokens {
		c.keyLayout = c.drawLayout(t, c.keys, "key layout")
	}
	c.scheme = rapid.SampledFrom(ringbus.Names()).Draw(t, "scheme")
	if c.scheme == "ring" || c.scheme == "passq" {
		c.drawRing(t)
	}
	c.opt = plan.Options{
		KVSlots:    []int{0, 2, 3, 4}[rapid.IntRange(0, 3).Draw(t, "kv slots")],
		OuterSlots: []int{0, 2, 3}[rapid.IntRange(0, 2).Draw(t, "outer slots")],
		DKVSlots:   []int{0, 2, 3}[rapid.IntRange(0, 2).Draw(t, "dkv slots")],
		Partials:   rapid.IntRange(0, 3).Draw(t, "partials"),
	}
	if c.mesh.Head > 1 {
		c.opt.HeadChunks = rapid.IntRange(1, c.heads/c.mesh.Head).Draw(t, "head chunks")
	}
	if c.dtype != tensors.F64 && c.scheme != "passq" && c.ring.Rotate == ringbus.RotateKV {
		c.opt.NarrowDKV = odds(t, 3, "narrow dkv")
	}
	if rapid.Bool().Draw(t, "portable") {
		c.kernels = "portable"
	}
	c.live = rapid.Bool().Draw(t, "live")
	if !c.live {
		c.world = rapid.Uint64Range(0, 1<<16).Draw(t, "world seed")
	}
}

// drawRing draws the choices of a ring.
func (c *task) drawRing(t *rapid.T) {
	var divisors []int
	for w := range c.mesh.Ring + 1 {
		if w == 0 || c.mesh.Ring%w == 0 {
			divisors = append(divisors, w)
		}
	}
	c.ring = ringbus.Ring{
		Inner: rapid.SampledFrom(divisors).Draw(t, "inner"),
		Lanes: rapid.IntRange(1, 2).Draw(t, "lanes"),
		DKV:   rapid.SampledFrom([]ringbus.Window{ringbus.Fold, ringbus.Local}).Draw(t, "window"),
		Rotate: rapid.SampledFrom([]ringbus.Rotation{
			ringbus.RotateKV, ringbus.RotateQ}).Draw(t, "rotate"),
	}
}

// drawLayout draws a layout of n tokens: the queries', or the keys' of cross attention.
func (c *task) drawLayout(t *rapid.T, n int, what string) mesh.Layout {
	words := []string{"zigzag", "contiguous", "striped", "stripes", "doc-zigzag", "whole-doc",
		"balanced"}
	docs := c.docs
	if docs == nil {
		docs = []int{0, n}
	}
	var l mesh.Layout
	var err error
	switch rapid.SampledFrom(words).Draw(t, what) {
	case "zigzag":
		l = mesh.Zigzag
	case "contiguous":
		l = mesh.Contiguous
	case "striped":
		l = mesh.Striped{Size: 1}
	case "stripes":
		l = mesh.Striped{Size: rapid.IntRange(2, n+1).Draw(t, "stripe")}
	case "doc-zigzag":
		l = mesh.DocZigzag{Starts: docs}
	case "whole-doc":
		l, err = mesh.NewWholeDoc(docs, n, c.mesh.Ring)
	case "balanced":
		l, err = c.balanced(n)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// balanced deals n tokens by the work of the task's mask; keys of cross attention are dealt as if
// they saw themselves.
func (c *task) balanced(n int) (mesh.Layout, error) {
	p := balance.Problem{QTokens: n, KTokens: n, Mask: attn.Causal(n, n), Ring: c.mesh.Ring}
	if n == c.tokens {
		full := c.full()
		mask, err := full.mask()
		if err != nil {
			return nil, err
		}
		p.KTokens, p.Mask = c.keys, mask
	}
	l, _, err := balance.Deal(p)
	return l, err
}

// TestAnyProblem: any problem, run in any way, gives the dense oracle's numbers, sends what its
// plan says and holds what its plan says. A failure prints the command line that repeats it.
func TestAnyProblem(t *testing.T) {
	checks := flag.Lookup("rapid.checks")
	before := checks.Value.String()
	if err := checks.Value.Set(strconv.Itoa(*draws)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := checks.Value.Set(before); err != nil {
			t.Error(err)
		}
	}()
	keep, seen, missed := &files{}, map[string]int{}, 0
	rapid.Check(t, func(rt *rapid.T) {
		c := drawTask(rt)
		seen[c.scheme]++
		cancelled, err := c.check(t.Context())
		if err != nil {
			rt.Fatalf("%v\n%s", err, c.command(keep))
		}
		if cancelled {
			missed++
		}
	})
	t.Logf("by scheme: %v; judged beside their terms: %d", seen, missed)
	if missed*20 > *draws {
		t.Errorf("%d of %d draws cancel so that they miss their gates: these say little", missed,
			*draws)
	}
}

// TestJudgeCanFail: a small change of any output is outside the gates, also of a row that sees one
// key, where terms cancel.
func TestJudgeCanFail(t *testing.T) {
	for _, tokens := range []int{1, 23} {
		c := task{tokens: tokens, heads: 2, dtype: tensors.F64, sink: true, scale: 9}.full()
		in := taskInputs[float64](&c)
		ref, err := oracle(&c, in, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := run(t.Context(), &c, in)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := judge(&c, in, got.Outputs, &ref); err != nil {
			t.Error(err)
		}
		for i, x := range [][]float64{got.Out, got.LSE, got.DQ, got.DK, got.DV, got.DSink} {
			before := x[0]
			for _, wrong := range []float64{before + 1e-8, math.NaN(), math.Inf(-1)} {
				x[0] = wrong
				if _, err := judge(&c, in, got.Outputs, &ref); err == nil {
					t.Errorf("S=%d: output %d with %g in place of %g passes", tokens, i, wrong,
						before)
				}
			}
			x[0] = before
		}
	}
}
