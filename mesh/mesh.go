package mesh

import "fmt"

// Limits of a mesh: what one run can address.
const (
	MaxRanks = 1 << 16
)

// Placement says how global ranks fill the mesh (LoongTrain): head-first puts consecutive ranks
// into one head group, context-first into one ring segment.
type Placement uint8

// The two placements.
const (
	HeadFirst Placement = iota
	ContextFirst
)

// String is the placement as the command line spells it.
func (p Placement) String() string {
	if p == ContextFirst {
		return "context-first"
	}
	return "head-first"
}

// ParsePlacement reads what String prints.
func ParsePlacement(s string) (Placement, error) {
	switch s {
	case "head-first":
		return HeadFirst, nil
	case "context-first":
		return ContextFirst, nil
	}
	return 0, fmt.Errorf("placement %q is unknown: use head-first or context-first", s)
}

// Mesh is H x C ranks: head degree Head (Ulysses) times ring degree Ring (context).
//
//	       c=0   c=1   c=2   c=3
//	h=0     0     2     4     6     head-first: g = c*H + h
//	h=1     1     3     5     7     context-first: g = h*C + c
//	        ^ a column is a head group, a row is a ring
type Mesh struct {
	Head, Ring int
	Placement  Placement
}

// Coord is a place in the mesh: 0 <= H < Head, 0 <= C < Ring.
type Coord struct{ H, C int }

// Ranks is the number of ranks.
func (m Mesh) Ranks() int { return m.Head * m.Ring }

// Validate refuses a mesh with a degree below one or beyond MaxRanks ranks.
func (m Mesh) Validate() error {
	if m.Head < 1 || m.Ring < 1 {
		return fmt.Errorf("mesh %dx%d has a degree below 1: both degrees must be at least 1, "+
			"such as %dx%d", m.Head, m.Ring, max(m.Head, 1), max(m.Ring, 1))
	}
	if m.Head > MaxRanks || m.Ring > MaxRanks/m.Head {
		return fmt.Errorf("mesh %dx%d has more than the limit of %d ranks: use smaller degrees",
			m.Head, m.Ring, MaxRanks)
	}
	return nil
}

// Rank is the global rank at a coordinate.
func (m Mesh) Rank(at Coord) int {
	if m.Placement == ContextFirst {
		return at.H*m.Ring + at.C
	}
	return at.C*m.Head + at.H
}

// Coord is where a global rank sits.
func (m Mesh) Coord(rank int) Coord {
	if m.Placement == ContextFirst {
		return Coord{H: rank / m.Ring, C: rank % m.Ring}
	}
	return Coord{H: rank % m.Head, C: rank / m.Head}
}

// Heads is a run [Lo,Hi) of heads.
type Heads struct{ Lo, Hi int32 }

// Len is the number of heads in the run.
func (h Heads) Len() int { return int(h.Hi - h.Lo) }

// Within reports whether every head of h is in o.
func (h Heads) Within(o Heads) bool { return h.Lo >= o.Lo && h.Hi <= o.Hi }

// SplitHeads gives head rank h of degree its query heads, cut near-equally and in order, and every
// KV head that these read: a KV head whose query heads straddle a cut is held on both sides.
// Query head i reads KV head i / (queryHeads/kvHeads).
func SplitHeads(queryHeads, kvHeads, degree, h int) (q, kv Heads) {
	lo, hi := CutEven(queryHeads, degree, h)
	group := queryHeads / kvHeads
	q = Heads{int32(lo), int32(hi)}
	kv = Heads{int32(lo / group), int32((hi-1)/group + 1)}
	return q, kv
}

// ValidateHeads refuses heads that a head degree cannot split, with what would work.
func ValidateHeads(queryHeads, kvHeads, degree int) error {
	switch {
	case queryHeads < 1:
		return fmt.Errorf("heads %d: at least 1 query head is needed", queryHeads)
	case kvHeads < 1 || queryHeads%kvHeads != 0:
		return fmt.Errorf("kv-heads %d does not divide heads %d: use a divisor of %d, such as %d",
			kvHeads, queryHeads, queryHeads, nearestDivisor(queryHeads, kvHeads))
	case degree > queryHeads:
		return fmt.Errorf("head degree %d is above the %d query heads: each head rank needs a "+
			"query head, so use a head degree of at most %d", degree, queryHeads, queryHeads)
	}
	return nil
}

func nearestDivisor(n, near int) int {
	best := 1
	for d := 1; d <= n; d++ {
		if n%d == 0 && abs(d-near) < abs(best-near) {
			best = d
		}
	}
	return best
}

func abs(x int) int { return max(x, -x) }
