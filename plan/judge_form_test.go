package plan_test

import (
	"fmt"
	"math/bits"

	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// keyed tells whether a tensor's rows are keys and its heads KV heads.
func keyed(t plan.Tensor) bool {
	return t == plan.KV || t == plan.DKV || t == plan.DKVWire
}

// axis is the sequence that a tensor's rows are of.
func (j *judge) axis(t plan.Tensor) *atoms {
	if keyed(t) {
		return &j.k
	}
	return &j.q
}

// rows are the atoms of an operand.
func (j *judge) rows(a *plan.Operand) uint64 { return j.axis(a.Tensor).set[a.Set] }

// homes checks that each sequence is at home exactly once.
func (j *judge) homes() error {
	for _, x := range []struct {
		name string
		ids  []plan.SetID
		a    *atoms
	}{{"query", j.hdr.HomeQ, &j.q}, {"key", j.hdr.HomeK, &j.k}} {
		have := uint64(0)
		for r, id := range x.ids {
			if x.a.wrong[id] || have&x.a.set[id] != 0 {
				return fmt.Errorf("rank %d has %s tokens at home that others have, or nobody",
					r, x.name)
			}
			have |= x.a.set[id]
		}
		if bits.OnesCount64(have) != x.a.n {
			return fmt.Errorf("some %s tokens are at home nowhere", x.name)
		}
	}
	return nil
}

// roleTensor is the tensor of a session slot.
func roleTensor(r plan.Role) plan.Tensor {
	return [...]plan.Tensor{
		plan.HomeQ: plan.Q, plan.HomeKV: plan.KV, plan.HomeOut: plan.Out, plan.HomeDO: plan.DO,
		plan.HomeDQ: plan.DQ, plan.HomeDKV: plan.DKV, plan.HeadQ: plan.Q, plan.HeadKV: plan.KV,
		plan.HeadOut: plan.Out, plan.VecIn: plan.Vec, plan.SumOut: plan.Sum,
	}[r]
}

// slotForms checks a slot table: one slot a role, live-in and live-out only with a role, and room
// for what is said to live there.
func (j *judge) slotForms(prog *plan.Program, rank int, pass plan.Pass) error {
	seen := [plan.NumRoles]bool{}
	for i := range prog.Slots {
		s := &prog.Slots[i]
		name := fmt.Sprintf("%s rank %d slot %d", pass, rank, i)
		if s.Role == plan.Scratch {
			if s.In || s.Keep {
				return fmt.Errorf("%s: scratch cannot be live-in or live-out", name)
			}
			continue
		}
		if s.Role >= plan.NumRoles || seen[s.Role] {
			return fmt.Errorf("%s: role %d is given twice or is none", name, s.Role)
		}
		seen[s.Role] = true
		if s.Tensor != roleTensor(s.Role) {
			return fmt.Errorf("%s: role %v with tensor %v", name, s.Role, s.Tensor)
		}
		if int(s.Set) >= len(j.hdr.Sets) || j.axis(s.Tensor).wrong[s.Set] {
			return fmt.Errorf("%s: no such set %d", name, s.Set)
		}
		if s.Heads.Lo < 0 || !s.Heads.Within(j.hdr.AllHeads(s.Tensor)) {
			return fmt.Errorf("%s: no such heads %v", name, s.Heads)
		}
		n := j.hdr.Bytes(s.Tensor, j.hdr.Sets[s.Set].Len(), s.Heads.Len())
		if s.In && n > s.Bytes {
			return fmt.Errorf("%s: its block has %d bytes, the slot %d", name, n, s.Bytes)
		}
	}
	return nil
}

// form checks what can be seen of an op alone: that a device or link could do it at all.
func (j *judge) form(prog *plan.Program, op *judgeOp, o *plan.Op) error {
	for i := range op.args {
		a := &op.args[i]
		switch {
		case a.Slot < 0 || int(a.Slot) >= len(prog.Slots):
			return fmt.Errorf("operand %d: no slot %d", i, a.Slot)
		case a.Set < 0 || int(a.Set) >= len(j.hdr.Sets) || j.axis(a.Tensor).wrong[a.Set]:
			return fmt.Errorf("operand %d: no such tokens", i)
		case j.rows(a) == 0 || a.Heads.Len() <= 0:
			return fmt.Errorf("operand %d is empty", i)
		case !a.Heads.Within(j.hdr.AllHeads(a.Tensor)):
			return fmt.Errorf("operand %d: no such heads %v", i, a.Heads)
		}
		for b := range i {
			if op.args[b].Slot == a.Slot && op.kind != plan.Finalize {
				return fmt.Errorf("slot %d twice", a.Slot)
			}
		}
		if a.Tensor.Linear() && a.Access == plan.Read && op.kind != plan.Release {
			return fmt.Errorf("operand %d reads an accumulator", i)
		}
		if !a.Tensor.Linear() && (a.Access == plan.Add || a.Access == plan.HandOn) {
			return fmt.Errorf("operand %d adds to or consumes an immutable block", i)
		}
	}
	if op.kind.Link() && (o.Peer < 0 || int(o.Peer) >= j.hdr.Ranks) {
		return fmt.Errorf("no rank %d", o.Peer)
	}
	if !j.operands(op) {
		return fmt.Errorf("operands of the wrong kind: %v", op.args)
	}
	return nil
}

// operands checks number, tensors, accesses and frames of an op's operands.
func (j *judge) operands(op *judgeOp) bool {
	a := op.args
	give := func(i int) bool { return a[i].Access == plan.Read || a[i].Access == plan.HandOn }
	is := func(i int, t plan.Tensor, x plan.Access) bool {
		return a[i].Tensor == t && a[i].Access == x
	}
	switch op.kind {
	case plan.Pack:
		return len(a) == 2 && give(0) && a[1].Access == plan.Write && j.same(&a[0], &a[1]) &&
			(a[0].Tensor == a[1].Tensor || a[0].Tensor == plan.DKV && a[1].Tensor == plan.DKVWire)
	case plan.Unpack:
		for i := range len(a) - 1 {
			if !give(i) {
				return false
			}
		}
		return len(a) >= 2 && a[len(a)-1].Access == plan.Write && j.together(a)
	case plan.Zero:
		return len(a) == 1 && (is(0, plan.State, plan.Write) || is(0, plan.DQ, plan.Write) ||
			is(0, plan.DKV, plan.Write))
	case plan.Send:
		return len(a) == 1 && give(0)
	case plan.Recv:
		return len(a) == 1 && a[0].Access == plan.Write
	case plan.Attend:
		return len(a) == 3 && is(0, plan.Q, plan.Read) && is(1, plan.KV, plan.Read) &&
			is(2, plan.State, plan.Add) && j.same(&a[0], &a[2]) && j.serves(&a[0], &a[1])
	case plan.AttendBackward:
		return j.gradients(a)
	case plan.VisitOp:
		return len(a) == 5 && is(0, plan.Q, plan.Read) && is(1, plan.DO, plan.Read) &&
			is(2, plan.Out, plan.Read) && is(3, plan.Delta, plan.Read) &&
			is(4, plan.Visit, plan.Write) && j.same(&a[0], &a[1]) && j.same(&a[0], &a[2]) &&
			j.same(&a[0], &a[3]) && j.same(&a[0], &a[4])
	case plan.DeltaOp:
		return len(a) == 3 && is(0, plan.DO, plan.Read) && is(1, plan.Out, plan.Read) &&
			is(2, plan.Delta, plan.Write) && j.same(&a[0], &a[1]) && j.same(&a[0], &a[2])
	case plan.Accumulate:
		return len(a) == 2 && a[0].Access == plan.HandOn && a[1].Access == plan.Add &&
			adds(a[0].Tensor, a[1].Tensor) && j.same(&a[0], &a[1])
	case plan.Finalize:
		return len(a) == 2 && is(0, plan.State, plan.HandOn) && a[1].Access == plan.Write &&
			(a[1].Tensor == plan.Out || a[1].Tensor == plan.Part) && a[0].Slot == a[1].Slot &&
			j.same(&a[0], &a[1])
	case plan.Release:
		return len(a) == 1 && a[0].Access == plan.Read
	}
	return false
}

// adds tells whether a device adds a partial of one tensor to an accumulator of another.
func adds(partial, acc plan.Tensor) bool {
	switch partial {
	case plan.DQ, plan.DKV:
		return acc == partial
	case plan.DKVWire:
		return acc == plan.DKV
	case plan.Part:
		return acc == plan.State
	}
	return false
}

// gradients checks the operands of the two forms of attend-bwd: what it needs of the queries in
// five blocks, or all of it in one that visits.
func (j *judge) gradients(a []plan.Operand) bool {
	needs := []plan.Tensor{plan.Q, plan.KV, plan.DO, plan.Out, plan.Delta}
	if len(a) == 4 {
		needs = []plan.Tensor{plan.Visit, plan.KV}
	}
	n := len(needs)
	if len(a) != n+2 {
		return false
	}
	for i, t := range needs {
		if a[i].Tensor != t || a[i].Access != plan.Read || i > 1 && !j.same(&a[0], &a[i]) {
			return false
		}
	}
	dq, dkv := &a[n], &a[n+1]
	return dq.Tensor == plan.DQ && dq.Access == plan.Add && dkv.Tensor == plan.DKV &&
		(dkv.Access == plan.Write || dkv.Access == plan.Add) && j.same(&a[0], dq) &&
		j.same(&a[1], dkv) && j.serves(&a[0], &a[1])
}

// same tells whether two operands have the same rows and heads.
func (j *judge) same(a, b *plan.Operand) bool {
	return j.rows(a) == j.rows(b) && a.Heads == b.Heads
}

// serves tells whether block kv has every KV head that the query heads of q read.
func (j *judge) serves(q, kv *plan.Operand) bool {
	g := int32(j.group)
	need := mesh.Heads{Lo: q.Heads.Lo / g, Hi: (q.Heads.Hi-1)/g + 1}
	return need.Within(kv.Heads)
}

// together tells whether the sources of an unpack make up its last operand: each row and head
// once, of dKV also more often.
func (j *judge) together(a []plan.Operand) bool {
	dst := &a[len(a)-1]
	for h := dst.Heads.Lo; h < dst.Heads.Hi; h++ {
		have := uint64(0)
		for i := range len(a) - 1 {
			src := &a[i]
			rows := j.rows(src)
			if src.Tensor != dst.Tensor || !src.Heads.Within(dst.Heads) || rows&^j.rows(dst) != 0 {
				return false
			}
			if h < src.Heads.Lo || h >= src.Heads.Hi {
				continue
			}
			if dst.Tensor != plan.DKV && have&rows != 0 {
				return false
			}
			have |= rows
		}
		if have != j.rows(dst) {
			return false
		}
	}
	return true
}
