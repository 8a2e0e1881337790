package plan

import (
	"fmt"

	"github.com/kvloom/kvloom/mesh"
)

// verifier checks programs of one header, one after the other. Its scratch is reused, so that
// checking a program of some hundred ops allocates nothing. It is not safe for concurrent use.
type verifier struct {
	hdr   *Header
	field *field
	sets  []setInfo
	mask  *maskIndex
	memo  pairMemo
	tiles tileMemo
	most  int // patches that a second look keeps
	gets  int // of a collective: how many ranks get an element's sum

	prog  *Program
	lives []life
	graph graph
	seen  []int32 // by slot: stamp of the last op that named it
	stamp int32

	found int // violations of the program
	kept  []Violation
}

// region is what an operand touches of a block, or what a block is.
type region struct {
	set   SetID
	heads mesh.Heads
}

func regionOf(a *Operand) region { return region{a.Set, a.Heads} }

func allTokens(n int) mesh.Span { return mesh.Span{Stride: 1, Count: n} }

// newVerifier checks the header and prepares tables. Violations of a header have no rank.
func newVerifier(h *Header) (*verifier, []Violation) {
	bad := func(kind, format string, args ...any) (*verifier, []Violation) {
		return nil, []Violation{{Kind: kind, Rank: -1, Op: -1, Other: -1,
			Text: "header: " + fmt.Sprintf(format, args...)}}
	}
	if err := h.Validate(); err != nil {
		return bad(badHome, "%v", err)
	}
	if h.QHeads > MaxHeads || h.Ranks < 1 || h.Ranks > mesh.MaxRanks {
		return bad(badHome, "%d heads on %d ranks: use 1 to %d heads, 1 to %d ranks", h.QHeads,
			h.Ranks, MaxHeads, mesh.MaxRanks)
	}
	if len(h.HomeQ) != h.Ranks || len(h.HomeK) != h.Ranks {
		return bad(badOwnership, "%d query and %d key home sets for %d ranks", len(h.HomeQ),
			len(h.HomeK), h.Ranks)
	}
	if len(h.Sets) == 0 || len(h.Sets[0]) > 0 {
		return bad(badHome, "token set 0 is not the empty set")
	}
	most := max(h.QTokens, h.KTokens)
	seed, hashes := uint64(fieldSeed), setHashes(h)
	for i, set := range h.Sets {
		if err := checkSet(set); err != nil {
			return bad(badHome, "token set %d: %v", i, err)
		}
		for _, p := range set {
			most = max(most, p.Last())
		}
		seed = absorb(seed, hashes[i])
	}
	for r := range h.Ranks {
		q, k := h.HomeQ[r], h.HomeK[r]
		if q < 0 || k < 0 || int(max(q, k)) >= len(h.Sets) {
			return bad(badOwnership, "home sets %d and %d of rank %d: the table has %d", q, k, r,
				len(h.Sets))
		}
		seed = absorb(absorb(seed, uint64(q)), uint64(k))
	}
	for _, n := range [...]int{h.QTokens, h.KTokens, h.QHeads, h.KHeads, h.Dim, h.VDim} {
		seed = absorb(seed, uint64(n))
	}
	for _, s := range h.Mask {
		for _, n := range [...]int{s.Q0, s.Q1, s.K0, s.K1, s.Lo, s.Hi} {
			seed = absorb(seed, uint64(n))
		}
	}
	v := &verifier{hdr: h, field: newField(seed, most, h.QHeads), most: maxPatches}
	v.sets = newSets(v.field, h, hashes)
	for _, set := range h.HomeK {
		v.gets += v.sets[set].rows
	}
	v.gets = max(v.gets/h.KTokens, 1)
	v.mask = newMaskIndex(h.Mask).within(rect{0, h.QTokens, 0, h.KTokens})
	return v, nil
}

