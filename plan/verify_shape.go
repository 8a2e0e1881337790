package plan

import "fmt"

// table checks the slot table: what the session lends and expects back under each role.
func (v *verifier) table() {
	p := v.prog
	var held [NumRoles]int32 // 1 + slot
	for i := range p.Slots {
		s := &p.Slots[i]
		switch {
		case s.Role >= NumRoles:
			v.fail(badHome, -1, -1, "slot %d has role %d: there are %d", i, s.Role, NumRoles)
		case s.Role != Scratch && held[s.Role] > 0:
			v.fail(badHome, -1, -1, "slots %d and %d have one role, %v", held[s.Role]-1, i, s.Role)
		case s.Role == Scratch && (s.In || s.Keep):
			v.fail(badHome, -1, -1, "slot %d is scratch and live-in or kept: give it a role", i)
		case s.Role != Scratch:
			held[s.Role] = int32(i) + 1
			v.roleSlot(i, s)
		}
	}
	q, k := v.hdr.HomeQ[p.Rank], v.hdr.HomeK[p.Rank]
	need := func(r Role, set SetID) {
		if v.sets[set].rows > 0 && held[r] == 0 {
			v.fail(badHome, -1, -1, "no slot keeps %v: the result has no place", r)
		}
	}
	switch {
	case v.hdr.Collective():
		need(SumOut, k)
	case p.Pass == Forward:
		need(HomeOut, q)
	default:
		need(HomeDQ, q)
		need(HomeDKV, k)
	}
}

// roleSlot checks one slot of the session.
func (v *verifier) roleSlot(i int, s *Slot) {
	p, h := v.prog, v.hdr
	in, keep := lent(p.Pass, s.Role)
	if h.Collective() {
		in, keep = p.Pass == Forward && s.Role == VecIn, p.Pass == Forward && s.Role == SumOut
	}
	switch {
	case s.In && !in:
		v.fail(badHome, -1, -1, "slot %d: %v is not there when a %v pass starts", i, s.Role, p.Pass)
	case s.In && !s.Keep:
		v.fail(badHome, -1, -1, "slot %d: live-in %v is the session's and must be kept", i, s.Role)
	case !s.In && !(s.Keep && keep):
		v.fail(badHome, -1, -1, "slot %d: a %v pass makes no %v to keep", i, p.Pass, s.Role)
	case !v.known(s.Set) || s.Tensor != roleOf(s.Role):
		v.fail(badHome, -1, -1, "slot %d of role %v holds %v of token set %d", i, s.Role, s.Tensor,
			s.Set)
	default:
		r := region{s.Set, s.Heads}
		all := h.AllHeads(s.Tensor)
		if !s.Heads.Within(all) || s.Heads.Len() < 0 {
			v.fail(badHome, -1, -1, "slot %d: heads %d to %d of %d", i, s.Heads.Lo, s.Heads.Hi,
				all.Hi)
			return
		}
		own := region{h.HomeQ[p.Rank], all}
		if s.Tensor.keyed() {
			own.set = h.HomeK[p.Rank]
		}
		if s.Role == VecIn {
			own.heads = s.Heads // who brings what is a matter of all ranks: see brought
		}
		if (s.Role < HeadQ || s.Role > HeadOut) && !v.equal(r, own) {
			v.fail(badHome, -1, -1, "slot %d of role %v: its block is %s, the rank's own is %s", i,
				s.Role, v.say(s.Tensor, r), v.say(s.Tensor, own))
		}
		if need := v.bytes(s.Tensor, r); s.In && need > s.Bytes {
			v.fail(badSlot, -1, -1, "slot %d of %d bytes: live-in %s needs %d", i, s.Bytes,
				v.say(s.Tensor, r), need)
		}
	}
}

// lent tells whether a role's block may be there when a pass of attention starts, or be made and
// kept by it.
func lent(pass Pass, r Role) (in, keep bool) {
	switch r {
	case HomeQ, HomeKV:
		return true, false
	case HomeDO:
		return pass == Backward, false
	case HomeOut, HeadQ, HeadKV, HeadOut:
		return pass == Backward, pass == Forward
	case HomeDQ, HomeDKV:
		return false, pass == Backward
	}
	return false, false
}

