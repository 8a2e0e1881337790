package balance

import (
	"fmt"
	"math"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// Problem is what is dealt: the queries of a mask over the shards of a ring.
type Problem struct {
	// QTokens queries are dealt. Where KTokens is the same number it is self attention: a shard's
	// keys are dealt as its queries are, and ring steps are looked at. Else keys have a layout of
	// their own.
	QTokens, KTokens int
	Mask             attn.Mask
	Ring             int
	// Weights are the speeds of ring shards, of any unit: one of half the speed gets half the work.
	// Nil is all alike.
	Weights []float64
	// Chunks says how finely to cut: into about so many chunks a shard, more where documents are
	// cut by themselves. 0 finds the coarsest cut that is good, up to MaxChunks.
	Chunks int
}

// Limits of the search.
const (
	// MaxChunks is the most chunks a shard that Deal tries by itself.
	MaxChunks = 32
	// tokenChunks is how fine a cut the bound of tokens needs: where a chunk is an eighth of an
	// even part, some shard always has room for it.
	tokenChunks = 8
	// maxTiles is the most tiles, a chunk's queries and a chunk's keys, that all cuts but the first
	// look at, and maxPlaces how much trades for even steps may look at: what keeps rings of a
	// thousand ranks below a second.
	maxTiles  = 4 << 20
	maxPlaces = 12 << 20
	// lightest is the least weight, of the largest one.
	lightest = 1.0 / 1024
)

// Validate refuses a problem that cannot be dealt, with what would work.
func (p *Problem) Validate() error {
	if p.Ring < 1 || p.Ring > mesh.MaxRanks {
		return fmt.Errorf("balance: ring degree %d: use 1 to %d", p.Ring, mesh.MaxRanks)
	}
	if p.Chunks < 0 || p.Chunks > max(p.QTokens, 1) {
		return fmt.Errorf("balance: chunks %d: use 1 to the %d tokens, or 0 to have them chosen",
			p.Chunks, p.QTokens)
	}
	if n := len(p.Weights); n != 0 && n != p.Ring {
		return fmt.Errorf("balance: %d weights for a ring of %d: give one for each ring shard", n,
			p.Ring)
	}
	most := 0.0
	for _, w := range p.Weights {
		most = max(most, w)
	}
	for c, w := range p.Weights {
		if !(w > 0) || math.IsInf(w, 0) || w < most*lightest {
			return fmt.Errorf("balance: weight %v of ring shard %d: use a finite number above 0, "+
				"at least 1/1024 of the largest, or leave that rank out", w, c)
		}
	}
	return p.Mask.Validate(p.QTokens, p.KTokens)
}

// self tells self attention.
func (p *Problem) self() bool { return p.QTokens == p.KTokens }

// shares is each shard's fair part of the work: they add up to 1.
func (p *Problem) shares() []float64 {
	out := make([]float64, p.Ring)
	sum := 0.0
	for c := range out {
		out[c] = 1
		if len(p.Weights) > 0 {
			out[c] = p.Weights[c]
		}
		sum += out[c]
	}
	for c := range out {
		out[c] /= sum
	}
	return out
}

// Deal cuts the sequence into chunks and deals them so that the largest work of a shard, over its
// weight, is least, and then the largest of each ring step, where shard c attends the keys of shard
// c-t. Work is the pairs that the mask allows. No shard holds more tokens than its part by weight,
// an eighth of an even part and one more; a Chunks below 8 may need up to a chunk instead of the
// eighth.
//
// The same problem is always dealt alike. The layout is named balanced, with a fingerprint.
func Deal(p Problem) (mesh.Layout, Report, error) {
	if err := p.Validate(); err != nil {
		return nil, Report{}, err
	}
	best := p.search()
	l, err := mesh.NewDealt("balanced", p.QTokens, best.sets())
	if err != nil {
		return nil, Report{}, fmt.Errorf("balance: %w", err)
	}
	return l, best.report(), nil
}

// What is good enough: finer cuts, which mean more spans, are not tried then.
const (
	goodRound = 1.01
	goodSteps = 1.03
	fairRound = 1.03 // where a cut gets here, others must too
	worthIt   = 0.01 // what a finer cut must win
)

// search is what looks for the best cut.
type search struct {
	*cutter
	best          *deal
	score         score
	tiles, places int // what may still be looked at
}

// search tries finer and finer cuts, of both kinds.
func (p *Problem) search() *deal {
	s := &search{cutter: p.newCutter(), tiles: maxTiles, places: maxPlaces}
	least, most := 1, MaxChunks
	if p.Chunks > 0 {
		least, most = p.Chunks, p.Chunks
	}
	for chunks := least; chunks <= most; chunks *= 2 {
		if s.try(s.cut(chunks, false)) || s.try(s.cut(chunks, true)) {
			break
		}
	}
	return s.best
}

// try deals chunks, keeps the deal if it is the best so far, and reports whether it is good enough.
func (s *search) try(chunks []chunk) bool {
	looks := s.p.tiles(chunks)
	if s.best != nil && s.score.roomy && looks > s.tiles {
		return false
	}
	s.tiles -= looks
	d := newDeal(s.p, chunks)
	d.largestFirst()
	d.evenOut()
	if s.p.self() {
		d.evenSteps(&s.places)
	}
	now := d.score()
	if s.best == nil || now.better(s.score) {
		s.best, s.score = d, now
	}
	return now.roomy && now.round <= goodRound && now.steps <= goodSteps
}

// score is what cuts are compared by.
type score struct {
	roomy        bool // the bound of tokens is kept
	round, steps float64
}

func (d *deal) score() score {
	r := d.report()
	return score{roomy: d.roomy(), round: r.Imbalance, steps: r.StepImbalance}
}

// better reports whether s, of a finer cut, is worth its spans: first the bound of tokens counts,
// then the round, then round and steps together.
func (s score) better(than score) bool {
	if s.roomy != than.roomy {
		return s.roomy
	}
	if a, b := s.round <= fairRound, than.round <= fairRound; a != b {
		return a
	}
	was := than.round + than.steps
	return s.round+s.steps < was-float64(was*worthIt)
}
