package attn

import (
	"fmt"
	"math"
)

// Merge folds a finished partial into another, row by row, in place: out [rows, DV] and lse [rows]
// are those of attention over one set of keys, blockOut and blockLSE over another, disjoint one,
// and out, lse become those of the union. DV is len(out)/len(lse).
//
// It uses the max form M = max(a,b), weights exp(a-M) and exp(b-M): the shorter forms overflow when
// b-a >= 89 in float32, or give NaN when a is -Inf. Where one lse is -Inf its out is not read.
// It panics when the lengths do not fit together.
func Merge[T Float](out, lse, blockOut, blockLSE []T) {
	if len(lse) != len(blockLSE) || len(out) != len(blockOut) ||
		len(lse) == 0 && len(out) != 0 || len(lse) != 0 && len(out)%len(lse) != 0 {
		panic(fmt.Sprintf("attn: merge of out %d, lse %d with out %d, lse %d: rows differ",
			len(out), len(lse), len(blockOut), len(blockLSE)))
	}
	if len(lse) == 0 {
		return
	}
	dv := len(out) / len(lse)
	for r := range lse {
		o, p := out[r*dv:][:dv], blockOut[r*dv:][:dv]
		lse[r] = mergeRow(o, lse[r], p, blockLSE[r])
	}
}

// mergeRow merges p, b into o, a and returns the lse of both.
func mergeRow[T Float](o []T, a T, p []T, b T) T {
	if isNegInf(b) {
		if isNegInf(a) {
			clear(o)
		}
		return a
	}
	if isNegInf(a) {
		copy(o, p)
		return b
	}
	m := max(a, b)
	wa, wb := exp(a-m), exp(b-m)
	sum := wa + wb
	for d := range o {
		o[d] = (wa*o[d] + wb*p[d]) / sum
	}
	return m + T(math.Log(float64(sum)))
}

// exp is the exponential in T, rounded once.
func exp[T Float](x T) T { return T(math.Exp(float64(x))) }

// negInf is minus infinity in T.
func negInf[T Float]() T { return T(math.Inf(-1)) }

// isNegInf reports whether x is minus infinity.
func isNegInf[T Float](x T) bool { return math.IsInf(float64(x), -1) }
