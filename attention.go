package kvloom

import (
	"context"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// Attention is one layer's problem in a session: its plan is built and proven. Layers with other
// masks or shapes are other Attentions of the same session.
type Attention[T attn.Float] struct {
	session *Session[T]
	plan    *plan.Plan
	problem int
	closed  bool
}

// Attention builds, verifies and readies the plan of a problem, or takes it as it was prepared or
// used before. Errors name what is wrong and what would work. Close gives it up, where layers come
// and go, as with packed documents that change in each batch.
func (s *Session[T]) Attention(p Problem) (*Attention[T], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	n := s.place()
	s.cfg.Problems[n] = p
	l, err := s.compile(context.Background(), n)
	if err != nil {
		s.cfg.Problems[n] = Problem{}
		return nil, err
	}
	s.setLayer(n, l)
	s.growMail()
	return &Attention[T]{session: s, plan: l.plan, problem: n}, nil
}

// place is the number of a problem that is not in use.
func (s *Session[T]) place() int {
	for n, l := range s.layers {
		if l == nil {
			return n
		}
	}
	s.cfg.Problems = append(s.cfg.Problems, Problem{})
	s.table.Lock()
	defer s.table.Unlock()
	s.layers = append(s.layers, nil)
	return len(s.layers) - 1
}

// Prepare begins to build the plan of a problem in the background, while rounds run, and returns at
// once: a later Attention of an equal problem finds it there, or gets what was wrong with it. At
// most MaxAhead plans may wait so.
func (s *Session[T]) Prepare(p Problem) error {
	p.widths(int(unsafe.Sizeof(T(0))))
	one := Config{Mesh: s.cfg.Mesh, Layout: s.cfg.Layout, Options: s.cfg.Options,
		Ring: s.cfg.Ring, Problems: []Problem{p}}
	spec, err := one.checked(0)
	if err != nil {
		return err
	}
	if err := s.canHold(&spec.Shape); err != nil {
		return fmt.Errorf("kvloom: %w", err)
	}
	return s.cache.prepare(spec)
}

// Close gives up the layer's plan. Its states must have been released, and no round of it may run.
func (a *Attention[T]) Close() {
	s := a.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if !a.closed {
		a.closed = true
		s.setLayer(a.problem, nil)
		s.cfg.Problems[a.problem] = Problem{}
	}
}

// growMail gives every rank's mailbox room for the plans at hand.
func (s *Session[T]) growMail() {
	for r := range s.incarn {
		s.host.Grow(actors.Addr{Role: actors.Rank, Rank: int32(r)}, s.rankMail(r))
	}
}

// Ranks is the number of ranks of the session, all of them in this process.
func (s *Session[T]) Ranks() int { return s.cfg.Mesh.Ranks() }

// Shard is the query tokens of a rank.
func (a *Attention[T]) Shard(rank int) Shard {
	h := a.plan.Header()
	return Shard{Rank: rank, Set: h.Sets[h.HomeQ[rank]]}
}

// KeyShard is the key tokens of a rank; in self-attention it is Shard.
func (a *Attention[T]) KeyShard(rank int) Shard {
	h := a.plan.Header()
	return Shard{Rank: rank, Set: h.Sets[h.HomeK[rank]]}
}

// QKV is a rank's inputs: Q [tokens, Heads, Dim] of its Shard, K [tokens, KVHeads, Dim] and V
// [tokens, KVHeads, VDim] of its KeyShard, row-major.
type QKV[T attn.Float] struct{ Q, K, V []T }

// Output is a rank's results: Out [tokens, Heads, VDim], LSE [tokens, Heads].
type Output[T attn.Float] struct{ Out, LSE []T }

// Grads is a rank's gradients, in the shapes of its QKV. DSink [Heads] is its share of the sinks'
// gradient: the sum over the ranks, such as by AllReduce, is the gradient.
type Grads[T attn.Float] struct{ DQ, DK, DV, DSink []T }

// State is one micro-batch of one layer in flight: what Forward keeps for Backward lives in the
// session, not in an actor. Any number of states may be in flight; Release gives one up.
type State[T attn.Float] struct {
	att     *Attention[T]
	id      int
	sunk    bool // sinks are given
	forward bool // a forward pass is done
	dead    bool
}

// SetSink gives the state its sink logits, one a head, for the passes to come: a problem with Sink
// needs them before Forward, and a new Forward after them. They are a parameter, the same on all
// ranks: finite, or -Inf for none.
func (st *State[T]) SetSink(logits []T) error {
	s := st.att.session
	s.mu.Lock()
	defer s.mu.Unlock()
	switch n := sinks(st.att.plan.Header()); {
	case s.closed:
		return ErrClosed
	case st.dead:
		return errReleased
	case st.att.closed:
		return errClosedLayer
	case len(logits) != n:
		return fmt.Errorf("kvloom: %d sink logits were given, the problem has %d", len(logits), n)
	}
	if err := checkSinks(logits); err != nil {
		return err
	}
	s.store.SetSink(int32(st.id), logits)
	st.sunk, st.forward = true, false // what a forward pass has left is of other logits
	return nil
}

// firstState leaves the numbers below to callers of Load.
const firstState = 1 << 20

// states hands out numbers of states, each to one at a time.
type states struct {
	free []int
	next int
}

func (n *states) take() int {
	if k := len(n.free); k > 0 {
		id := n.free[k-1]
		n.free = n.free[:k-1]
		return id
	}
	n.next++
	return firstState + n.next
}

// Begin makes a state.
func (a *Attention[T]) Begin() *State[T] {
	a.session.mu.Lock()
	defer a.session.mu.Unlock()
	return &State[T]{att: a, id: a.session.states.take()}
}

// Release gives up what the state keeps on every rank. The state must not be used afterwards.
func (st *State[T]) Release() {
	s := st.att.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.dead {
		return
	}
	st.dead = true
	if !s.closed {
		s.store.Forget(int32(st.id))
	}
	s.states.free = append(s.states.free, st.id)
}

// errClosedLayer says that a state is used after its Attention's Close.
var errClosedLayer = errors.New("kvloom: the attention was closed: make a new one")

// checkSinks refuses logits that no sum can take.
func checkSinks[T attn.Float](logits []T) error {
	for i, x := range logits {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 1) {
			return fmt.Errorf("kvloom: the sink logit of head %d is %v: use a finite number, or "+
				"-Inf for none", i, x)
		}
	}
	return nil
}

