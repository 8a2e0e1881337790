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

// ParseStriped reads "striped:N", or "striped" for stripes of one token: these balance a causal mask
// best, and a shard of them is a single span.
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

// Shard is stripes c, c+ring, c+2*ring and so on. It is written with the fewest spans: a span a
// stripe, or, where there are more stripes than tokens in one, a strided span for each place in a
// stripe; so rows are in the order of positions only in the first form, and with Size 1.
func (l Striped) Shard(tokens, ring, c int) Set {
	size := min(l.Size, tokens)
	if ring == 1 || tokens == 0 {
		return runs(0, tokens)
	}
	stripes := (tokens + size - 1) / size
	mine := (stripes - c + ring - 1) / ring
	if most := (stripes + ring - 1) / ring; most <= size {
		// The same choice for all shards, so that two of them meet with equal strides.
		return stripeRuns(tokens, ring, c, size, max(mine, 0))
	}
	var out Set
	for j := range size {
		s := Span{Start: c*size + j, Stride: size * ring}
		if s.Start >= tokens {
			break
		}
		s.Count = (tokens-1-s.Start)/s.Stride + 1
		out = append(out, s.single())
	}
	return out
}

// stripeRuns is stripes c, c+ring, ..., count of them, a span each.
func stripeRuns(tokens, ring, c, size, count int) Set {
	out := make(Set, 0, count)
	for k := range count {
		lo := (c + k*ring) * size
		out = append(out, runs(lo, min(lo+size, tokens))...)
	}
	return out
}
