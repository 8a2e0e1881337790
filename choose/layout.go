package choose

import (
	"fmt"
	"math/bits"

	"github.com/kvloom/kvloom/balance"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// LayoutWords is how people ask for layouts, for errors and help.
const LayoutWords = "zigzag, contiguous, striped, striped:N, doc-zigzag, balanced or whole-doc"

// Words of the layouts that take what a Sequence says.
const (
	docZigzag = "doc-zigzag"
	balanced  = "balanced"
	wholeDoc  = "whole-doc"
)

// Sequence is what layouts are dealt by.
type Sequence struct {
	Shape   *plan.Shape
	Mesh    mesh.Mesh
	Starts  []int     // of packed documents, cumulative (mesh.ValidateStarts); nil: none are known
	Weights []float64 // speeds of ring shards, for balanced; nil: all alike
}

// Layout makes the layout that a word of LayoutWords names. An error begins with "layout".
func Layout(word string, s Sequence) (mesh.Layout, error) {
	tokens := s.Shape.QTokens
	switch word {
	case docZigzag, wholeDoc:
		if len(s.Starts) == 0 {
			return nil, fmt.Errorf("layout %s: there are no documents: give their starts, or use "+
				"layout zigzag", word)
		}
		if word == docZigzag {
			l := mesh.DocZigzag{Starts: s.Starts}
			return l, l.Validate(tokens, s.Mesh.Ring)
		}
		return mesh.NewWholeDoc(s.Starts, tokens, s.Mesh.Ring)
	case balanced:
		l, _, err := balance.Deal(balance.Problem{QTokens: tokens, KTokens: s.Shape.KTokens,
			Mask: s.Shape.Mask, Ring: s.Mesh.Ring, Weights: s.Weights})
		if err != nil {
			return nil, fmt.Errorf("layout balanced: %w", err)
		}
		return l, nil
	case mesh.Zigzag.String():
		return mesh.Zigzag, nil
	case mesh.Contiguous.String():
		return mesh.Contiguous, nil
	}
	if len(word) >= len(striped) && word[:len(striped)] == striped {
		return mesh.ParseStriped(word)
	}
	return nil, fmt.Errorf("layout %q is unknown: use %s", word, LayoutWords)
}

const striped = "striped"

// layouts are the words of the layouts that fit, in the order of candidates.
func (q *Question) layouts() []string {
	words := []string{mesh.Zigzag.String()}
	if len(q.Starts) > 0 {
		words = append(words, docZigzag)
	}
	words = append(words, balanced)
	if len(q.Starts) > 0 {
		words = append(words, wholeDoc)
	}
	return append(words, mesh.Contiguous.String(),
		fmt.Sprintf("%s:%d", striped, stripe(q.Spec.Shape.QTokens, q.Spec.Mesh.Ring)))
}

// stripesEach is how many stripes a shard has at least, if it has the tokens: with these a causal
// mask's largest over mean work is about 1 + 1/16.
const stripesEach = 16

// stripe is the width of the candidate's stripes: a power of two, wide for the kernels' sake.
func stripe(tokens, ring int) int {
	const widest = 1 << 10
	n := max(tokens/(stripesEach*ring), 1)
	return min(1<<(bits.Len(uint(n))-1), widest)
}

// Weights are the speeds of the ring shards of a mesh: of each that of its slowest rank, as each
// has an equal part of the heads. It is nil when all ranks are alike.
func Weights(t *plan.Topology, m mesh.Mesh) []float64 {
	speed := func(rank int) float64 {
		if r, ok := t.Ranks[rank]; ok {
			return r.Speed
		}
		return 1
	}
	out := make([]float64, m.Ring)
	alike := true
	for c := range out {
		out[c] = speed(m.Rank(mesh.Coord{C: c}))
		for h := range m.Head {
			out[c] = min(out[c], speed(m.Rank(mesh.Coord{H: h, C: c})))
		}
		alike = alike && out[c] == out[0]
	}
	if alike {
		return nil
	}
	return out
}

// usualNode is how many ranks a node of the usual cluster has.
const usualNode = 8

// Usual is the cluster that stands in for a topology that nobody gave: nodes of eight ranks, each
// with a sustained 400 TFLOP/s and memory at 3 TB/s; links of 400 GB/s inside a node and of 50 GB/s
// (400 Gbit/s) for each pair of ranks between nodes. Round numbers of present GPU nodes.
func Usual(ranks int) *plan.Topology {
	node := min(ranks, usualNode)
	return &plan.Topology{
		Nodes: (ranks + node - 1) / node, RanksPerNode: node, Flops: 4e14, Memory: 3e12,
		Local:  plan.LinkModel{BytesPerS: 4e11, LatencyNanos: 2000},
		Remote: plan.LinkModel{BytesPerS: 5e10, LatencyNanos: 5000},
	}
}
