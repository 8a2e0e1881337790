package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvloom/kvloom/mesh"
)

// setInfo is what Verify knows of a token set. Two sets are the same when they list the same
// tokens in the same row order, however they are cut into spans; same is the first of them.
type setInfo struct {
	runs   // of the first of them, as it is cut
	same   int32
	rows   int
	x, y   uint64   // sums of x^t and y^t
	xs, ys []uint64 // the same over the spans before span i
	wire   uint64   // the name of the set in block headers: of the spans as they are cut
}

// checkSet refuses sets that are not disjoint rising spans of tokens below MaxTokens.
func checkSet(set mesh.Set) error {
	for i, p := range set {
		switch {
		case p.Count < 1 || p.Stride < 1 || p.Start < 0 || p.Start >= MaxTokens ||
			p.Count > MaxTokens || p.Stride > MaxTokens || p.Last() >= MaxTokens:
			return fmt.Errorf("span %d (start %d, stride %d, count %d) is not a run of tokens "+
				"from 0 to %d", i, p.Start, p.Stride, p.Count, MaxTokens-1)
		case i > 0 && set[i-1].Start >= p.Start:
			return fmt.Errorf("span %d starts at %d, not above span %d at %d", i, p.Start, i-1,
				set[i-1].Start)
		}
		for j := i + 1; j < len(set) && set[j].Start <= p.Last(); j++ {
			if commonSpan(p, set[j]) > 0 {
				return fmt.Errorf("spans %d and %d share a token", i, j)
			}
		}
	}
	return nil
}

// canonical cuts the same rows into maximal arithmetic runs, first come first served, so that
// equal row orders give equal spans.
func canonical(set mesh.Set) mesh.Set {
	var out mesh.Set
	var run mesh.Span
	for _, p := range set {
		for p.Count > 0 {
			n := 1
			switch {
			case run.Count == 0:
				run = mesh.Span{Start: p.Start, Stride: p.Stride}
				n = p.Count
			case run.Count == 1 && p.Start > run.Start:
				run.Stride = p.Start - run.Start
				if p.Stride == run.Stride {
					n = p.Count
				}
			case run.Count > 1 && p.Start == run.At(run.Count):
				if p.Stride == run.Stride {
					n = p.Count
				}
			default:
				out = append(out, run)
				run = mesh.Span{}
				continue
			}
			run.Count += n
			p.Start += n * p.Stride
			p.Count -= n
		}
	}
	if run.Count > 0 {
		out = append(out, run)
	}
	for i := range out {
		if out[i].Count == 1 {
			out[i].Stride = 1
		}
	}
	return out
}

// setHashes are the sets' names in block headers.
func setHashes(h *Header) []uint64 {
	hashes := make([]uint64, len(h.Sets))
	for i := range h.Sets {
		hashes[i] = h.SetHash(SetID(i))
	}
	return hashes
}

// newSets describes the header's sets, whose hashes are those of setHashes. The map is keyed by
// content hash, and hits are compared.
func newSets(f *field, h *Header, hashes []uint64) []setInfo {
	infos, whole := make([]setInfo, len(h.Sets)), make([]mesh.Set, len(h.Sets))
	seen := make(map[uint64][]int32, len(h.Sets))
	for i, set := range h.Sets {
		s := &infos[i]
		s.same, whole[i] = int32(i), canonical(set)
		hash := uint64(0)
		for _, p := range whole[i] {
			hash = absorb(absorb(absorb(hash, uint64(p.Start)), uint64(p.Stride)),
				uint64(p.Count))
		}
		for _, j := range seen[hash] {
			if slices.Equal(whole[j], whole[i]) {
				*s = infos[j]
				break
			}
		}
		if s.same == int32(i) {
			seen[hash] = append(seen[hash], int32(i))
			s.fill(f, set)
		}
		s.wire = hashes[i]
	}
	return infos
}

func (s *setInfo) fill(f *field, set mesh.Set) {
	s.runs = newRuns(set)
	n := len(set)
	sums := make([]uint64, 2*(n+1))
	s.xs, s.ys = sums[:n+1:n+1], sums[n+1:]
	for i, p := range set {
		s.xs[i+1], s.ys[i+1] = fadd(s.xs[i], f.sumX(p)), fadd(s.ys[i], f.sumY(p))
		s.rows += p.Count
	}
	s.x, s.y = s.xs[n], s.ys[n]
}

// pairMemo remembers how many tokens two sets share: programs ask the same few pairs again and
// again, and neighbouring ranks ask what their neighbours asked. It is direct-mapped.
type pairMemo struct {
	cells [1 << memoBits]struct{ a, b, n int32 }
}

const memoBits = 12

// common is the number of tokens that sets a and b share.
func (v *verifier) common(a, b SetID) int {
	p, q := &v.sets[a], &v.sets[b]
	if p.same == q.same {
		return p.rows
	}
	if p.rows == 0 || q.rows == 0 || p.hi < q.lo || q.hi < p.lo {
		return 0
	}
	at := mix64(uint64(p.same)<<32|uint64(q.same)) >> (64 - memoBits)
	c := &v.memo.cells[at]
	if c.a != p.same || c.b != q.same {
		c.a, c.b, c.n = p.same, q.same, int32(commonSets(p, q))
	}
	return int(c.n)
}

