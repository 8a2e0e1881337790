package cpu

import (
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern/cpu/kernel"
	"github.com/kvloom/kvloom/cudakern/cpu/simd"
	"github.com/kvloom/kvloom/plan"
)

// arrays are a job's arguments to the kernels of attention, with elements of E.
type arrays[E attn.Elem, T attn.Float] struct {
	block attn.Block[E]
	grad  attn.Grad[E, T]
}

// set readies the block of the regions q and kv, whose elements are qs, ks and vs.
func (a *arrays[E, T]) set(q, kv *frame, qs, ks, vs []E) error {
	h := q.header
	a.block = attn.Block[E]{
		QSpans: q.set, KSpans: kv.set, QHeads: q.heads.Len(), KHeads: kv.heads.Len(),
		QHead0: int(q.heads.Lo), KHead0: int(kv.heads.Lo), Group: h.QHeads / h.KHeads,
		D: h.Dim, DV: h.VDim, Scale: h.Scale, SoftCap: h.SoftCap, Mask: h.Mask,
		Q: qs, K: ks, V: vs,
	}
	return a.block.Validate()
}

// setBlock readies the kernels' view of q (part 0 of q or a visit) and kv.
func (j *Job[T]) setBlock(q, kv *view[T]) {
	if j.err != nil {
		return
	}
	var err error
	if j.narrow = q.narrow(0); j.narrow {
		err = j.bf16.set(&q.region, &kv.region, q.cut16(0), kv.cut16(0), kv.cut16(1))
	} else {
		err = j.full.set(&q.region, &kv.region, q.cut(0), kv.cut(0), kv.cut(1))
	}
	if err != nil {
		j.fail("%w", err)
	}
}

func (j *Job[T]) beginAttend() int {
	q, kv, st := j.rows(0, plan.Q), j.rows(1, plan.KV), j.rows(2, plan.State)
	j.sole(2)
	j.alike(0, 2)
	j.setBlock(&q, &kv)
	if j.err != nil {
		return 0
	}
	j.state = cutState(&st)
	j.isa = j.vector()
	switch {
	case j.store.opt.Kernels == Twin:
		return 1
	case j.isa != simd.Portable:
		return j.vectorTasks()
	case j.narrow:
		return kernel.ForwardTasks(&j.bf16.block)
	}
	return kernel.ForwardTasks(&j.full.block)
}

func (j *Job[T]) attend(task int, scratch *Scratch) {
	twin := j.store.opt.Kernels == Twin
	switch {
	case j.isa != simd.Portable:
		j.attendVector(task, scratch)
	case twin && j.narrow:
		wide := attn.WidenBlock[T](&j.bf16.block)
		attn.Forward(&wide, j.state)
	case twin:
		attn.Forward(&j.full.block, j.state)
	case j.narrow:
		kernel.Forward(&j.bf16.block, j.state, task, scratchOf[T](scratch))
	default:
		kernel.Forward(&j.full.block, j.state, task, scratchOf[T](scratch))
	}
}

// beginAttendBackward readies r q kv do out delta or r visit kv, then + dq, w|+ dkv.
func (j *Job[T]) beginAttendBackward() int {
	last := len(j.args) - 1
	var q, do, lse, delta view[T]
	doPart, lsePart, deltaPart := 1, 2, 3
	if last == 3 {
		q = j.rows(0, plan.Visit)
		do, lse, delta = q, q, q
	} else {
		q, do = j.rows(0, plan.Q), j.rows(2, plan.DO)
		lse, delta = j.rows(3, plan.Out), j.rows(4, plan.Delta)
		doPart, lsePart, deltaPart = 0, 1, 0
		j.alike(0, 2, 3, 4)
	}
	kv, dq := j.rows(1, plan.KV), j.rows(last-1, plan.DQ)
	j.sole(last - 1)
	add := j.args[last].Access == plan.Add
	var dkv view[T]
	if add {
		dkv = j.rows(last, plan.DKV)
		j.sole(last)
	} else {
		j.fresh(last, plan.DKV)
		dkv = j.dst
	}
	j.alike(0, last-1)
	j.alike(1, last)
	j.setBlock(&q, &kv)
	if j.err != nil {
		return 0
	}
	j.full.grad = attn.Grad[T, T]{
		LSE: lse.cut(lsePart), Delta: delta.cut(deltaPart), DQ: dq.cut(0), DK: dkv.cut(0),
		DV: dkv.cut(1), AddKV: add,
	}
	if !j.narrow {
		j.full.grad.DO = do.cut(doPart)
	} else {
		g := &j.full.grad
		j.bf16.grad = attn.Grad[attn.BF16, T]{
			DO: do.cut16(doPart), LSE: g.LSE, Delta: g.Delta, DQ: g.DQ, DK: g.DK, DV: g.DV,
			AddKV: add,
		}
	}
	j.isa = j.vector()
	switch {
	case j.store.opt.Kernels == Twin:
		return 1
	case j.isa != simd.Portable:
		return j.vectorGrid()
	case j.narrow:
		return kernel.BackwardTasks(&j.bf16.block)
	}
	return kernel.BackwardTasks(&j.full.block)
}

