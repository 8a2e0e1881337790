package mesh

import (
	"cmp"
	"fmt"
	"slices"
)

// Dealt is a layout that lists its shards: of one number of tokens over one ring.
type Dealt struct {
	name   string
	tokens int
	shards []Set
}

// NewDealt makes a layout of the shards of a ring, shards[c] for each c. It refuses sets that break
// Set's law or do not part the tokens. The layout is named by kind, "balanced" say, and a
// fingerprint of the shards. It keeps the sets, which are not changed any more.
func NewDealt(kind string, tokens int, shards []Set) (*Dealt, error) {
	if len(shards) < 1 || tokens < 0 {
		return nil, fmt.Errorf("layout %s: %d tokens over %d shards: at least 1 shard and 0 "+
			"tokens are needed", kind, tokens, len(shards))
	}
	print := fingerprint{}.add(tokens, len(shards))
	for c, set := range shards {
		if err := set.law(tokens); err != nil {
			return nil, fmt.Errorf("layout %s: shard %d: %w", kind, c, err)
		}
		print = print.add(len(set))
		for _, s := range set {
			print = print.add(s.Start, s.Stride, s.Count)
		}
	}
	if err := parts(tokens, shards); err != nil {
		return nil, fmt.Errorf("layout %s: %w", kind, err)
	}
	return &Dealt{name: fmt.Sprintf("%s:%v", kind, print), tokens: tokens, shards: shards}, nil
}

// String is the kind and a fingerprint of the shards.
func (l *Dealt) String() string { return l.name }

// Validate refuses any other number of tokens or ring than it was dealt for.
func (l *Dealt) Validate(tokens, ring int) error {
	if tokens != l.tokens || ring != len(l.shards) {
		return fmt.Errorf("layout %s deals %d tokens over a ring of %d, not %d over %d: deal "+
			"these anew", l.name, l.tokens, len(l.shards), tokens, ring)
	}
	return nil
}

// Shard is the set of ring shard c, of the tokens and the ring that it was dealt for.
func (l *Dealt) Shard(_, _, c int) Set { return l.shards[c] }

// law checks the spans of a set one by one, and their order.
func (s Set) law(tokens int) error {
	for i, p := range s {
		switch {
		case p.Count < 1 || p.Stride < 1 || p.Count > tokens || p.Stride > MaxStripe*MaxRanks:
			return fmt.Errorf("span %d is %+v: its stride and count must be at least 1, its "+
				"count at most %d", i, p, tokens)
		case p.Start < 0 || p.Last() >= tokens:
			return fmt.Errorf("span %d is %+v: it must lie inside the %d tokens", i, p, tokens)
		case i > 0 && p.Start <= s[i-1].Start:
			return fmt.Errorf("span %d starts at %d, the one before at %d: list spans by rising "+
				"start", i, p.Start, s[i-1].Start)
		}
	}
	return nil
}

// parts checks that sets which keep the law hold each of 0..tokens-1 once.
func parts(tokens int, sets []Set) error {
	var all []owner
	strided := false
	for c, set := range sets {
		for _, p := range set {
			all = append(all, owner{p, c})
			strided = strided || p.Stride > 1
		}
	}
	if strided {
		return partsOneByOne(tokens, all)
	}
	slices.SortFunc(all, func(a, b owner) int { return cmp.Compare(a.span.Start, b.span.Start) })
	end := 0
	for i, o := range all {
		switch {
		case o.span.Start > end:
			return lost(end)
		case o.span.Start < end:
			return doubled(o.span.Start, all[i-1].shard, o.shard)
		}
		end = o.span.Last() + 1
	}
	if end < tokens {
		return lost(end)
	}
	return nil
}

// owner is a span and the shard that holds it.
type owner struct {
	span  Span
	shard int
}

// partsOneByOne is parts for spans that may interleave.
func partsOneByOne(tokens int, all []owner) error {
	has := make([]int32, tokens) // shard plus 1
	for _, o := range all {
		for i := range o.span.Count {
			p := o.span.At(i)
			if has[p] != 0 {
				return doubled(p, int(has[p])-1, o.shard)
			}
			has[p] = int32(o.shard) + 1
		}
	}
	if p := slices.Index(has, 0); p >= 0 {
		return lost(p)
	}
	return nil
}

func lost(token int) error {
	return fmt.Errorf("token %d is in no shard: deal every token once", token)
}

func doubled(token, a, b int) error {
	return fmt.Errorf("token %d is in shard %d and again in shard %d: deal every token once", token,
		a, b)
}