// roleOf is the tensor that a role's slot holds.
func roleOf(r Role) Tensor {
	switch r {
	case HomeKV, HeadKV:
		return KV
	case HomeOut, HeadOut:
		return Out
	case HomeDO:
		return DO
	case HomeDQ:
		return DQ
	case HomeDKV:
		return DKV
	case VecIn:
		return Vec
	case SumOut:
		return Sum
	}
	return Q
}

func (v *verifier) bytes(t Tensor, r region) int64 {
	return v.hdr.Bytes(t, v.sets[r.set].rows, r.heads.Len())
}

// shapes checks each op by itself: operands in range, none empty, and what its kind asks for.
func (v *verifier) shapes() {
	p := v.prog
	v.seen = grow(v.seen, len(p.Slots))
	clear(v.seen)
	v.stamp = 0
	for i := range p.Ops {
		op, args := &p.Ops[i], p.Args(i)
		if op.Kind >= numKinds {
			v.fail(badSlot, int32(i), -1, "its kind is %d: there are %d", op.Kind, numKinds)
			continue
		}
		kind, why := v.operands(op, args)
		if why == "" && op.Kind.Link() {
			kind, why = v.link(op)
		}
		if why == "" {
			kind, why = v.form(op.Kind, args)
		}
		if why != "" {
			v.fail(kind, int32(i), -1, "%s", why)
		}
	}
}

// operands checks each operand by itself, and that no slot comes twice.
func (v *verifier) operands(op *Op, args []Operand) (kind, why string) {
	v.stamp++
	for k := range args {
		a := &args[k]
		switch {
		case a.Slot < 0 || int(a.Slot) >= len(v.prog.Slots):
			return badSlot, fmt.Sprintf("slot %d: there are %d", a.Slot, len(v.prog.Slots))
		case !v.known(a.Set):
			return badSlot, fmt.Sprintf("token set %d: there are %d", a.Set, len(v.sets))
		case a.Tensor >= numTensors || a.Access > HandOn:
			return badSlot, fmt.Sprintf("operand %d has tensor %d, access %d", k, a.Tensor,
				a.Access)
		case a.Tensor.collective() != v.hdr.Collective():
			return badSlot, fmt.Sprintf("operand %d is %v: vec and sum belong to collectives, the "+
				"others to attention", k, a.Tensor)
		case v.sets[a.Set].rows == 0 || a.Heads.Lo >= a.Heads.Hi:
			return badSlot, fmt.Sprintf("operand %d is empty: leave the op out, since nothing "+
				"orders a region without cells", k)
		case !a.Heads.Within(v.hdr.AllHeads(a.Tensor)):
			return badSlot, fmt.Sprintf("heads %d to %d of operand %d: %v has %d", a.Heads.Lo,
				a.Heads.Hi, k, a.Tensor, v.hdr.AllHeads(a.Tensor).Hi)
		case v.seen[a.Slot] == v.stamp && op.Kind != Finalize:
			return badSlot, fmt.Sprintf("it names slot %d twice", a.Slot)
		}
		v.seen[a.Slot] = v.stamp
	}
	return "", ""
}

// link checks the ends of a transfer.
func (v *verifier) link(op *Op) (kind, why string) {
	switch {
	case op.Peer < 0 || int(op.Peer) >= v.hdr.Ranks:
		return badPairing, fmt.Sprintf("peer %d: ranks are 0 to %d", op.Peer, v.hdr.Ranks-1)
	case int(op.Peer) == v.prog.Rank:
		return badPairing, "its peer is the rank itself: use pack"
	case op.Lane < 0 || op.Lane >= NumLanes:
		return badPairing, fmt.Sprintf("lane %d: lanes are 0 to %d", op.Lane, NumLanes-1)
	}
	return "", ""
}

