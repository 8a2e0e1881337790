package cpu

import (
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern/cpu/kernel"
	"github.com/kvloom/kvloom/plan"
)

// arity is how many operands an op of a kind has; of an unpack, the least.
func arity(k plan.Kind) int {
	switch k {
	case plan.Pack, plan.Unpack, plan.Accumulate, plan.Finalize:
		return 2
	case plan.Attend, plan.DeltaOp:
		return 3
	case plan.AttendBackward:
		return 7
	}
	return 1
}

// begin checks an op's operands, finds its arrays and cuts it into tasks.
func (j *Job[T]) begin(k plan.Kind) (tasks int) {
	if n := arity(k); len(j.args) < n || (len(j.args) > n && k != plan.Unpack) {
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
		do, out := j.sources[0].part(0), j.sources[1].part(0)
		kernel.Delta(j.dst.data, do, out, j.what.Header.VDim, lo, hi)
	case plan.Accumulate:
		kernel.Accumulate(j.dst.data, j.sources[0].data, lo, hi)
	case plan.Finalize:
		kernel.Finalize(j.state.Acc, j.state.M, j.state, j.what.Header.VDim, lo, hi)
	}
}

// beginMove readies pack and unpack: regions of blocks go to their places in a block of their own,
// or the parts of all contributors are summed into one.
func (j *Job[T]) beginMove() int {
	last := len(j.args) - 1
	t, from := j.args[last].Tensor, j.args[last].Tensor
	if j.summing() {
		from = plan.Vec
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

func (j *Job[T]) beginZero() int {
	t := j.args[0].Tensor
	if !t.Linear() {
		j.fail("%v is no accumulator", t)
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
	w := j.dst.width()
	clear(j.dst.data[lo*w : hi*w])
}

// stateOf is a block as running state.
func stateOf[T attn.Float](v *view[T]) attn.State[T] {
	return attn.State[T]{Acc: v.part(0), M: v.part(1), L: v.part(2)}
}

// setBlock readies the kernel's view of q and kv.
func (j *Job[T]) setBlock(q, kv *view[T]) {
	if j.err != nil {
		return
	}
	h := j.what.Header
	arrays, ok := kv.cut()
	if !ok {
		j.fail("slot %d holds %v, %v was to be there: attention takes consecutive rows with all "+
			"heads", j.args[1].Slot, kv.frame, kv.region)
		return
	}
	j.block = attn.Block[T]{
		QSpans: q.set, KSpans: kv.region.set, QHeads: q.heads.Len(), KHeads: kv.heads.Len(),
		QHead0: int(q.heads.Lo), KHead0: int(kv.heads.Lo), Group: h.QHeads / h.KHeads,
		D: h.Dim, DV: h.VDim, Scale: h.Scale, Mask: h.Mask,
		Q: q.part(0), K: arrays[0], V: arrays[1],
	}
	if err := j.block.Validate(); err != nil {
		j.fail("%w", err)
	}
}

func (j *Job[T]) beginAttend() int {
	q, kv, st := j.whole(0, plan.Q), j.region(1, plan.KV), j.adder(2, plan.State)
	j.alike(0, 2)
	j.setBlock(&q, &kv)
	if j.err != nil {
		return 0
	}
	j.state = stateOf(&st)
	if j.store.opt.Kernels == Twin {
		return 1
	}
	return kernel.ForwardTasks(&j.block)
}

func (j *Job[T]) attend(task int, scratch *Scratch) {
	if j.store.opt.Kernels == Twin {
		attn.Forward(&j.block, j.state)
		return
	}
	kernel.Forward(&j.block, j.state, task, scratchOf[T](scratch))
}

func (j *Job[T]) beginAttendBackward() int {
	q, kv, do := j.whole(0, plan.Q), j.region(1, plan.KV), j.whole(2, plan.DO)
	out, delta, dq := j.whole(3, plan.Out), j.whole(4, plan.Delta), j.adder(5, plan.DQ)
	j.fresh(6, plan.DKV)
	j.alike(0, 2, 3, 4, 5)
	j.alike(1, 6)
	j.setBlock(&q, &kv)
	if j.err != nil {
		return 0
	}
	j.grad = attn.Grad[T]{
		DO: do.part(0), LSE: out.part(1), Delta: delta.part(0), DQ: dq.part(0),
		DK: j.dst.part(0), DV: j.dst.part(1),
	}
	if j.store.opt.Kernels == Twin {
		return 1
	}
	return kernel.BackwardTasks(&j.block)
}

func (j *Job[T]) attendBackward(task int, scratch *Scratch) {
	if j.store.opt.Kernels == Twin {
		attn.Backward(&j.block, j.grad)
		return
	}
	kernel.Backward(&j.block, j.grad, task, scratchOf[T](scratch))
}

func (j *Job[T]) beginDelta() int {
	do, out := j.whole(0, plan.DO), j.whole(1, plan.Out)
	j.fresh(2, plan.Delta)
	j.alike(0, 1, 2)
	if j.err != nil {
		return 0
	}
	j.sources = append(j.sources, do, out)
	return j.cut(j.dst.items(), j.what.Header.VDim)
}

func (j *Job[T]) beginAccumulate() int {
	t := j.args[1].Tensor
	if t != plan.DKV && t != plan.DQ {
		j.fail("%v is not summed", t)
		return 0
	}
	part, sum := j.whole(0, t), j.adder(1, t)
	j.alike(0, 1)
	if j.err != nil {
		return 0
	}
	j.sources = append(j.sources, part)
	j.dst = sum
	j.spent, _, _ = j.mem.slot(j.args[0].Slot)
	return j.cut(sum.elems(), 1)
}

// beginFinalize readies the state's own block to become out: out takes acc's place, lse m's.
func (j *Job[T]) beginFinalize() int {
	st := j.adder(0, plan.State)
	j.alike(0, 1)
	if j.err != nil {
		return 0
	}
	f, sl, _, err := j.mem.operand(&j.args[1])
	switch {
	case err != nil:
		j.err = err
	case f.tensor != plan.Out || j.args[0].Slot != j.args[1].Slot:
		j.fail("out must take the place of the state, in its slot")
	}
	if j.err != nil {
		return 0
	}
	sl.live = false
	j.state = stateOf(&st)
	j.made, j.dst = sl, view[T]{data: sl.data, frame: f, region: f}
	return j.cut(f.items(), j.what.Header.VDim)
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
