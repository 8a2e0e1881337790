package balance

import (
	"cmp"
	"math"
	"slices"

	"github.com/kvloom/kvloom/mesh"
)

// deal is chunks and the shards that they are dealt to.
type deal struct {
	p      *Problem
	shares []float64
	unit   []float64 // by shard: the load of a pair
	chunks []chunk
	shard  []int   // by chunk
	hand   [][]int // by shard: its chunks
	area   []int64
	tokens []int
	room   []int // the most tokens a shard may hold
	total  int64
	pairs  matrix // by query shard and key shard, self attention only
}

func newDeal(p *Problem, chunks []chunk) *deal {
	d := &deal{p: p, shares: p.shares(), unit: make([]float64, p.Ring), chunks: chunks,
		shard: make([]int, len(chunks)),
		hand:  make([][]int, p.Ring), area: make([]int64, p.Ring), tokens: make([]int, p.Ring),
		room: make([]int, p.Ring)}
	for _, c := range chunks {
		d.total += c.area
	}
	for c := range d.room {
		d.unit[c] = 1 / (d.shares[c] * float64(p.Ring))
		d.room[c] = int(float64(p.QTokens)*d.shares[c]) + p.QTokens/(tokenChunks*p.Ring) + 1
	}
	return d
}

// roomy reports whether all shards have room for what they hold.
func (d *deal) roomy() bool {
	for c, n := range d.tokens {
		if n > d.room[c] {
			return false
		}
	}
	return true
}

// load is the work of a shard with so many pairs, over its share: the mean of all where it has its
// fair part.
func (d *deal) load(c int, area int64) float64 {
	return float64(float64(area) * d.unit[c]) // rounded, whatever is done with it
}

// mean is the load of every shard when all is even.
func (d *deal) mean() float64 { return float64(d.total) / float64(d.p.Ring) }

// largestFirst deals free chunks from the one of most pairs on, each to the shard that is done with
// it first (LPT, Graham 1969) and has room. Three quarters of the room above a shard's part are
// kept for trades: a chunk that would need them goes where most room is left.
func (d *deal) largestFirst() {
	reserve := d.p.QTokens * 3 / (4 * tokenChunks * d.p.Ring)
	for i, k := range d.chunks {
		if k.to != free {
			d.put(i, k.to)
		}
	}
	for _, i := range d.byArea() {
		if d.chunks[i].to != free {
			continue
		}
		best, least, widest := -1, math.Inf(1), 0
		for c := range d.area {
			if d.room[c]-d.tokens[c] > d.room[widest]-d.tokens[widest] {
				widest = c
			}
			if d.tokens[c]+d.chunks[i].len() > d.room[c]-reserve {
				continue
			}
			if load := d.load(c, d.area[c]+d.chunks[i].area); load < least {
				best, least = c, load
			}
		}
		if best < 0 {
			best = widest
		}
		d.put(i, best)
	}
}

// byArea is the chunks, those of most pairs first.
func (d *deal) byArea() []int {
	order := make([]int, len(d.chunks))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(d.chunks[b].area, d.chunks[a].area)
	})
	return order
}

// put gives chunk i to shard c.
func (d *deal) put(i, c int) {
	d.shard[i] = c
	d.hand[c] = append(d.hand[c], i)
	d.area[c] += d.chunks[i].area
	d.tokens[c] += d.chunks[i].len()
}

// take takes chunk i from its shard.
func (d *deal) take(i int) {
	c := d.shard[i]
	n := slices.Index(d.hand[c], i)
	d.hand[c] = slices.Delete(d.hand[c], n, n+1)
	d.area[c] -= d.chunks[i].area
	d.tokens[c] -= d.chunks[i].len()
}

// trade is chunk i, of one shard, for chunk j, of another; j is -1 where i goes for nothing.
type trade struct {
	i, j, to int
	worse    float64 // the larger of the two loads afterwards
}

// even is how near to even the rounds of trades go.
const even = 1.001

// evenOut trades chunks of the shard of the largest load while that gets smaller.
func (d *deal) evenOut() {
	for range 4 * len(d.chunks) {
		from := 0
		for c := range d.area {
			if d.load(c, d.area[c]) > d.load(from, d.area[from]) {
				from = c
			}
		}
		if d.load(from, d.area[from]) <= even*d.mean() {
			return
		}
		// Light partners win most; the others are asked where these do not help.
		t, ok := d.bestTrade(from, d.lightest(from))
		if !ok {
			if t, ok = d.bestTrade(from, d.others(from)); !ok {
				return
			}
		}
		d.take(t.i)
		if t.j >= 0 {
			d.take(t.j)
			d.put(t.j, from)
		}
		d.put(t.i, t.to)
	}
}

// lightest is the few shards of least load but for one.
func (d *deal) lightest(but int) []int {
	const few = 4
	var out []int
	for c := range d.area {
		if c == but {
			continue
		}
		n := len(out)
		for n > 0 && d.load(c, d.area[c]) < d.load(out[n-1], d.area[out[n-1]]) {
			n--
		}
		if n < few {
			out = slices.Insert(out, n, c)[:min(len(out)+1, few)]
		}
	}
	return out
}

// others is all shards but for one.
func (d *deal) others(but int) []int {
	out := make([]int, 0, len(d.area))
	for c := range d.area {
		if c != but {
			out = append(out, c)
		}
	}
	return out
}

// bestTrade is the trade of a shard with one of the partners after which the larger of their loads
// is least, and less than the shard's load now.
func (d *deal) bestTrade(from int, partners []int) (best trade, ok bool) {
	best.worse = d.load(from, d.area[from])
	for _, to := range partners {
		for _, i := range d.hand[from] {
			for n := -1; n < len(d.hand[to]); n++ {
				t := trade{i: i, j: -1, to: to}
				gives, tokens := d.chunks[i].area, d.chunks[i].len()
				if n >= 0 {
					t.j = d.hand[to][n]
					gives, tokens = gives-d.chunks[t.j].area, tokens-d.chunks[t.j].len()
				}
				if gives <= 0 || !d.fits(from, to, tokens) {
					continue
				}
				t.worse = max(d.load(from, d.area[from]-gives), d.load(to, d.area[to]+gives))
				if t.worse < best.worse {
					best, ok = t, true
				}
			}
		}
	}
	return best, ok
}

// fits reports whether so many tokens may go from one shard to another; they come back when it is
// below 0.
func (d *deal) fits(from, to, tokens int) bool {
	if tokens > 0 {
		return d.tokens[to]+tokens <= d.room[to]
	}
	return tokens == 0 || d.tokens[from]-tokens <= d.room[from]
}

// sets is the shards, chunks joined where they touch.
func (d *deal) sets() []mesh.Set {
	sets := make([]mesh.Set, d.p.Ring)
	for i, c := range d.shard {
		set, k := sets[c], d.chunks[i]
		if n := len(set); n > 0 && set[n-1].Last()+1 == k.lo {
			set[n-1].Count += k.len()
			continue
		}
		sets[c] = append(set, k.span())
	}
	return sets
}

// report is the figures of the deal.
func (d *deal) report() Report {
	spans := 0
	for _, s := range d.sets() {
		spans += len(s)
	}
	return newReport(d.shares, slices.Clone(d.area), slices.Clone(d.tokens), spans, d.pairs)
}
