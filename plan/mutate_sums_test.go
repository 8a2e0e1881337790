package plan_test

import (
	"fmt"
	"slices"

	"github.com/kvloom/kvloom/plan"
)

// changeTensor changes an operand's tensor, of a transfer at times at both ends: a rounded sum for
// an accumulator, a part for a state, a visit for queries.
func (e *edit) changeTensor(at place) string {
	op := e.op(at)
	k := e.rng.IntN(len(op.args))
	old := op.args[k].Tensor
	op.args[k].Tensor = plan.Tensor(e.rng.IntN(int(plan.DKVWire) + 1))
	what := fmt.Sprintf("%s operand %d: tensor %v instead of %v", e.name(at), k,
		op.args[k].Tensor, old)
	e.around(at)
	if mate, ok := e.mate(at); ok && e.rng.IntN(2) == 0 {
		e.op(mate).args[0].Tensor = op.args[k].Tensor
		what += ", at both ends"
	}
	return what
}

// remake does once more what an op does, with a result in a slot of its own that nobody uses. Of a
// delta this is a share of the sink's gradient too many.
func (e *edit) remake(at place) string {
	d := e.prog(at.pass, at.rank)
	for range d.ops {
		if k := d.ops[at.op].Kind; k == plan.DeltaOp || k == plan.VisitOp || k == plan.Pack {
			break
		}
		at.op = (at.op + 1) % len(d.ops)
	}
	again := d.ops[at.op]
	if k := again.Kind; k != plan.DeltaOp && k != plan.VisitOp && k != plan.Pack {
		return ""
	}
	again.args = slices.Clone(again.args)
	made := &again.args[len(again.args)-1]
	if made.Tensor.Linear() {
		return "" // what its source had is handed on already
	}
	what := e.name(at)
	d.slots = append(d.slots, plan.Slot{Bytes: d.slots[made.Slot].Bytes})
	made.Slot = int32(len(d.slots) - 1)
	n := int32(len(d.ops))
	again.deps = append(slices.Clone(again.deps), int32(at.op))
	gone := draftOp{Op: plan.Op{Kind: plan.Release, Peer: -1}, deps: []int32{n},
		args: []plan.Operand{*made}}
	gone.args[0].Access = plan.Read
	d.ops = append(d.ops, again, gone)
	e.orderReleases(at, n)
	e.near = append(e.near, place{at.pass, at.rank, int(n)})
	e.around(at)
	return what + " made again in another slot"
}

// orderReleases lets the releases of what op n of a program reads wait for it.
func (e *edit) orderReleases(at place, n int32) {
	d := e.prog(at.pass, at.rank)
	for i := range d.ops {
		op := &d.ops[i]
		if op.Kind != plan.Release || int32(i) > n || !slices.Contains(op.deps, int32(at.op)) {
			continue
		}
		for _, a := range d.ops[n].args {
			if a.Slot == op.args[0].Slot {
				op.deps = append(op.deps, n)
			}
		}
	}
}

// mergeElsewhere exchanges what two ops that add, or hand on, do it to: a part is merged twice and
// another never, a sum is sent for another.
func (e *edit) mergeElsewhere(at place) string {
	d := e.prog(at.pass, at.rank)
	merges := func(i int) bool {
		k := d.ops[i].Kind
		return k == plan.Accumulate || k == plan.Pack && d.ops[i].args[0].Tensor.Linear()
	}
	var all []int
	for i := range d.ops {
		if merges(i) {
			all = append(all, i)
		}
	}
	if len(all) == 0 {
		return ""
	}
	i, j := all[e.rng.IntN(len(all))], all[e.rng.IntN(len(all))]
	a, b := &d.ops[i], &d.ops[j]
	k := e.rng.IntN(2)
	e.around(place{at.pass, at.rank, i})
	e.around(place{at.pass, at.rank, j})
	if i == j {
		// Into a region of its own accumulator that is not the partial's.
		a.args[1].Set = e.otherSet(a.args[1].Set)
		return fmt.Sprintf("%s adds to other rows", e.name(place{at.pass, at.rank, i}))
	}
	if e.rng.IntN(2) == 0 {
		a.args[k] = b.args[k]
		return fmt.Sprintf("%s has operand %d of op %d", e.name(place{at.pass, at.rank, i}), k, j)
	}
	a.args[k], b.args[k] = b.args[k], a.args[k]
	return fmt.Sprintf("%s and op %d exchange operand %d", e.name(place{at.pass, at.rank, i}), j, k)
}
