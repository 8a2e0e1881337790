package plan

import (
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// pairCounter counts the allowed pairs of tiles of a header. It keeps what it works out, so asking
// on is cheap; it belongs to one goroutine.
type pairCounter struct {
	h     *Header
	mask  *maskIndex
	sets  []countedSet // by SetID
	tiles tileMemo
	a, b  *countedSet // the tile at hand
	n     int64
}

// countedSet is a set and how many tokens the spans before span i have.
type countedSet struct {
	runs
	rows []int64
}

func newPairCounter(h *Header) *pairCounter {
	return &pairCounter{h: h, mask: newMaskIndex(h.Mask), sets: make([]countedSet, len(h.Sets))}
}

// of is the number of allowed pairs, times query heads, that op i computes; 0 if it is no attend.
func (c *pairCounter) of(p *Program, i int) int64 {
	if k := p.Ops[i].Kind; k != Attend && k != AttendBackward {
		return 0
	}
	q, kv := &p.Args(i)[0], &p.Args(i)[1]
	return c.tile(q.Set, kv.Set) * int64(q.Heads.Len())
}

// tile is the number of allowed pairs of a query set and a key set.
func (c *pairCounter) tile(q, k SetID) int64 {
	n, known := c.tiles.at(int32(q), int32(k), len(c.sets))
	if !known {
		c.a, c.b, c.n = c.set(q), c.set(k), 0
		c.mask.sweep(&c.a.runs, &c.b.runs, c)
		*n = uint64(c.n)
	}
	return int64(*n)
}

func (c *pairCounter) set(id SetID) *countedSet {
	s := &c.sets[id]
	if s.rows == nil {
		set := c.h.Sets[id]
		s.runs, s.rows = newRuns(set), make([]int64, len(set)+1)
		for i, p := range set {
			s.rows[i+1] = s.rows[i] + int64(p.Count)
		}
	}
	return s
}

func (c *pairCounter) whole(i0, i1, j0, j1 int) {
	c.n += (c.a.rows[i1] - c.a.rows[i0]) * (c.b.rows[j1] - c.b.rows[j0])
}

func (c *pairCounter) border(s *attn.Slice, i, j int) {
	one := [1]attn.Slice{*s}
	c.n += attn.Mask(one[:]).Pairs(mesh.Set{c.a.spans[i]}, mesh.Set{c.b.spans[j]})
}
