package attn

import (
	"fmt"
	"math"
)

// Normalizer gives, for a row of maximum m and sum l > 0 and a sink logit, the factor that turns
// acc into out, and the lse:
//
//	factor = 1 / (l + e^(sink-m))   lse = m + log(l + e^(sink-m))
//
// computed relative to the larger of m and sink, so that neither overflows. A sink of -Inf is none.
func Normalizer(m, l, sink float64) (factor, lse float64) {
	if isNegInf(sink) {
		return 1 / l, m + math.Log(l)
	}
	if sink <= m {
		sum := l + math.Exp(sink-m)
		return 1 / sum, m + math.Log(sum)
	}
	fade := math.Exp(m - sink)
	sum := 1 + l*fade
	return fade / sum, sink + math.Log(sum)
}

// SinkGrad sets dsink [heads] to the gradient of the sinks over the rows of lse and delta, both
// [rows, heads], summed in the order of the rows:
//
//	dsink_h = -sum over rows of exp(sink_h - lse) * delta
//
// A sink of -Inf has gradient 0. Rows without a key have delta 0 and add nothing; a NaN that delta
// holds comes out there too.
func SinkGrad[T Float](lse, delta, sink, dsink []T) {
	for h, s := range sink {
		sum := 0.0
		for x := h; x < len(lse) && !isNegInf(s); x += len(sink) {
			sum -= math.Exp(float64(s)-float64(lse[x])) * float64(delta[x])
		}
		dsink[h] = T(sum)
	}
}

// SinkBackward is the gradient dsink [QHeads] of the sinks, nil where the problem has none. do and
// out are [QTokens, QHeads, DV], lse [QTokens, QHeads]; out and lse may be those of the run under
// test. What do and out hold in a row without keys is not read. It panics when a length is another.
func SinkBackward(p *Problem, do, out, lse []float64) (dsink []float64) {
	p.mustFit("do", do, p.QTokens*p.QHeads*p.DV)
	p.mustFit("out", out, p.QTokens*p.QHeads*p.DV)
	p.mustFit("lse", lse, p.QTokens*p.QHeads)
	if p.Sink == nil {
		return nil
	}
	delta := make([]float64, len(lse))
	for i := range p.QTokens {
		if !p.Mask.seesKey(i) {
			continue
		}
		for x := i * p.QHeads; x < (i+1)*p.QHeads; x++ {
			delta[x] = dot(do[x*p.DV:][:p.DV], out[x*p.DV:][:p.DV])
		}
	}
	dsink = make([]float64, p.QHeads)
	SinkGrad(lse, delta, p.Sink, dsink)
	return dsink
}

// seesKey reports whether query i may see any key.
func (m Mask) seesKey(i int) bool {
	for _, s := range m {
		if lo, hi := s.KeyRange(i); lo < hi {
			return true
		}
	}
	return false
}

// sink is the sink logit of query head h, -Inf for none.
func (p *Problem) sink(h int) float64 {
	if p.Sink == nil {
		return math.Inf(-1)
	}
	return p.Sink[h]
}

// validateSink refuses a wrong number of sinks and values that are none.
func (p *Problem) validateSink() error {
	if p.Sink != nil && len(p.Sink) != p.QHeads {
		return fmt.Errorf("attn: %d sinks for %d query heads: give one for each head, or none",
			len(p.Sink), p.QHeads)
	}
	for h, s := range p.Sink {
		if math.IsNaN(s) || math.IsInf(s, 1) {
			return fmt.Errorf("attn: sink of head %d is %v: it must be a number, or -Inf for none",
				h, s)
		}
	}
	return nil
}
