package cpu

import (
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern/cpu/kernel"
	"github.com/kvloom/kvloom/cudakern/cpu/simd"
	"github.com/kvloom/kvloom/plan"
)

// summed tells whether accumulate may add a block of one tensor to one of another.
func summed(from, to plan.Tensor) bool {
	switch to {
	case plan.DQ:
		return from == plan.DQ
	case plan.DKV:
		return from == plan.DKV || from == plan.DKVWire
	case plan.State:
		return from == plan.Part
	}
	return false
}

// beginAccumulate readies c partial, + acc: each may be a region of a larger block. Tasks are cut
// by the partial's rows.
func (j *Job[T]) beginAccumulate() int {
	from, to := j.args[0].Tensor, j.args[1].Tensor
	if !summed(from, to) {
		j.fail("%v is not summed into %v", from, to)
		return 0
	}
	part, acc := j.region(0, from), j.region(1, to)
	j.sole(1)
	j.alike(0, 1)
	if j.err != nil {
		return 0
	}
	if !inside(part.region.set, part.set, acc.set) {
		j.fail("%v was to be added to %v: of the slots' %v and %v one has not all of its rows",
			part.region, acc.region, part.frame, acc.frame)
		return 0
	}
	if part.frame.same(&part.region) {
		j.spent, _, _ = j.mem.slot(j.args[0].Slot)
	}
	j.sources = append(j.sources, part)
	j.dst, j.isa = acc, j.arrayISA()
	return j.cut(part.rows, part.heads.Len()*part.width())
}

// accumulate does rows [lo,hi) of the partial's block.
func (j *Job[T]) accumulate(lo, hi int) {
	acc, part := &j.dst, &j.sources[0]
	heads := part.region.heads
	hp, ha := part.heads.Len(), acc.heads.Len()
	p0, a0 := int(heads.Lo-part.heads.Lo), int(heads.Lo-acc.heads.Lo)
	var to, from sums[T]
	to.open(acc)
	from.open(part)
	to.isa = j.isa
	for at := newWalk(part.region.set, acc.set, part.set); at.next(); {
		a, b, n := at.clip(lo, hi)
		if n > 0 && heads.Len() == hp && hp == ha {
			to.add(&from, a*ha, b*hp, n*hp)
			continue
		}
		for i := range n {
			to.add(&from, (a+i)*ha+a0, (b+i)*hp+p0, heads.Len())
		}
	}
}

// sums are the parts of a block that is added or added to.
type sums[T attn.Float] struct {
	tensor plan.Tensor
	isa    simd.ISA // of vectors for what is added to; Portable: package kernel
	widths [maxParts]int
	parts  [3][]T
	wire   [2][]attn.BF16
}

func (s *sums[T]) open(v *view[T]) {
	s.tensor, s.widths = v.tensor, v.widths()
	for p := range s.parts {
		switch {
		case s.widths[p] == 0:
		case v.narrow(p):
			s.wire[p] = v.part16(p)
		default:
			s.parts[p] = v.part(p)
		}
	}
}

// add adds n items of from, from item y on, to those from item x on.
func (s *sums[T]) add(from *sums[T], x, y, n int) {
	if s.tensor == plan.State {
		dv := s.widths[0]
		st := attn.State[T]{Acc: s.parts[0][x*dv:], M: s.parts[1][x:], L: s.parts[2][x:]}
		kernel.MergePart(st, from.parts[0][y*dv:], from.parts[1][y:], dv, 0, n)
		return
	}
	for p, w := range s.widths {
		switch {
		case w == 0:
		case from.tensor == plan.DKVWire:
			kernel.AccumulateNarrow(s.parts[p][x*w:], from.wire[p][y*w:], 0, n*w)
		case s.isa != simd.Portable:
			dst, src := any(s.parts[p]).([]float32), any(from.parts[p]).([]float32)
			simd.Accumulate(s.isa, dst[x*w:], src[y*w:], 0, n*w)
		default:
			kernel.Accumulate(s.parts[p][x*w:], from.parts[p][y*w:], 0, n*w)
		}
	}
}
