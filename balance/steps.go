package balance

// steps is the pairs of shards with shards and what trades do to them. Step t of the ring is the
// places (c, c-t) of the matrix.
type steps struct {
	*deal
	keys, queries [][]link  // by chunk
	sees, seen    [][]int64 // by chunk and shard: pairs of its queries, and of its keys
	sum           []float64 // by step: the loads of all shards
	change        []float64 // scratch: what a trade adds to sum
}

// Budgets of the search for even steps.
const (
	sweeps    = 8
	near      = 6         // neighbours in area that a chunk is traded for
	maxTable  = 1 << 20   // chunks times shards: above, steps are left as they are
	tolerance = 1.0 / 512 // what the largest load may be above even, for even steps
	shortfall = 1.0 / 64  // what the least may be below
)

// evenSteps fills the matrix of pairs and trades chunks of like area so that shards have like work
// in each step: it lowers the sum over steps of the variance of the shards' loads. It takes what it
// looks at from places.
func (d *deal) evenSteps(places *int) {
	if d.p.Ring == 1 || len(d.chunks)*d.p.Ring > maxTable {
		d.pairs = newMatrix(d.p.Ring)
		meet(d.p.Mask, d.chunks, func(i, j int, area int64) {
			d.pairs[d.shard[i]][d.shard[j]] += area
		})
		return
	}
	s := d.newSteps()
	limit := limits{d.mean() * (1 - shortfall), d.mean() * (1 + tolerance)}
	for c := range d.area {
		load := d.load(c, d.area[c])
		limit = limits{min(limit.lo, load), max(limit.hi, load)}
	}
	order := d.byArea()
	for range sweeps {
		traded := false
		for n, i := range order {
			for _, j := range order[n+1 : min(n+1+near, len(order))] {
				if d.shard[i] == d.shard[j] || !s.allowed(i, j, limit) {
					continue
				}
				if *places -= 4 * d.p.Ring; *places < 0 {
					return
				}
				if s.gain(i, j) < 0 {
					s.trade(i, j)
					traded = true
				}
			}
		}
		if !traded {
			return
		}
	}
}

// newSteps counts the pairs of all tiles.
func (d *deal) newSteps() *steps {
	ring := d.p.Ring
	s := &steps{deal: d, sum: make([]float64, ring), change: make([]float64, ring)}
	s.keys, s.queries = links(d.p.Mask, d.chunks)
	d.pairs = newMatrix(ring)
	s.sees, s.seen = make([][]int64, len(d.chunks)), make([][]int64, len(d.chunks))
	for i := range d.chunks {
		s.sees[i], s.seen[i] = make([]int64, ring), make([]int64, ring)
		for _, l := range s.keys[i] {
			s.sees[i][d.shard[l.chunk]] += l.area
		}
		for _, l := range s.queries[i] {
			s.seen[i][d.shard[l.chunk]] += l.area
		}
		for k, n := range s.sees[i] {
			d.pairs[d.shard[i]][k] += n
		}
	}
	for c, row := range d.pairs {
		for k, n := range row {
			s.sum[s.step(c, k)] += d.load(c, n)
		}
	}
	return s
}

// step is the ring step in which shard c attends the keys of shard k.
func (s *steps) step(c, k int) int {
	if c < k {
		return c - k + s.p.Ring
	}
	return c - k
}

// limits is what loads may be.
type limits struct{ lo, hi float64 }

func (l limits) has(load float64) bool { return l.lo <= load && load <= l.hi }

// allowed reports whether chunks i and j can change places within the limits of load and the room.
func (s *steps) allowed(i, j int, limit limits) bool {
	a, b := s.shard[i], s.shard[j]
	gives := s.chunks[i].area - s.chunks[j].area
	return limit.has(s.load(a, s.area[a]-gives)) && limit.has(s.load(b, s.area[b]+gives)) &&
		s.fits(a, b, s.chunks[i].len()-s.chunks[j].len())
}

