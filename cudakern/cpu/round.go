package cpu

import (
	"fmt"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/plan"
)

// enter makes a round the one at hand: the slots of the one before are given up, the new one's are
// claimed, and the session's blocks that must be there are checked.
func (s *Store[T]) enter(m *rankMem[T], round int32) error {
	if m.entered && m.number == round {
		return nil
	}
	s.leave(m)
	b, ok := s.book.Round(m.rank, round)
	if !ok || b.Header == nil || b.Program == nil {
		return fmt.Errorf("rank %d: round %d is not in its book", m.rank, round)
	}
	if err := fitsStore[T](b.Header); err != nil {
		return fmt.Errorf("rank %d, round %d: %w", m.rank, round, err)
	}
	ses := m.open(b.State)
	if err := ses.follow(&b); err != nil {
		return fmt.Errorf("rank %d, round %d, state %d: %w", m.rank, round, b.State, err)
	}
	if err := ses.sinks.begin(&b); err != nil {
		return fmt.Errorf("rank %d, round %d, state %d: %w", m.rank, round, b.State, err)
	}
	for i := range b.Program.Slots {
		p := &b.Program.Slots[i]
		if p.Role == plan.Scratch {
			continue
		}
		if p.Role >= plan.NumRoles {
			return fmt.Errorf("rank %d, round %d: slot %d has %v, which is no role", m.rank, round,
				i, p.Role)
		}
		if err := ses.slots[p.Role].begin(b.Header, p); err != nil {
			return fmt.Errorf("rank %d, round %d: slot %d, %v of state %d: %w", m.rank, round, i,
				p.Role, b.State, err)
		}
	}
	return s.claim(m, round, b, ses)
}

// follow refuses a backward round of another problem than the forward round's, whose blocks may
// well be of the same shapes.
func (ses *session[T]) follow(b *Round) error {
	switch {
	case b.Header.Collective():
		return nil
	case b.Program.Pass == plan.Forward:
		ses.of = b.Header
		return nil
	case ses.of == nil || ses.of == b.Header || ses.of.ContentHash() == b.Header.ContentHash():
		return nil
	}
	return fmt.Errorf("its forward round was of another problem: both rounds of a state must be " +
		"of " +
		"one plan")
}

// fitsStore checks the widths of a plan: accumulators are of T, and so are elements, but that those
// of attention may be BF16 where T is float32.
func fitsStore[T attn.Float](h *plan.Header) error {
	n := int(elemBytes[T]())
	narrow := h.ElemBytes == narrowBytes && n == 4 && !h.Collective()
	if h.AccBytes != n || (h.ElemBytes != n && !narrow) {
		return fmt.Errorf("the plan's elements have %d bytes and accumulators %d, this store's "+
			"have %d (with accumulators of 4, elements of attention may have 2)", h.ElemBytes,
			h.AccBytes, n)
	}
	return nil
}

// claim takes the slots of a round.
func (s *Store[T]) claim(m *rankMem[T], round int32, b Round, ses *session[T]) error {
	slots := b.Program.Slots
	if n := len(slots); cap(m.scratch) < n {
		m.scratch = make([]slot[T], n)
	} else {
		m.scratch = m.scratch[:n]
	}
	m.entered, m.number, m.now, m.session = true, round, b, ses
	m.claims++
	if b.Program.Pass == plan.Forward && !b.Header.Collective() {
		for _, role := range [...]plan.Role{plan.HomeDQ, plan.HomeDKV} {
			s.vacate(m, &ses.slots[role]) // gradients of the former forward pass
		}
	}
	for i := range slots {
		sl, p := &m.scratch[i], &slots[i]
		if p.Role != plan.Scratch {
			sl = &ses.slots[p.Role]
		}
		if err := s.reserve(m, sl, p.Bytes); err != nil {
			s.leave(m)
			return fmt.Errorf("rank %d, round %d: slot %d of %d bytes: %w", m.rank, round, i,
				p.Bytes, err)
		}
	}
	return nil
}

