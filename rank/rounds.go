package rank

import "github.com/kvloom/kvloom/plan"

// Compiled is a plan made ready to run: a script for every rank and pass, and what each rank must
// confirm to hold. It is immutable.
type Compiled struct {
	Header  *plan.Header
	Hash    plan.Hash
	Scripts [2][]*Script // by pass and rank
	want    [2][]uint64  // Name of the script that was made for the rank
}

// CompilePlan builds the programs of a plan for all its ranks and readies them. It builds each
// once: check, if set, is given each rank's programs, in the order of passes (its error ends the
// work), and seal names the plan by their hashes
// (rank 0 forward, rank 0 backward, ...).
func CompilePlan(src plan.Source, check func(rank int, programs []*plan.Program) error,
	seal func([]plan.Hash) plan.Hash) (*Compiled, error) {
	h := src.Header()
	c := &Compiled{Header: h}
	var programs []*plan.Program
	var hashes []plan.Hash
	for r := range h.Ranks {
		mine := len(programs)
		for _, pass := range src.Passes() {
			p, err := src.Program(pass, r)
			if err != nil {
				return nil, err
			}
			programs, hashes = append(programs, p), append(hashes, p.Hash(h))
		}
		if check != nil {
			if err := check(r, programs[mine:]); err != nil {
				return nil, err
			}
		}
	}
	c.Hash = seal(hashes)
	content := h.ContentHash()
	for i, p := range programs {
		s, err := Compile(h, p, c.Hash.Short())
		if err != nil {
			return nil, err
		}
		s.Name = hashes[i].Short() ^ content
		c.Scripts[p.Pass] = append(c.Scripts[p.Pass], s)
		c.want[p.Pass] = append(c.want[p.Pass], s.Name)
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

// State is the state of a round, -1 if the round is unknown.
func (b *Rounds) State(round int32) int32 {
	e, ok := b.At(round)
	if !ok {
		return -1
	}
	return e.State
}

// Holds folds what a rank holds for the rounds from <= r < to: its scripts, their passes and
// states. A round that is not in the book changes it too.
func (b *Rounds) Holds(rank, from, to int32) uint64 {
	return b.fold(from, to, func(e Entry) uint64 { return e.Plan.Scripts[e.Pass][rank].Name })
}

// Wants folds what a rank must hold for the same rounds: what was built, and proven, for it.
func (b *Rounds) Wants(rank, from, to int32) uint64 {
	return b.fold(from, to, func(e Entry) uint64 { return e.Plan.want[e.Pass][rank] })
}

func (b *Rounds) fold(from, to int32, name func(Entry) uint64) uint64 {
	v := uint64(14695981039346656037)
	mix := func(x uint64) { v = (v ^ x) * 1099511628211 }
	for r := from; r < to; r++ {
		e, ok := b.At(r)
		if !ok {
			mix(0)
			continue
		}
		mix(name(e))
		mix(e.Plan.Hash.Short())
		mix(uint64(e.Pass) + 1)
		mix(uint64(e.State) + 1)
	}
	return v
}
