package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvloom/kvloom/mesh"
)

// Sums name nothing. When one fails, a second look at the programs halves the tokens until the sum
// of a single row or pair is wrong.

// patch is rows of heads that a rank claims: at home, finalised, or attended against keys.
type patch struct {
	rank, op  int32
	set, keys SetID
	heads     mesh.Heads
}

// maxPatches bounds what a second look keeps of all programs at once: 24 MiB, of transfers 56.
const maxPatches = 1 << 20

// name says what broke a sum.
func (v *verifier) name(src Source, pass Pass, f sumRule) ([]Violation, error) {
	var found []Violation
	var err error
	collective := v.hdr.Collective()
	switch f {
	case ownQueries:
		if collective {
			found, err = v.namePart(src, pass)
			break
		}
		found = v.nameOwner(pass, "query", v.hdr.QTokens, v.hdr.HomeQ)
	case ownKeys:
		if collective {
			break // which of two ranks has a sum too many or too few is not known
		}
		found = v.nameOwner(pass, "key", v.hdr.KTokens, v.hdr.HomeK)
	case sendsPair:
		found, err = v.namePairing(src, pass)
	case pairsOnce:
		found, err = v.namePair(src, pass)
	case rowsOnce:
		found, err = v.nameRow(src, pass)
	}
	if len(found) == 0 && err == nil {
		found = append(found, v.unnamed(pass, f))
	}
	return found, err
}

// eachProgram visits the programs of a pass.
func (v *verifier) eachProgram(src Source, pass Pass, f func(p *Program)) error {
	for rank := range v.hdr.Ranks {
		p, err := programOf(src, pass, rank)
		if err != nil {
			return err
		}
		f(p)
	}
	return nil
}

// nameOwner names a token that is not at home on exactly one rank.
func (v *verifier) nameOwner(pass Pass, what string, tokens int, homes []SetID) []Violation {
	var claims []patch
	one := mesh.Heads{Hi: 1}
	for r, set := range homes {
		claims = append(claims, patch{rank: int32(r), op: -1, set: set, heads: one})
	}
	token, _, by := v.wrongRow(tokens, one, claims)
	switch {
	case token < 0:
		return nil
	case len(by) == 0:
		return []Violation{unplaced(badOwnership, pass, "%s %d is at home on no rank", what, token)}
	}
	text := fmt.Sprintf("%s %d is at home on%s", what, token, rankList(by))
	if token >= tokens {
		text = fmt.Sprintf("rank %d is home of %s %d: there are %d", by[0].rank, what, token,
			tokens)
	}
	bad := unplaced(badOwnership, pass, "%s", text)
	bad.Rank = int(by[len(by)-1].rank)
	return []Violation{bad}
}

// namePart names a contributor's part of an element that is not brought by exactly one rank.
func (v *verifier) namePart(src Source, pass Pass) ([]Violation, error) {
	var claims []patch
	err := v.eachProgram(src, pass, func(p *Program) {
		if r, ok := v.brought(p); ok {
			claims = append(claims, patch{int32(p.Rank), -1, r.set, 0, r.heads})
		}
	})
	element, part, by := v.wrongRow(v.hdr.QTokens, v.hdr.AllHeads(Vec), claims)
	if err != nil || element < 0 {
		return nil, err
	}
	text := fmt.Sprintf("contributor %d's part of element %d is brought by", part, element)
	bad := unplaced(badOwnership, pass, "%s no rank", text)
	if len(by) > 0 {
		bad = unplaced(badOwnership, pass, "%s%s", text, rankList(by))
		bad.Rank = int(by[len(by)-1].rank)
	}
	return []Violation{bad}, nil
}

// rankList is " ranks 3 5".
func rankList(by []patch) string {
	text := " ranks"
	for i, p := range by {
		if i == maxNamed {
			return text + " and more"
		}
		text += fmt.Sprintf(" %d", p.rank)
	}
	return text
}

