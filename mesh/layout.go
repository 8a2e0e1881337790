package mesh

import "fmt"

// Layout says which tokens a ring shard holds.
type Layout uint8

// The layouts: zigzag pairs chunk c with chunk 2C-1-c of 2C chunks, which balances a causal mask;
// contiguous gives ring shard c one run.
//
//	C = 4, 8 chunks:   0 1 2 3 4 5 6 7
//	zigzag    shard    0 1 2 3 3 2 1 0
//	contiguous         0 0 1 1 2 2 3 3
const (
	Zigzag Layout = iota
	Contiguous
)

// String is the layout as the command line spells it.
func (l Layout) String() string {
	if l == Contiguous {
		return "contiguous"
	}
	return "zigzag"
}

// ParseLayout reads what String prints.
func ParseLayout(s string) (Layout, error) {
	switch s {
	case "zigzag":
		return Zigzag, nil
	case "contiguous":
		return Contiguous, nil
	}
	return 0, fmt.Errorf("layout %q is unknown: use zigzag or contiguous", s)
}

// Shard is the set of tokens of ring shard c of degree ring. Chunk sizes differ by at most one
// and may be zero; no token is lost, doubled or padded.
func (l Layout) Shard(tokens, ring, c int) Set {
	if l == Contiguous {
		lo, hi := CutEven(tokens, ring, c)
		return runs(lo, hi)
	}
	a0, a1 := CutEven(tokens, 2*ring, c)
	b0, b1 := CutEven(tokens, 2*ring, 2*ring-1-c)
	if a1 == b0 {
		return runs(a0, b1)
	}
	return append(runs(a0, a1), runs(b0, b1)...)
}

// Chunk is half i (0 or 1) of ring shard c: the two chunks that travel on lanes of their own. Under
// zigzag they are chunks c and 2C-1-c.
func (l Layout) Chunk(tokens, ring, c, i int) Set {
	if l == Contiguous {
		lo, hi := CutEven(tokens, ring, c)
		a, b := CutEven(hi-lo, 2, i)
		return runs(lo+a, lo+b)
	}
	if i == 1 {
		c = 2*ring - 1 - c
	}
	lo, hi := CutEven(tokens, 2*ring, c)
	return runs(lo, hi)
}

func runs(lo, hi int) Set {
	if lo == hi {
		return nil
	}
	return Set{{Start: lo, Stride: 1, Count: hi - lo}}
}

// Home is the set of tokens whose inputs and outputs head rank h of ring shard c holds: the
// shard's tokens are cut, in row order, into degree near-equal runs.
func (l Layout) Home(tokens int, m Mesh, at Coord) Set {
	shard := l.Shard(tokens, m.Ring, at.C)
	lo, hi := CutEven(shard.Len(), m.Head, at.H)
	return shard.Rows(lo, hi)
}
