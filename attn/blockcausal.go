package attn

import "fmt"

// BlockCausal lets a query see every key of its own block of tokens and of all former blocks. The
// last block may be short. It takes a slice for each block. It panics when block is below 1.
//
//	        keys ->
//	q   x x . . .   BlockCausal(2, 5)
//	|   x x . . .
//	v   x x x x .
//	    x x x x .
//	    x x x x x
func BlockCausal(block, tokens int) Mask {
	switch {
	case block < 1:
		panic(fmt.Sprintf("attn: blocks of %d tokens: there must be 1 or more", block))
	case tokens <= 0:
		return nil
	case block == 1:
		return Causal(tokens, tokens)
	}
	m := make(Mask, 0, (tokens-1)/block+1)
	for at := 0; at < tokens; at += block {
		end := at + min(block, tokens-at)
		m = append(m, Slice{Q0: at, Q1: end, K1: end, Lo: -Unbounded, Hi: Unbounded})
	}
	return m
}
