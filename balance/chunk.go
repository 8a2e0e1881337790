package balance

import (
	"slices"
	"sort"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// chunk is a run [lo,hi) of tokens that is dealt as one, and the pairs of its queries.
type chunk struct {
	lo, hi int
	area   int64
	to     int // the shard that it goes to first; free until it is looked for
}

// free is where a chunk goes that may go anywhere.
const free = -1

func (c chunk) len() int { return c.hi - c.lo }

func (c chunk) span() mesh.Span { return mesh.Span{Start: c.lo, Stride: 1, Count: c.len()} }

// regions cuts the queries where slices of the mask begin and end, documents say. Neighbours that
// the finest cut would leave whole are one region together.
func (p *Problem) regions() []chunk {
	together := (p.QTokens + p.Ring*MaxChunks - 1) / (p.Ring * MaxChunks)
	var out []chunk
	lo, at := 0, 0 // what is before at and not yet a region
	flush := func(hi int) {
		if lo < hi {
			out = append(out, chunk{lo: lo, hi: hi})
			lo = hi
		}
	}
	for _, next := range p.borders() {
		if next-lo > together {
			flush(at)
		}
		if next-lo > together {
			flush(next)
		}
		at = next
	}
	flush(at)
	p.areas(out)
	return out
}

// cutter cuts regions into chunks.
type cutter struct {
	p       *Problem
	shares  []float64
	regions []chunk
	total   int64
}

func (p *Problem) newCutter() *cutter {
	c := &cutter{p: p, shares: p.shares(), regions: p.regions()}
	for _, r := range c.regions {
		c.total += r.area
	}
	return c
}

// cut cuts regions so that there are about so many chunks a shard if there is one region: none has
// more than that part of the work, about, or of the tokens. For the sake of tokens alone no more
// than tokenChunks a shard are cut, so that short documents stay whole. With spread, regions that
// are cut at all are cut zigzag over all shards, which evens each of them out by itself.
func (c *cutter) cut(chunks int, spread bool) []chunk {
	area := max(c.total/int64(c.p.Ring*chunks), 1)
	per := c.p.Ring * min(chunks, tokenChunks)
	longest := max((c.p.QTokens+per-1)/per, 1)
	var out []chunk
	for n, r := range c.regions {
		parts := max((r.len()+longest-1)/longest, int((r.area+area-1)/area))
		parts = min(parts, r.len())
		if spread && parts > 1 {
			out = c.zigzag(out, r, n)
			continue
		}
		for i := range parts {
			a, b := mesh.CutEven(r.len(), parts, i)
			out = append(out, chunk{lo: r.lo + a, hi: r.lo + b, to: free})
		}
	}
	c.p.areas(out)
	return out
}

// zigzag cuts region n in two and each half by the shards' shares, the second from the last shard
// to the first. The shard that begins changes from region to region.
func (c *cutter) zigzag(out []chunk, r chunk, n int) []chunk {
	ring := c.p.Ring
	at := r.lo
	add := func(hi, to int) {
		if hi > at {
			out = append(out, chunk{lo: at, hi: hi, to: to})
			at = hi
		}
	}
	sum := 0.0
	for i := range 2 * ring {
		role := min(i, 2*ring-1-i)
		to := (role + n) % ring
		sum += c.shares[to] / 2
		hi := r.lo + int(float64(float64(r.len())*sum)+0.5)
		if i == 2*ring-1 {
			hi = r.hi
		}
		add(min(hi, r.hi), to)
	}
	return out
}

// borders is where the mask's slices begin and end, among the queries, and the end.
func (p *Problem) borders() []int {
	out := make([]int, 0, 2*len(p.Mask)+1)
	for _, s := range p.Mask {
		out = append(out, s.Q0, s.Q1)
	}
	out = append(out, p.QTokens)
	slices.Sort(out)
	return slices.Compact(out)
}

// areas counts the pairs of each chunk's queries.
func (p *Problem) areas(chunks []chunk) {
	keys := mesh.Set{{Start: 0, Stride: 1, Count: p.KTokens}}
	if p.KTokens == 0 {
		return
	}
	queries := make(mesh.Set, 1)
	for x, s := range p.Mask {
		for i := after(chunks, s.Q0); i < len(chunks) && chunks[i].lo < s.Q1; i++ {
			queries[0] = chunks[i].span()
			chunks[i].area += p.Mask[x:x+1].Pairs(queries, keys)
		}
	}
}

// after is the first of the chunks, in rising order, that ends after a position.
func after(chunks []chunk, at int) int {
	return sort.Search(len(chunks), func(i int) bool { return chunks[i].hi > at })
}

// link is the pairs of one chunk's queries with another chunk's keys.
type link struct {
	chunk int
	area  int64
}

// links lists, for each chunk, the chunks that its queries see, in rising order, and those whose
// queries see its keys. Only tiles that a slice meets are looked at.
func links(mask attn.Mask, chunks []chunk) (keys, queries [][]link) {
	keys, queries = make([][]link, len(chunks)), make([][]link, len(chunks))
	meet(mask, chunks, func(i, j int, area int64) {
		keys[i] = append(keys[i], link{j, area})
	})
	for i, list := range keys {
		slices.SortStableFunc(list, func(a, b link) int { return a.chunk - b.chunk })
		n := 0
		for _, l := range list { // slices that share a tile
			if n > 0 && list[n-1].chunk == l.chunk {
				list[n-1].area += l.area
				continue
			}
			list[n] = l
			n++
		}
		keys[i] = list[:n]
		for _, l := range keys[i] {
			queries[l.chunk] = append(queries[l.chunk], link{i, l.area})
		}
	}
	return keys, queries
}

// meet calls yield with the pairs of chunk i's queries and chunk j's keys, slice by slice, where
// there are any.
func meet(mask attn.Mask, chunks []chunk, yield func(i, j int, area int64)) {
	q, k := make(mesh.Set, 1), make(mesh.Set, 1)
	for x, s := range mask {
		for i := after(chunks, s.Q0); i < len(chunks) && chunks[i].lo < s.Q1; i++ {
			q[0] = chunks[i].span()
			lo, hi := seen(s, chunks[i])
			for j := after(chunks, lo); j < len(chunks) && chunks[j].lo < hi; j++ {
				k[0] = chunks[j].span()
				if n := mask[x:x+1].Pairs(q, k); n > 0 {
					yield(i, j, n)
				}
			}
		}
	}
}

// seen is the run of keys that a slice lets some query of a chunk see.
func seen(s attn.Slice, c chunk) (lo, hi int) {
	return max(s.K0, max(c.lo, s.Q0)+s.Lo), min(s.K1, min(c.hi, s.Q1)+s.Hi)
}

// tiles is how many tiles meet looks at.
func (p *Problem) tiles(chunks []chunk) int {
	n := 0
	for _, s := range p.Mask {
		for i := after(chunks, s.Q0); i < len(chunks) && chunks[i].lo < s.Q1; i++ {
			lo, hi := seen(s, chunks[i])
			end := sort.Search(len(chunks), func(j int) bool { return chunks[j].lo >= hi })
			n += max(end-after(chunks, lo), 0)
		}
	}
	return n
}

// areaOf is the pairs of a link, 0 where there is none.
func areaOf(list []link, chunk int) int64 {
	n := sort.Search(len(list), func(i int) bool { return list[i].chunk >= chunk })
	if n < len(list) && list[n].chunk == chunk {
		return list[n].area
	}
	return 0
}
