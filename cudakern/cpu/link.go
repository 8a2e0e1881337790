package cpu

import (
	"fmt"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern"
	"github.com/kvloom/kvloom/plan"
)

// Post readies the slot of a receive: what was there is given up, and the block that Hop brings may
// come.
func (s *Store[T]) Post(rank, round, op int32) error {
	m, err := s.of(rank)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	f, sl, p, err := s.end(m, round, op, plan.Recv)
	if err != nil {
		return err
	}
	if n := f.bytes(); n > p.Bytes {
		err = fmt.Errorf("%v has %d bytes, its slot has room for %d", f, n, p.Bytes)
		return faultOf(rank, round, m.now, op, err)
	}
	sl.live, sl.posted = false, op+1
	if !s.opt.Copy {
		return nil
	}
	if err := s.fit(m, sl, f.bytes()); err != nil {
		return faultOf(rank, round, m.now, op, err)
	}
	return nil
}

// end finds the region and the slot of one end of a transfer.
func (s *Store[T]) end(m *rankMem[T], round, op int32, k plan.Kind) (
	f frame, sl *slot[T], p *plan.Slot, err error,
) {
	if err = s.enter(m, round); err != nil {
		return f, nil, nil, err
	}
	if err = m.has(op); err != nil {
		return f, nil, nil, err
	}
	args := m.now.Program.Args(int(op))
	if m.now.Program.Ops[op].Kind != k || len(args) != 1 {
		err = fmt.Errorf("it is not a %v of one block", k)
	} else {
		f, sl, p, err = m.operand(&args[0])
	}
	if err != nil {
		err = faultOf(m.rank, round, m.now, op, err)
	}
	return f, sl, p, err
}

// Hop hands the block of src's send to the slot of dst's receive, which must have been posted, and
// says how many bytes the block has. An immutable block is shared: nobody writes it until all
// holders have given it up. An accumulator moves, and src's slot is empty.
func (s *Store[T]) Hop(src, dst, round, sendOp, recvOp int32) (int64, error) {
	parcel, err := s.pick(src, round, sendOp)
	if err != nil {
		return 0, err
	}
	if err := s.drop(dst, round, recvOp, &parcel); err != nil {
		s.arena.Free(parcel.block)
		return 0, err
	}
	return parcel.region.bytes(), nil
}

// parcel is a block on its way, or a region of it; it is a holder of its own.
type parcel[T attn.Float] struct {
	block cudakern.Handle
	view[T]
	part bool // only the region goes
}

// pick takes a block from src's slot.
func (s *Store[T]) pick(src, round, op int32) (parcel[T], error) {
	m, err := s.of(src)
	if err != nil {
		return parcel[T]{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, _, _, err = s.end(m, round, op, plan.Send); err != nil {
		return parcel[T]{}, err
	}
	a := &m.now.Program.Args(int(op))[0]
	v, sl, err := m.held(a)
	part := err == nil && !v.frame.same(&v.region)
	if part && !inside(v.region.set, v.set, v.region.set) {
		err = fmt.Errorf("slot %d holds %v, %v was to be there", a.Slot, v.frame, v.region)
	}
	if part && a.Access == plan.HandOn {
		err = fmt.Errorf("slot %d holds %v, %v was to be there: accumulators move whole", a.Slot,
			v.frame, v.region)
	}
	if err == nil && a.Tensor.Linear() && s.arena.Holders(sl.block) > 1 {
		err = fmt.Errorf("the accumulator in slot %d is held %d times: an accumulator has one "+
			"holder", a.Slot, s.arena.Holders(sl.block))
	}
	if err != nil {
		return parcel[T]{}, faultOf(src, round, m.now, op, err)
	}
	out := parcel[T]{block: sl.block, view: v, part: part}
	if a.Access == plan.HandOn {
		m.used.add(-sl.held)
		*sl = slot[T]{right: sl.right}
	} else {
		s.arena.Share(sl.block)
	}
	return out, nil
}

// drop puts a block into dst's slot, or copies it into the memory that waits there.
func (s *Store[T]) drop(dst, round, op int32, in *parcel[T]) error {
	m, err := s.of(dst)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	f, sl, _, err := s.end(m, round, op, plan.Recv)
	if err != nil {
		return err
	}
	switch {
	case sl.posted != op+1:
		err = fmt.Errorf("a block came before the receive was posted")
	case !f.same(&in.region):
		err = fmt.Errorf("%v came, %v was to come", in.region, f)
	}
	if err != nil {
		return faultOf(dst, round, m.now, op, err)
	}
	// Out may lie in the larger block of the state that it was made of, to which dst has no right.
	if n := f.bytes(); s.opt.Copy || in.part {
		if err := s.fit(m, sl, n); err != nil {
			return faultOf(dst, round, m.now, op, err)
		}
		if in.part {
			place(&view[T]{mem: sl.mem, frame: f, region: f}, &in.view, 0, f.rows)
		} else {
			copy(sl.mem, in.mem)
		}
		if s.opt.Poison && s.arena.Holders(in.block) == 1 {
			poison(in.mem)
		}
		s.arena.Free(in.block)
	} else {
		s.fill(m, sl, in.block, n)
	}
	sl.posted, sl.live, sl.frame = 0, true, f
	return nil
}
