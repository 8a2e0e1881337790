package plan

import (
	"fmt"
	"strings"
)

// Kinds of violations, as the JSON of `plan verify` spells them.
const (
	badCoverage  = "coverage"  // a pair of a head computed twice or never; a row finalised so
	badOwnership = "ownership" // a token at home on no rank or on two
	badPairing   = "pairing"   // a send without its receive, or the other way round
	badSlot      = "slot"      // what lives in a slot, and what an op may do to it
	badOrder     = "order"     // two uses of a slot that no dependency orders
	badDeadlock  = "deadlock"  // an op that waits for itself
	badHome      = "home"      // inputs, outputs and what one pass leaves for the next
)

// Violation is one broken rule, in words. Rank, Op and Other are -1 where there is none; Other is
// the other op concerned, of the same rank unless Text says otherwise.
type Violation struct {
	Kind  string
	Pass  Pass
	Rank  int
	Op    int
	Other int
	Text  string
}

// Limits of what is kept and named; the rest is only counted.
const (
	maxRankViolations = 16  // of one rank's program
	maxViolations     = 256 // of a report
)

// Report is what Verify found: nothing, if the plan is sound. Found counts all violations, also
// those beyond the limits.
type Report struct {
	Violations []Violation
	Found      int
	Ranks      int
	Ops        int
}

// Err is nil for a sound plan, else the first violations in words and how many there are.
func (r *Report) Err() error {
	if r.Found == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "plan: %d violations: ", r.Found)
	if r.Found == 1 {
		b.Reset()
		b.WriteString("plan: ")
	}
	const shown = 3
	for i, v := range r.Violations[:min(shown, len(r.Violations))] {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s: %s", v.Kind, v.Text)
	}
	if r.Found > shown {
		fmt.Fprintf(&b, "; and %d more", r.Found-shown)
	}
	return fmt.Errorf("%s", b.String())
}

func (r *Report) add(found ...Violation) {
	r.Found += len(found)
	r.Violations = append(r.Violations,
		found[:min(len(found), maxViolations-len(r.Violations))]...)
}

// Sums is what a rank adds to the proof of a pass, 80 bytes. Sums add up in any order. Each is
// the value of a polynomial at points that all ranks draw from the header, modulo 2^61-1.
type Sums struct {
	OwnQ, OwnK    uint64 // x^t over the tokens at home; of a collective OwnQ is x^t z^h of vec.in
	Cover         uint64 // x^q y^k z^h over what attend and attend-bwd compute
	Final         uint64 // x^q z^h over what becomes out; with a sink, backward, over deltas
	Pair          uint64 // hashes of sends minus hashes of receives, modulo 2^64
	Sends, Recvs  int64
	Ops           int64
	Ranks, Broken int64 // ranks added; those whose program is too broken to have sums
}

// Add adds another rank's sums, or another sum of ranks.
func (s *Sums) Add(o Sums) {
	s.OwnQ, s.OwnK = fadd(s.OwnQ, o.OwnQ), fadd(s.OwnK, o.OwnK)
	s.Cover, s.Final = fadd(s.Cover, o.Cover), fadd(s.Final, o.Final)
	s.Pair += o.Pair
	s.Sends, s.Recvs, s.Ops = s.Sends+o.Sends, s.Recvs+o.Recvs, s.Ops+o.Ops
	s.Ranks, s.Broken = s.Ranks+o.Ranks, s.Broken+o.Broken
}

