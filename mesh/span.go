package mesh

// Span is an arithmetic run of global token positions: Start, Start+Stride, ..., Count of them.
// Stride is at least 1; a contiguous run has Stride 1. Count is at least 1 in a well-formed Set.
type Span struct{ Start, Stride, Count int }

// Last is the largest position of the span.
func (s Span) Last() int { return s.Start + (s.Count-1)*s.Stride }

// At is position i of the span, 0 <= i < Count.
func (s Span) At(i int) int { return s.Start + i*s.Stride }

// single is the span with the stride of a single token, which means nothing, set to 1: one content
// has one form.
func (s Span) single() Span {
	if s.Count == 1 {
		s.Stride = 1
	}
	return s
}

// Set is a set of token positions of one sequence: disjoint spans in rising order of Start. The
// order of the positions in the spans, one span after the other, is the order of the rows of
// every tensor that holds the set.
type Set []Span

// Len is the number of tokens, the rows of a tensor over the set.
func (s Set) Len() int {
	n := 0
	for _, p := range s {
		n += p.Count
	}
	return n
}

// Positions lists the positions in row order.
func (s Set) Positions() []int {
	out := make([]int, 0, s.Len())
	for _, p := range s {
		for i := range p.Count {
			out = append(out, p.At(i))
		}
	}
	return out
}

// Rows cuts rows [lo,hi) out of the set, in row order. It panics when they are out of range:
// callers cut by CutEven of Len.
func (s Set) Rows(lo, hi int) Set {
	if lo < 0 || hi < lo || hi > s.Len() {
		panic("mesh: rows outside the set")
	}
	var out Set
	at := 0
	for _, p := range s {
		a, b := max(lo-at, 0), min(hi-at, p.Count)
		if a < b {
			out = append(out, Span{Start: p.At(a), Stride: p.Stride, Count: b - a}.single())
		}
		at += p.Count
	}
	return out
}

// CutEven cuts n things into parts near-equal runs in order and gives run i as [lo,hi): sizes
// differ by at most one, the larger ones first.
func CutEven(n, parts, i int) (lo, hi int) {
	q, r := n/parts, n%parts
	lo = i*q + min(i, r)
	hi = lo + q
	if i < r {
		hi++
	}
	return lo, hi
}