// errReleased says that a state is used after Release.
var errReleased = errors.New("kvloom: the state was released")

// Forward runs the layer forward: in and the results are by rank. After an error the state can be
// run forward again; its inputs are taken anew.
func (st *State[T]) Forward(ctx context.Context, in []QKV[T]) ([]Output[T], error) {
	s, a := st.att.session, st.att
	if a.plan.Header().Sink && !st.sunk {
		return nil, errors.New("kvloom: the problem has sinks: give their logits by SetSink")
	}
	if err := st.load(len(in), "inputs", func(r int, h *plan.Header) error {
		q, k := a.Shard(r).Set, a.KeyShard(r).Set
		if err := st.input(r, plan.HomeQ, q, h.QHeads*h.Dim, in[r].Q); err != nil {
			return err
		}
		return st.inputs(r, plan.HomeKV, k, [][]T{in[r].K, in[r].V},
			[]int{h.KHeads * h.Dim, h.KHeads * h.VDim})
	}); err != nil {
		return nil, err
	}
	st.forward = false
	err := s.Run(ctx, Round{Problem: a.problem, Pass: plan.Forward, State: st.id})
	if err != nil {
		return nil, err
	}
	st.forward = true
	out := make([]Output[T], s.Ranks())
	return out, st.results(plan.HomeOut, func(r int, parts [][]T) {
		out[r] = Output[T]{Out: parts[0], LSE: parts[1]}
	})
}

// Backward runs the layer backward from the gradient of out, by rank: [tokens, Heads, VDim]. It is
// ErrEpoch when the state's forward pass is not done, or was lost with an aborted round.
func (st *State[T]) Backward(ctx context.Context, do [][]T) ([]Grads[T], error) {
	s, a := st.att.session, st.att
	if !st.forward {
		return nil, fmt.Errorf("%w: run Forward before Backward", ErrEpoch)
	}
	if err := st.load(len(do), "gradients", func(r int, h *plan.Header) error {
		return st.input(r, plan.HomeDO, a.Shard(r).Set, h.QHeads*h.VDim, do[r])
	}); err != nil {
		return nil, err
	}
	err := s.Run(ctx, Round{Problem: a.problem, Pass: plan.Backward, State: st.id})
	if err != nil {
		return nil, err
	}
	out := make([]Grads[T], s.Ranks())
	if err := st.results(plan.HomeDQ, func(r int, parts [][]T) {
		out[r].DQ = parts[0]
	}); err != nil {
		return nil, err
	}
	return out, st.results(plan.HomeDKV, func(r int, parts [][]T) {
		out[r].DK, out[r].DV = parts[0], parts[1]
		out[r].DSink = s.store.SinkGrad(int32(r), int32(st.id))
	})
}

// load gives every rank its inputs.
func (st *State[T]) load(n int, what string, each func(r int, h *plan.Header) error) error {
	s := st.att.session
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case st.dead:
		return errReleased
	case st.att.closed:
		return errClosedLayer
	case n != s.Ranks():
		return fmt.Errorf("kvloom: %s of %d ranks were given, the session has %d", what, n,
			s.Ranks())
	}
	h := st.att.plan.Header()
	s.store.Expect(int32(st.id), h)
	for r := range n {
		if err := each(r, h); err != nil {
			return fmt.Errorf("kvloom: rank %d: %w", r, err)
		}
	}
	return nil
}

func (st *State[T]) input(r int, role plan.Role, set mesh.Set, width int, data []T) error {
	return st.inputs(r, role, set, [][]T{data}, []int{width})
}

func (st *State[T]) inputs(r int, role plan.Role, set mesh.Set, parts [][]T, widths []int) error {
	for i, p := range parts {
		if len(p) != set.Len()*widths[i] {
			return fmt.Errorf("part %d of %v has %d elements, its shard has %d tokens of %d", i,
				role, len(p), set.Len(), widths[i])
		}
	}
	if set.Len() == 0 {
		return nil
	}
	return st.att.session.store.SetInput(int32(r), int32(st.id), role, parts...)
}

// results copies the parts of a role's block on every rank; a rank without tokens gives empty ones.
func (st *State[T]) results(role plan.Role, each func(r int, parts [][]T)) error {
	s := st.att.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	for r := range s.Ranks() {
		shard := st.att.Shard(r)
		if role == plan.HomeDKV {
			shard = st.att.KeyShard(r)
		}
		parts := [][]T{{}, {}}
		if shard.Len() > 0 {
			views, err := s.store.Output(int32(r), int32(st.id), role)
			if err != nil {
				return err
			}
			for i, v := range views {
				parts[i] = append([]T{}, v...)
			}
		}
		each(r, parts)
	}
	return nil
}

// Crash ends a rank's actor as a crash would: the round at hand, or the next one, fails with
// ErrPeerLost naming it. It is for tests of an embedder's own recovery.
func (s *Session[T]) Crash(rank int) error {
	return s.host.Kill(actors.Addr{Role: actors.Rank, Rank: int32(rank)}, "crashed on request")
}
