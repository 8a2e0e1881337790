package plan_test

import (
	"fmt"
	"math/bits"

	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// slotMem is what a slot holds at the moment.
type slotMem struct {
	live, writing bool
	tensor        plan.Tensor
	rows          uint64
	heads         mesh.Heads
	gone          []uint64 // by head: rows handed on
	busy          []access
	tally         // what is in an accumulator
}

// access is a region that a running op uses.
type access struct {
	op    *judgeOp
	how   plan.Access
	rows  uint64
	heads mesh.Heads
}

// tally counts contributions. Cell (row atom, head) has one count for each that could be in it: of
// query rows each key atom, of key rows each query atom and query head of the KV head's group.
// hash stands for the order of additions into the cell.
type tally struct {
	count []uint8
	hash  []uint64
}

// width is the number of counts of a cell.
func (j *judge) width(t plan.Tensor) int {
	if keyed(t) {
		return j.q.n * j.group
	}
	return j.k.n
}

// cell is the number of a cell of a tensor.
func (j *judge) cell(t plan.Tensor, row int, head int32) int {
	return row*int(j.hdr.AllHeads(t).Hi) + int(head)
}

func (j *judge) newTally() tally {
	return tally{
		count: make([]uint8, j.q.n*j.k.n*j.hdr.QHeads),
		hash:  make([]uint64, max(j.q.n*j.hdr.QHeads, j.k.n*j.hdr.KHeads)),
	}
}

// counted tells whether blocks of a tensor have contributions.
func counted(t plan.Tensor) bool { return t.Linear() || t == plan.Out }

// fill copies the cells of a region from src, adds them, or with src nil sets them to nothing.
func (j *judge) fill(dst, src *tally, t plan.Tensor, rows uint64, heads mesh.Heads, add bool) {
	if !counted(t) {
		return
	}
	n := j.width(t)
	for ; rows != 0; rows &= rows - 1 {
		for h := heads.Lo; h < heads.Hi; h++ {
			c := j.cell(t, bits.TrailingZeros64(rows), h)
			to := dst.count[c*n : c*n+n]
			switch {
			case src == nil:
				clear(to)
				dst.hash[c] = 0
			case add:
				for i, x := range src.count[c*n : c*n+n] {
					to[i] += x
				}
				dst.hash[c] = mix(dst.hash[c], src.hash[c])
			default:
				copy(to, src.count[c*n:c*n+n])
				dst.hash[c] = src.hash[c]
			}
		}
	}
}

// touch begins an op's use of operand i: a life begins, or a region of one is in use.
func (w *world) touch(op *judgeOp, i int) error {
	a := &op.args[i]
	s := &w.mem[op.rank][a.Slot]
	rows := w.j.rows(a)
	if a.Access == plan.Write {
		if op.kind == plan.Finalize {
			return nil // its first operand holds the slot
		}
		return w.born(op, a, s)
	}
	if err := s.within(a, rows); err != nil {
		return err
	}
	if op.kind == plan.Finalize && (s.rows != rows || s.heads != a.Heads) {
		return fmt.Errorf("finalizes a part of the state in slot %d", a.Slot)
	}
	for h := a.Heads.Lo; h < a.Heads.Hi; h++ {
		if s.gone[h]&rows != 0 {
			return fmt.Errorf("touches a region of slot %d that was handed on", a.Slot)
		}
	}
	for _, b := range s.busy {
		shared := b.how == plan.Read && a.Access == plan.Read
		if !shared && b.rows&rows != 0 && b.heads.Lo < a.Heads.Hi && a.Heads.Lo < b.heads.Hi {
			return fmt.Errorf("uses a region of slot %d at the same time as %s", a.Slot,
				w.p.name(b.op))
		}
	}
	s.busy = append(s.busy, access{op: op, how: a.Access, rows: rows, heads: a.Heads})
	return nil
}

// within tells whether a region lies in a whole block of its tensor.
func (s *slotMem) within(a *plan.Operand, rows uint64) error {
	switch {
	case !s.live:
		return fmt.Errorf("touches slot %d, which holds nothing", a.Slot)
	case s.writing:
		return fmt.Errorf("touches slot %d while it is being written", a.Slot)
	case s.tensor != a.Tensor:
		return fmt.Errorf("touches slot %d, which holds another tensor", a.Slot)
	case rows&^s.rows != 0 || !a.Heads.Within(s.heads):
		return fmt.Errorf("touches slot %d outside of the block in it", a.Slot)
	}
	return nil
}

// born begins the life of a block.
func (w *world) born(op *judgeOp, a *plan.Operand, s *slotMem) error {
	if s.live {
		return fmt.Errorf("writes slot %d, which holds a live block", a.Slot)
	}
	n := w.j.hdr.Bytes(a.Tensor, w.j.hdr.Sets[a.Set].Len(), a.Heads.Len())
	if has := w.p.progs[op.rank].Slots[a.Slot].Bytes; n > has {
		return fmt.Errorf("writes %d bytes into slot %d of %d", n, a.Slot, has)
	}
	s.live, s.writing = true, true
	s.tensor, s.rows, s.heads = a.Tensor, w.j.rows(a), a.Heads
	if s.gone == nil {
		s.gone = make([]uint64, w.j.hdr.QHeads)
	}
	clear(s.gone)
	if counted(a.Tensor) && s.count == nil {
		s.tally = w.j.newTally()
	}
	w.j.fill(&s.tally, nil, s.tensor, s.rows, s.heads, false)
	return nil
}

// let ends an op's use of its operands.
func (w *world) let(op *judgeOp) {
	for i := range op.args {
		a := &op.args[i]
		s := &w.mem[op.rank][a.Slot]
		if a.Access == plan.Write {
			s.writing = false
			continue
		}
		for k := range s.busy {
			if s.busy[k].op == op {
				s.busy[k] = s.busy[len(s.busy)-1]
				s.busy = s.busy[:len(s.busy)-1]
				break
			}
		}
		if a.Access == plan.HandOn && op.kind != plan.Finalize {
			for h := a.Heads.Lo; h < a.Heads.Hi; h++ {
				s.gone[h] |= w.j.rows(a)
			}
		}
	}
}

// release ends the life of a block.
func (w *world) release(op *judgeOp) error {
	a := &op.args[0]
	s := &w.mem[op.rank][a.Slot]
	slot := &w.p.progs[op.rank].Slots[a.Slot]
	rows := w.j.rows(a)
	if err := s.within(a, rows); err != nil {
		return err
	}
	switch {
	case slot.In || slot.Keep:
		return fmt.Errorf("releases slot %d, which is the session's", a.Slot)
	case rows != s.rows || a.Heads != s.heads:
		return fmt.Errorf("releases another block than the one in slot %d", a.Slot)
	case len(s.busy) > 0:
		return fmt.Errorf("releases slot %d in use by %s", a.Slot, w.p.name(s.busy[0].op))
	}
	for h := s.heads.Lo; h < s.heads.Hi && s.tensor.Linear(); h++ {
		if s.gone[h] != s.rows {
			return fmt.Errorf("releases an accumulator in slot %d that was not handed on", a.Slot)
		}
	}
	s.live = false
	return nil
}

// arrive ends a transfer: the header that came must be the one expected.
func (w *world) arrive(send, recv *judgeOp) error {
	a, b := &send.args[0], &recv.args[0]
	if a.Tensor != b.Tensor || !w.j.same(a, b) {
		return fmt.Errorf("sends another block than %s expects", w.p.name(recv))
	}
	src, dst := &w.mem[send.rank][a.Slot], &w.mem[recv.rank][b.Slot]
	w.j.fill(&dst.tally, &src.tally, a.Tensor, w.j.rows(a), a.Heads, false)
	return nil
}

// compute does what a device op does to contents.
func (w *world) compute(op *judgeOp) error {
	mem, a := w.mem[op.rank], op.args
	last := &mem[a[len(a)-1].Slot]
	switch op.kind {
	case plan.Pack, plan.Unpack, plan.Accumulate:
		for i := range len(a) - 1 {
			add := op.kind == plan.Accumulate || a[i].Tensor == plan.DKV && op.kind == plan.Unpack
			src := &mem[a[i].Slot]
			w.j.fill(&last.tally, &src.tally, a[i].Tensor, w.j.rows(&a[i]), a[i].Heads, add)
		}
	case plan.Attend:
		w.attend(op, &a[0], &a[1], &last.tally, nil)
	case plan.AttendBackward:
		if len(a) == 7 { // of a visit, lse was looked at when it was made
			if err := w.whole(&mem[a[3].Slot], &a[3]); err != nil {
				return err
			}
		}
		w.attend(op, &a[0], &a[1], &mem[a[len(a)-2].Slot].tally, &last.tally)
	case plan.VisitOp:
		return w.whole(&mem[a[2].Slot], &a[2])
	case plan.DeltaOp:
		w.sinkShare(&a[2])
		return w.whole(&mem[a[1].Slot], &a[1])
	case plan.Finalize:
		last.tensor = a[1].Tensor
		n := w.j.hdr.OperandBytes(&a[1])
		if has := w.p.progs[op.rank].Slots[a[1].Slot].Bytes; n > has {
			return fmt.Errorf("writes %d bytes into slot %d of %d", n, a[1].Slot, has)
		}
	}
	return nil
}

// attend adds the contributions of a tile to the rows of the queries, and in the backward pass to
// those of the keys.
func (w *world) attend(op *judgeOp, q, kv *plan.Operand, byQ, byK *tally) {
	j := w.j
	who := uint64(op.rank)<<32 | uint64(op.num)
	wq, wk := j.width(plan.DQ), j.width(plan.DKV)
	for h := q.Heads.Lo; h < q.Heads.Hi; h++ {
		hk, in := h/int32(j.group), int(h)%j.group
		each(j.rows(q), func(row int) {
			c := j.cell(plan.DQ, row, h)
			byQ.hash[c] = mix(byQ.hash[c], who)
			each(j.rows(kv)&j.sees[row], func(key int) {
				byQ.count[c*wq+key]++
				w.done.count[c*wq+key]++
				if byK != nil {
					ck := j.cell(plan.DKV, key, hk)
					byK.count[ck*wk+row*j.group+in]++
				}
			})
		})
	}
	if byK != nil {
		each(j.rows(kv), func(key int) {
			for h := kv.Heads.Lo; h < kv.Heads.Hi; h++ {
				c := j.cell(plan.DKV, key, h)
				byK.hash[c] = mix(byK.hash[c], who)
			}
		})
	}
}

// whole tells whether all contributions are in an out that others build on.
func (w *world) whole(s *slotMem, a *plan.Operand) error {
	return w.j.complete(&s.tally, plan.Out, w.j.rows(a), a.Heads)
}

// sinkShare counts the shares of the sink's gradient: a delta of a row and head has one.
func (w *world) sinkShare(delta *plan.Operand) {
	each(w.j.rows(delta), func(row int) {
		for h := delta.Heads.Lo; h < delta.Heads.Hi; h++ {
			w.shares[w.j.cell(plan.Delta, row, h)]++
		}
	})
}
