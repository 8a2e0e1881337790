package cpu

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern/cpu/simd"
	"github.com/kvloom/kvloom/plan"
)

// chunk is the elements that one task copies or adds: enough to be worth handing out, few enough
// that other ranks get their turn. Tasks are cut by shapes alone, but for pieces (gridOf).
const chunk = 1 << 15

// Job is one device op, from Begin to End. It is used again for one op after another and must not
// be copied. Tasks may run at once, each with a Scratch of its own.
type Job[T attn.Float] struct {
	store *Store[T]
	mem   *rankMem[T]
	claim uint64
	round int32
	op    int32
	what  Round
	args  []plan.Operand
	err   error

	items, each int       // what tasks cut, and how many of them a task takes
	narrow      bool      // q and kv are of BF16: bf16 is what kernels get, else full
	isa         simd.ISA  // of the block at hand; Portable: package kernel
	workers     int       // the rank's share of those who do tasks; 0 is 1
	grid        simd.Grid // of attend-bwd in pieces
	full        arrays[T, T]
	bf16        arrays[attn.BF16, T]
	state       attn.State[T]
	sink, dsink []T         // of the heads at hand; nil if there are none
	halves      []attn.BF16 // of a finalize into BF16: where acc is
	left        atomic.Int32
	dst         view[T]
	sources     []view[T]

	made  *slot[T] // lives from End on, as dst's frame
	spent *slot[T] // lives until End
}

// Begin readies a device op of a rank's program: it finds the blocks, takes memory for what the op
// writes, and gives the number of tasks, 1 or more, which may begin in any order. After an error
// there is no job; else call End, whatever the tasks did.
func (s *Store[T]) Begin(rank, round, op int32, j *Job[T]) (tasks int, err error) {
	m, err := s.of(rank)
	if err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := s.enter(m, round); err != nil {
		return 0, err
	}
	if err := m.has(op); err != nil {
		return 0, err
	}
	*j = Job[T]{
		store: s, mem: m, claim: m.claims, round: round, op: op, what: m.now,
		args: m.now.Program.Args(int(op)), sources: j.sources[:0], workers: j.workers,
	}
	if tasks = j.begin(m.now.Program.Ops[op].Kind); j.err != nil {
		return 0, j.Fault(j.err)
	}
	return tasks, nil
}

// has checks that an op is in the program at hand.
func (m *rankMem[T]) has(op int32) error {
	if op < 0 || int(op) >= len(m.now.Program.Ops) {
		return fmt.Errorf("rank %d, round %d: op %d is not in the program of %d ops", m.rank,
			m.number, op, len(m.now.Program.Ops))
	}
	return nil
}

// Fault puts the rank, the round and the op's text before an error of the job.
func (j *Job[T]) Fault(err error) error {
	return faultOf(j.mem.rank, j.round, j.what, j.op, err)
}

func faultOf(rank, round int32, r Round, op int32, err error) error {
	text := r.Program.AppendOp(nil, r.Header, int(op))
	return fmt.Errorf("rank %d, round %d, op %s: %w", rank, round, text, err)
}

// End makes what the op wrote visible, if ok, and what it consumed gone.
func (j *Job[T]) End(ok bool) {
	m := j.mem
	m.mu.Lock()
	defer m.mu.Unlock()
	if j.claim != m.claims || !m.entered {
		return
	}
	if j.spent != nil {
		j.spent.live = false
	}
	if j.made != nil {
		j.made.live, j.made.frame = ok, j.dst.frame
	}
}

// Run does task task of the job.
func (j *Job[T]) Run(task int, scratch *Scratch) {
	lo := task * j.each
	j.run(task, lo, min(lo+j.each, j.items), scratch)
}

// Do does a device op whole, its tasks in order, on the caller.
func (s *Store[T]) Do(rank, round, op int32) error {
	d := s.doer()
	defer s.rest(d)
	tasks, err := s.Begin(rank, round, op, &d.job)
	if err != nil {
		return err
	}
	for task := 0; task < tasks && err == nil; task++ {
		err = guard(&d.job, task, &d.scratch)
	}
	d.job.End(err == nil)
	if err != nil {
		return d.job.Fault(err)
	}
	return nil
}

// doer is what one Do at a time needs.
type doer[T attn.Float] struct {
	job     Job[T]
	scratch Scratch
}

