package choose

import (
	"strings"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

func TestLayoutWords(t *testing.T) {
	q := causal(0, mesh.Mesh{Head: 1, Ring: 3}).packed(t, 0, 20, 20, 60)
	s := Sequence{Shape: &q.Spec.Shape, Mesh: q.Spec.Mesh, Starts: q.Starts}
	for word, name := range map[string]string{
		"zigzag": "zigzag", "contiguous": "contiguous", "striped": "striped:1",
		"striped:7": "striped:7", "doc-zigzag": "doc-zigzag:", "balanced": "balanced:",
		"whole-doc": "whole-doc:",
	} {
		l, err := Layout(word, s)
		if err != nil {
			t.Errorf("%s: %v", word, err)
			continue
		}
		if !strings.HasPrefix(l.String(), name) {
			t.Errorf("%s makes %v", word, l)
		}
		tokens := 0
		for c := range 3 {
			tokens += l.Shard(60, 3, c).Len()
		}
		if tokens != 60 {
			t.Errorf("%s deals %d tokens of 60", word, tokens)
		}
	}
}

func TestLayoutRefusals(t *testing.T) {
	shape := plan.Shape{QTokens: 8, KTokens: 8, Mask: attn.Full(8, 8)}
	for _, c := range []struct {
		word   string
		starts []int
		want   string
	}{
		{"doc-zigzag", nil, "there are no documents"},
		{"whole-doc", nil, "there are no documents"},
		{"doc-zigzag", []int{0, 9}, "must be the number of tokens, so end them with 8"},
		{"whole-doc", []int{0, 9}, "end them with 8"},
		{"striped:0", nil, "1 to"},
		{"striped:x", nil, "no whole number"},
		{"stripedx", nil, "striped"},
		{"spiral", nil, "is unknown: use zigzag, contiguous, striped"},
		{"", nil, "is unknown"},
	} {
		_, err := Layout(c.word, Sequence{Shape: &shape, Mesh: mesh.Mesh{Head: 1, Ring: 2},
			Starts: c.starts})
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.HasPrefix(err.Error(), "layout") {
			t.Errorf("%q: %v", c.word, err)
		}
	}
}

func TestWeights(t *testing.T) {
	top := Usual(6)
	m := mesh.Mesh{Head: 2, Ring: 3}
	if w := Weights(top, m); w != nil {
		t.Errorf("alike: %v", w)
	}
	top.Ranks = map[int]plan.RankModel{3: {Speed: 0.5}, 4: {Speed: 2}}
	// head-first: shard 1 is ranks 2 and 3, shard 2 is ranks 4 and 5.
	if w := Weights(top, m); len(w) != 3 || w[0] != 1 || w[1] != 0.5 || w[2] != 1 {
		t.Errorf("rank 3 at half speed: %v", w)
	}
	m.Placement = mesh.ContextFirst // shard 0 is ranks 0 and 3, shard 1 is 1 and 4
	if w := Weights(top, m); len(w) != 3 || w[0] != 0.5 || w[1] != 1 || w[2] != 1 {
		t.Errorf("context-first: %v", w)
	}
}

// TestSlowRankGetsLess: with a rank of half the speed the balanced layout gives it half the work,
// and is chosen.
func TestSlowRankGetsLess(t *testing.T) {
	q := causal(8192, mesh.Mesh{Head: 1, Ring: 4})
	q.Free, q.Scheme = Free{Layout: true}, "ring"
	q.Topology = Usual(4)
	q.Topology.Flops = 1e10
	q.Topology.Ranks = map[int]plan.RankModel{2: {Speed: 0.5}}
	table := mustChoose(t, q)
	c := table.Chosen()
	if c.Layout != balanced || c.WorkRatio > 1.05 {
		t.Errorf("%s, largest over mean %.3f", table.Why, c.WorkRatio)
	}
	q.Weights = []float64{1, 1, 1, 1}
	if even := mustOne(t, q, balanced); even.Busiest != 2 || even.WorkRatio < 1.5 {
		t.Errorf("equal weights: rank %d computes %.3f of the mean", even.Busiest, even.WorkRatio)
	}
}

func TestStripe(t *testing.T) {
	for _, c := range []struct{ tokens, ring, want int }{
		{1, 1, 1}, {100, 4, 1}, {8192, 8, 64}, {1 << 20, 4, 1024}, {1000, 4, 8},
	} {
		if got := stripe(c.tokens, c.ring); got != c.want {
			t.Errorf("%d tokens over %d: stripes of %d, want %d", c.tokens, c.ring, got, c.want)
		}
	}
}