// Verify proves a plan before anything runs, from its programs alone and rank by rank, on one
// thread; it calls no builder. An empty report means, for every order in which the run time may
// start and end ops:
//
//   - every allowed (query, key) pair of every query head is computed exactly once in each pass,
//     and every row of every head becomes out exactly once, other states become parts, which are
//     merged; with a sink each row's delta, and so its share of the sink's gradient, is made once;
//   - every query and key token is at home on exactly one rank;
//   - each send has exactly one receive with the same lane, tick, tensor, token set and heads;
//   - no rank waits for ever: dependencies have no cycle, and each transfer has a higher tick than
//     any that it waits for, so the unfinished transfer of lowest tick can always go on;
//   - a slot holds one block at a time, as large as the slot at most; every read lies inside what
//     was written, before the release and after the write; conflicting uses are ordered;
//   - accumulators lose and double nothing: each is started once, and every cell is handed on
//     exactly once after all that is added to it;
//   - of a collective: each contributor's part of each element is brought by one rank; each sum is
//     of all parts of its element, each once, in the order of contributors, and no sum is changed
//     or made of other sums; every element's sum ends on equally many ranks, at least one;
//   - out, dq, dk and dv, and the sums of a collective, end at home, whole; all scratch slots end
//     free; what the backward pass expects to find, the forward pass has left.
//
// The rules of one rank are exact but for fingerprints; sums over ranks and fingerprints miss an
// error with a chance below 2^-30. Assumed of the run time and not proven:
//
//	M1  each stream of a device is a FIFO and an op is over only when its effects are; Verify uses
//	    no order between ops other than dependencies and M2
//	M2  transfers of a lane (direction, peer, lane) start and complete in rising tick order; lanes
//	    do not block each other
//	M3  a receive that has started owns its slot and is the credit; a send starts only with it;
//	    both end together
//	M4  the block header (tick, tensor, set, heads) is checked on arrival
//	M5  kernels compute exactly what their operands and the mask say, no pair of the mask twice
//
// The mask's slices must be disjoint (attn.Mask.Validate). A plan of a backward pass alone is
// proven given its live-in blocks. The error tells that a program could not be had; broken plans
// are in the report.
func Verify(src Source) (*Report, error) {
	proof, err := NewProof(src)
	if err != nil {
		return nil, err
	}
	for rank := range src.Header().Ranks {
		var programs []*Program
		for _, pass := range src.Passes() {
			p, err := programOf(src, pass, rank)
			if err != nil {
				return nil, err
			}
			programs = append(programs, p)
		}
		proof.Rank(rank, programs)
	}
	return proof.Finish()
}

// Proof is Verify for a caller that has the programs in hand: Rank for every rank, then Finish.
type Proof struct {
	src    Source
	passes []Pass
	report *Report
	v      *verifier
	sums   []Sums
	broken bool
}

// NewProof begins a proof. The error tells that there is nothing to prove.
func NewProof(src Source) (*Proof, error) {
	h, passes := src.Header(), src.Passes()
	if len(passes) == 0 {
		return nil, fmt.Errorf("plan: no pass to verify: a plan has forward, backward or both")
	}
	for _, pass := range passes {
		if pass > Backward {
			return nil, fmt.Errorf("plan: pass %d to verify: there are forward and backward", pass)
		}
	}
	p := &Proof{src: src, passes: passes, report: &Report{Ranks: h.Ranks}}
	v, broken := newVerifier(h)
	p.v, p.broken = v, len(broken) > 0
	p.report.add(broken...)
	p.sums = make([]Sums, len(passes))
	return p, nil
}

// Rank checks a rank's programs, one for each of the source's passes, in their order.
func (p *Proof) Rank(rank int, programs []*Program) {
	if p.broken {
		return
	}
	var both [2]*Program
	for i, pass := range p.passes {
		s, found := p.v.program(programs[i], pass, rank)
		p.sums[i].Add(s)
		p.report.add(found...)
		p.report.Found += p.v.found - len(found)
		p.report.Ops += len(programs[i].Ops)
		both[pass] = programs[i]
	}
	if both[Forward] != nil && both[Backward] != nil {
		p.report.add(p.v.live(both[Forward], both[Backward])...)
	}
}

// Finish checks the sums over all ranks and names what is wrong with them.
func (p *Proof) Finish() (*Report, error) {
	if p.broken {
		return p.report, nil
	}
	for i, pass := range p.passes {
		for _, f := range p.v.failed(pass, &p.sums[i]) {
			if i > 0 && (f == ownQueries || f == ownKeys) {
				continue // the header is one for all passes
			}
			found, err := p.v.name(p.src, pass, f)
			if err != nil {
				return nil, err
			}
			p.report.add(found...)
		}
	}
	return p.report, nil
}

// programOf asks for a program.
func programOf(src Source, pass Pass, rank int) (*Program, error) {
	p, err := src.Program(pass, rank)
	if err == nil && p == nil {
		err = fmt.Errorf("there is none")
	}
	if err != nil {
		return nil, fmt.Errorf("plan: %v program of rank %d: %w", pass, rank, err)
	}
	return p, nil
}

// VerifyRank checks the rules of one rank and gives what it adds to the sums. With the sums of
// all ranks in CheckSums, and CheckLive on each rank that runs both passes, it proves what Verify
// does; sums do not name culprits. At most 16 violations are given.
func VerifyRank(h *Header, p *Program) (Sums, []Violation) {
	v, broken := newVerifier(h)
	if len(broken) > 0 {
		return Sums{Ranks: 1, Broken: 1}, broken
	}
	return v.program(p, p.Pass, p.Rank)
}