// nameRow names a row of a head that is not finalised exactly once.
func (v *verifier) nameRow(src Source, pass Pass) ([]Violation, error) {
	var claims []patch
	err := v.eachProgram(src, pass, func(p *Program) {
		for i := range p.Ops {
			ends := p.Ops[i].Kind == Finalize && p.Args(i)[1].Tensor == Out ||
				p.Ops[i].Kind == DeltaOp
			if ends && len(claims) < v.most {
				a := &p.Args(i)[0]
				claims = append(claims, patch{int32(p.Rank), int32(i), a.Set, 0, a.Heads})
			}
		}
	})
	token, head, by := v.wrongRow(v.hdr.QTokens, v.hdr.AllHeads(Q), claims)
	if err != nil || token < 0 {
		return nil, err
	}
	text := fmt.Sprintf("query %d%s, head %d is ", token, v.homeText(token, v.hdr.HomeQ), head)
	bad := unplaced(badCoverage, pass, "%s", text+times(doneToRows(pass), by))
	bad.place(by)
	return []Violation{bad}, nil
}

// wrongRow finds a row and head that the claims do not have exactly once, and those that have it.
// token is -1 if there is none.
func (v *verifier) wrongRow(tokens int, heads mesh.Heads, claims []patch) (token int, head int32,
	by []patch) {
	lo, hi := 0, tokens
	for _, c := range claims {
		if s := &v.sets[c.set]; s.rows > 0 {
			hi = max(hi, s.hi+1)
		}
	}
	wrong := func(lo, hi int) bool {
		want := mesh.Span{Start: lo, Stride: 1, Count: min(hi, tokens) - lo}
		got := uint64(0)
		for _, c := range claims {
			rows := uint64(0)
			for _, p := range v.sets[c.set].spans {
				rows = fadd(rows, v.field.sumX(spanClip(p, lo, hi)))
			}
			got = fadd(got, fmul(rows, v.field.heads(c.heads)))
		}
		return got != fmul(v.field.sumX(want), v.field.heads(heads))
	}
	if !wrong(lo, hi) {
		return -1, 0, nil
	}
	for hi-lo > 1 {
		mid := lo + (hi-lo)/2
		if wrong(lo, mid) {
			hi = mid
		} else {
			lo = mid
		}
		claims = slices.DeleteFunc(claims, func(c patch) bool {
			s := &v.sets[c.set]
			return s.rows == 0 || s.hi < lo || s.lo >= hi
		})
	}
	claims = slices.DeleteFunc(claims, func(c patch) bool { return !v.has(c.set, lo) })
	if lo >= tokens {
		return lo, heads.Lo, claims
	}
	head, by, ok := wrongHead(heads, claims)
	if !ok {
		return -1, 0, nil
	}
	return lo, head, by
}

// wrongHead finds a head that the claims do not have exactly once.
func wrongHead(heads mesh.Heads, claims []patch) (head int32, by []patch, ok bool) {
	for h := heads.Lo; h < heads.Hi; h++ {
		by = by[:0]
		for _, c := range claims {
			if c.heads.Lo <= h && h < c.heads.Hi {
				by = append(by, c)
			}
		}
		if len(by) != 1 {
			return h, by, true
		}
	}
	return 0, nil, false
}

func (v *verifier) has(set SetID, token int) bool {
	for _, p := range v.sets[set].spans {
		if spanClip(p, token, token+1).Count > 0 {
			return true
		}
	}
	return false
}

// namePair names a pair of a head that is not computed exactly once.
func (v *verifier) namePair(src Source, pass Pass) ([]Violation, error) {
	r := rect{0, v.hdr.QTokens, 0, v.hdr.KTokens}
	tiles, r, err := v.gather(src, pass, r)
	if err != nil {
		return nil, err
	}
	for r.q1-r.q0 > 1 || r.k1-r.k0 > 1 {
		half, rest := r.halves()
		if m := v.mask.within(half); v.tileSums(m, tiles) != v.pairs(m) {
			r = half
		} else {
			r = rest
		}
		tiles = slices.DeleteFunc(tiles, func(t patch) bool {
			a, b := &v.sets[t.set], &v.sets[t.keys]
			return a.hi < r.q0 || a.lo >= r.q1 || b.hi < r.k0 || b.lo >= r.k1
		})
	}
	tiles = slices.DeleteFunc(tiles, func(t patch) bool {
		return !v.has(t.set, r.q0) || !v.has(t.keys, r.k0)
	})
	head, by, ok := wrongHead(v.hdr.AllHeads(Q), tiles)
	if !ok || !v.hdr.Mask.Allows(r.q0, r.k0) {
		return nil, nil
	}
	text := fmt.Sprintf("query %d%s x key %d%s, head %d is ", r.q0, v.homeText(r.q0, v.hdr.HomeQ),
		r.k0, v.homeText(r.k0, v.hdr.HomeK), head)
	bad := unplaced(badCoverage, pass, "%s", text+times("computed", by))
	bad.place(by)
	return []Violation{bad}, nil
}

