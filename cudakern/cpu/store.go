package cpu

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern"
	"github.com/kvloom/kvloom/plan"
)

// Book says what a round is; the composition root fills it before rounds are submitted. It must
// give the same answer for a round until the round is over on all ranks, and may be asked from
// many goroutines at once.
type Book interface {
	Round(rank, round int32) (Round, bool)
}

// Round is one rank's part of a round. State names the session's blocks of one layer and one
// micro-batch: the slots with a role live there, from the forward round to the backward one.
type Round struct {
	Header  *plan.Header
	Program *plan.Program
	State   int32
}

// Options are the choices of a store that change no result.
type Options struct {
	// Arena is where blocks come from; nil is one of the store's own, without limit.
	Arena *Arena
	// Copy makes Hop copy the block into memory of the receiver, as a network would, where else the
	// reference is handed over.
	Copy bool
	// Poison fills memory with NaN when a slot becomes free for another life, so that whoever reads
	// too late, or what was never written, is seen in the results.
	Poison bool
	// Kernels do the arithmetic; blocks that vectors do not serve go to the portable ones.
	Kernels Kernels
}

// Store does what ops mean, on the slots of all ranks of a world that are in this process. It
// implements cudakern.Executor, and moves blocks for links (transport.Mover).
type Store[T attn.Float] struct {
	book  Book
	opt   Options
	arena *Arena
	ranks []rankMem[T]

	mu    sync.Mutex
	doers []*doer[T] // idle
}

var _ cudakern.Executor = (*Store[float32])(nil)

// New makes the store of ranks 0 to ranks-1.
func New[T attn.Float](book Book, ranks int, opt Options) *Store[T] {
	if opt.Arena == nil {
		opt.Arena = NewArena(0, 0)
	}
	s := &Store[T]{book: book, opt: opt, arena: opt.Arena, ranks: make([]rankMem[T], ranks)}
	for r := range s.ranks {
		s.ranks[r].rank = int32(r)
	}
	return s
}

// rankMem is what one rank holds. Its lock covers all of it: a peer hands blocks over while the
// rank's own device runs.
type rankMem[T attn.Float] struct {
	mu   sync.Mutex
	rank int32

	entered bool // a round is at hand
	number  int32
	now     Round
	claims  uint64 // rounds entered so far
	scratch []slot[T]
	session *session[T]

	sessions []*session[T]
	spare    []*session[T]
	used     meter // bytes of the blocks in slots
}

// session is the blocks with a role of one layer and one micro-batch.
type session[T attn.Float] struct {
	state  int32
	narrow bool         // elements are BF16: see Expect
	of     *plan.Header // of the last forward round; nil if there was none
	slots  [plan.NumRoles]slot[T]
	sinks  sinks[T]
}

// slot holds at most one block. The block may be shared with slots of other ranks.
type slot[T attn.Float] struct {
	block cudakern.Handle
	mem   []byte // what of the block is used; nil when there is none
	right int64  // bytes that the slot may hold; 0 outside a round
	held  int64  // bytes that the block counts for here
	frame frame
	// live says that frame is there, whole; a block that is not live only waits for its next life.
	live   bool
	given  int    // parts that SetInput copied here, their frame not yet known; 0 if none
	narrow bool   // they are BF16
	parts  [2]int // their lengths
	posted int32  // the receive that may fill the slot, plus one
}

// of finds a rank's memory.
func (s *Store[T]) of(rank int32) (*rankMem[T], error) {
	if rank < 0 || int(rank) >= len(s.ranks) {
		return nil, fmt.Errorf("rank %d: this process has ranks 0 to %d", rank, len(s.ranks)-1)
	}
	return &s.ranks[rank], nil
}

// inputParts is how many arrays a role is given as: home.kv is k and v.
func inputParts(role plan.Role) int {
	switch role {
	case plan.HomeQ, plan.HomeDO, plan.VecIn:
		return 1
	case plan.HomeKV:
		return 2
	}
	return 0
}

// Expect names the plan that rounds of a state will be of, before its inputs are given: they are
// kept in the width of its elements. Without it, or after Forget, that is T's. What was given
// before stays as it is.
func (s *Store[T]) Expect(state int32, h *plan.Header) {
	for r := range s.ranks {
		m := &s.ranks[r]
		m.mu.Lock()
		m.open(state).narrow = h.ElemBytes == narrowBytes
		m.mu.Unlock()
	}
}