// CheckSums checks the sums of all ranks of a pass. The violations name no rank.
func CheckSums(h *Header, pass Pass, sums Sums) []Violation {
	v, broken := newVerifier(h)
	if len(broken) > 0 {
		return broken
	}
	found := []Violation{}
	for _, f := range v.failed(pass, &sums) {
		found = append(found, v.unnamed(pass, f))
	}
	if sums.Broken > 0 {
		found = append(found, unplaced(badHome, pass, "%d of %d ranks have programs too broken "+
			"to sum up: see theirs", sums.Broken, sums.Ranks))
	}
	return found
}

// CheckLive checks that the blocks which a rank's backward pass expects under the roles head.q,
// head.kv and head.o are those that its forward pass keeps.
func CheckLive(h *Header, forward, backward *Program) []Violation {
	v, broken := newVerifier(h)
	if len(broken) > 0 {
		return broken
	}
	return v.live(forward, backward)
}

// sumRule is a rule that a sum over the ranks decides.
type sumRule uint8

const (
	allRanks sumRule = iota
	ownQueries
	ownKeys
	sendsPair
	pairsOnce
	rowsOnce
)

// failed compares the sums of all ranks with what they must be. Ranks whose program is too broken
// have violations of their own, and the sums of the others say nothing then.
func (v *verifier) failed(pass Pass, s *Sums) []sumRule {
	if s.Ranks != int64(v.hdr.Ranks) {
		return []sumRule{allRanks}
	}
	var out []sumRule
	queries := v.field.sumX(allTokens(v.hdr.QTokens))
	heads := v.field.heads(v.hdr.AllHeads(Q))
	ownQ, ownK := queries, v.field.sumX(allTokens(v.hdr.KTokens))
	if v.hdr.Collective() {
		ownQ, ownK = fmul(queries, heads), fmul(ownK, uint64(v.gets))
	}
	if s.OwnQ != ownQ {
		out = append(out, ownQueries)
	}
	if s.OwnK != ownK {
		out = append(out, ownKeys)
	}
	if s.Broken > 0 {
		return out
	}
	if s.Pair != 0 || s.Sends != s.Recvs {
		out = append(out, sendsPair)
	}
	if s.Cover != fmul(v.field.total(v.mask), heads) {
		out = append(out, pairsOnce)
	}
	rows := fmul(queries, heads)
	if pass == Backward && !v.hdr.Sink || v.hdr.Collective() {
		rows = 0
	}
	if s.Final != rows {
		out = append(out, rowsOnce)
	}
	return out
}

// unnamed says in words which sum failed.
func (v *verifier) unnamed(pass Pass, f sumRule) Violation {
	switch {
	case f == ownQueries && v.hdr.Collective():
		return unplaced(badOwnership, pass, "the ranks do not bring each contributor's part of "+
			"each element once")
	case f == ownKeys && v.hdr.Collective():
		return unplaced(badOwnership, pass, "not every element's sum is at home on %d ranks, as "+
			"many as any", v.gets)
	}
	switch f {
	case ownQueries:
		return unplaced(badOwnership, pass, "the ranks' home sets do not part the query tokens")
	case ownKeys:
		return unplaced(badOwnership, pass, "the ranks' home sets do not part the key tokens")
	case sendsPair:
		return unplaced(badPairing, pass, "sends and receives do not match one to one")
	case pairsOnce:
		return unplaced(badCoverage, pass, "some allowed pair is not computed exactly once")
	case rowsOnce:
		return unplaced(badCoverage, pass, "some row is not %s exactly once",
			doneToRows(pass))
	}
	return unplaced(badOwnership, pass, "the sums are not those of all %d ranks", v.hdr.Ranks)
}

// doneToRows is what a pass does once to each row of a head.
func doneToRows(pass Pass) string {
	if pass == Backward {
		return "given its delta"
	}
	return "finalised"
}

// unplaced is a violation of no rank.
func unplaced(kind string, pass Pass, format string, args ...any) Violation {
	return Violation{Kind: kind, Pass: pass, Rank: -1, Op: -1, Other: -1,
		Text: pass.String() + ": " + fmt.Sprintf(format, args...)}
}
