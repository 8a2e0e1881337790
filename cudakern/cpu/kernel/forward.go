package kernel

import (
	"math"

	"github.com/kvloom/kvloom/attn"
)

// ForwardTasks is the number of independent tasks of Forward for b, 0 when b has no query row: one
// for each held query head and each 64 query rows. Tasks of one head follow each other, first rows
// first; under a causal mask the later ones are longer.
func ForwardTasks[E attn.Elem](b *attn.Block[E]) int {
	return b.QHeads * tilesOf(b.QSpans.Len())
}

// Forward folds the block's keys into the state of the query rows and head of one task,
// 0 <= task < ForwardTasks(b). The state goes from block to block in any cut of the keys:
//
//	m' = max(m, s)   l = l e^(m-m') + sum e^(s-m')   acc = acc e^(m-m') + sum e^(s-m') v
//
// with s = Scale * q.k, under the soft cap if there is one, over the allowed keys (Milakov and
// Gimelshein, Online normalizer calculation for softmax, 2018). Rows that may see none of the keys
// keep their state bit for bit.
func Forward[E attn.Elem, T attn.Float](b *attn.Block[E], s attn.State[T], task int,
	sc *Scratch[T],
) {
	rows, keys := b.QSpans.Len(), b.KSpans.Len()
	tiles := tilesOf(rows)
	head, row0 := task/tiles, task%tiles*tileRows
	rows = min(tileRows, rows-row0)
	sc.fit(b.D, b.DV)

	at := cursor{set: b.QSpans}
	at.skip(row0)
	sc.queries.cut(&at, rows)
	if !sc.sift(b.Mask, box{sc.queries.first, sc.queries.last, math.MinInt, math.MaxInt}) {
		return
	}
	q := scaledRows(sc.q, b.Q, row0, rows, b.QHeads, head, b.D, b.Scale)
	kvHead := b.KVHead(head)
	at = cursor{set: b.KSpans}
	for key0, n := 0, 0; key0 < keys; key0 += n {
		if n = at.passBeyond(sc.reach.k0, sc.reach.k1); n > 0 {
			continue
		}
		n = min(tileRows, keys-key0)
		sc.keys.cut(&at, n)
		if !sc.permit() {
			continue
		}
		k := headRows(sc.k, b.K, key0, n, b.KHeads, kvHead, b.D)
		v := headRows(sc.v, b.V, key0, n, b.KHeads, kvHead, b.DV)
		for r := 0; r < rows; r += 2 {
			foldPair(sc, b, s, q, k, v, r, (row0+r)*b.QHeads+head)
		}
	}
}

// foldPair folds the tile's keys k and values v into the state of rows r and r+1 of the tile, of
// which the first is item x of the state. The last row of an odd number is its own partner, whose
// results go nowhere.
func foldPair[E attn.Elem, T attn.Float](sc *Scratch[T], b *attn.Block[E], s attn.State[T],
	q, k, v []T, r, x int,
) {
	r1 := min(r+1, sc.queries.rows-1)
	allow0, allow1 := sc.allow[r], sc.allow[r1]
	if allow0|allow1 == 0 {
		return
	}
	d, dv := b.D, b.DV
	lo, hi := evenHull(allow0 | allow1)
	p0, p1 := sc.p[:tileRows], sc.p[tileRows:2*tileRows]
	dotPair(q[r*d:][:d], q[r1*d:][:d], k[lo*d:], p0[lo:hi], p1[lo:hi])
	if b.SoftCap != 0 {
		capRow(&sc.powers, p0[lo:hi], nil, b.SoftCap)
		capRow(&sc.powers, p1[lo:hi], nil, b.SoftCap)
	}

	alpha0 := sc.soften(p0, allow0, &s.M[x], &s.L[x])
	alpha1 := T(1)
	by := weights[T]{tile: sc.p, step: 1, allow0: allow0, allow1: allow1}
	x1 := x + b.QHeads
	if r1 != r {
		alpha1 = sc.soften(p1, allow1, &s.M[x1], &s.L[x1])
		by.other = tileRows
	}
	o0, o1 := sc.sum[:dv], sc.sum[dv:2*dv]
	axpyPair(o0, o1, v, by)
	if allow0 != 0 {
		rescaleAdd(s.Acc[x*dv:][:dv], o0, alpha0)
	}
	if r1 != r && allow1 != 0 {
		rescaleAdd(s.Acc[x1*dv:][:dv], o1, alpha1)
	}
}

// soften turns one row of scores into weights e^(s-m'), adds them to the carried sum l and returns
// e^(m-m'), by which what was summed before shrinks. A NaN among the scores does not raise m', but
// its weight is NaN and so is l from then on.
func (sc *Scratch[T]) soften(row []T, allow uint64, m, l *T) (alpha T) {
	if allow == 0 {
		return 1
	}
	lo, hi := hull(allow)
	seen := row[lo:hi]
	if inside := allow >> lo; inside&(inside+1) != 0 {
		for i := range seen {
			if inside>>i&1 == 0 {
				seen[i] = T(math.Inf(-1))
			}
		}
	}
	top := *m
	for _, x := range seen {
		if x > top {
			top = x
		}
	}
	base := top
	if math.IsInf(float64(base), -1) {
		base = 0
	}
	sum := expRow(&sc.powers, seen, base)
	alpha = expOf(&sc.powers, *m, base)
	*m, *l = top, *l*alpha+sum
	return alpha
}

// rescaleAdd sets acc to acc*alpha + o.
func rescaleAdd[T attn.Float](acc, o []T, alpha T) {
	o = o[:len(acc)]
	for i, a := range acc {
		acc[i] = a*alpha + o[i]
	}
}
