package kernel

import (
	"math"

	"github.com/kvloom/kvloom/attn"
)

// BackwardTasks is the number of independent tasks of Backward for b: one for each held KV head.
func BackwardTasks[E attn.Elem](b *attn.Block[E]) int { return b.KHeads }

// Backward computes the gradients of one held KV head, 0 <= task < BackwardTasks(b): it sets DK and
// DV of that head to the block's own share, which is 0 where no held query reads them, or adds the
// share to them (AddKV), and adds to DQ of the held query heads that read it. With s = Scale * q.k
// over the allowed pairs:
//
//	P = e^(s-lse)   dV = P^T dO   dS = P (dO V^T - delta)   dQ += Scale dS K   dK = Scale dS^T Q
//
// (Dao et al., FlashAttention, appendix B). P = 0 where lse = -Inf. With a soft cap c, s is c tanh
// of itself by c and dS has the factor 1 - tanh^2 besides.
func Backward[E attn.Elem, T attn.Float](b *attn.Block[E], g attn.Grad[E, T], task int,
	sc *Scratch[T],
) {
	keys := b.KSpans.Len()
	sc.fit(b.D, b.DV)
	first, last := readers(b, task)
	at := cursor{set: b.KSpans}
	for key0 := 0; key0 < keys; key0 += tileRows {
		c := column[E, T]{
			b: b, g: g, sc: sc, kvHead: task, key0: key0, n: min(tileRows, keys-key0),
		}
		sc.keys.cut(&at, c.n)
		seen := sc.sift(b.Mask, box{math.MinInt, math.MaxInt, sc.keys.first, sc.keys.last})
		c.k = headRows(sc.k, b.K, key0, c.n, b.KHeads, task, b.D)
		c.v = headRows(sc.v, b.V, key0, c.n, b.KHeads, task, b.DV)
		for i := 0; i < c.n && !g.AddKV; i++ {
			x := c.item(i)
			clear(g.DK[x*b.D:][:b.D])
			clear(g.DV[x*b.DV:][:b.DV])
		}
		if !seen {
			continue
		}
		for head := first; head < last; head++ {
			c.descend(head)
		}
	}
}

// readers is the range of held query heads that read held KV head kvHead.
func readers[E attn.Elem](b *attn.Block[E], kvHead int) (first, last int) {
	global := b.KHead0 + kvHead
	return max(0, global*b.Group-b.QHead0), min(b.QHeads, (global+1)*b.Group-b.QHead0)
}

// column is one tile of keys of one KV head, which all queries pass.
type column[E attn.Elem, T attn.Float] struct {
	b       *attn.Block[E]
	g       attn.Grad[E, T]
	sc      *Scratch[T]
	kvHead  int
	key0, n int // keys [key0, key0+n)
	k, v    []T // [n, D], [n, DV]
}

// item is the place of key i of the column among the items of DK and DV.
func (c *column[E, T]) item(i int) int { return (c.key0+i)*c.b.KHeads + c.kvHead }

// descend takes all rows of one query head past the column, tile by tile.
func (c *column[E, T]) descend(head int) {
	b, sc := c.b, c.sc
	total := b.QSpans.Len()
	at := cursor{set: b.QSpans}
	for row0, rows := 0, 0; row0 < total; row0 += rows {
		if rows = at.passBeyond(sc.reach.q0, sc.reach.q1); rows > 0 {
			continue
		}
		rows = min(tileRows, total-row0)
		sc.queries.cut(&at, rows)
		if !sc.permit() || !c.dropEmptyRows(head, row0, rows) {
			continue
		}
		q := scaledRows(sc.q, b.Q, row0, rows, b.QHeads, head, b.D, b.Scale)
		do := headRows(sc.do, c.g.DO, row0, rows, b.QHeads, head, b.DV)
		for r := 0; r < rows; r += 2 {
			c.rowPair(q, do, r, (row0+r)*b.QHeads+head)
		}
		sc.seen = sc.allow
		transpose(&sc.seen)
		for i := 0; i < c.n; i += 2 {
			c.keyPair(q, do, i)
		}
	}
}

// dropEmptyRows forbids all pairs of the rows whose lse is -Inf and reports whether any is left.
func (c *column[E, T]) dropEmptyRows(head, row0, rows int) bool {
	union := uint64(0)
	for r := range rows {
		if math.IsInf(float64(c.g.LSE[(row0+r)*c.b.QHeads+head]), -1) {
			c.sc.allow[r] = 0
		}
		union |= c.sc.allow[r]
	}
	return union != 0
}

