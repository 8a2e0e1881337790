package attn

// Window lets query i see keys j with i-left <= j <= i+right, where a side below 0 is unlimited:
// Window(n, n, -1, 0) is Causal(n, n), and Window(n, n, 0, 0) each token itself alone.
//
//	        keys ->
//	q   x x . . .   Window(5, 5, 2, 1)
//	|   x x x . .
//	v   x x x x .
//	    . x x x x
//	    . . x x x
func Window(q, k, left, right int) Mask {
	if q <= 0 || k <= 0 {
		return nil
	}
	s := Slice{Q1: q, K1: k, Lo: -Unbounded, Hi: Unbounded}
	if left >= 0 {
		s.Lo = -min(left, Unbounded)
	}
	if right >= 0 {
		s.Hi = min(right, Unbounded)
	}
	return Mask{s}
}
