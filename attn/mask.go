package attn

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvloom/kvloom/mesh"
)

// Unbounded is a diagonal offset beyond any sequence: a Slice with Lo = -Unbounded and
// Hi = Unbounded allows every pair of its rectangle.
const Unbounded = 1 << 40

// MaxTokens is the longest sequence that a mask can speak of: up to here counts of pairs fit in an
// int64.
const MaxTokens = 1 << 30

// Slice allows query i to see key j when Q0 <= i < Q1, K0 <= j < K1 and Lo <= j-i <= Hi. It covers
// the four kinds full, causal (Hi = 0), inverse-causal (Lo = 0) and band.
type Slice struct{ Q0, Q1, K0, K1, Lo, Hi int }

// Mask is the set of allowed (query, key) pairs: the union of its slices, which must be pairwise
// disjoint. The empty mask allows nothing.
//
//	     keys ->                      keys ->
//	q  x x x x   Full           q   x . . .   Causal
//	|  x x x x                  |   x x . .
//	v  x x x x                  v   x x x .
type Mask []Slice

// Full lets each of q queries see each of k keys.
func Full(q, k int) Mask {
	return Mask{{Q1: q, K1: k, Lo: -Unbounded, Hi: Unbounded}}
}

// Causal lets query i see keys j <= i.
func Causal(q, k int) Mask {
	return Mask{{Q1: q, K1: k, Lo: -Unbounded, Hi: 0}}
}

// KeyRange is the run [lo,hi) of keys that slice s allows query i; empty when lo >= hi.
func (s Slice) KeyRange(i int) (lo, hi int) {
	if i < s.Q0 || i >= s.Q1 {
		return 0, 0
	}
	return max(s.K0, i+s.Lo), min(s.K1, i+s.Hi+1)
}

// QueryRange is the run [lo,hi) of queries that slice s lets see key j; empty when lo >= hi.
func (s Slice) QueryRange(j int) (lo, hi int) {
	if j < s.K0 || j >= s.K1 {
		return 0, 0
	}
	return max(s.Q0, j-s.Hi), min(s.Q1, j-s.Lo+1)
}

// String writes the slice as ranges, for errors: "q[0,8) k[0,8) j-i in [-inf,0]".
func (s Slice) String() string {
	lo, hi := fmt.Sprint(s.Lo), fmt.Sprint(s.Hi)
	if s.Lo == -Unbounded {
		lo = "-inf"
	}
	if s.Hi == Unbounded {
		hi = "inf"
	}
	return fmt.Sprintf("q[%d,%d) k[%d,%d) j-i in [%s,%s]", s.Q0, s.Q1, s.K0, s.K1, lo, hi)
}

// Allows reports whether query i may see key j.
func (m Mask) Allows(i, j int) bool {
	for _, s := range m {
		if lo, hi := s.KeyRange(i); lo <= j && j < hi {
			return true
		}
	}
	return false
}

// Validate checks the mask for a problem of q queries and k keys: every slice lies inside it and no
// pair is allowed twice. An empty rectangle is fine (a document of no tokens). The error names the
// slice, or the two slices that share a pair.
func (m Mask) Validate(q, k int) error {
	if q < 0 || k < 0 || q > MaxTokens || k > MaxTokens {
		return fmt.Errorf("attn: mask over %d queries and %d keys: both must be 0 to %d",
			q, k, MaxTokens)
	}
	for n, s := range m {
		if err := s.validate(q, k); err != nil {
			return fmt.Errorf("attn: mask slice %d (%v): %w", n, s, err)
		}
	}
	if a, b, shared := m.shared(); shared {
		return fmt.Errorf("attn: mask slices %d (%v) and %d (%v) share pairs: make them disjoint",
			a, m[a], b, m[b])
	}
	return nil
}

// validate checks one slice by itself.
func (s Slice) validate(q, k int) error {
	switch {
	case s.Q0 < 0 || s.Q0 > s.Q1 || s.Q1 > q:
		return fmt.Errorf("its queries must be a range inside [0,%d)", q)
	case s.K0 < 0 || s.K0 > s.K1 || s.K1 > k:
		return fmt.Errorf("its keys must be a range inside [0,%d)", k)
	case s.Lo > s.Hi:
		return fmt.Errorf("lo %d is above hi %d, which allows nothing: swap them or drop the slice",
			s.Lo, s.Hi)
	case s.Lo < -Unbounded || s.Hi > Unbounded:
		return fmt.Errorf("its offsets must lie inside +-%d (Unbounded)", int64(Unbounded))
	}
	return nil
}

// shared finds the first two slices a < b, in order of their queries, that share a pair. It
// compares only slices whose queries overlap, so that thousands of documents cost a sort.
func (m Mask) shared() (a, b int, found bool) {
	order := make([]int, len(m))
	for n := range order {
		order[n] = n
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(m[a].Q0, m[b].Q0) })
	for n, a := range order {
		for _, b := range order[n+1:] {
			if m[b].Q0 >= m[a].Q1 {
				break
			}
			if m[a].and(m[b]).total() > 0 {
				return min(a, b), max(a, b), true
			}
		}
	}
	return 0, 0, false
}

// and is the slice of the pairs in both.
func (s Slice) and(t Slice) Slice {
	return Slice{
		Q0: max(s.Q0, t.Q0), Q1: min(s.Q1, t.Q1),
		K0: max(s.K0, t.K0), K1: min(s.K1, t.K1),
		Lo: max(s.Lo, t.Lo), Hi: min(s.Hi, t.Hi),
	}
}

// keys appends the keys that query i may see to dst, slice by slice.
func (m Mask) keys(dst []int, i int) []int {
	for _, s := range m {
		lo, hi := s.KeyRange(i)
		for j := lo; j < hi; j++ {
			dst = append(dst, j)
		}
	}
	return dst
}

// queries appends the queries that may see key j to dst, slice by slice.
func (m Mask) queries(dst []int, j int) []int {
	for _, s := range m {
		lo, hi := s.QueryRange(j)
		for i := lo; i < hi; i++ {
			dst = append(dst, i)
		}
	}
	return dst
}

// run is a range [lo,hi) of rows of a tensor.
type run struct{ lo, hi int }

// keyRuns appends the rows of a tensor over ks that query i may see, as runs, slice by slice.
func (m Mask) keyRuns(dst []run, ks mesh.Set, i int) []run {
	for _, s := range m {
		lo, hi := s.KeyRange(i)
		if lo >= hi {
			continue
		}
		base := 0
		for _, k := range ks {
			if a, b := within(k, lo, hi); a < b {
				dst = append(dst, run{base + a, base + b})
			}
			base += k.Count
		}
	}
	return dst
}