// form checks what a kind asks of its operands together.
func (v *verifier) form(k Kind, args []Operand) (kind, why string) {
	if why = arity(k, len(args)); why != "" {
		return badSlot, why
	}
	switch k {
	case Pack:
		why = v.pack(args)
	case Unpack:
		return v.unpack(args)
	case Zero:
		if a := &args[0]; a.Access != Write || !a.Tensor.Linear() {
			why = "zero writes an accumulator: st, dq or dkv"
		} else if a.Tensor == Part || a.Tensor == DKVWire {
			why = fmt.Sprintf("zero starts no %v: it is made of a whole accumulator", a.Tensor)
		}
	case Send:
		if a := &args[0]; a.Access != takes(a.Tensor) || a.Tensor == State {
			why = "send reads a block, or hands on dq or dkv"
		}
	case Recv:
		if a := &args[0]; a.Access != Write || a.Tensor == State {
			why = "recv writes a block, of any tensor but st"
		}
	case Attend:
		why = v.attend(args)
	case AttendBackward:
		why = v.attendBackward(args)
	case DeltaOp:
		if !is(args, 0, DO, Read) || !is(args, 1, Out, Read) || !is(args, 2, Delta, Write) ||
			!v.same(args) || v.prog.Pass != Backward {
			why = "delta reads do and o and writes dl of the same rows, in a backward pass"
		}
	case VisitOp:
		if !is(args, 0, Q, Read) || !is(args, 1, DO, Read) || !is(args, 2, Out, Read) ||
			!is(args, 3, Delta, Read) || !is(args, 4, Visit, Write) || !v.same(args) ||
			v.prog.Pass != Backward {
			why = "visit reads q, do, o and dl and writes a visit of the same rows, in a " +
				"backward pass"
		}
	case Accumulate:
		why = v.accumulate(args)
	case Finalize:
		t := args[1].Tensor
		if !is(args, 0, State, HandOn) || !is(args, 1, t, Write) || (t != Out && t != Part) ||
			!v.same(args) || args[0].Slot != args[1].Slot || v.prog.Pass != Forward {
			why = "finalize turns st into o or part of the same rows, in one slot of a forward pass"
		}
	case Release:
		if args[0].Access != Read {
			why = "release names the block that lives in the slot, as a read"
		}
	}
	return badSlot, why
}

// arity tells in words when a kind has another number of operands.
func arity(k Kind, n int) string {
	want := 1
	switch k {
	case Pack, Accumulate, Finalize:
		want = 2
	case Attend, DeltaOp:
		want = 3
	case VisitOp:
		want = 5
	case AttendBackward:
		if n == 4 || n == 7 {
			return ""
		}
		return fmt.Sprintf("it has %d operands: attend-bwd has 7, or 4 with a visit", n)
	case Unpack:
		if n >= 2 {
			return ""
		}
		return fmt.Sprintf("it has %d operands: unpack has a source or more and its result", n)
	}
	if n == want {
		return ""
	}
	return fmt.Sprintf("it has %d operands: %v has %d", n, k, want)
}

// takes is how content is taken out of a block.
func takes(t Tensor) Access {
	if t.Linear() {
		return HandOn
	}
	return Read
}

func is(args []Operand, i int, t Tensor, a Access) bool {
	return args[i].Tensor == t && args[i].Access == a
}

// same tells whether all operands are of the same rows and heads.
func (v *verifier) same(args []Operand) bool {
	for i := 1; i < len(args); i++ {
		if !v.equal(regionOf(&args[0]), regionOf(&args[i])) {
			return false
		}
	}
	return true
}

// moves checks that sources are taken and the result written, of one tensor that is not st.
func (v *verifier) moves(srcs []Operand, dst *Operand, fit bool) string {
	for i := range srcs {
		if srcs[i].Tensor != dst.Tensor || srcs[i].Access != takes(dst.Tensor) {
			return fmt.Sprintf("source %d is not of %v, read or (if an accumulator) handed on", i,
				dst.Tensor)
		}
	}
	switch {
	case dst.Access != Write || dst.Tensor == State:
		return "its result is written, and is no st"
	case !fit:
		return "its result is not of the source's rows and heads"
	}
	return ""
}

// pack copies a region, or rounds the sums of dkv for the way.
func (v *verifier) pack(args []Operand) string {
	if !is(args, 0, DKV, HandOn) || !is(args, 1, DKVWire, Write) {
		return v.moves(args[:1], &args[1], v.same(args))
	}
	if !v.same(args) {
		return "its result is not of the source's rows and heads"
	}
	return ""
}

