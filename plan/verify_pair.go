package plan

import (
	"cmp"
	"fmt"
	"slices"
)

// end is one end of a transfer.
type end struct {
	src, dst, lane, tick int32
	rank, op             int32
	hash                 uint64
	tensor               Tensor
	what                 region
}

// pairParts is into how many parts the lanes are dealt, so that only parts whose sum is wrong need
// be kept at once.
const pairParts = 256

// endOf is op i of a program as an end of a transfer, and the part of its lane.
func (v *verifier) endOf(p *Program, i int) (e end, part int) {
	op, a := &p.Ops[i], &p.Args(i)[0]
	e = end{src: int32(p.Rank), dst: op.Peer, lane: op.Lane, tick: op.Tick, rank: int32(p.Rank),
		op: int32(i), tensor: a.Tensor, what: regionOf(a)}
	if op.Kind == Recv {
		e.src, e.dst = e.dst, e.src
	}
	e.hash = v.transfer(int(e.src), int(e.dst), op, a)
	lane := absorb(absorb(fieldSeed, uint64(e.src)<<32|uint64(e.dst)), uint64(e.lane))
	return e, int(lane % pairParts)
}

// namePairing names transfers whose two ends are not there or not alike.
func (v *verifier) namePairing(src Source, pass Pass) ([]Violation, error) {
	var sums [pairParts]uint64
	var sizes [pairParts]int
	eachEnd := func(f func(e end, part int)) error {
		return v.eachProgram(src, pass, func(p *Program) {
			for i := range p.Ops {
				if p.Ops[i].Kind.Link() {
					f(v.endOf(p, i))
				}
			}
		})
	}
	err := eachEnd(func(e end, part int) {
		sizes[part]++
		if e.rank == e.src {
			sums[part] += e.hash
		} else {
			sums[part] -= e.hash
		}
	})
	if err != nil {
		return nil, err
	}
	var look [pairParts]bool
	n := 0
	for part, sum := range sums {
		if sum != 0 && (n == 0 || n+sizes[part] <= v.most) {
			look[part] = true
			n += sizes[part]
		}
	}
	ends := make([]end, 0, n)
	err = eachEnd(func(e end, part int) {
		if look[part] {
			ends = append(ends, e)
		}
	})
	if err != nil {
		return nil, err
	}
	return v.unpaired(pass, ends), nil
}

// unpaired sorts ends by lane and tick, a send before its receive, and names what is left over.
func (v *verifier) unpaired(pass Pass, ends []end) []Violation {
	slices.SortFunc(ends, func(a, b end) int {
		return cmp.Or(cmp.Compare(a.src, b.src), cmp.Compare(a.dst, b.dst),
			cmp.Compare(a.lane, b.lane), cmp.Compare(a.tick, b.tick), cmp.Compare(a.op, b.op))
	})
	mates := func(a, b *end) bool {
		return a.src == b.src && a.dst == b.dst && a.lane == b.lane && a.tick == b.tick &&
			a.rank != b.rank
	}
	var found []Violation
	left := 0
	for i := 0; i < len(ends); i++ {
		a := &ends[i]
		paired := i+1 < len(ends) && mates(a, &ends[i+1])
		if paired && a.hash == ends[i+1].hash {
			i++
			continue
		}
		if len(found) == maxNamed {
			left++
		} else if paired {
			found = append(found, v.unlike(pass, a, &ends[i+1]))
		} else {
			found = append(found, v.alone(pass, ends, i))
		}
		if paired {
			i++
		}
	}
	if left > 0 {
		found = append(found, unplaced(badPairing, pass, "and at least %d more transfers", left))
	}
	return found
}

// unlike names a send and a receive that do not carry the same.
func (v *verifier) unlike(pass Pass, a, b *end) Violation {
	if a.rank != a.src {
		a, b = b, a
	}
	bad := unplaced(badPairing, pass, "rank %d op %d sends %s to rank %d, lane %d, tick %d, where "+
		"op %d of rank %d receives %s", a.rank, a.op, v.say(a.tensor, a.what), a.dst, a.lane,
		a.tick, b.op, b.rank, v.say(b.tensor, b.what))
	bad.Rank, bad.Op, bad.Other = int(a.rank), int(a.op), int(b.op)
	return bad
}

// alone names an end without the other, and an end of the same lane that is without its own.
func (v *verifier) alone(pass Pass, ends []end, i int) Violation {
	e := &ends[i]
	does, lacks := "sends", "receive"
	peer := e.dst
	if e.rank != e.src {
		does, lacks, peer = "receives", "send", e.src
	}
	text := fmt.Sprintf("rank %d op %d %s %s, lane %d, tick %d: rank %d has no %s for it", e.rank,
		e.op, does, v.say(e.tensor, e.what), e.lane, e.tick, peer, lacks)
	other := -1
	for k := range ends {
		o := &ends[k]
		near := o.src == e.src && o.dst == e.dst && o.lane == e.lane && o.rank == peer
		if near && (k == 0 || ends[k-1].tick != o.tick || ends[k-1].rank == o.rank) &&
			(k+1 == len(ends) || ends[k+1].tick != o.tick || ends[k+1].rank == o.rank) {
			text += fmt.Sprintf(" (its op %d has tick %d there)", o.op, o.tick)
			other = int(o.op)
			break
		}
	}
	bad := unplaced(badPairing, pass, "%s", text)
	bad.Rank, bad.Op, bad.Other = int(e.rank), int(e.op), other
	return bad
}