func (s *Store[T]) doer() *doer[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.doers)
	if n == 0 {
		return &doer[T]{}
	}
	d := s.doers[n-1]
	s.doers = s.doers[:n-1]
	return d
}

func (s *Store[T]) rest(d *doer[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doers = append(s.doers, d)
}

// guard runs a task and turns a panic into an error that says where it came from.
func guard(work Work, task int, scratch *Scratch) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("task %d panicked at %s: %v", task, panicSite(), cause)
		}
	}()
	work.Run(task, scratch)
	return nil
}

// panicSite is the function and line that panicked; it is called by the deferred function.
func panicSite() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(0, pcs[:])])
	after := false
	for {
		f, more := frames.Next()
		inRuntime := strings.HasPrefix(f.Function, "runtime.")
		switch {
		case f.Function == "runtime.gopanic":
			after = true
		case after && !inRuntime:
			return fmt.Sprintf("%s, line %d", f.Function, f.Line)
		}
		if !more {
			return "an unknown place"
		}
	}
}

// fail keeps the first error of a beginning.
func (j *Job[T]) fail(format string, args ...any) {
	if j.err == nil {
		j.err = fmt.Errorf(format, args...)
	}
}

// region is the region of operand i within a block of tensor t.
func (j *Job[T]) region(i int, t plan.Tensor) view[T] {
	if j.err != nil {
		return view[T]{}
	}
	a := &j.args[i]
	if a.Tensor != t {
		j.fail("operand %d is %v, the op needs %v", i, a.Tensor, t)
		return view[T]{}
	}
	v, _, err := j.mem.held(a)
	j.err = err
	return v
}

// whole is region, for an operand that must be all of its block.
func (j *Job[T]) whole(i int, t plan.Tensor) view[T] {
	v := j.region(i, t)
	if j.err == nil && !v.frame.same(&v.region) {
		j.fail("slot %d holds %v, %v was to be there: the op takes whole blocks", j.args[i].Slot,
			v.frame, v.region)
	}
	return v
}

// rows is region, for consecutive rows of a block with all of its heads.
func (j *Job[T]) rows(i int, t plan.Tensor) view[T] {
	v := j.region(i, t)
	if j.err == nil && !v.run() {
		j.fail("slot %d holds %v, %v was to be there: attention takes consecutive rows with all "+
			"heads", j.args[i].Slot, v.frame, v.region)
	}
	return v
}

// sole checks that nobody else holds the accumulator of operand i.
func (j *Job[T]) sole(i int) {
	if j.err != nil {
		return
	}
	sl, _, _ := j.mem.slot(j.args[i].Slot)
	if n := j.store.arena.Holders(sl.block); n > 1 {
		j.fail("the accumulator in slot %d is held %d times: an accumulator has one holder",
			j.args[i].Slot, n)
	}
}

// fresh readies the slot of operand i for a new life, which begins at End, and makes it dst.
func (j *Job[T]) fresh(i int, t plan.Tensor) {
	if j.err != nil {
		return
	}
	a := &j.args[i]
	f, sl, p, err := j.mem.operand(a)
	if err != nil {
		j.err = err
		return
	}
	if a.Tensor != t {
		j.fail("operand %d is %v, the op makes %v", i, a.Tensor, t)
		return
	}
	if n := f.bytes(); n > p.Bytes {
		j.fail("%v has %d bytes, slot %d has room for %d", f, n, a.Slot, p.Bytes)
		return
	}
	sl.live, sl.posted = false, 0
	if j.err = j.store.fit(j.mem, sl, f.bytes()); j.err == nil {
		j.made, j.dst = sl, view[T]{mem: sl.mem, frame: f, region: f}
	}
}

// alike checks that operands name the same rows and heads.
func (j *Job[T]) alike(first int, others ...int) {
	for _, i := range others {
		a, b := &j.args[first], &j.args[i]
		sets := j.what.Header.Sets
		if j.err == nil && (a.Heads != b.Heads || !sameRows(sets[a.Set], sets[b.Set])) {
			j.fail("operands %d and %d have different rows or heads", first, i)
		}
	}
}

// cut makes tasks of items of so many elements each.
func (j *Job[T]) cut(items, elems int) int {
	j.items, j.each = items, max(1, chunk/max(elems, 1))
	return (items + j.each - 1) / j.each
}
