package attn

// Prefix lets query i see keys j <= i and all of the first n keys: a prompt that sees itself whole,
// and an answer that does not see ahead.
//
//	        keys ->
//	q   x x . .   Prefix(2, 4)
//	|   x x . .
//	v   x x x .
//	    x x x x
func Prefix(n, tokens int) Mask {
	n = min(max(n, 0), tokens)
	var m Mask
	if n > 0 {
		m = append(m, Slice{Q1: tokens, K1: n, Lo: -Unbounded, Hi: Unbounded})
	}
	if n < tokens {
		m = append(m, Slice{Q0: n, Q1: tokens, K0: n, K1: tokens, Lo: -Unbounded})
	}
	return m
}
