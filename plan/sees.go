package plan

import (
	"cmp"
	"math/bits"
	"slices"
	"sort"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// sees is a table of which query sets may see a key of which key sets. Builders of ring axes ask
// for the same few sets again and again, of all places of the ring; the mask is asked once.
//
// It is over units: sets that no other unit of the sequence meets. A shard whose halves travel
// apart is two units.
type sees struct {
	q, k  []pair // by SetID: its units
	words int    // of a row
	bits  []uint64
}

// pair is a set's units, numbered from 1, 0 where there is none.
type pair [2]int32

// maxSeesBits bounds the table, 32 MiB: rings of up to 16,384 shards. Beyond it the mask is asked.
const maxSeesBits = 1 << 28

// newSees makes the table for the shards and halves of all groups; nil if it were too large.
func newSees(h *Header, groups []group) *sees {
	s := &sees{q: make([]pair, len(h.Sets)), k: make([]pair, len(h.Sets))}
	var qs, ks []SetID
	for i := range groups {
		g := &groups[i]
		qs = units(h, s.q, qs, g.q, g.qLanes)
		ks = units(h, s.k, ks, g.k, g.kLanes)
	}
	s.words = (len(ks) + 63) / 64
	if len(qs)*s.words*64 > maxSeesBits {
		return nil
	}
	s.bits = make([]uint64, len(qs)*s.words)
	w := newLookout(h, ks)
	for n, q := range qs {
		w.look(h.Sets[q], s.bits[n*s.words:(n+1)*s.words])
	}
	return s
}

// units numbers the units of a shard: itself, or the halves that it is of.
func units(h *Header, of []pair, have []SetID, shard SetID, halves []SetID) []SetID {
	parts, rows := []SetID{shard}, 0
	for _, id := range halves {
		rows += h.Sets[id].Len()
	}
	if len(halves) == 2 && rows == h.Sets[shard].Len() {
		parts = halves
	}
	n := 0
	for _, id := range parts {
		if id == 0 {
			continue
		}
		have = append(have, id)
		of[id] = pair{int32(len(have))}
		of[shard][n] = int32(len(have))
		n++
	}
	return have
}

// ask tells whether a query of q may see a key of k; known is false for sets of which the table
// does not know.
func (s *sees) ask(q, k SetID) (yes, known bool) {
	if q == 0 || k == 0 {
		return false, true
	}
	if s == nil || s.q[q][0] == 0 || s.k[k][0] == 0 {
		return false, false
	}
	for _, a := range s.q[q] {
		for _, b := range s.k[k] {
			if a > 0 && b > 0 {
				bit := int(b - 1)
				yes = yes || s.bits[int(a-1)*s.words+bit/64]>>(bit%64)&1 == 1
			}
		}
	}
	return yes, true
}

// lookout tells which key units queries may see.
type lookout struct {
	mask *maskIndex
	keys []keySpan // by their first token
	ends []int     // the largest token up to here
	all  int       // units
}

// keySpan is a span of a key unit.
type keySpan struct {
	mesh.Span
	unit int32
}

func newLookout(h *Header, units []SetID) *lookout {
	w := &lookout{mask: newMaskIndex(h.Mask), all: len(units)}
	n := 0
	for _, id := range units {
		n += len(h.Sets[id])
	}
	w.keys, w.ends = make([]keySpan, 0, n), make([]int, n)
	for unit, id := range units {
		for _, p := range h.Sets[id] {
			w.keys = append(w.keys, keySpan{p, int32(unit)})
		}
	}
	slices.SortFunc(w.keys, func(a, b keySpan) int { return cmp.Compare(a.Start, b.Start) })
	end := 0
	for i := range w.keys {
		end = max(end, w.keys[i].Last())
		w.ends[i] = end
	}
	return w
}

// look sets in row the bits of the units that some query of the set may see. It stops when it sees
// them all, which with most masks is soon.
func (w *lookout) look(set mesh.Set, row []uint64) {
	queries := newRuns(set)
	if len(set) == 0 {
		return
	}
	i := 0
	near := w.mask.near(queries.lo, queries.hi)
	for n := range near {
		s := &near[n]
		end := len(set)
		if queries.rising {
			i = queries.from(s.Q0, i)
			end = queries.until(s.Q1, i)
		}
		for _, p := range set[i:end] {
			w.span(s, p, row)
		}
		seen := 0
		for _, word := range row {
			seen += bits.OnesCount64(word)
		}
		if seen == w.all {
			return
		}
	}
}

// span sets the bits of what the slice lets a span of queries see. Queries that lie no further
// apart than the band is wide see together all from the first one's first key to the last one's
// last.
func (w *lookout) span(s *attn.Slice, p mesh.Span, row []uint64) {
	p = spanClip(p, s.Q0, s.Q1)
	if p.Count == 0 {
		return
	}
	gaps := p.Count > 1 && p.Stride > s.Hi-s.Lo+1
	lo, hi := max(s.K0, p.Start+s.Lo), min(s.K1, p.Last()+s.Hi+1)
	first := sort.Search(len(w.keys), func(n int) bool { return w.ends[n] >= lo })
	for i := first; i < len(w.keys) && w.keys[i].Start < hi; i++ {
		k := &w.keys[i]
		word, bit := &row[k.unit/64], uint64(1)<<(k.unit%64)
		if *word&bit != 0 {
			continue
		}
		if gaps && commonBand(p, spanClip(k.Span, s.K0, s.K1), s.Lo, s.Hi) ||
			!gaps && spanClip(k.Span, lo, hi).Count > 0 {
			*word |= bit
		}
	}
}

// commonBand tells whether some q of p and k of keys have lo <= k-q <= hi.
func commonBand(p, keys mesh.Span, lo, hi int) bool {
	for i := range p.Count {
		if q := p.At(i); spanClip(keys, q+lo, q+hi+1).Count > 0 {
			return true
		}
	}
	return false
}
