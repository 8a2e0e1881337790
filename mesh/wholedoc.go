package mesh

import (
	"cmp"
	"fmt"
	"slices"
)

// NewWholeDoc deals packed documents, whose cumulative starts are given, over a ring: a document
// stays whole on one shard, so that its keys and values never move, but for one with more causal
// work (L*(L+1)/2 of L tokens) than a shard's fair share, which is cut zigzag over as many shards
// as its work fills. Shards get causal work as even as that allows, and then tokens.
//
// Documents are packed from the largest on, each where there is least (LPT, Graham 1969): the
// largest work is about 4/3 of the least possible at most while no document is cut. The result is
// named whole-doc with a fingerprint of what it deals.
func NewWholeDoc(starts []int, tokens, ring int) (Layout, error) {
	if err := ValidateStarts(starts, tokens); err != nil {
		return nil, fmt.Errorf("layout whole-doc: %w", err)
	}
	if ring < 1 {
		return nil, fmt.Errorf("layout whole-doc: ring degree %d: use 1 or more", ring)
	}
	var docs []document
	total := int64(0)
	for d := 1; d < len(starts); d++ {
		if lo, hi := starts[d-1], starts[d]; lo < hi {
			docs = append(docs, document{lo, hi})
			total += document{lo, hi}.work()
		}
	}
	slices.SortStableFunc(docs, func(a, b document) int { return cmp.Compare(b.len(), a.len()) })
	l, err := NewDealt("whole-doc", tokens, packDocs(docs, total, ring).sets())
	if err != nil {
		return nil, err
	}
	return l, nil
}

// document is a run of tokens.
type document struct{ lo, hi int }

func (d document) len() int { return d.hi - d.lo }

// work is the causal pairs inside the document.
func (d document) work() int64 { return int64(d.len()) * int64(d.len()+1) / 2 }

// packing is what the shards of a ring hold so far.
type packing struct {
	ring   int
	cut    int // documents from the first on that are cut
	pieces [][]document
	work   []int64
	tokens []int
	order  []int // scratch: shards by load
}

func newPacking(ring int) *packing {
	p := &packing{ring: ring, pieces: make([][]document, ring), work: make([]int64, ring),
		tokens: make([]int, ring), order: make([]int, ring)}
	for c := range p.order {
		p.order[c] = c
	}
	return p
}

// packDocs packs documents, longest first. A long one is first cut over as few shards as hold it at
// their fair share; where several such do not fit beside each other, over twice as many, and so on.
func packDocs(docs []document, total int64, ring int) *packing {
	var best *packing
	share := roundUp(total, int64(ring))
	for spread := 1; ; spread *= 2 {
		p := newPacking(ring)
		for p.cut < len(docs) && docs[p.cut].work() > share {
			fills := int(roundUp(docs[p.cut].work(), share))
			p.cutOver(docs[p.cut], min(fills*spread, ring))
			p.cut++
		}
		whole := p.packWhole(docs[p.cut:])
		// A wider cut moves more keys: it must be worth a hundredth.
		if best == nil || whole.largest() < best.largest()-best.largest()/100 {
			best = whole
		}
		if p.cut == 0 || spread >= ring {
			return best
		}
	}
}

func roundUp(x, y int64) int64 { return (x + y - 1) / y }

// largest is the largest work of a shard.
func (p *packing) largest() int64 { return slices.Max(p.work) }

// cutOver cuts a document zigzag over the n shards with least work.
func (p *packing) cutOver(d document, n int) {
	slices.SortFunc(p.order, func(a, b int) int {
		return cmp.Or(cmp.Compare(p.work[a], p.work[b]), cmp.Compare(p.tokens[a], p.tokens[b]),
			cmp.Compare(a, b))
	})
	z := zigzag{ring: n}
	z.cut(d.lo, d.hi, 0)
	to := slices.Clone(p.order[:n])
	slices.Sort(to)
	for r, c := range to {
		a, b := z.chunks(r)
		p.add(c, document{a[0], a[1]}, d.lo)
		p.add(c, document{b[0], b[1]}, d.lo)
	}
}

// add gives shard c a piece of a document that starts at from.
func (p *packing) add(c int, piece document, from int) {
	if piece.len() == 0 {
		return
	}
	p.pieces[c] = append(p.pieces[c], piece)
	p.tokens[c] += piece.len()
	p.work[c] += document{from, piece.hi}.work() - document{from, piece.lo}.work()
}

// packWhole packs the documents that stay whole, first by work alone; then once more, where work
// within a hundredth of the largest of that packing is as good, by tokens. It gives the better one.
func (p *packing) packWhole(docs []document) *packing {
	byWork := p.clone()
	for _, d := range docs {
		byWork.add(byWork.least(0, d), d, d.lo)
	}
	byTokens := p.clone()
	limit := byWork.largest() + byWork.largest()/100
	for _, d := range docs {
		byTokens.add(byTokens.least(limit, d), d, d.lo)
	}
	if byTokens.largest() > limit || slices.Max(byTokens.tokens) >= slices.Max(byWork.tokens) {
		return byWork
	}
	return byTokens
}

// least is the shard for a document: the one with fewest tokens of those that stay within the limit
// of work, or the one with least work where none does.
func (p *packing) least(limit int64, d document) int {
	best, fits := 0, false
	for c := range p.ring {
		fit := p.work[c]+d.work() <= limit
		var better int
		switch {
		case fit != fits:
			better = 1
			if fit {
				better = -1
			}
		case fit:
			better = cmp.Compare(p.tokens[c], p.tokens[best])
		default:
			better = cmp.Or(cmp.Compare(p.work[c], p.work[best]),
				cmp.Compare(p.tokens[c], p.tokens[best]))
		}
		if c == 0 || better < 0 {
			best, fits = c, fit
		}
	}
	return best
}

func (p *packing) clone() *packing {
	q := newPacking(p.ring)
	copy(q.work, p.work)
	copy(q.tokens, p.tokens)
	for c, pieces := range p.pieces {
		q.pieces[c] = slices.Clone(pieces)
	}
	q.cut = p.cut
	return q
}

// sets is the shards, runs joined where they touch.
func (p *packing) sets() []Set {
	sets := make([]Set, p.ring)
	for c, pieces := range p.pieces {
		slices.SortFunc(pieces, func(a, b document) int { return cmp.Compare(a.lo, b.lo) })
		for _, d := range pieces {
			sets[c] = join(sets[c], d.lo, d.hi)
		}
	}
	return sets
}
