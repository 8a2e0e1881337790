package balance

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvloom/kvloom/mesh"
)

// Report is how even a layout is. Where shards have weights, work is over the weight: time.
type Report struct {
	Area   []int64 // by ring shard: the pairs that its queries see
	Tokens []int   // by ring shard
	Spans  int     // of all shards
	// Imbalance is the largest over the mean of the shards' work; 1 where there is none.
	Imbalance float64
	// Steps is each ring step of self attention; nil where keys have a layout of their own.
	Steps []Step
	// StepImbalance is the sum of the steps' largest work over the sum of their means: what a round
	// takes in which no shard begins a step before all have ended the last. 1 without steps.
	StepImbalance float64
}

// Step is the pairs of one ring step, in which shard c attends the keys of shard c-t: the largest
// over shards, and the mean.
type Step struct{ Largest, Mean float64 }

// Imbalance is the largest over the mean; 1 where there is no work.
func (s Step) Imbalance() float64 { return over(s.Largest, s.Mean) }

func over(largest, mean float64) float64 {
	if mean == 0 {
		return 1
	}
	return largest / mean
}

// Measure says how even any layout is for a problem.
func Measure(p Problem, l mesh.Layout) (Report, error) {
	if err := p.Validate(); err != nil {
		return Report{}, err
	}
	if err := l.Validate(p.QTokens, p.Ring); err != nil {
		return Report{}, fmt.Errorf("balance: %w", err)
	}
	sets, tokens, spans := make([]mesh.Set, p.Ring), make([]int, p.Ring), 0
	for c := range sets {
		sets[c] = l.Shard(p.QTokens, p.Ring, c)
		tokens[c] = sets[c].Len()
		spans += len(sets[c])
	}
	area := make([]int64, p.Ring)
	if !p.self() {
		keys := mesh.Zigzag.Shard(p.KTokens, 1, 0)
		for c, set := range sets {
			area[c] = p.Mask.Pairs(set, keys)
		}
		return newReport(p.shares(), area, tokens, spans, nil), nil
	}
	pairs := p.between(sets)
	for c := range area {
		for _, n := range pairs[c] {
			area[c] += n
		}
	}
	return newReport(p.shares(), area, tokens, spans, pairs), nil
}

// matrix is the pairs by query shard and key shard.
type matrix [][]int64

func newMatrix(ring int) matrix {
	m := make(matrix, ring)
	for c := range m {
		m[c] = make([]int64, ring)
	}
	return m
}

// between counts the pairs of every two shards. Runs are looked up slice by slice; strided spans,
// which may interleave, shard by shard.
func (p *Problem) between(sets []mesh.Set) matrix {
	type owned struct {
		chunk
		shard int
	}
	m := newMatrix(p.Ring)
	var all []owned
	strided := false
	for c, set := range sets {
		for _, s := range set {
			strided = strided || s.Stride > 1
			all = append(all, owned{chunk{lo: s.Start, hi: s.Last() + 1}, c})
		}
	}
	if strided {
		for c := range m {
			for k := range m {
				m[c][k] = p.Mask.Pairs(sets[c], sets[k])
			}
		}
		return m
	}
	slices.SortFunc(all, func(a, b owned) int { return cmp.Compare(a.lo, b.lo) })
	chunks := make([]chunk, len(all))
	for i, o := range all {
		chunks[i] = o.chunk
	}
	meet(p.Mask, chunks, func(i, j int, area int64) { m[all[i].shard][all[j].shard] += area })
	return m
}

// newReport computes the ratios.
func newReport(shares []float64, area []int64, tokens []int, spans int, pairs matrix) Report {
	r := Report{Area: area, Tokens: tokens, Spans: spans, StepImbalance: 1}
	ring := float64(len(shares))
	total, largest := int64(0), 0.0
	for c, n := range area {
		total += n
		largest = max(largest, float64(n)/(shares[c]*ring))
	}
	r.Imbalance = over(largest, float64(total)/ring)
	if pairs == nil {
		return r
	}
	sum, mean := 0.0, 0.0
	for t := range pairs {
		var s Step
		n := int64(0)
		for c := range pairs {
			now := pairs[c][(c-t+len(pairs))%len(pairs)]
			n += now
			s.Largest = max(s.Largest, float64(now)/(shares[c]*ring))
		}
		s.Mean = float64(n) / ring
		r.Steps = append(r.Steps, s)
		sum, mean = sum+s.Largest, mean+s.Mean
	}
	r.StepImbalance = over(sum, mean)
	return r
}
