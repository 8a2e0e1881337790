package attn

// Unbounded is a diagonal offset beyond any sequence: a Slice with Lo = -Unbounded and
// Hi = Unbounded allows every pair of its rectangle.
const Unbounded = 1 << 40

// Slice allows query i to see key j when Q0 <= i < Q1, K0 <= j < K1 and Lo <= j-i <= Hi. It covers
// the four kinds full, causal (Hi = 0), inverse-causal (Lo = 0) and band.
type Slice struct{ Q0, Q1, K0, K1, Lo, Hi int }

// Mask is the set of allowed (query, key) pairs: the union of its slices, which must be pairwise
// disjoint. The empty mask allows nothing.
//
//	       keys ->                      keys ->
//	  q  x x x x   Full           q   x . . .   Causal
//	  |  x x x x                  |   x x . .
//	  v  x x x x                  v   x x x .
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

// Allows reports whether query i may see key j.
func (m Mask) Allows(i, j int) bool {
	for _, s := range m {
		if lo, hi := s.KeyRange(i); lo <= j && j < hi {
			return true
		}
	}
	return false
}
