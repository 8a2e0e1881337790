package plan_test

import (
	"fmt"
	"math/bits"

	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// session is what lives between passes: by rank and role a block.
type session struct{ blocks [][plan.NumRoles]*slotMem }

// newSession has the inputs of a forward pass at home.
func (j *judge) newSession() *session {
	s := &session{blocks: make([][plan.NumRoles]*slotMem, j.hdr.Ranks)}
	for r := range s.blocks {
		s.blocks[r][plan.HomeQ] = j.homeBlock(plan.Q, r)
		s.blocks[r][plan.HomeKV] = j.homeBlock(plan.KV, r)
	}
	return s
}

// homeBlock is the frame of a tensor at home on a rank.
func (j *judge) homeBlock(t plan.Tensor, rank int) *slotMem {
	s := &slotMem{live: true, tensor: t, heads: j.hdr.AllHeads(t)}
	s.gone = make([]uint64, j.hdr.QHeads)
	if keyed(t) {
		s.rows = j.k.set[j.hdr.HomeK[rank]]
	} else {
		s.rows = j.q.set[j.hdr.HomeQ[rank]]
	}
	return s
}

// holds tells whether a block is the one that a session slot declares.
func (j *judge) holds(b *slotMem, s *plan.Slot) bool {
	rows := j.axis(s.Tensor).set[s.Set]
	return b != nil && b.live && b.tensor == s.Tensor && b.rows == rows && b.heads == s.Heads
}

// open puts the live-in blocks into their slots.
func (w *world) open() error {
	for r, prog := range w.p.progs {
		if w.p.pass == plan.Backward {
			w.home.blocks[r][plan.HomeDO] = w.j.homeBlock(plan.DO, r)
		}
		mem := make([]slotMem, len(prog.Slots))
		for i := range prog.Slots {
			s := &prog.Slots[i]
			if !s.In {
				continue
			}
			b := w.home.blocks[r][s.Role]
			if !w.j.holds(b, s) {
				return fmt.Errorf("%s rank %d slot %d: no such block lives there when the pass "+
					"begins", w.p.pass, r, i)
			}
			mem[i] = *b
		}
		w.mem = append(w.mem, mem)
	}
	return nil
}

// close checks what the pass left: session blocks whole, all else free, results at home.
func (w *world) close() error {
	for r, prog := range w.p.progs {
		for i := range prog.Slots {
			s, m := &prog.Slots[i], &w.mem[r][i]
			if err := w.left(s, m); err != nil {
				return fmt.Errorf("%s rank %d slot %d: %w", w.p.pass, r, i, err)
			}
			if s.Keep && m.live {
				w.home.blocks[r][s.Role] = m
			}
		}
		if err := w.results(r); err != nil {
			return fmt.Errorf("%s rank %d: %w", w.p.pass, r, err)
		}
	}
	all := w.j.hdr.AllHeads(plan.DQ)
	if err := w.j.complete(&w.done, plan.DQ, w.j.q.all(), all); err != nil {
		return fmt.Errorf("%s, all ranks: %w", w.p.pass, err)
	}
	if w.j.hdr.Sink && w.p.pass == plan.Backward {
		for i, n := range w.shares {
			if n != 1 {
				return fmt.Errorf("the sink of head %d has query %d's share %d times",
					i%w.j.hdr.QHeads, w.j.q.one[i/w.j.hdr.QHeads], n)
			}
		}
	}
	return nil
}

// left checks one slot at the end of a pass.
func (w *world) left(s *plan.Slot, m *slotMem) error {
	if !s.Keep {
		if m.live {
			return fmt.Errorf("left taken")
		}
		return nil
	}
	if !m.live && (w.j.axis(s.Tensor).set[s.Set] == 0 || s.Heads.Len() == 0) {
		return nil
	}
	if !w.j.holds(m, s) {
		return fmt.Errorf("does not hold the block that it should keep")
	}
	for h := m.heads.Lo; h < m.heads.Hi; h++ {
		if m.gone[h] != 0 {
			return fmt.Errorf("keeps an accumulator that was handed on")
		}
	}
	return nil
}

// results checks the outputs of a rank: there, of its own tokens, and right.
func (w *world) results(rank int) error {
	roles := []plan.Role{plan.HomeOut}
	if w.p.pass == plan.Backward {
		roles = []plan.Role{plan.HomeDQ, plan.HomeDKV}
	}
	for _, role := range roles {
		t := roleTensor(role)
		want := w.j.homeBlock(t, rank)
		if want.rows == 0 {
			continue
		}
		b := w.home.blocks[rank][role]
		if b == nil || b.rows != want.rows || b.heads != want.heads {
			return fmt.Errorf("no result of role %v at home", role)
		}
		if err := w.j.complete(&b.tally, t, b.rows, b.heads); err != nil {
			return err
		}
		each(b.rows, func(row int) {
			for h := b.heads.Lo; h < b.heads.Hi; h++ {
				w.digest = mix(w.digest, b.hash[w.j.cell(t, row, h)])
			}
		})
	}
	return nil
}

// complete tells whether a region has every contribution once and no other.
func (j *judge) complete(c *tally, t plan.Tensor, rows uint64, heads mesh.Heads) error {
	n := j.width(t)
	for ; rows != 0; rows &= rows - 1 {
		row := bits.TrailingZeros64(rows)
		for h := heads.Lo; h < heads.Hi; h++ {
			at := j.cell(t, row, h) * n
			for i, got := range c.count[at : at+n] {
				q, k, qh := row, i, h
				if keyed(t) {
					q, k, qh = i/j.group, row, h*int32(j.group)+int32(i%j.group)
				}
				if want := uint8(j.sees[q] >> k & 1); got != want {
					return fmt.Errorf("%v head %d has query %d x key %d of query head %d "+
						"%d times instead of %d", t, h, j.q.one[q], j.k.one[k], qh, got, want)
				}
			}
		}
	}
	return nil
}

// all are all atoms.
func (a *atoms) all() uint64 { return 1<<a.n - 1 }
