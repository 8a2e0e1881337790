package mesh

import "fmt"

// DocZigzag cuts each packed document by itself into 2*ring chunks and gives ring shard c chunks c
// and 2*ring-1-c of them, so that attention inside documents is balanced by each. Starts are
// cumulative: the first is 0, the last is the number of tokens.
//
//	ring 2, Starts 0 4 10    tokens  0 1 2 3 | 4 5 6 7 8 9
//	                         shard   0 1 1 0 | 1 1 0 0 0 1
//
// Of a document of L tokens each shard has L/ring or one more; who has more goes round from
// document to document, so that shards differ by at most one token over all documents together. The
// causal work of a shard inside the document is less than L pairs above the mean. A shard has at
// most two spans a document, fewer where chunks touch. It is compared by String.
type DocZigzag struct{ Starts []int }

// String names the layout with a fingerprint of its documents.
func (l DocZigzag) String() string {
	return fmt.Sprintf("doc-zigzag:%v", fingerprint{}.add(l.Starts...))
}

// Validate refuses starts that do not cut the tokens into documents.
func (l DocZigzag) Validate(tokens, _ int) error {
	if err := ValidateStarts(l.Starts, tokens); err != nil {
		return fmt.Errorf("layout doc-zigzag: %w", err)
	}
	return nil
}

// Shard is the chunks of ring shard c in all documents. It takes a time of the number of documents.
func (l DocZigzag) Shard(_, ring, c int) Set {
	var out Set
	z := zigzag{ring: ring}
	for d := 1; d < len(l.Starts); d++ {
		lo, hi := l.Starts[d-1], l.Starts[d]
		z.cut(lo, hi, d)
		a, b := z.chunks(c)
		out = join(join(out, a[0], a[1]), b[0], b[1])
		z.next = (z.next + z.extra) % ring
	}
	return out
}

// zigzag is one document cut over ring shards, each in a role: role r holds chunk r, of the
// document's first part, and chunk 2*ring-1-r, of its second part. Roles of more tokens or later
// ones have more causal work, so the shards that have one token more take the first roles.
type zigzag struct {
	ring  int
	next  int  // the shard that is first in turn for one token more
	lo    int  // where the document starts
	base  int  // tokens that every shard has
	extra int  // shards from next on that have one more
	turn  bool // shards of equally many tokens take their roles from the last to the first
}

// cut begins the document [lo,hi), number d.
func (z *zigzag) cut(lo, hi, d int) {
	z.lo = lo
	z.base, z.extra = (hi-lo)/z.ring, (hi-lo)%z.ring
	// Which end is drawn from the number of the document: a fixed rhythm could meet one of the
	// lengths, and differences between roles would add up.
	z.turn = (hi-lo)%(2*z.ring) != 0 && drawn(d)
}

// drawn is a bit that follows from d without a pattern (Fibonacci hashing).
func drawn(d int) bool {
	x := uint64(d) * 0x9e3779b97f4a7c15
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	return x>>63 == 1
}

// role is what shard c takes.
func (z *zigzag) role(c int) int {
	r := (c - z.next + z.ring) % z.ring
	switch {
	case !z.turn:
		return r
	case r < z.extra:
		return z.extra - 1 - r
	}
	return z.ring - 1 - (r - z.extra)
}

// chunks is the two runs [lo,hi) of shard c.
func (z *zigzag) chunks(c int) (a, b [2]int) {
	r := z.role(c)
	// An odd token goes to the first part, where it weighs less.
	first, second := z.base-z.base/2, z.base/2
	a = [2]int{r * first, (r + 1) * first}
	b = [2]int{(z.ring - 1 - r) * second, (z.ring - r) * second}
	firsts := z.ring * first
	if z.base%2 == 0 {
		a[0], a[1] = a[0]+min(r, z.extra), a[1]+min(r+1, z.extra)
		firsts += z.extra
	} else {
		b[0], b[1] = b[0]+max(z.extra-1-r, 0), b[1]+max(z.extra-r, 0)
	}
	for i := range 2 {
		a[i], b[i] = a[i]+z.lo, b[i]+z.lo+firsts
	}
	return a, b
}
