package attn

import "fmt"

// Documents packs documents into one sequence: document n has the tokens [starts[n], starts[n+1]),
// sees itself alone, and in itself what inner(its length) allows; what inner allows outside of it
// is left out. The first start is 0 and the last is the number of all tokens. A document may have
// no tokens; inner is not asked for it. The slices come in order of their queries where inner's
// do. An error names the start that is wrong.
//
//	          keys ->
//	q   x . | . . .   Documents([]int{0, 2, 2, 5}, causal)
//	|   x x | . . .
//	v   ----+------
//	    . . | x . .
//	    . . | x x .
//	    . . | x x x
func Documents(starts []int, inner func(tokens int) Mask) (Mask, error) {
	if len(starts) < 2 {
		return nil, fmt.Errorf("attn: %d document starts: give the first, 0, each further one and "+
			"the number of all tokens", len(starts))
	}
	if starts[0] != 0 {
		return nil, fmt.Errorf("attn: the first document starts at %d: it must start at 0",
			starts[0])
	}
	for n, at := range starts[1:] {
		if at < starts[n] {
			return nil, fmt.Errorf("attn: document start %d is %d, below the one before it, %d: "+
				"starts must not fall", n+1, at, starts[n])
		}
		if at > MaxTokens {
			return nil, fmt.Errorf("attn: document start %d is %d: there may be %d tokens at most",
				n+1, at, MaxTokens)
		}
	}
	m := make(Mask, 0, len(starts)-1)
	for n, end := range starts[1:] {
		at := starts[n]
		if at == end {
			continue
		}
		own := Slice{Q0: at, Q1: end, K0: at, K1: end, Lo: -Unbounded, Hi: Unbounded}
		for _, s := range inner(end - at) {
			if s = s.shift(at, at).and(own); s.total() > 0 {
				m = append(m, s)
			}
		}
	}
	return m, nil
}

// Shift is the mask moved by dq queries and dk keys: it allows (i+dq, j+dk) where m allows (i, j).
func Shift(m Mask, dq, dk int) Mask {
	moved := make(Mask, len(m))
	for n, s := range m {
		moved[n] = s.shift(dq, dk)
	}
	return moved
}

// shift is the slice moved by dq queries and dk keys; a side without bound stays without.
func (s Slice) shift(dq, dk int) Slice {
	s.Q0, s.Q1, s.K0, s.K1 = s.Q0+dq, s.Q1+dq, s.K0+dk, s.K1+dk
	if s.Lo != -Unbounded {
		s.Lo += dk - dq
	}
	if s.Hi != Unbounded {
		s.Hi += dk - dq
	}
	return s
}
