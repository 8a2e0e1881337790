package attn

import (
	"fmt"
	"math"
)

// Problem is one attention problem, whole and in float64. Arrays are row-major without gaps:
//
//	Q [QTokens, QHeads, D]   K [KTokens, KHeads, D]   V [KTokens, KHeads, DV]
//
// Query head h reads KV head h / (QHeads/KHeads). The logit of a pair is s = Scale * q.k or, with a
// soft cap c, c tanh(s/c). Sink is a logit for each query head that joins the sum of its softmax as
// a key of value 0 would.
type Problem struct {
	QTokens, KTokens int
	QHeads, KHeads   int
	D, DV            int
	Scale            float64
	SoftCap          float64   // 0: none
	Sink             []float64 // [QHeads], nil: none
	Mask             Mask
	Q, K, V          []float64
}

// Validate checks sizes, scale, cap, sinks, mask and the lengths of the arrays; the error names the
// first thing that is wrong.
func (p *Problem) Validate() error {
	sizes := []struct {
		name string
		size int
	}{
		{"query tokens", p.QTokens}, {"key tokens", p.KTokens}, {"query heads", p.QHeads},
		{"KV heads", p.KHeads}, {"dim", p.D}, {"value dim", p.DV},
	}
	for _, s := range sizes {
		if s.size < 1 || s.size > MaxTokens {
			return fmt.Errorf("attn: problem has %d %s: must be 1 to %d", s.size, s.name, MaxTokens)
		}
	}
	if p.QHeads%p.KHeads != 0 {
		return fmt.Errorf("attn: %d KV heads do not divide %d query heads: take a divisor of %d",
			p.KHeads, p.QHeads, p.QHeads)
	}
	if math.IsNaN(p.Scale) || math.IsInf(p.Scale, 0) {
		return fmt.Errorf("attn: scale is %v: it must be finite, usually 1/sqrt(dim)", p.Scale)
	}
	if err := Cap(p.SoftCap).validate(); err != nil {
		return err
	}
	if err := p.validateSink(); err != nil {
		return err
	}
	arrays := []struct {
		name      string
		got, want int
	}{
		{"q", len(p.Q), p.QTokens * p.QHeads * p.D},
		{"k", len(p.K), p.KTokens * p.KHeads * p.D},
		{"v", len(p.V), p.KTokens * p.KHeads * p.DV},
	}
	for _, a := range arrays {
		if a.got != a.want {
			return fmt.Errorf("attn: %s has %d values, its shape needs %d", a.name, a.got, a.want)
		}
	}
	return p.Mask.Validate(p.QTokens, p.KTokens)
}

// Dense is exact attention by the definition: out [QTokens, QHeads, DV] and lse [QTokens, QHeads].
// A row without an allowed key has out 0 and lse -Inf, or its head's sink.
func Dense(p *Problem, par Parallel) (out, lse []float64) {
	return DenseRows(p, firstN(p.QTokens), par)
}

// DenseRows is Dense for some query rows: out [len(rows), QHeads, DV], lse [len(rows), QHeads], the
// same bits as Dense gives for them.
func DenseRows(p *Problem, rows []int, par Parallel) (out, lse []float64) {
	out = make([]float64, len(rows)*p.QHeads*p.DV)
	lse = make([]float64, len(rows)*p.QHeads)
	par.blocks(len(rows), func(lo, hi int) {
		var keys []int
		var w []float64
		for h := range p.QHeads {
			for r := lo; r < hi; r++ {
				keys = p.Mask.keys(keys[:0], rows[r])
				w = p.logits(w[:0], rows[r], h, keys)
				p.soften(w)
				x := r*p.QHeads + h
				lse[x] = p.attend(out[x*p.DV:][:p.DV], w, h, keys)
			}
		}
	})
	return out, lse
}

// MaxLogit is the largest |scale * q.k| over the pairs that the mask allows, and of the finite
// sinks, 0 when there is none: what Gate wants. It is taken before a soft cap: an error of the
// logit goes through the cap's slope into the gradients.
func MaxLogit(p *Problem, par Parallel) float64 {
	return MaxLogitRows(p, firstN(p.QTokens), par)
}

// MaxLogitRows is MaxLogit over some query rows.
func MaxLogitRows(p *Problem, rows []int, par Parallel) float64 {
	largest := make([]float64, len(rows))
	par.blocks(len(rows), func(lo, hi int) {
		var keys []int
		var w []float64
		for h := range p.QHeads {
			for r := lo; r < hi; r++ {
				keys = p.Mask.keys(keys[:0], rows[r])
				w = p.logits(w[:0], rows[r], h, keys)
				for _, x := range w {
					largest[r] = max(largest[r], math.Abs(x))
				}
			}
		}
	})
	top := 0.0
	for _, x := range largest {
		top = max(top, x)
	}
	for _, x := range p.Sink {
		if len(rows) > 0 && !isNegInf(x) {
			top = max(top, math.Abs(x))
		}
	}
	return top
}

// soften caps the logits of w, in place.
func (p *Problem) soften(w []float64) {
	if p.SoftCap == 0 {
		return
	}
	for n, s := range w {
		w[n] = Cap(p.SoftCap).Of(s)
	}
}

// logits appends Scale * q.k of query i, head h, with each of the keys, not capped yet.
func (p *Problem) logits(dst []float64, i, h int, keys []int) []float64 {
	k := p.kRows(p.kvHead(h))
	q := p.qRows(h).at(i)
	n := 0
	for ; n+4 <= len(keys); n += 4 {
		a, b, c, d := dot4(q, k.at(keys[n]), k.at(keys[n+1]), k.at(keys[n+2]), k.at(keys[n+3]))
		dst = append(dst, p.Scale*a, p.Scale*b, p.Scale*c, p.Scale*d)
	}
	for ; n < len(keys); n++ {
		dst = append(dst, p.Scale*dot(q, k.at(keys[n])))
	}
	return dst
}

// attend turns the logits w of one row into weights, in place, adds the weighted values to out and
// returns the row's lse.
func (p *Problem) attend(out, w []float64, h int, keys []int) float64 {
	top := math.Inf(-1)
	for _, x := range w {
		top = max(top, x)
	}
	sink := p.sink(h)
	if isNegInf(top) {
		return sink
	}
	top = max(top, sink)
	sum := math.Exp(sink - top)
	for n, x := range w {
		w[n] = math.Exp(x - top)
		sum += w[n]
	}
	for n := range w {
		w[n] /= sum
	}
	addRows(out, w, p.vRows(p.kvHead(h)), keys)
	return top + math.Log(sum)
}

// kvHead is the KV head that query head h reads.
func (p *Problem) kvHead(h int) int { return h / (p.QHeads / p.KHeads) }

func (p *Problem) qRows(h int) vectors { return headRows(p.Q, p.QHeads, h, p.D) }
func (p *Problem) kRows(g int) vectors { return headRows(p.K, p.KHeads, g, p.D) }
func (p *Problem) vRows(g int) vectors { return headRows(p.V, p.KHeads, g, p.DV) }