func commonSets(p, q *setInfo) int {
	n := 0
	if p.rising && q.rising {
		for i, j := 0, 0; i < len(p.spans) && j < len(q.spans); {
			n += commonSpan(p.spans[i], q.spans[j])
			if p.spans[i].Last() < q.spans[j].Last() {
				i++
			} else {
				j++
			}
		}
		return n
	}
	if len(p.spans) > len(q.spans) {
		p, q = q, p
	}
	for _, s := range p.spans {
		lo, hi := q.near(s.Start, s.Last()+1)
		for _, t := range q.spans[lo:hi] {
			n += commonSpan(s, t)
		}
	}
	return n
}

// commonSpan is the number of tokens that two spans share: the Chinese remainder theorem for
// strides above 1.
func commonSpan(p, q mesh.Span) int {
	lo, hi := max(p.Start, q.Start), min(p.Last(), q.Last())
	if lo > hi {
		return 0
	}
	if p.Stride == 1 && q.Stride == 1 {
		return hi - lo + 1
	}
	if p.Stride == 1 || p.Count == 1 {
		return spanClip(q, lo, hi+1).Count
	}
	if q.Stride == 1 || q.Count == 1 {
		return spanClip(p, lo, hi+1).Count
	}
	g, inv := bezout(p.Stride, q.Stride)
	apart := q.Start - p.Start
	if apart%g != 0 {
		return 0
	}
	m := q.Stride / g
	step := p.Stride * m
	// p.Start + p.Stride*i is a token of q for i = (apart/g) / (p.Stride/g) modulo m.
	i := (apart / g % m) * inv % m
	t := p.Start + p.Stride*i
	t += divFloor(lo-t+step-1, step) * step
	if t > hi {
		return 0
	}
	return (hi-t)/step + 1
}

// bezout gives g = gcd(a,b) and an x with a*x = g modulo b, both positive inputs.
func bezout(a, b int) (g, x int) {
	x0, x1 := 1, 0
	for b != 0 {
		q := a / b
		a, b = b, a-q*b
		x0, x1 = x1, x0-q*x1
	}
	return a, x0
}

// inside tells whether region a lies in region b.
func (v *verifier) inside(a, b region) bool {
	return a.heads.Within(b.heads) && v.common(a.set, b.set) == v.sets[a.set].rows
}

// meets tells whether two regions share a cell.
func (v *verifier) meets(a, b region) bool {
	return a.heads.Lo < b.heads.Hi && b.heads.Lo < a.heads.Hi && v.common(a.set, b.set) > 0
}

// equal tells whether two regions are the same rows in the same order and the same heads.
func (v *verifier) equal(a, b region) bool {
	return a.heads == b.heads && v.sets[a.set].same == v.sets[b.set].same
}

// sum is the region's fingerprint: the sum of x^t z^h over its cells.
func (v *verifier) sum(a region) uint64 {
	return fmul(v.sets[a.set].x, v.field.heads(a.heads))
}

// exact tells whether the sources' regions are together dst: every cell once.
func (v *verifier) exact(srcs []Operand, dst region) bool {
	got := uint64(0)
	for i := range srcs {
		got = fadd(got, v.sum(regionOf(&srcs[i])))
	}
	return got == v.sum(dst)
}

// covers tells whether the sources' regions lie in dst and have every cell of it at least once.
func (v *verifier) covers(srcs []Operand, dst region) bool {
	same := true
	for i := range srcs {
		r := regionOf(&srcs[i])
		if !v.inside(r, dst) {
			return false
		}
		same = same && v.sets[r.set].same == v.sets[dst.set].same
	}
	// Between two neighbouring bounds of sources all heads are alike: it is enough to look at
	// the heads at which a source begins or ends.
	for at := dst.heads.Lo; at < dst.heads.Hi; {
		next, best := dst.heads.Hi, at
		for i := range srcs {
			h := srcs[i].Heads
			if h.Lo > at {
				next = min(next, h.Lo)
			} else if h.Hi > at {
				next, best = min(next, h.Hi), max(best, h.Hi)
			}
		}
		if best == at || !same && !v.coversRows(srcs, at, dst.set) {
			return false
		}
		if same {
			next = best
		}
		at = next
	}
	return true
}

// coversRows tells whether the sources that have head h have together all rows of a set.
func (v *verifier) coversRows(srcs []Operand, h int32, set SetID) bool {
	var have, want []mesh.Span
	for i := range srcs {
		if srcs[i].Heads.Lo <= h && h < srcs[i].Heads.Hi {
			have = appendRuns(have, v.sets[srcs[i].Set].spans)
		}
	}
	want = appendRuns(want, v.sets[set].spans)
	byStart := func(a, b mesh.Span) int { return cmp.Compare(a.Start, b.Start) }
	slices.SortFunc(have, byStart)
	slices.SortFunc(want, byStart)
	at, n := 0, 0 // tokens below at are had or not wanted
	for _, w := range want {
		for at = max(at, w.Start); at <= w.Last(); {
			for n < len(have) && have[n].Last() < at {
				n++
			}
			if n == len(have) || have[n].Start > at {
				return false
			}
			at = have[n].Last() + 1
		}
	}
	return true
}

// appendRuns adds the spans as runs of stride 1.
func appendRuns(out []mesh.Span, set mesh.Set) []mesh.Span {
	for _, p := range set {
		if p.Stride == 1 {
			out = append(out, p)
			continue
		}
		for i := range p.Count {
			out = append(out, mesh.Span{Start: p.At(i), Stride: 1, Count: 1})
		}
	}
	return out
}