// corner is what the four places between the shards of two chunks become when the chunks change
// places.
func (s *steps) corner(i, j int) (aa, ab, ba, bb int64) {
	a, b := s.shard[i], s.shard[j]
	ii, ij := areaOf(s.keys[i], i), areaOf(s.keys[i], j)
	ji, jj := areaOf(s.keys[j], i), areaOf(s.keys[j], j)
	m := s.pairs
	aa = m[a][a] - s.sees[i][a] - s.seen[i][a] + ii + s.sees[j][a] - ji + s.seen[j][a] - ij + jj
	bb = m[b][b] - s.sees[j][b] - s.seen[j][b] + jj + s.sees[i][b] - ij + s.seen[i][b] - ji + ii
	ab = m[a][b] - s.sees[i][b] + s.sees[j][b] - (s.seen[j][a] - ij + jj) + (s.seen[i][a] - ii + ji)
	ba = m[b][a] - s.sees[j][a] + s.sees[i][a] - (s.seen[i][b] - ji + ii) + (s.seen[j][b] - jj + ij)
	return aa, ab, ba, bb
}

// gain is what changing the places of chunks i and j adds to the measure: the sum over steps of
// ring * (sum of squared loads) - (sum of loads)^2. Products are rounded before they are added, so
// that all machines decide alike.
func (s *steps) gain(i, j int) float64 {
	a, b := s.shard[i], s.shard[j]
	clear(s.change)
	squares := 0.0
	set := func(c, k int, to int64) {
		was, is := s.load(c, s.pairs[c][k]), s.load(c, to)
		s.change[s.step(c, k)] += float64(is - was)
		squares += float64((is - was) * (is + was))
	}
	for k := range s.p.Ring {
		if k == a || k == b {
			continue
		}
		rows, cols := s.sees[j][k]-s.sees[i][k], s.seen[j][k]-s.seen[i][k]
		if rows != 0 {
			set(a, k, s.pairs[a][k]+rows)
			set(b, k, s.pairs[b][k]-rows)
		}
		if cols != 0 {
			set(k, a, s.pairs[k][a]+cols)
			set(k, b, s.pairs[k][b]-cols)
		}
	}
	aa, ab, ba, bb := s.corner(i, j)
	set(a, a, aa)
	set(a, b, ab)
	set(b, a, ba)
	set(b, b, bb)
	gain := float64(float64(s.p.Ring) * squares)
	for t, x := range s.change {
		gain -= float64(x * (x + float64(2*s.sum[t])))
	}
	return gain
}

// trade changes the places of chunks i and j.
func (s *steps) trade(i, j int) {
	a, b := s.shard[i], s.shard[j]
	aa, ab, ba, bb := s.corner(i, j)
	for k := range s.p.Ring {
		if k != a && k != b {
			rows, cols := s.sees[j][k]-s.sees[i][k], s.seen[j][k]-s.seen[i][k]
			s.pairs[a][k] += rows
			s.pairs[b][k] -= rows
			s.pairs[k][a] += cols
			s.pairs[k][b] -= cols
		}
	}
	s.pairs[a][a], s.pairs[a][b], s.pairs[b][a], s.pairs[b][b] = aa, ab, ba, bb
	for t, x := range s.change { // gain has just filled it
		s.sum[t] += x
	}
	s.take(i)
	s.take(j)
	s.put(i, b)
	s.put(j, a)
	s.moved(i, a, b)
	s.moved(j, b, a)
}

// moved tells the other chunks that chunk i went from shard a to shard b.
func (s *steps) moved(i, a, b int) {
	for _, l := range s.queries[i] {
		s.sees[l.chunk][a] -= l.area
		s.sees[l.chunk][b] += l.area
	}
	for _, l := range s.keys[i] {
		s.seen[l.chunk][a] -= l.area
		s.seen[l.chunk][b] += l.area
	}
}
