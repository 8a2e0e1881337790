package mesh

import "fmt"

// Layout deals the tokens of a sequence to the shards of a ring. A new layout is one file: the
// exchanges, the schemes and the masks know sets of tokens and nothing else.
type Layout interface {
	// Shard is the set of tokens of ring shard c of degree ring. Over all c every token is dealt
	// once; a shard may be empty. The result is not changed by anybody.
	Shard(tokens, ring, c int) Set
	// Validate refuses a sequence or a ring that the layout cannot deal, with what would work.
	Validate(tokens, ring int) error
	// String names the layout with its parameters: what is named alike deals alike.
	String() string
}

// Halver is a Layout that says how a shard is cut in two where its halves travel apart; others are
// cut in the middle of their rows.
type Halver interface {
	Half(tokens, ring, c, i int) Set
}

// Basic is one of the layouts that need no parameters.
type Basic uint8

// The basic layouts: zigzag pairs chunk c with chunk 2C-1-c of 2C chunks, which balances a causal
// mask; contiguous gives ring shard c one run.
//
//	C = 4, 8 chunks:   0 1 2 3 4 5 6 7
//	zigzag    shard    0 1 2 3 3 2 1 0
//	contiguous         0 0 1 1 2 2 3 3
const (
	Zigzag Basic = iota
	Contiguous
)

// String is the layout as the command line spells it.
func (l Basic) String() string {
	if l == Contiguous {
		return "contiguous"
	}
	return "zigzag"
}

// Validate refuses a layout of no name.
func (l Basic) Validate(_, _ int) error {
	if l > Contiguous {
		return fmt.Errorf("layout %d is unknown: use zigzag or contiguous", l)
	}
	return nil
}

// Shard is the set of tokens of ring shard c of degree ring. Chunk sizes differ by at most one
// and may be zero; no token is lost, doubled or padded.
func (l Basic) Shard(tokens, ring, c int) Set {
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

// Half is one of the two chunks of a zigzag shard, c and 2C-1-c; of a contiguous one, half its run.
func (l Basic) Half(tokens, ring, c, i int) Set {
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

// Half is half i (0 or 1) of ring shard c: the two that travel on lanes of their own.
func Half(l Layout, tokens, ring, c, i int) Set {
	if h, ok := l.(Halver); ok {
		return h.Half(tokens, ring, c, i)
	}
	shard := l.Shard(tokens, ring, c)
	lo, hi := CutEven(shard.Len(), 2, i)
	return shard.Rows(lo, hi)
}

// Home is the set of tokens whose inputs and outputs head rank h of ring shard c holds: the
// shard's tokens are cut, in row order, into degree near-equal runs.
func Home(l Layout, tokens int, m Mesh, at Coord) Set {
	shard := l.Shard(tokens, m.Ring, at.C)
	lo, hi := CutEven(shard.Len(), m.Head, at.H)
	return shard.Rows(lo, hi)
}

// ParseLayout reads the name of a basic layout.
func ParseLayout(s string) (Layout, error) {
	switch s {
	case "zigzag":
		return Zigzag, nil
	case "contiguous":
		return Contiguous, nil
	}
	return nil, fmt.Errorf("layout %q is unknown: use zigzag or contiguous", s)
}
