package cpu

import (
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern/cpu/kernel"
	"github.com/kvloom/kvloom/plan"
)

// arity is how many operands an op of a kind has that has have of them: of an unpack it is the
// least, and an attend-bwd may have 4, with a visit.
func arity(k plan.Kind, have int) int {
	switch k {
	case plan.Pack, plan.Unpack, plan.Accumulate, plan.Finalize:
		return 2
	case plan.Attend, plan.DeltaOp:
		return 3
	case plan.VisitOp:
		return 5
	case plan.AttendBackward:
		if have == 4 {
			return 4
		}
		return 7
	}
	return 1
}

// begin checks an op's operands, finds its arrays and cuts it into tasks.
func (j *Job[T]) begin(k plan.Kind) (tasks int) {
	n := arity(k, len(j.args))
	if len(j.args) < n || (len(j.args) > n && k != plan.Unpack) {
		j.fail("it has %d operands, %v has %d", len(j.args), k, n)
		return 0
	}
	switch k {
	case plan.Pack, plan.Unpack:
		return j.beginMove()
	case plan.Zero:
		return j.beginZero()
	case plan.Attend:
		return j.beginAttend()
	case plan.AttendBackward:
		return j.beginAttendBackward()
	case plan.DeltaOp:
		return j.beginDelta()
	case plan.VisitOp:
		return j.beginVisit()
	case plan.Accumulate:
		return j.beginAccumulate()
	case plan.Finalize:
		return j.beginFinalize()
	}
	j.fail("%v does not run on a device", k)
	return 0
}

// run does a task: items [lo,hi) of what begin cut, or task as the kernel counts them.
func (j *Job[T]) run(task, lo, hi int, scratch *Scratch) {
	switch j.what.Program.Ops[j.op].Kind {
	case plan.Pack, plan.Unpack:
		j.move(lo, hi)
	case plan.Zero:
		j.zero(lo, hi)
	case plan.Attend:
		j.attend(task, scratch)
	case plan.AttendBackward:
		j.attendBackward(task, scratch)
	case plan.DeltaOp:
		j.delta(lo, hi)
	case plan.VisitOp:
		j.visit(lo, hi)
	case plan.Accumulate:
		j.accumulate(lo, hi)
	case plan.Finalize:
		j.finalize(lo, hi)
	}
}

// beginMove readies pack and unpack: regions of blocks go to their places in a block of their own,
// a dkv also rounded for the way, or the parts of all contributors are summed into one.
func (j *Job[T]) beginMove() int {
	last := len(j.args) - 1
	t, from := j.args[last].Tensor, j.args[last].Tensor
	switch {
	case j.summing():
		from = plan.Vec
	case j.what.Program.Ops[j.op].Kind == plan.Pack && t == plan.DKVWire &&
		j.args[0].Tensor == plan.DKV:
		from = plan.DKV
	}
	elems := 0
	for i := range last {
		v := j.region(i, from)
		if j.err != nil {
			return 0
		}
		j.sources = append(j.sources, v)
		elems += v.region.elems()
	}
	j.fresh(last, t)
	if j.err != nil {
		return 0
	}
	heads, most := j.dst.heads, j.dst.elems()
	if j.summing() {
		heads = j.what.Header.AllHeads(plan.Vec)
		most *= heads.Len()
	}
	for i := range j.sources {
		v := &j.sources[i]
		if !v.region.heads.Within(heads) || !inside(v.region.set, v.set, j.dst.set) {
			j.fail("slot %d holds %v, of which %v was to go to %v", j.args[i].Slot, v.frame,
				v.region, j.dst.frame)
		}
	}
	if elems < most || (elems > most && t != plan.DKV) {
		j.fail("its sources have %d values together, %v has %d", elems, j.dst.frame, most)
	}
	return j.cut(j.dst.rows, j.dst.elems()/j.dst.rows)
}

// summing tells whether the unpack at hand adds the parts of contributors.
func (j *Job[T]) summing() bool {
	return j.what.Program.Ops[j.op].Kind == plan.Unpack &&
		j.args[len(j.args)-1].Tensor == plan.Sum && j.args[0].Tensor == plan.Vec
}

// move does rows [lo,hi) of the block that is made.
func (j *Job[T]) move(lo, hi int) {
	if j.summing() {
		sum(&j.dst, j.sources, lo, hi)
		return
	}
	if len(j.sources) > 1 && j.dst.tensor == plan.DKV {
		gather(&j.dst, j.sources, lo, hi)
		return
	}
	for i := range j.sources {
		place(&j.dst, &j.sources[i], lo, hi)
	}
}

// beginVisit readies r q do out delta, w visit: what attend-bwd needs of the rows, in one block.
func (j *Job[T]) beginVisit() int {
	for i, t := range [...]plan.Tensor{plan.Q, plan.DO, plan.Out, plan.Delta} {
		v := j.region(i, t)
		j.sources = append(j.sources, v)
	}
	j.fresh(4, plan.Visit)
	j.alike(4, 0, 1, 2, 3)
	for i := range j.sources {
		if v := &j.sources[i]; j.err == nil && !inside(v.region.set, v.set, j.dst.set) {
			j.fail("slot %d holds %v, %v was to be there", j.args[i].Slot, v.frame, v.region)
		}
	}
	if j.err != nil {
		return 0
	}
	return j.cut(j.dst.rows, j.dst.elems()/j.dst.rows)
}

// visit does rows [lo,hi) of the visit. Of out it takes lse alone.
func (j *Job[T]) visit(lo, hi int) {
	for p, from := range [...]int{0, 0, 1, 0} {
		placePart(&j.dst, p, &j.sources[p], from, lo, hi)
	}
}

func (j *Job[T]) beginZero() int {
	t := j.args[0].Tensor
	if !t.Linear() || t == plan.Part || t == plan.DKVWire {
		j.fail("%v is no accumulator that starts from nothing", t)
		return 0
	}
	if j.fresh(0, t); j.err != nil {
		return 0
	}
	if t == plan.State {
		j.state = stateOf(&j.dst)
	}
	return j.cut(j.dst.items(), j.dst.width())
}

func (j *Job[T]) zero(lo, hi int) {
	if j.dst.tensor == plan.State {
		kernel.FreshState(j.state, j.what.Header.VDim, lo, hi)
		return
	}
	w := j.dst.itemBytes()
	clear(j.dst.mem[lo*w : hi*w])
}

// stateOf is a block as running state.
func stateOf[T attn.Float](v *view[T]) attn.State[T] {
	return attn.State[T]{Acc: v.part(0), M: v.part(1), L: v.part(2)}
}

// Flops is the floating-point operations of an op: of attend 2 (D+DV) for each allowed pair of its
// q and kv and each query head, of attend-bwd 2.5 times that, of others and of unknown ones 0.
func (s *Store[T]) Flops(rank, round, op int32) uint64 {
	r, ok := s.book.Round(rank, round)
	if !ok || op < 0 || int(op) >= len(r.Program.Ops) {
		return 0
	}
	return r.flops(op)
}

func (r *Round) flops(op int32) uint64 {
	k := r.Program.Ops[op].Kind
	if k != plan.Attend && k != plan.AttendBackward {
		return 0
	}
	h, args := r.Header, r.Program.Args(int(op))
	pairs := uint64(h.Mask.Pairs(h.Sets[args[0].Set], h.Sets[args[1].Set]))
	flops := pairs * uint64(2*(h.Dim+h.VDim)) * uint64(args[0].Heads.Len())
	if k == plan.AttendBackward {
		return flops * 5 / 2
	}
	return flops
}