// SetInput copies a session's input into memory that the rank owns: HomeQ q, HomeKV k and v, HomeDO
// dO, each [rows, heads, D or DV] of the rank's own tokens, and VecIn the elements that the rank
// brings to a collective. Empty parts mean that the rank has no tokens or elements. Where the plan
// that Expect named has elements of BF16, values are rounded to them here, once. Lengths are
// checked against the plan when the first round that reads them begins. No round of the state may
// run meanwhile.
func (s *Store[T]) SetInput(rank, state int32, role plan.Role, parts ...[]T) error {
	m, err := s.of(rank)
	if err != nil {
		return err
	}
	if n := inputParts(role); n == 0 || n != len(parts) {
		return fmt.Errorf("rank %d, state %d: %v was given as %d parts: give home.q as q, home.kv "+
			"as k, v, home.do as dO and vec.in as a vector; other roles are made by rounds", rank,
			state, role, len(parts))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	ses, total := m.open(state), 0
	for _, p := range parts {
		total += len(p)
	}
	sl := &ses.slots[role]
	sl.live, sl.given = false, 0
	if total == 0 {
		s.vacate(m, sl)
		return nil
	}
	size, narrow := elemBytes[T](), ses.narrow && role != plan.VecIn
	if narrow {
		size = narrowBytes
	}
	if sl.narrow != narrow {
		s.vacate(m, sl) // its memory is of another size
	}
	if err := s.fit(m, sl, int64(total)*size); err != nil {
		return fmt.Errorf("rank %d, state %d, %v: %w", rank, state, role, err)
	}
	sl.give(parts, narrow)
	return nil
}

// give copies parts, one behind the other, into the slot's memory, as BF16 or as they are.
func (sl *slot[T]) give(parts [][]T, narrow bool) {
	sl.narrow = narrow
	at := 0
	for i, p := range parts {
		if narrow {
			attn.Narrow(cast[attn.BF16](sl.mem)[at:at+len(p)], p)
		} else {
			copy(cast[T](sl.mem)[at:], p)
		}
		at += len(p)
		sl.parts[i] = len(p)
	}
	sl.given = len(parts)
}

// Output gives what a rank holds under a role, in the parts of its tensor: HomeOut out and lse,
// HomeDQ dq, HomeDKV dk and dv, SumOut the sums of a collective. They are views of its memory,
// valid until the next round of the state, SetInput or Forget; but where the plan's elements are
// BF16, all but lse are copies that hold such numbers: it is here that sums are rounded to them. A
// rank that has no tokens has no output: that is an error, as is a role that no round has made yet.
func (s *Store[T]) Output(rank, state int32, role plan.Role) ([][]T, error) {
	m, err := s.of(rank)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if ses := m.find(state); ses != nil && role < plan.NumRoles && ses.slots[role].live {
		v := view[T]{mem: ses.slots[role].mem, frame: ses.slots[role].frame}
		var parts [][]T
		for p := range v.widths() {
			if v.widths()[p] > 0 {
				parts = append(parts, v.output(p))
			}
		}
		return parts, nil
	}
	return nil, fmt.Errorf("rank %d has no %v of state %d: run the rounds that make it, and skip "+
		"ranks without tokens", rank, role, state)
}

// output is part p as the caller of Output sees it.
func (v *view[T]) output(p int) []T {
	if v.narrow(p) {
		wide := make([]T, v.items()*v.widths()[p])
		attn.Widen(wide, v.part16(p))
		return wide
	}
	sums := v.part(p)
	if v.header.ElemBytes != narrowBytes || (v.tensor != plan.DQ && v.tensor != plan.DKV) {
		return sums
	}
	rounded, wide := make([]attn.BF16, len(sums)), make([]T, len(sums))
	attn.Narrow(rounded, sums)
	attn.Widen(wide, rounded)
	return wide
}

// Forget gives up all blocks of a state, on all ranks, and the slots of a round of it that is at
// hand. No round of the state may run meanwhile.
func (s *Store[T]) Forget(state int32) {
	for r := range s.ranks {
		m := &s.ranks[r]
		m.mu.Lock()
		for i, ses := range m.sessions {
			if ses.state == state {
				if m.session == ses {
					s.leave(m)
				}
				s.forget(m, ses)
				last := len(m.sessions) - 1
				m.sessions[i] = m.sessions[last]
				m.sessions = m.sessions[:last]
				break
			}
		}
		m.mu.Unlock()
	}
}

// forget empties a session and keeps its table for the next state.
func (s *Store[T]) forget(m *rankMem[T], ses *session[T]) {
	for role := range ses.slots {
		s.vacate(m, &ses.slots[role])
	}
	*ses = session[T]{sinks: ses.sinks.none()}
	m.spare = append(m.spare, ses)
}

// Close gives up everything. No op may run meanwhile or come after.
func (s *Store[T]) Close() {
	for r := range s.ranks {
		m := &s.ranks[r]
		m.mu.Lock()
		s.leave(m)
		for _, ses := range m.sessions {
			s.forget(m, ses)
		}
		m.sessions = m.sessions[:0]
		m.mu.Unlock()
	}
}

// Peak is the most bytes that a rank held at once, counted where they are taken: its session's
// blocks and the slots of its rounds. plan.PeakBytes foretells it.
func (s *Store[T]) Peak(rank int32) int64 {
	_, peak := s.Used(rank)
	return peak
}

// Used is the bytes of the blocks in a rank's slots now, and the most there ever were; a block
// that several ranks share counts at each.
func (s *Store[T]) Used(rank int32) (now, peak int64) {
	m := &s.ranks[rank]
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used.now, m.used.peak
}

// Memory is where the store's blocks come from.
func (s *Store[T]) Memory() *Arena { return s.arena }

// find is the session of a state, nil if there is none. A rank has few at a time.
func (m *rankMem[T]) find(state int32) *session[T] {
	for _, ses := range m.sessions {
		if ses.state == state {
			return ses
		}
	}
	return nil
}

// open is the session of a state, made if there is none.
func (m *rankMem[T]) open(state int32) *session[T] {
	if ses := m.find(state); ses != nil {
		return ses
	}
	var ses *session[T]
	if n := len(m.spare); n > 0 {
		ses, m.spare = m.spare[n-1], m.spare[:n-1]
	} else {
		ses = &session[T]{}
	}
	ses.state = state
	m.sessions = append(m.sessions, ses)
	return ses
}

// vacate takes the block out of a slot and gives it up.
func (s *Store[T]) vacate(m *rankMem[T], sl *slot[T]) {
	if sl.mem != nil {
		if s.opt.Poison && s.arena.Holders(sl.block) == 1 {
			poison(sl.mem)
		}
		s.arena.Free(sl.block)
		m.used.add(-sl.held)
	}
	*sl = slot[T]{posted: sl.posted, right: sl.right}
}

// reserve takes the memory that a slot has a right to, unless a block is there: from the start of a
// round on a rank holds what its plan foretells.
func (s *Store[T]) reserve(m *rankMem[T], sl *slot[T], right int64) error {
	sl.right = right
	if sl.mem != nil {
		return nil
	}
	return s.take(m, sl, right)
}

func (s *Store[T]) take(m *rankMem[T], sl *slot[T], bytes int64) error {
	h, err := s.arena.Take(bytes)
	if err != nil {
		return err
	}
	sl.block, sl.mem, sl.held = h, s.arena.Bytes(h), bytes
	m.used.add(bytes)
	return nil
}

// fit gives a slot need bytes that nobody else holds, of its own block if that can be.
func (s *Store[T]) fit(m *rankMem[T], sl *slot[T], need int64) error {
	if sl.mem == nil || s.arena.Holders(sl.block) > 1 || sl.held < need {
		s.vacate(m, sl)
		if err := s.take(m, sl, max(need, sl.right)); err != nil {
			return err
		}
	}
	sl.mem = s.arena.Bytes(sl.block)[:need]
	if s.opt.Poison {
		poison(sl.mem)
	}
	return nil
}

// fill puts a block that came by reference into a slot: bytes bytes of it count here.
func (s *Store[T]) fill(m *rankMem[T], sl *slot[T], h cudakern.Handle, bytes int64) {
	s.vacate(m, sl)
	sl.block, sl.mem, sl.held = h, s.arena.Bytes(h)[:bytes], bytes
	m.used.add(bytes)
}

// poison fills memory with ones: a NaN in elements of every width.
func poison(mem []byte) {
	for i := range mem {
		mem[i] = 0xff
	}
}

func elemBytes[T attn.Float]() int64 { return int64(unsafe.Sizeof(T(0))) }
