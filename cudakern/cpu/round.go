package cpu

import (
	"fmt"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// frame says what a block holds: which rows and heads of which tensor.
type frame struct {
	header *plan.Header
	tensor plan.Tensor
	heads  mesh.Heads
	set    mesh.Set
	rows   int
}

// frameOf is the region that an operand names.
func frameOf(h *plan.Header, t plan.Tensor, set plan.SetID, heads mesh.Heads) frame {
	return frame{header: h, tensor: t, heads: heads, set: h.Sets[set], rows: h.Sets[set].Len()}
}

// widths are the elements that each part of a block has for one row and head; a part is one array
// [rows, heads, width], and parts follow one another.
func (f *frame) widths() [3]int {
	d, dv := f.header.Dim, f.header.VDim
	switch f.tensor {
	case plan.Q, plan.DQ:
		return [3]int{d}
	case plan.KV, plan.DKV:
		return [3]int{d, dv}
	case plan.State:
		return [3]int{dv, 1, 1}
	case plan.Out:
		return [3]int{dv, 1}
	case plan.DO:
		return [3]int{dv}
	}
	return [3]int{1} // plan.Delta, plan.Vec, plan.Sum
}

// items is the rows of all heads.
func (f *frame) items() int { return f.rows * f.heads.Len() }

// width is the elements of one row and head.
func (f *frame) width() int {
	w := f.widths()
	return w[0] + w[1] + w[2]
}

// elems is the size of the block.
func (f *frame) elems() int { return f.items() * f.width() }

// same reports whether two blocks hold the same region; their headers may be different copies.
func (f *frame) same(o *frame) bool {
	return f.tensor == o.tensor && f.heads == o.heads && f.rows == o.rows &&
		f.header.Dim == o.header.Dim && f.header.VDim == o.header.VDim && sameRows(f.set, o.set)
}

// String is the region in errors, such as kv of 12 tokens [{0 1 12}], heads 0:2.
func (f frame) String() string {
	return fmt.Sprintf("%v of %d tokens %v, heads %d:%d", f.tensor, f.rows, f.set, f.heads.Lo,
		f.heads.Hi)
}

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
	if n := int(elemBytes[T]()); b.Header.ElemBytes != n || b.Header.AccBytes != n {
		return fmt.Errorf("rank %d, round %d: the plan's elements have %d bytes and accumulators "+
			"%d, this store's have %d", m.rank, round, b.Header.ElemBytes, b.Header.AccBytes, n)
	}
	ses := m.open(b.State)
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
	for i := range slots {
		sl, p := &m.scratch[i], &slots[i]
		if p.Role != plan.Scratch {
			sl = &ses.slots[p.Role]
		}
		if err := s.reserve(m, sl, p.Bytes); err != nil {
			s.leave(m)
			return fmt.Errorf("rank %d, round %d: slot %d of %d bytes: %w", m.rank, round, i,
				p.Bytes,
				err)
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
	return view[T]{data: sl.data, frame: sl.frame, region: f}, sl, nil
}

// view is a block and the region of it that an op names.
type view[T attn.Float] struct {
	data []T
	frame
	region frame
}

// cut is the view of the region alone, when that is consecutive rows of the block with all heads:
// its arrays are then slices of the block's, from row row on.
func (v *view[T]) cut() (arrays [3][]T, ok bool) {
	row, ok := runOf(v.region.set, v.set)
	if !ok || v.region.heads != v.heads {
		return arrays, false
	}
	for p, w := range v.widths() {
		n := v.heads.Len() * w
		arrays[p] = v.part(p)[row*n : (row+v.region.rows)*n]
	}
	return arrays, true
}

// part is array p of the block.
func (v *view[T]) part(p int) []T {
	w, n := v.widths(), v.items()
	at := 0
	for i := range p {
		at += n * w[i]
	}
	return v.data[at : at+n*w[p] : at+n*w[p]]
}