// rowPair leaves P and dS of rows r and r+1 of the tile in the scratch and adds to their DQ. The
// first is item x of LSE. The last row of an odd number is its own partner.
func (c *column[E, T]) rowPair(q, do []T, r, x int) {
	sc, d, dv := c.sc, c.b.D, c.b.DV
	r1 := min(r+1, sc.queries.rows-1)
	allow0, allow1 := sc.allow[r], sc.allow[r1]
	if allow0|allow1 == 0 {
		return
	}
	lo, hi := evenHull(allow0 | allow1)
	p, ds := sc.p[r*tileRows:][:2*tileRows], sc.ds[r*tileRows:][:2*tileRows]
	p0, p1 := p[lo:hi], p[tileRows+lo:tileRows+hi]
	ds0, ds1 := ds[lo:hi], ds[tileRows+lo:tileRows+hi]
	dotPair(q[r*d:][:d], q[r1*d:][:d], c.k[lo*d:], p0, p1)
	dotPair(do[r*dv:][:dv], do[r1*dv:][:dv], c.v[lo*dv:], ds0, ds1)

	by := weights[T]{tile: ds, step: 1, allow0: allow0, allow1: allow1}
	x1 := x + c.b.QHeads
	sc.slopes(p0, ds0, c.g.LSE[x], c.g.Delta[x], c.b.SoftCap)
	if r1 != r {
		sc.slopes(p1, ds1, c.g.LSE[x1], c.g.Delta[x1], c.b.SoftCap)
		by.other = tileRows
	}
	o0, o1 := sc.sum[:d], sc.sum[d:2*d]
	axpyPair(o0, o1, c.k, by)
	if allow0 != 0 {
		addScaled(c.g.DQ[x*d:][:d], o0, c.b.Scale)
	}
	if r1 != r && allow1 != 0 {
		addScaled(c.g.DQ[x1*d:][:d], o1, c.b.Scale)
	}
}

// slopes turns scores s into weights P = e^(s-lse) and dP into dS = P (dP - delta), in place, with
// the cap's slope where limit is a cap and not 0. Pairs that are not allowed get numbers too, which
// nothing reads.
func (sc *Scratch[T]) slopes(s, dp []T, lse, delta T, limit float64) {
	dp = dp[:len(s)]
	if limit == 0 {
		expRow(&sc.powers, s, lse)
		for i, p := range s {
			dp[i] = p * (dp[i] - delta)
		}
		return
	}
	slope := sc.slope[:len(s)]
	capRow(&sc.powers, s, slope, limit)
	expRow(&sc.powers, s, lse)
	for i, p := range s {
		dp[i] = p * (dp[i] - delta) * slope[i]
	}
}

// keyPair adds to DV and DK of keys i and i+1 of the column what the tile's rows give. The last key
// of an odd number is its own partner.
func (c *column[E, T]) keyPair(q, do []T, i int) {
	sc, d, dv := c.sc, c.b.D, c.b.DV
	i1 := min(i+1, c.n-1)
	by := weights[T]{step: tileRows, other: i1 - i, allow0: sc.seen[i], allow1: sc.seen[i1]}
	if by.allow0|by.allow1 == 0 {
		return
	}
	x, x1 := c.item(i), c.item(i1)
	o0, o1 := sc.sum[:dv], sc.sum[dv:2*dv]
	by.tile = sc.p[i:]
	axpyPair(o0, o1, do, by)
	Accumulate(c.g.DV[x*dv:], o0, 0, dv)
	if i1 != i {
		Accumulate(c.g.DV[x1*dv:], o1, 0, dv)
	}
	o0, o1 = sc.sum[:d], sc.sum[d:2*d]
	by.tile = sc.ds[i:]
	axpyPair(o0, o1, q, by)
	Accumulate(c.g.DK[x*d:], o0, 0, d)
	if i1 != i {
		Accumulate(c.g.DK[x1*d:], o1, 0, d)
	}
}

// addScaled adds o*scale to dst.
func addScaled[T attn.Float](dst, o []T, scale float64) {
	o = o[:len(dst)]
	for i, x := range o {
		dst[i] += T(float64(x) * scale)
	}
}