// program checks the rules of one rank and gives its sums. v.found counts all violations.
func (v *verifier) program(p *Program, pass Pass, rank int) (Sums, []Violation) {
	v.prog, v.found, v.kept = p, 0, nil
	sums := Sums{Ranks: 1, Broken: 1, Ops: int64(len(p.Ops))}
	if p.Rank != rank || p.Pass != pass || rank < 0 || rank >= v.hdr.Ranks || pass > Backward {
		v.fail(badHome, -1, -1, "this is no %v program of rank %d (the plan has %d ranks)", pass,
			rank, v.hdr.Ranks)
		return sums, v.kept
	}
	sums.OwnQ, sums.OwnK = v.sets[v.hdr.HomeQ[rank]].x, v.sets[v.hdr.HomeK[rank]].x
	if v.hdr.Collective() {
		sums.OwnQ = 0
		if r, ok := v.brought(p); ok {
			sums.OwnQ = v.sum(r)
		}
	}
	v.table()
	v.shapes()
	if v.found > 0 || !v.sort() {
		return sums, v.kept
	}
	sums.Broken = 0
	v.open()
	for _, i := range v.graph.order {
		v.tick(i)
		v.uses(i)
		v.count(i, &sums)
	}
	v.ends()
	return sums, v.kept
}

// brought is what the program's rank brings to a collective, if it is a region that can be named.
func (v *verifier) brought(p *Program) (r region, ok bool) {
	i := slotOf(p, VecIn)
	if i < 0 {
		return region{}, false
	}
	r = region{p.Slots[i].Set, p.Slots[i].Heads}
	return r, v.known(r.set) && r.heads.Len() > 0 && r.heads.Within(v.hdr.AllHeads(Vec))
}

// count adds what op i is worth to the sums.
func (v *verifier) count(i int32, s *Sums) {
	p := v.prog
	op, args := &p.Ops[i], p.Args(int(i))
	switch op.Kind {
	case Send:
		s.Sends++
		s.Pair += v.transfer(p.Rank, int(op.Peer), op, &args[0])
	case Recv:
		s.Recvs++
		s.Pair -= v.transfer(int(op.Peer), p.Rank, op, &args[0])
	case Attend, AttendBackward:
		tile := v.tile(args[0].Set, args[1].Set)
		s.Cover = fadd(s.Cover, fmul(tile, v.field.heads(args[0].Heads)))
	case Finalize:
		if args[1].Tensor == Out {
			s.Final = fadd(s.Final, v.sum(regionOf(&args[0])))
		}
	case DeltaOp:
		if v.hdr.Sink { // each row's share of dsink is made with its delta
			s.Final = fadd(s.Final, v.sum(regionOf(&args[0])))
		}
	}
}

// transfer is a hash of all that both ends of a transfer must agree on. The tick is in it: ends of
// equal shape and different ticks may each wait for the other's next.
func (v *verifier) transfer(src, dst int, op *Op, a *Operand) uint64 {
	h := absorb(fieldSeed, uint64(src)<<32|uint64(dst))
	h = absorb(h, uint64(op.Lane)<<32|uint64(uint32(op.Tick)))
	h = absorb(h, uint64(a.Tensor)<<56^uint64(a.Heads.Lo)<<28^uint64(a.Heads.Hi))
	return absorb(h, v.sets[a.Set].wire)
}

// fail notes a violation of the program at op i (-1: of none), with the other op concerned.
func (v *verifier) fail(kind string, i, other int32, format string, args ...any) {
	v.found++
	if len(v.kept) >= maxRankViolations {
		return
	}
	p := v.prog
	text := fmt.Sprintf("%v rank %d", p.Pass, p.Rank)
	if i >= 0 {
		text += " op " + v.opText(i)
	}
	text += ": " + fmt.Sprintf(format, args...)
	if other >= 0 {
		text += "; the other is op " + v.opText(other)
	}
	v.kept = append(v.kept, Violation{Kind: kind, Pass: p.Pass, Rank: p.Rank, Op: int(i),
		Other: int(other), Text: text})
}

// opText is op i's line of the program's text, or what can be said of a malformed op.
func (v *verifier) opText(i int32) string {
	for _, a := range v.prog.Args(int(i)) {
		if a.Set < 0 {
			return fmt.Sprintf("%d %v, token set %d", i, v.prog.Ops[i].Kind, a.Set)
		}
	}
	return string(v.prog.AppendOp(nil, v.hdr, int(i)))
}

// say names a region in words, as plan texts do.
func (v *verifier) say(t Tensor, r region) string {
	if r.set < 0 {
		return fmt.Sprintf("%v of token set %d", t, r.set)
	}
	return string(appendRegion(nil, v.hdr, t, r.set, r.heads.Lo, r.heads.Hi))
}