func (v *verifier) unpack(args []Operand) (kind, why string) {
	srcs, dst := args[:len(args)-1], &args[len(args)-1]
	if dst.Tensor == Sum && srcs[0].Tensor == Vec {
		return v.sums(srcs, dst)
	}
	if why = v.moves(srcs, dst, true); why != "" {
		return badSlot, why
	}
	r := regionOf(dst)
	if dst.Tensor == DKV {
		if !v.covers(srcs, r) {
			return badHome, "its sources do not cover its result, or reach beyond it"
		}
		return "", ""
	}
	if !v.exact(srcs, r) {
		return badHome, "its sources are not each cell of its result once"
	}
	return "", ""
}

// sums: every contributor's part of every element of the result is added once, in the order of
// contributors.
func (v *verifier) sums(srcs []Operand, dst *Operand) (kind, why string) {
	for i := range srcs {
		switch a := &srcs[i]; {
		case a.Tensor != Vec || a.Access != Read:
			return badSlot, fmt.Sprintf("source %d is not of vec, read", i)
		case i > 0 && a.Heads.Lo < srcs[i-1].Heads.Lo:
			return badHome, fmt.Sprintf("contributor %d is added after %d: add in rising order",
				a.Heads.Lo, srcs[i-1].Heads.Lo)
		}
	}
	switch {
	case dst.Access != Write:
		return badSlot, "its result is written"
	case !v.exact(srcs, region{dst.Set, v.hdr.AllHeads(Vec)}):
		return badHome, "its sources are not each contribution to each element of its result once"
	}
	return "", ""
}

// attend: r q, r kv, + state.
func (v *verifier) attend(args []Operand) string {
	switch {
	case v.prog.Pass != Forward:
		return "attend belongs to a forward pass"
	case !is(args, 0, Q, Read) || !is(args, 1, KV, Read) || !is(args, 2, State, Add):
		return "attend reads q and kv and adds to st"
	case !v.equal(regionOf(&args[0]), regionOf(&args[2])):
		return "q and st are not of the same rows and heads"
	}
	return v.serves(args)
}

// accumulate: c partial, + acc.
func (v *verifier) accumulate(args []Operand) string {
	from, to := args[0].Tensor, args[1].Tensor
	alike := from == to && (to == DQ || to == DKV)
	switch {
	case !alike && !(from == DKVWire && to == DKV) && !(from == Part && to == State):
		return "accumulate adds dq to dq, dkv or dkvw to dkv, or part to st"
	case args[0].Access != HandOn || args[1].Access != Add || !v.same(args):
		return "accumulate hands a partial on to the same rows and heads of an accumulator"
	}
	return ""
}

// attendBackward: r q kv do out delta or r visit kv, + dq, w|+ dkv.
func (v *verifier) attendBackward(args []Operand) string {
	n := len(args) - 2
	dq, dkv := &args[n], &args[n+1]
	switch {
	case v.prog.Pass != Backward:
		return "attend-bwd belongs to a backward pass"
	case dq.Tensor != DQ || dq.Access != Add || dkv.Tensor != DKV ||
		(dkv.Access != Write && dkv.Access != Add):
		return "attend-bwd adds to dq, and writes a partial dkv or adds to one"
	case n == 2 && (!is(args, 0, Visit, Read) || !is(args, 1, KV, Read)):
		return "attend-bwd of 4 operands reads a visit and kv"
	case n == 5 && (!is(args, 0, Q, Read) || !is(args, 1, KV, Read) || !is(args, 2, DO, Read) ||
		!is(args, 3, Out, Read) || !is(args, 4, Delta, Read)):
		return "attend-bwd of 7 operands reads q, kv, do, o and dl"
	case !v.same(args[2:n+1]) || !v.equal(regionOf(&args[0]), regionOf(dq)):
		return "q, do, o, dl and dq are not of the same rows and heads"
	case !v.equal(regionOf(&args[1]), regionOf(dkv)):
		return "kv and dkv are not of the same rows and heads"
	}
	return v.serves(args)
}

// serves checks that the kv heads at hand are all that the query heads read.
func (v *verifier) serves(args []Operand) string {
	if need := v.hdr.KVHeads(args[0].Heads); !need.Within(args[1].Heads) {
		return fmt.Sprintf("query heads %d:%d read kv heads %d:%d, at hand are %d:%d",
			args[0].Heads.Lo, args[0].Heads.Hi, need.Lo, need.Hi, args[1].Heads.Lo,
			args[1].Heads.Hi)
	}
	return ""
}