// leave gives up the scratch slots of the round at hand.
func (s *Store[T]) leave(m *rankMem[T]) {
	if !m.entered {
		return
	}
	for i := range m.scratch {
		m.scratch[i].posted, m.scratch[i].right = 0, 0
		s.vacate(m, &m.scratch[i])
	}
	m.entered, m.session, m.now = false, nil, Round{}
}

// begin readies a session's slot for a round: what lives in must be there; what does not is no
// longer there, even if its memory is.
func (sl *slot[T]) begin(h *plan.Header, p *plan.Slot) error {
	sl.posted = 0
	if !p.In {
		sl.live, sl.given = false, 0
		return nil
	}
	want := frameOf(h, p.Tensor, p.Set, p.Heads)
	switch {
	case sl.given > 0:
		if err := sl.fits(&want); err != nil {
			return err
		}
		sl.live, sl.frame, sl.given = true, want, 0
	case !sl.live:
		return fmt.Errorf("nothing is there: give the inputs (SetInput), or run the forward " +
			"round first")
	case !sl.frame.same(&want):
		return fmt.Errorf("it holds %v, this round's plan wants %v: both rounds of a state must "+
			"be of one plan", sl.frame, want)
	}
	return nil
}

// fits compares the lengths of given parts with the frame that the plan has for them.
func (sl *slot[T]) fits(want *frame) error {
	if sl.narrow != want.narrow(0) {
		return fmt.Errorf("it was given before the width of its elements was known: the plan's "+
			"have %d bytes; name the plan (Expect) before the inputs (SetInput)",
			want.header.ElemBytes)
	}
	w := want.widths()
	for i := range sl.given {
		if n := want.items() * w[i]; sl.parts[i] != n {
			return fmt.Errorf("part %d was given with %d values, the plan's %v needs %d", i+1,
				sl.parts[i], *want, n)
		}
	}
	return nil
}

// slot finds the slot of an operand in the round at hand.
func (m *rankMem[T]) slot(i int32) (*slot[T], *plan.Slot, error) {
	if i < 0 || int(i) >= len(m.now.Program.Slots) {
		return nil, nil, fmt.Errorf("slot %d is not in the program of %d slots", i,
			len(m.now.Program.Slots))
	}
	p := &m.now.Program.Slots[i]
	if p.Role == plan.Scratch {
		return &m.scratch[i], p, nil
	}
	return &m.session.slots[p.Role], p, nil
}

// operand finds the region that an operand names and the slot that it lies in.
func (m *rankMem[T]) operand(a *plan.Operand) (frame, *slot[T], *plan.Slot, error) {
	h := m.now.Header
	if a.Set < 0 || int(a.Set) >= len(h.Sets) {
		return frame{}, nil, nil, fmt.Errorf("token set %d is not in the plan's table of %d", a.Set,
			len(h.Sets))
	}
	f := frameOf(h, a.Tensor, a.Set, a.Heads)
	if f.rows < 1 || f.heads.Len() < 1 {
		return frame{}, nil, nil, fmt.Errorf("%v in slot %d is empty: ops have no empty operands",
			f, a.Slot)
	}
	if all := h.AllHeads(a.Tensor); !f.heads.Within(all) {
		return frame{}, nil, nil, fmt.Errorf("%v in slot %d: the plan has %d heads", f, a.Slot,
			all.Hi)
	}
	sl, p, err := m.slot(a.Slot)
	return f, sl, p, err
}

// held is operand's, for a region of a block that must be there.
func (m *rankMem[T]) held(a *plan.Operand) (view[T], *slot[T], error) {
	f, sl, _, err := m.operand(a)
	if err != nil {
		return view[T]{}, nil, err
	}
	switch {
	case !sl.live:
		return view[T]{}, nil, fmt.Errorf("slot %d is empty, %v was to be there", a.Slot, f)
	case sl.frame.tensor != f.tensor || f.heads.Lo < sl.frame.heads.Lo ||
		f.heads.Hi > sl.frame.heads.Hi:
		return view[T]{}, nil, fmt.Errorf("slot %d holds %v, %v was to be there", a.Slot,
			sl.frame, f)
	}
	return view[T]{mem: sl.mem, frame: sl.frame, region: f}, sl, nil
}
