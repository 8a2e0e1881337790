package rank

import "github.com/kvloom/kvloom/plan"

// Compiled is a plan made ready to run: a script for every rank and pass. It is immutable.
type Compiled struct {
	Header  *plan.Header
	Hash    plan.Hash
	Scripts [2][]*Script // by pass and rank
}

// CompilePlan builds and readies the programs of a plan for all its ranks.
func CompilePlan(src plan.Source, hash plan.Hash) (*Compiled, error) {
	c := &Compiled{Header: src.Header(), Hash: hash}
	for _, pass := range src.Passes() {
		for r := range c.Header.Ranks {
			p, err := src.Program(pass, r)
			if err != nil {
				return nil, err
			}
			s, err := Compile(c.Header, p, hash.Short())
			if err != nil {
				return nil, err
			}
			c.Scripts[pass] = append(c.Scripts[pass], s)
		}
	}
	return c, nil
}

// Entry is what one round runs: a pass of a plan on one state of the session (a layer's
// micro-batch).
type Entry struct {
	Plan  *Compiled
	Pass  plan.Pass
	State int32
}

// Rounds is a book as a list: entry i is round First+i. Whoever shares it between goroutines locks
// it.
type Rounds struct {
	First   int32
	Entries []Entry
}

// At is the entry of a round.
func (b *Rounds) At(round int32) (Entry, bool) {
	if round < b.First || int(round-b.First) >= len(b.Entries) {
		return Entry{}, false
	}
	return b.Entries[round-b.First], true
}

// Script is the rank's program of a round, or nil.
func (b *Rounds) Script(rank, round int32) *Script {
	e, ok := b.At(round)
	if !ok || int(rank) >= len(e.Plan.Scripts[e.Pass]) {
		return nil
	}
	return e.Plan.Scripts[e.Pass][rank]
}

// PlanHash folds the plan hashes, passes and states of the rounds from <= r < to; a round that is
// not in the book changes it too.
func (b *Rounds) PlanHash(_, from, to int32) uint64 {
	v := uint64(14695981039346656037)
	mix := func(x uint64) { v = (v ^ x) * 1099511628211 }
	for r := from; r < to; r++ {
		e, ok := b.At(r)
		if !ok {
			mix(0)
			continue
		}
		mix(e.Plan.Hash.Short())
		mix(uint64(e.Pass) + 1)
		mix(uint64(e.State) + 1)
	}
	return v
}
