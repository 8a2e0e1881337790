package mesh

import (
	"fmt"
	"strconv"
	"strings"
)

// Striped deals stripes of Size tokens in turn: stripe k, the tokens from k*Size on, goes to ring
// shard k mod ring (Striped Attention, Brandon et al. 2023, with stripes of one token). The last
// stripe may be short.
//
//	Size 2, ring 3    tokens  0 1 2 3 4 5 6 7 8 9 10
//	                  shard   0 0 1 1 2 2 0 0 1 1 2
//
// Under a causal mask the largest over mean work is about 1 + (ring-1)*Size/tokens.
type Striped struct{ Size int }

// MaxStripe is the largest size of a stripe.
const MaxStripe = 1 << 30

// ParseStriped reads "striped:N", or "striped" for stripes of one token: these balance a causal
// mask best, and a shard of them is a single span; longer ones have a span each, and keep
// neighbours together.
func ParseStriped(s string) (Striped, error) {
	if s == "striped" {
		return Striped{Size: 1}, nil
	}
	word, ok := strings.CutPrefix(s, "striped:")
	if !ok {
		return Striped{}, fmt.Errorf("layout %q is not striped: use striped or striped:N, such as "+
			"striped:64", s)
	}
	n, err := strconv.Atoi(word)
	if err != nil {
		return Striped{}, fmt.Errorf("layout %q: its stripe size %q is no whole number: use "+
			"striped:N with N from 1 to %d, such as striped:64", s, word, MaxStripe)
	}
	l := Striped{Size: n}
	return l, l.Validate(0, 1)
}

// String is the layout as the command line spells it.
func (l Striped) String() string { return "striped:" + strconv.Itoa(l.Size) }

// Validate refuses stripes without tokens or beyond MaxStripe.
func (l Striped) Validate(_, _ int) error {
	if l.Size < 1 || l.Size > MaxStripe {
		return fmt.Errorf("layout striped:%d: its stripe size must be 1 to %d, such as striped:%d",
			l.Size, MaxStripe, min(max(l.Size, 1), MaxStripe))
	}
	return nil
}

// Shard is stripes c, c+ring, c+2*ring and so on: a span each, and with stripes of one token one
// strided span in all. So spans lie one after the other, and so do those of every cut of the rows;
// a strided span for each place in a stripe would be fewer where stripes are many, but the first
// row of a cut through one of them would lie behind the first of the next.
func (l Striped) Shard(tokens, ring, c int) Set {
	size := min(l.Size, tokens)
	if ring == 1 || tokens == 0 {
		return runs(0, tokens)
	}
	stripes := (tokens + size - 1) / size
	mine := (stripes - c + ring - 1) / ring
	if mine <= 0 {
		return nil
	}
	if size == 1 {
		return Set{Span{Start: c, Stride: ring, Count: mine}.single()}
	}
	out := make(Set, 0, mine)
	for k := range mine {
		lo := (c + k*ring) * size
		out = append(out, runs(lo, min(lo+size, tokens))...)
	}
	return out
}
