package main

import "math"

// matrix is a weight, or its gradient: rows x cols, row-major, a view of the one long vector that
// is summed over ranks.
type matrix struct {
	data []float64
	rows int
	cols int
}

// Weights of a layer lie one after the other: q, k, v [embed, heads*dim], then o [heads*dim,
// embed].
const (
	sizeQ  = embed * heads * dim
	sizeKV = embed * kvHeads * dim
	sizeO  = heads * dim * embed
	size   = sizeQ + 2*sizeKV + sizeO
)

func wq(w []float64, i int) matrix { return view(w, i, 0, embed, heads*dim) }
func wk(w []float64, i int) matrix { return view(w, i, sizeQ, embed, kvHeads*dim) }
func wv(w []float64, i int) matrix { return view(w, i, sizeQ+sizeKV, embed, kvHeads*dim) }
func wo(w []float64, i int) matrix { return view(w, i, sizeQ+2*sizeKV, heads*dim, embed) }

func view(w []float64, layer, at, rows, cols int) matrix {
	at += layer * size
	return matrix{w[at : at+rows*cols], rows, cols}
}

// newWeights and the data are formulas: the same on every machine and mesh.
func newWeights() []float64 {
	w := make([]float64, layers*size)
	for i := range w {
		w[i] = 0.2 * math.Sin(float64(7*i+3))
	}
	return w
}

func input(batch int) []float64 {
	x := make([]float64, tokens*embed)
	for i := range x {
		x[i] = math.Cos(float64(i*(batch+2)) * 0.37)
	}
	return x
}

func target(batch int) []float64 {
	y := make([]float64, tokens*embed)
	for i := range y {
		y[i] = math.Sin(float64(i+5*batch) * 0.21)
	}
	return y
}

// mse adds this rank's part of the mean squared error over all tokens of all micro-batches to loss,
// and gives its gradient.
func mse(x, y []float64, loss *float64) []float64 {
	const n = tokens * embed * micro
	d := make([]float64, len(x))
	for i := range x {
		e := x[i] - y[i]
		*loss += e * e / n
		d[i] = 2 * e / n
	}
	return d
}

// mul is x [n, rows] times w [rows, cols].
func mul(x []float64, w matrix) []float64 {
	n := len(x) / w.rows
	out := make([]float64, n*w.cols)
	for t := range n {
		for r := range w.rows {
			for c := range w.cols {
				out[t*w.cols+c] += x[t*w.rows+r] * w.data[r*w.cols+c]
			}
		}
	}
	return out
}

// mulT is d [n, cols] times the transpose of w.
func mulT(d []float64, w matrix) []float64 {
	n := len(d) / w.cols
	out := make([]float64, n*w.rows)
	for t := range n {
		for r := range w.rows {
			for c := range w.cols {
				out[t*w.rows+r] += d[t*w.cols+c] * w.data[r*w.cols+c]
			}
		}
	}
	return out
}

// addOuter adds the transpose of x [n, rows] times d [n, cols] to the gradient g.
func addOuter(g matrix, x, d []float64) {
	for t := range len(x) / g.rows {
		for r := range g.rows {
			for c := range g.cols {
				g.data[r*g.cols+c] += x[t*g.rows+r] * d[t*g.cols+c]
			}
		}
	}
}

func add(x ...[]float64) []float64 {
	out := append([]float64{}, x[0]...)
	for _, y := range x[1:] {
		for i := range out {
			out[i] += y[i]
		}
	}
	return out
}