// halves cuts the rectangle, queries first.
func (r rect) halves() (half, rest rect) {
	half, rest = r, r
	if r.q1-r.q0 > 1 {
		half.q1 = r.q0 + (r.q1-r.q0)/2
		rest.q0 = half.q1
		return half, rest
	}
	half.k1 = r.k0 + (r.k1-r.k0)/2
	rest.k0 = half.k1
	return half, rest
}

// gather collects the tiles of all attends in a rectangle whose sum is wrong: of all the mask, or
// of as small a part of the queries as it takes to stay within v.most.
func (v *verifier) gather(src Source, pass Pass, r rect) ([]patch, rect, error) {
	var tiles []patch
	for {
		half, rest := r.halves()
		m, sum, n := v.mask.within(half), uint64(0), 0
		tiles = tiles[:0]
		err := v.eachProgram(src, pass, func(p *Program) {
			for i := range p.Ops {
				if k := p.Ops[i].Kind; k != Attend && k != AttendBackward {
					continue
				}
				args := p.Args(i)
				t := patch{int32(p.Rank), int32(i), args[0].Set, args[1].Set, args[0].Heads}
				if a := &v.sets[t.set]; a.hi < r.q0 || a.lo >= r.q1 {
					continue
				}
				if n++; n <= v.most {
					tiles = append(tiles, t)
				}
				sum = fadd(sum, v.tileSums(m, []patch{t}))
			}
		})
		if err != nil || n <= v.most || r.q1-r.q0 == 1 {
			return tiles, r, err
		}
		if sum != v.pairs(m) {
			r = half
		} else {
			r = rest
		}
	}
}

// tileSums is the sum of x^q y^k z^h over what the tiles compute of a mask.
func (v *verifier) tileSums(m *maskIndex, tiles []patch) uint64 {
	sum := uint64(0)
	for _, t := range tiles {
		tile := v.field.tile(m, &v.sets[t.set], &v.sets[t.keys])
		sum = fadd(sum, fmul(tile, v.field.heads(t.heads)))
	}
	return sum
}

// pairs is what tileSums should be.
func (v *verifier) pairs(m *maskIndex) uint64 {
	return fmul(v.field.total(m), v.field.heads(v.hdr.AllHeads(Q)))
}

// homeText is " (home rank 4)" of a token.
func (v *verifier) homeText(token int, homes []SetID) string {
	for r, set := range homes {
		if v.has(set, token) {
			return fmt.Sprintf(" (home rank %d)", r)
		}
	}
	return ""
}

// maxNamed bounds the ops or ranks listed in one text, and the transfers named.
const maxNamed = 8

// times is "computed 2 times: rank 5 op 20, rank 5 op 21".
func times(done string, by []patch) string {
	if len(by) == 0 {
		return "never " + done
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d times:", done, len(by))
	for i, p := range by {
		if i == maxNamed {
			b.WriteString(" and more")
			break
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, " rank %d op %d", p.rank, p.op)
	}
	return b.String()
}

// place puts the violation at the last of those who did something twice.
func (b *Violation) place(by []patch) {
	if n := len(by); n > 0 {
		b.Rank, b.Op = int(by[n-1].rank), int(by[n-1].op)
		if n > 1 {
			b.Other = int(by[n-2].op)
		}
	}
}
