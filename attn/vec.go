package attn

// Parallel runs do(0) ... do(n-1), in any order and any of them at once, and returns when all are
// over. Items differ in work, so a runner that hands them out one by one does best. The nil
// Parallel runs them in order, one by one. Results do not depend on it.
type Parallel func(n int, do func(i int))

// rowsAtOnce is how many rows one item of a Parallel holds: enough to keep a head's keys in cache
// from row to row, few enough to spread short problems.
const rowsAtOnce = 16

// blocks runs do over [0,n) in runs of rowsAtOnce.
func (par Parallel) blocks(n int, do func(lo, hi int)) {
	items := (n + rowsAtOnce - 1) / rowsAtOnce
	item := func(i int) { do(i*rowsAtOnce, min((i+1)*rowsAtOnce, n)) }
	if par != nil {
		par(items, item)
		return
	}
	for i := range items {
		item(i)
	}
}

// firstN lists 0 ... n-1.
func firstN(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// vectors is one head of a tensor [tokens, heads, dim].
type vectors struct {
	all                []float64
	stride, start, dim int
}

func headRows(all []float64, heads, head, dim int) vectors {
	return vectors{all: all, stride: heads * dim, start: head * dim, dim: dim}
}

// at is the vector of token i.
func (r vectors) at(i int) []float64 { return r.all[i*r.stride+r.start:][:r.dim:r.dim] }

// dot is the inner product, summed in order.
func dot[T Float](a, b []T) T {
	var sum T
	for d, x := range a {
		sum += x * b[d]
	}
	return sum
}

// dot4 is four inner products with one vector: four independent sums keep the adder busy, and each
// has the bits of dot.
func dot4(x, a, b, c, d []float64) (sa, sb, sc, sd float64) {
	a, b, c, d = a[:len(x)], b[:len(x)], c[:len(x)], d[:len(x)]
	for n, v := range x {
		sa += v * a[n]
		sb += v * b[n]
		sc += v * c[n]
		sd += v * d[n]
	}
	return sa, sb, sc, sd
}

// axpy adds w * x to dst.
func axpy[T Float](dst []T, w T, x []T) {
	for d, v := range x {
		dst[d] += w * v
	}
}

// addRows adds w[n] * x.at(list[n]) to dst for every n; four at a time, to load and store dst once
// for four.
func addRows(dst, w []float64, x vectors, list []int) {
	n := 0
	for ; n+4 <= len(list); n += 4 {
		a, b, c, d := x.at(list[n]), x.at(list[n+1]), x.at(list[n+2]), x.at(list[n+3])
		wa, wb, wc, wd := w[n], w[n+1], w[n+2], w[n+3]
		a, b, c, d = a[:len(dst)], b[:len(dst)], c[:len(dst)], d[:len(dst)]
		for e := range dst {
			dst[e] += wa*a[e] + wb*b[e] + wc*c[e] + wd*d[e]
		}
	}
	for ; n < len(list); n++ {
		axpy(dst, w[n], x.at(list[n]))
	}
}