func (j *Job[T]) attendBackward(task int, scratch *Scratch) {
	twin := j.store.opt.Kernels == Twin
	switch {
	case j.isa != simd.Portable:
		j.attendBackwardVector(task, scratch)
	case twin && j.narrow:
		wide, g := attn.WidenBlock[T](&j.bf16.block), j.full.grad
		g.DO = make([]T, len(j.bf16.grad.DO))
		attn.Widen(g.DO, j.bf16.grad.DO)
		attn.Backward(&wide, g)
	case twin:
		attn.Backward(&j.full.block, j.full.grad)
	case j.narrow:
		kernel.Backward(&j.bf16.block, j.bf16.grad, task, scratchOf[T](scratch))
	default:
		kernel.Backward(&j.full.block, j.full.grad, task, scratchOf[T](scratch))
	}
}

// beginDelta cuts by items or, where the gradient of sinks is wanted too, by heads.
func (j *Job[T]) beginDelta() int {
	do, out := j.rows(0, plan.DO), j.rows(1, plan.Out)
	j.fresh(2, plan.Delta)
	j.alike(0, 1, 2)
	if j.err != nil {
		return 0
	}
	j.sources = append(j.sources, do, out)
	j.isa = j.arrayISA()
	k, h := &j.mem.session.sinks, j.what.Header
	if j.sink = k.of(&j.dst.frame); j.sink == nil {
		return j.cut(j.dst.items(), h.VDim)
	}
	row := deltaOps(j.what.Program, int(j.op)) * h.QHeads
	j.dsink = k.grads[row:][j.dst.heads.Lo:j.dst.heads.Hi]
	j.items, j.each = len(j.sink), 1
	return j.items
}

// delta does items [lo,hi), or heads [lo,hi) and the gradients of their sinks.
func (j *Job[T]) delta(lo, hi int) {
	if j.sink == nil {
		j.deltaItems(lo, hi)
		return
	}
	heads := j.dst.heads.Len()
	for r := range j.dst.rows {
		j.deltaItems(r*heads+lo, r*heads+hi)
		for x := r*heads + lo; x < r*heads+hi; x++ {
			if j.sources[1].cut(1)[x] == j.sink[x%heads] && j.outIsZero(x) {
				j.dst.part(0)[x] = 0 // with a NaN in dO too: a row without keys has no gradient
			}
		}
	}
	kernel.SinkGrad(j.dsink, j.sources[1].cut(1), j.dst.part(0), j.sink, lo, hi)
}

// outIsZero tells whether all of item x of out is 0, as in a row without keys.
func (j *Job[T]) outIsZero(x int) bool {
	out, dv := &j.sources[1], j.what.Header.VDim
	if out.narrow(0) {
		return allZero(out.cut16(0)[x*dv:][:dv])
	}
	return allZero(out.cut(0)[x*dv:][:dv])
}

func allZero[E attn.Elem](x []E) bool {
	for _, v := range x {
		if v != 0 {
			return false
		}
	}
	return true
}

func (j *Job[T]) deltaItems(lo, hi int) {
	do, out, dv := &j.sources[0], &j.sources[1], j.what.Header.VDim
	if j.isa != simd.Portable {
		deltaVector(single(j), lo, hi)
		return
	}
	if do.narrow(0) {
		kernel.Delta(j.dst.part(0), do.cut16(0), out.cut16(0), dv, lo, hi)
		return
	}
	kernel.Delta(j.dst.part(0), do.cut(0), out.cut(0), dv, lo, hi)
}

// cutState is the region of a block as running state.
func cutState[T attn.Float](v *view[T]) attn.State[T] {
	return attn.State[T]{Acc: v.cut(0), M: v.cut(1), L: v.cut(2)}
}

// beginFinalize readies the state's own block to become out or part: out takes acc's place, lse
// m's. Sinks join only what is out, since a part is not all that its rows see.
func (j *Job[T]) beginFinalize() int {
	st := j.whole(0, plan.State)
	j.sole(0)
	j.alike(0, 1)
	if j.err != nil {
		return 0
	}
	f, sl, _, err := j.mem.operand(&j.args[1])
	switch {
	case err != nil:
		j.err = err
	case (f.tensor != plan.Out && f.tensor != plan.Part) || j.args[0].Slot != j.args[1].Slot:
		j.fail("out or part must take the place of the state, in its slot")
	}
	if j.err != nil {
		return 0
	}
	sl.live = false
	j.state, j.isa = stateOf(&st), j.arrayISA()
	j.made, j.dst = sl, view[T]{mem: sl.mem, frame: f, region: f}
	if f.tensor == plan.Out {
		j.sink = j.mem.session.sinks.of(&f)
	}
	if f.narrow(0) {
		j.halves = cast[attn.BF16](st.part8(0))
	}
	tasks := j.cut(f.items(), j.what.Header.VDim)
	j.left.Store(int32(tasks))
	return tasks
}

// finalize does items [lo,hi). An out of BF16 has half of acc's length: a task leaves its numbers
// in the place of its own acc, and the last task to end puts them together.
func (j *Job[T]) finalize(lo, hi int) {
	dv := j.what.Header.VDim
	var halves []attn.BF16
	if j.dst.narrow(0) {
		halves = j.halves[2*lo*dv:][:(hi-lo)*dv] // written rising, so reads of acc come first
	}
	if j.isa != simd.Portable {
		finalizeVector(single(j), halves, lo, hi)
	} else {
		kernel.Finalize(j.state.Acc, j.state.M, j.state, j.sink, dv, lo, hi)
		attn.Narrow(halves, j.state.Acc[lo*dv:][:len(halves)])
	}
	if halves == nil {
		return
	}
	if j.left.Add(-1) > 0 {
		return
	}
	for at := 0; at < j.items; at += j.each {
		n := min(j.each, j.items-at) * dv
		copy(j.halves[at*dv:][:n], j.halves[2*at*dv:][:n])
	}
}
