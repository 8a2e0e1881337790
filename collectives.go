package kvloom

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/kvloom/kvloom/collect"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
)

// Axis says which ranks are a group of a collective.
type Axis = collect.Axis

// The axes: ranks of one ring index, of one head index, and all.
const (
	HeadAxis  = collect.Head
	RingAxis  = collect.Ring
	WorldAxis = collect.World
)

// collective is a collective's plan, made once.
type collective struct {
	plan  *collect.Plan
	ready *rank.Compiled
}

// AllReduce replaces every rank's vector by the sum of its group's, added in the order of the
// group's ranks: the same bits on all of them, whatever the timing. data is by rank; all vectors
// have one length.
func (s *Session[T]) AllReduce(ctx context.Context, axis Axis, data [][]T) error {
	out, err := s.collective(ctx, collect.AllReduce, axis, data)
	if err != nil {
		return err
	}
	for r, v := range out {
		copy(data[r], v)
	}
	return nil
}

// ReduceScatter gives the i-th rank of each group run i of its group's sum: the elements are cut in
// near-equal runs, in the order of the group (mesh.CutEven). data is by rank; all vectors have one
// length.
func (s *Session[T]) ReduceScatter(ctx context.Context, axis Axis, data [][]T) ([][]T, error) {
	return s.collective(ctx, collect.ReduceScatter, axis, data)
}

// AllGather is the inverse cut: the i-th rank of each group brings run i, all get the whole vector.
func (s *Session[T]) AllGather(ctx context.Context, axis Axis, data [][]T) ([][]T, error) {
	return s.collective(ctx, collect.AllGather, axis, data)
}

func (s *Session[T]) collective(ctx context.Context, kind collect.Kind, axis Axis,
	data [][]T) ([][]T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	n, err := s.elements(kind, axis, data)
	if err != nil || n == 0 {
		return make([][]T, len(data)), err
	}
	c, err := s.collectivePlan(collect.Spec{
		Kind: kind, Mesh: s.cfg.Mesh, Axis: axis, Elements: n, ElemBytes: int(unsafe.Sizeof(T(0)))})
	if err != nil {
		return nil, err
	}
	state := s.states.take()
	defer func() {
		s.store.Forget(int32(state))
		s.states.free = append(s.states.free, state)
	}()
	for r, v := range data {
		if len(v) == 0 {
			continue
		}
		if err := s.store.SetInput(int32(r), int32(state), plan.VecIn, v); err != nil {
			return nil, err
		}
	}
	err = s.run(ctx, []rank.Entry{{Plan: c.ready, Pass: plan.Forward, State: int32(state)}})
	if err != nil {
		return nil, err
	}
	out := make([][]T, len(data))
	for r := range data {
		if lo, hi := c.plan.Run(r); kind == collect.ReduceScatter && lo == hi {
			out[r] = []T{}
			continue
		}
		parts, err := s.store.Output(int32(r), int32(state), plan.SumOut)
		if err != nil {
			return nil, err
		}
		out[r] = append([]T{}, parts[0]...)
	}
	return out, nil
}

// elements is the length of a group's vector, the same for all groups.
func (s *Session[T]) elements(kind collect.Kind, axis Axis, data [][]T) (int, error) {
	m := s.cfg.Mesh
	if len(data) != m.Ranks() {
		return 0, fmt.Errorf("kvloom: %v: vectors of %d ranks were given, the session has %d", kind,
			len(data), m.Ranks())
	}
	n := len(data[0])
	if kind == collect.AllGather {
		n = 0
		for _, r := range group(m, axis, 0) {
			n += len(data[r])
		}
	}
	for r, v := range data {
		want := n
		if kind == collect.AllGather {
			members := group(m, axis, r)
			for i, other := range members {
				if other == r {
					lo, hi := mesh.CutEven(n, len(members), i)
					want = hi - lo
				}
			}
		}
		if len(v) != want {
			return 0, fmt.Errorf("kvloom: %v over axis %v: rank %d brings %d elements, a "+
				"group's vector "+
				"of %d wants %d of it", kind, axis, r, len(v), n, want)
		}
	}
	return n, nil
}

// group is the ranks of a rank's group, in order.
func group(m mesh.Mesh, axis Axis, rank int) []int {
	at := m.Coord(rank)
	var out []int
	for r := range m.Ranks() {
		if o := m.Coord(r); axis == WorldAxis || (axis == HeadAxis && o.C == at.C) ||
			(axis == RingAxis && o.H == at.H) {
			out = append(out, r)
		}
	}
	return out
}

// collectivePlan builds and proves a collective's plan, once.
func (s *Session[T]) collectivePlan(spec collect.Spec) (*collective, error) {
	if c := s.sums[spec]; c != nil {
		return c, nil
	}
	if len(s.sums) == maxCollectives {
		clear(s.sums)
		s.extra = nil
	}
	p, err := collect.New(spec)
	if err != nil {
		return nil, err
	}
	ready, err := prove(context.Background(), p, p.Seal)
	if err != nil {
		return nil, err
	}
	c := &collective{plan: p, ready: ready}
	if s.sums == nil {
		s.sums = map[collect.Spec]*collective{}
	}
	s.sums[spec], s.extra = c, append(s.extra, ready)
	s.growMail()
	return c, nil
}

// maxCollectives bounds the plans that are kept; the next one after that begins anew.
const maxCollectives = 256
