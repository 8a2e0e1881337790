package kvloom

import (
	"fmt"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// Inputs are a problem's tensors in token order, row-major: Q, DO [Tokens, Heads, Dim or VDim],
// K [KeyTokens, KVHeads, Dim], V [KeyTokens, KVHeads, VDim]. DO may be nil for forward alone. Sink
// is the sink logits [Heads] of a problem with Sink.
type Inputs[T attn.Float] struct{ Q, K, V, DO, Sink []T }

// Outputs are a problem's results in token order: Out [Tokens, Heads, VDim], LSE [Tokens, Heads],
// and after a backward pass DQ, DK, DV in the shapes of Q, K, V, and DSink [Heads] with Sink.
type Outputs[T attn.Float] struct{ Out, LSE, DQ, DK, DV, DSink []T }

// Shard is the tokens of one sequence that a rank is at home with, in the order of its rows: the
// same for q, dO, out, lse and dq, and for any per-token array of the embedder's own (ids, labels,
// rotary tables).
type Shard struct {
	Rank int
	Set  mesh.Set
}

// Len is the number of tokens; it may be 0.
func (s Shard) Len() int { return s.Set.Len() }

// Positions are the tokens' global positions, in row order.
func (s Shard) Positions() []int { return s.Set.Positions() }

// Take copies the shard's rows out of a per-token array in token order, width elements a token.
func Take[E any](s Shard, src []E, width int) []E { return take(src, s.Set, width) }

// Put copies the shard's rows to their places in a per-token array in token order: the inverse of
// Take. Over all ranks every token is put once.
func Put[E any](s Shard, dst, rows []E, width int) { put(dst, rows, s.Set, width) }

func take[E any](src []E, set mesh.Set, width int) []E {
	out := make([]E, 0, set.Len()*width)
	for _, p := range set {
		for i := range p.Count {
			at := p.At(i) * width
			out = append(out, src[at:at+width]...)
		}
	}
	return out
}

func put[E any](dst, rows []E, set mesh.Set, width int) {
	for _, p := range set {
		for i := range p.Count {
			at := p.At(i) * width
			copy(dst[at:at+width], rows[:width])
			rows = rows[width:]
		}
	}
}

// Store keeps shards: the device memory of every rank. A cpu.Store is one.
type Store[T attn.Float] interface {
	// Expect names the plan of the state's rounds, before its inputs are given: they are kept in
	// the width of its elements.
	Expect(state int32, h *plan.Header)
	// SetSink gives a state its sink logits [Heads]; SinkGrad is a rank's share of their gradient.
	SetSink(state int32, sink []T)
	SinkGrad(rank, state int32) []T
	// SetInput copies the parts of a home block into memory that the rank owns.
	SetInput(rank, state int32, role plan.Role, parts ...[]T) error
	// Output gives copies of the parts of a home block.
	Output(rank, state int32, role plan.Role) ([][]T, error)
}

// Load shards a problem's inputs to the ranks, as the given state.
func (s *Session[T]) Load(problem, state int, in Inputs[T]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	l, err := s.layer(problem)
	if err != nil {
		return err
	}
	return LoadShards(s.store, l.plan, state, in)
}

// LoadShards cuts inputs as a plan says and gives every rank its own.
func LoadShards[T attn.Float](to Store[T], p *plan.Plan, state int, in Inputs[T]) error {
	h := p.Header()
	q, k, v, o := h.QHeads*h.Dim, h.KHeads*h.Dim, h.KHeads*h.VDim, h.QHeads*h.VDim
	for _, x := range []struct {
		name        string
		have        int
		tokens, row int
	}{
		{"q", len(in.Q), h.QTokens, q}, {"k", len(in.K), h.KTokens, k},
		{"v", len(in.V), h.KTokens, v}, {"do", len(in.DO), h.QTokens, o},
		{"sink", len(in.Sink), 1, sinks(h)},
	} {
		if x.have != x.row*x.tokens && (x.name != "do" || x.have != 0) {
			return fmt.Errorf("kvloom: %s has %d elements, the problem has %d tokens of %d: %d",
				x.name, x.have, x.tokens, x.row, x.row*x.tokens)
		}
	}
	if err := checkSinks(in.Sink); err != nil {
		return err
	}
	to.Expect(int32(state), h)
	if h.Sink {
		to.SetSink(int32(state), in.Sink)
	}
	for r := range h.Ranks {
		hq, hk := h.Sets[h.HomeQ[r]], h.Sets[h.HomeK[r]]
		err := input(to, r, state, plan.HomeQ, hq, take(in.Q, hq, q))
		if err == nil {
			err = input(to, r, state, plan.HomeKV, hk, take(in.K, hk, k), take(in.V, hk, v))
		}
		if err == nil && in.DO != nil {
			err = input(to, r, state, plan.HomeDO, hq, take(in.DO, hq, o))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sinks is how many sink logits a plan has.
func sinks(h *plan.Header) int {
	if h.Sink {
		return h.QHeads
	}
	return 0
}

func input[T attn.Float](to Store[T], r, state int, role plan.Role, set mesh.Set,
	parts ...[]T) error {
	if set.Len() == 0 {
		return nil
	}
	return to.SetInput(int32(r), int32(state), role, parts...)
}

// Results puts a state's outputs together; gradients only when a backward pass has run.
func (s *Session[T]) Results(problem, state int, gradients bool) (Outputs[T], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return Outputs[T]{}, ErrClosed
	}
	l, err := s.layer(problem)
	if err != nil {
		return Outputs[T]{}, err
	}
	return GatherShards(s.store, l.plan, state, gradients)
}

// GatherShards puts the ranks' outputs together in token order.
func GatherShards[T attn.Float](from Store[T], p *plan.Plan, state int,
	gradients bool) (Outputs[T], error) {
	h := p.Header()
	out := Outputs[T]{
		Out: make([]T, h.QTokens*h.QHeads*h.VDim), LSE: make([]T, h.QTokens*h.QHeads),
	}
	parts := []part[T]{{plan.HomeOut, h.HomeQ, []field[T]{
		{out.Out, h.QHeads * h.VDim}, {out.LSE, h.QHeads}}}}
	if gradients {
		out.DQ = make([]T, h.QTokens*h.QHeads*h.Dim)
		out.DK = make([]T, h.KTokens*h.KHeads*h.Dim)
		out.DV = make([]T, h.KTokens*h.KHeads*h.VDim)
		parts = append(parts,
			part[T]{plan.HomeDQ, h.HomeQ, []field[T]{{out.DQ, h.QHeads * h.Dim}}},
			part[T]{plan.HomeDKV, h.HomeK, []field[T]{
				{out.DK, h.KHeads * h.Dim}, {out.DV, h.KHeads * h.VDim}}})
	}
	for _, x := range parts {
		if err := gather(from, h, state, x); err != nil {
			return Outputs[T]{}, err
		}
	}
	if gradients && h.Sink {
		out.DSink = sinkGrad(from, h, state)
	}
	return out, nil
}

// sinkGrad adds the ranks' shares of the sinks' gradient, in the order of the ranks.
func sinkGrad[T attn.Float](from Store[T], h *plan.Header, state int) []T {
	sum := make([]T, h.QHeads)
	for r := range h.Ranks {
		for i, x := range from.SinkGrad(int32(r), int32(state)) {
			sum[i] += x
		}
	}
	return sum
}

// part is a role's block on every rank and the global arrays that it is put into.
type part[T attn.Float] struct {
	role  plan.Role
	homes []plan.SetID
	into  []field[T]
}

type field[T attn.Float] struct {
	data  []T
	width int
}

func gather[T attn.Float](from Store[T], h *plan.Header, state int, p part[T]) error {
	for r := range h.Ranks {
		set := h.Sets[p.homes[r]]
		if set.Len() == 0 {
			continue
		}
		blocks, err := from.Output(int32(r), int32(state), p.role)
		if err != nil {
			return err
		}
		for i, f := range p.into {
			put(f.data, blocks[i], set, f.width)
		}
	}
	return nil
}

// Forget gives up a state's blocks on every rank.
func (s *Session[T]) Forget(state int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.store.Forget(int32(state))
	}
}
