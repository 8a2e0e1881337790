package cpu

import (
	"fmt"
	"math"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/plan"
)

// sinks are the sink logits of a state, as one rank has them, and their gradients. Each delta op of
// a backward program has a row of its own, which it sets: a round that runs again after an abort
// adds nothing twice, and the sum does not depend on the order in which ops ran.
type sinks[T attn.Float] struct {
	logits []T // [QHeads], of all heads; empty if the state has none
	grads  []T // [delta ops, QHeads], of this rank's rows
}

// none is no sinks, in the memory of these.
func (k *sinks[T]) none() sinks[T] {
	return sinks[T]{logits: k.logits[:0], grads: k.grads[:0]}
}

// SetSink gives a state its sink logits, one for each query head, on all ranks; -Inf is none for
// its head. They are kept until Forget, and checked against the plan when a round begins. No round
// of the state may run meanwhile.
func (s *Store[T]) SetSink(state int32, sink []T) {
	for r := range s.ranks {
		m := &s.ranks[r]
		m.mu.Lock()
		k := &m.open(state).sinks
		k.logits, k.grads = append(k.logits[:0], sink...), k.grads[:0]
		m.mu.Unlock()
	}
}

// SinkGrad is a rank's share [QHeads] of the gradient of a state's sink logits, after the backward
// round: over all ranks the shares add up to the gradient. It is 0 for heads that the rank does not
// hold and before the round, and nil for a state without sinks.
func (s *Store[T]) SinkGrad(rank, state int32) []T {
	m, err := s.of(rank)
	if err != nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	ses := m.find(state)
	if ses == nil || len(ses.sinks.logits) == 0 {
		return nil
	}
	heads := len(ses.sinks.logits)
	sum := make([]T, heads)
	for i, x := range ses.sinks.grads {
		sum[i%heads] += x
	}
	return sum
}

// begin checks the sinks for a round, and readies the gradients of a backward one.
func (k *sinks[T]) begin(b *Round) error {
	h, n := b.Header, len(k.logits)
	switch {
	case h.Collective():
		return nil
	case h.Sink && n != h.QHeads:
		return fmt.Errorf("%d sink logits were given, the plan has one for each of %d query "+
			"heads: give them (SetSink)", n, h.QHeads)
	case !h.Sink && n > 0:
		return fmt.Errorf("%d sink logits were given, and the plan has none: use a plan of a "+
			"shape with Sink", n)
	}
	for i, x := range k.logits {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 1) {
			return fmt.Errorf("the sink logit of head %d is %v: use a finite number, or -Inf for "+
				"none", i, x)
		}
	}
	if !h.Sink || b.Program.Pass != plan.Backward {
		return nil
	}
	need := deltaOps(b.Program, len(b.Program.Ops)) * n
	if cap(k.grads) < need {
		k.grads = make([]T, need)
	}
	k.grads = k.grads[:need]
	clear(k.grads)
	return nil
}

// of is the logits of the heads of a region; nil if its plan has none.
func (k *sinks[T]) of(f *frame) []T {
	if !f.header.Sink {
		return nil
	}
	return k.logits[f.heads.Lo:f.heads.Hi]
}

// deltaOps is how many delta ops a program has before op.
func deltaOps(p *plan.Program, op int) int {
	n := 0
	for i := range op {
		if p.Ops[i].Kind == plan.DeltaOp {
			n++
		}
	}
	return n
}
