package plan

// life is what lives in a slot at one point of the walk, and who used it. One walk in any order
// that respects the graph will do: conflicting uses are checked to be ordered, so every such order
// meets them alike.
type life struct {
	live   bool
	tensor Tensor
	frame  region
	born   int32 // the op that wrote the frame, -1 for live-in
	freed  int32 // the op that ended the life before, -1 if none
	via    int32 // a later use, known to come after born
	given  uint64
	reads  []use // that no later read stands for
	adds   []use // that no later add stands for
	chain  int   // so many adds, the first of the list, come before lead or are it
	lead   int32
	gifts  []use // what was handed on
}

// use is one op's use of a region.
type use struct {
	op   int32
	what region
}

// begin starts a life, keeping the lists' room.
func (l *life) begin(born int32, t Tensor, frame region) {
	*l = life{live: true, tensor: t, frame: frame, born: born, freed: l.freed, via: -1,
		reads: l.reads[:0], adds: l.adds[:0], gifts: l.gifts[:0]}
}

// open sets the slots up as a round finds them.
func (v *verifier) open() {
	slots := v.prog.Slots
	v.lives = grow(v.lives, len(slots))
	for i := range slots {
		l := &v.lives[i]
		l.freed = -1
		l.begin(-1, slots[i].Tensor, region{slots[i].Set, slots[i].Heads})
		l.live = slots[i].In
	}
}

// uses checks what op i does to its slots.
func (v *verifier) uses(i int32) {
	args := v.prog.Args(int(i))
	switch v.prog.Ops[i].Kind {
	case Release:
		v.release(i, &args[0])
	case Finalize:
		v.finalize(i, args)
	default:
		for k := range args {
			a := &args[k]
			switch a.Access {
			case Write:
				v.write(i, a)
			case Read:
				v.read(i, a)
			case Add:
				v.add(i, a)
			case HandOn:
				v.handOn(i, a)
			}
		}
	}
}

func (v *verifier) write(i int32, a *Operand) {
	l := &v.lives[a.Slot]
	switch {
	case l.live:
		v.fail(badSlot, i, l.born, "it writes slot %d, where %s lives", a.Slot,
			v.say(l.tensor, l.frame))
	case l.freed >= 0 && !v.after(l.freed, i):
		v.fail(badOrder, i, l.freed, "it writes slot %d and does not wait for its release", a.Slot)
	}
	v.bear(i, a)
}

// bear begins a life that op i writes.
func (v *verifier) bear(i int32, a *Operand) {
	r := regionOf(a)
	if need, has := v.bytes(a.Tensor, r), v.prog.Slots[a.Slot].Bytes; need > has {
		v.fail(badSlot, i, -1, "slot %d has %d bytes, %s needs %d", a.Slot, has,
			v.say(a.Tensor, r), need)
	}
	v.lives[a.Slot].begin(i, a.Tensor, r)
}

// holds checks that the operand lies in what lives in its slot, and comes after it was written.
func (v *verifier) holds(i int32, a *Operand) bool {
	l := &v.lives[a.Slot]
	switch {
	case !l.live && l.freed >= 0:
		v.fail(badSlot, i, l.freed, "nothing lives in slot %d any more", a.Slot)
	case !l.live:
		v.fail(badSlot, i, -1, "nothing lives in slot %d yet", a.Slot)
	case l.tensor != a.Tensor || !v.inside(regionOf(a), l.frame):
		v.fail(badSlot, i, l.born, "%s does not lie in %s, which lives in slot %d",
			v.say(a.Tensor, regionOf(a)), v.say(l.tensor, l.frame), a.Slot)
	case !v.afterBirth(l, i):
		v.fail(badOrder, i, l.born, "it uses slot %d and does not wait for the op that wrote it",
			a.Slot)
	default:
		l.via = i
		return true
	}
	return false
}

// afterBirth tells whether op i comes after the write of a life. A chain of users, such as the
// attends of a ring, is as long as the ring; the last user is near.
func (v *verifier) afterBirth(l *life, i int32) bool {
	if l.born < 0 {
		return true
	}
	for _, d := range v.prog.Deps(int(i)) {
		if d == l.born || d == l.via {
			return true
		}
	}
	return l.via >= 0 && v.after(l.via, i) || v.after(l.born, i)
}

func (v *verifier) read(i int32, a *Operand) {
	if !v.holds(i, a) || v.prog.Slots[a.Slot].Keep {
		return // nothing conflicts with reads of a block that is never given up
	}
	l, r := &v.lives[a.Slot], regionOf(a)
	if n := len(l.reads); n > 0 && v.inside(l.reads[n-1].what, r) && v.after(l.reads[n-1].op, i) {
		l.reads[n-1] = use{i, r}
		return
	}
	l.reads = append(l.reads, use{i, r})
}

func (v *verifier) add(i int32, a *Operand) {
	if !v.holds(i, a) {
		return
	}
	l, r := &v.lives[a.Slot], regionOf(a)
	for _, g := range l.gifts {
		if v.meets(g.what, r) {
			v.fail(badSlot, i, g.op, "it adds to %s in slot %d, of which some is handed on already",
				v.say(a.Tensor, r), a.Slot)
			break
		}
	}
	v.afterAdds(i, a)
	chained := v.afterChain(l, i)
	for _, u := range l.adds[l.chain:] {
		chained = chained && v.after(u.op, i)
	}
	kept, chain := l.adds[:0], 0
	for n, u := range l.adds {
		if !v.standsFor(r, u.what, l) {
			kept = append(kept, u)
			if n < l.chain {
				chain++
			}
		}
	}
	l.adds, l.chain = append(kept, use{i, r}), chain
	if chained {
		l.chain, l.lead = len(l.adds), i
	}
}

// standsFor tells whether an add to r stands for one to u in the same life: where r is the same
// rows or all of them, with all heads of u.
func (v *verifier) standsFor(r, u region, l *life) bool {
	same := v.sets[r.set].same
	return u.heads.Within(r.heads) &&
		(same == v.sets[u.set].same || same == v.sets[l.frame.set].same)
}

// afterChain tells whether op i comes after the chain of adds of a life: if after lead, after all.
// So an accumulator of as many regions as ranks is not looked at region by region.
func (v *verifier) afterChain(l *life, i int32) bool {
	return l.chain == 0 || v.after(l.lead, i)
}

// afterAdds checks that op i comes after all adds to cells that it touches.
func (v *verifier) afterAdds(i int32, a *Operand) {
	l, r := &v.lives[a.Slot], regionOf(a)
	adds := l.adds
	if v.afterChain(l, i) {
		adds = adds[l.chain:]
	}
	for _, u := range adds {
		if v.meets(u.what, r) && !v.after(u.op, i) {
			v.fail(badOrder, i, u.op, "it uses %s in slot %d and does not wait for an op that "+
				"adds to it", v.say(a.Tensor, r), a.Slot)
		}
	}
}

func (v *verifier) handOn(i int32, a *Operand) {
	if !v.holds(i, a) {
		return
	}
	l := &v.lives[a.Slot]
	if v.prog.Slots[a.Slot].Keep {
		v.fail(badHome, i, l.born, "it hands on %s out of slot %d, where it is to stay",
			v.say(l.tensor, l.frame), a.Slot)
	}
	v.afterAdds(i, a)
	r := regionOf(a)
	l.given = fadd(l.given, v.sum(r))
	l.gifts = append(l.gifts, use{i, r})
}

// finalize ends the life of a state, all of it, and begins that of out in the same slot.
func (v *verifier) finalize(i int32, args []Operand) {
	a := &args[0]
	if v.holds(i, a) {
		l := &v.lives[a.Slot]
		if !v.equal(regionOf(a), l.frame) {
			v.fail(badSlot, i, l.born, "it finalises %s of %s, which lives in slot %d",
				v.say(State, regionOf(a)), v.say(State, l.frame), a.Slot)
		}
		v.afterAdds(i, a)
	}
	v.bear(i, &args[1])
}

// release ends a life: after all its uses, and for an accumulator when every cell is handed on.
func (v *verifier) release(i int32, a *Operand) {
	l := &v.lives[a.Slot]
	switch {
	case !l.live && l.freed >= 0:
		v.fail(badSlot, i, l.freed, "slot %d is released already", a.Slot)
		return
	case !l.live:
		v.fail(badSlot, i, -1, "nothing lives in slot %d", a.Slot)
		return
	case v.prog.Slots[a.Slot].Keep:
		v.fail(badHome, i, l.born, "slot %d is the session's and to be kept", a.Slot)
		return
	case l.tensor != a.Tensor || !v.equal(regionOf(a), l.frame):
		v.fail(badSlot, i, l.born, "it names %s, in slot %d lives %s",
			v.say(a.Tensor, regionOf(a)), a.Slot, v.say(l.tensor, l.frame))
	}
	used := false
	for _, uses := range [...][]use{l.reads, l.adds, l.gifts} {
		for _, u := range uses {
			used = true
			if !v.after(u.op, i) {
				v.fail(badOrder, i, u.op, "it releases slot %d and does not wait for an op that "+
					"uses it", a.Slot)
			}
		}
	}
	if !used && !v.after(l.born, i) {
		v.fail(badOrder, i, l.born, "it releases slot %d and does not wait for the op that "+
			"wrote it", a.Slot)
	}
	if l.tensor.Linear() && l.given != v.sum(l.frame) {
		v.unbalanced(i, a.Slot)
	}
	l.live, l.freed = false, i
}

// unbalanced names what was handed on twice or never when the accumulator of a slot is given up.
func (v *verifier) unbalanced(i int32, slot int32) {
	l := &v.lives[slot]
	cells := 0
	for k, g := range l.gifts {
		cells += v.sets[g.what.set].rows * g.what.heads.Len()
		for _, before := range l.gifts[max(0, k-maxGiftPairs):k] {
			if v.meets(before.what, g.what) {
				v.fail(badSlot, g.op, before.op, "it hands on %s out of slot %d, of which some is "+
					"handed on already", v.say(l.tensor, g.what), slot)
				return
			}
		}
	}
	v.fail(badSlot, i, l.born, "of %s in slot %d, %d of %d rows times heads are handed on",
		v.say(l.tensor, l.frame), slot, cells, v.sets[l.frame.set].rows*l.frame.heads.Len())
}

// maxGiftPairs bounds the search for two that hand on the same cells.
const maxGiftPairs = 256

// ends checks the slots at the end of the round.
func (v *verifier) ends() {
	for i := range v.lives {
		l, s := &v.lives[i], &v.prog.Slots[i]
		frame := region{s.Set, s.Heads}
		switch {
		case l.live && !s.Keep:
			v.fail(badSlot, l.born, -1, "slot %d still holds %s at the end: release it", i,
				v.say(l.tensor, l.frame))
		case s.Keep && !l.live && v.sets[s.Set].rows*s.Heads.Len() > 0:
			v.fail(badHome, -1, -1, "slot %d (%v) has no block at the end, %s is expected", i,
				s.Role, v.say(s.Tensor, frame))
		case s.Keep && l.live && (l.tensor != s.Tensor || !v.equal(l.frame, frame)):
			v.fail(badHome, l.born, -1, "slot %d (%v) holds %s at the end, %s is expected", i,
				s.Role, v.say(l.tensor, l.frame), v.say(s.Tensor, frame))
		}
	}
}

// live compares what the backward pass of a rank expects with what the forward pass keeps. Home
// slots need no comparing: their blocks follow from the header.
func (v *verifier) live(forward, backward *Program) []Violation {
	v.prog, v.found, v.kept = backward, 0, nil
	for role := HeadQ; role <= HeadOut; role++ {
		f, b := slotOf(forward, role), slotOf(backward, role)
		switch {
		case f < 0 && b < 0:
		case f < 0:
			v.fail(badHome, -1, -1, "slot %d expects %v, which the forward pass does not keep", b,
				role)
		case b < 0:
			v.fail(badHome, -1, -1, "the forward pass keeps %v, which no slot of this pass holds",
				role)
		default:
			x, y := &forward.Slots[f], &backward.Slots[b]
			rx, ry := region{x.Set, x.Heads}, region{y.Set, y.Heads}
			if !v.known(x.Set) || !v.known(y.Set) {
				continue // the slot table's own violation
			}
			if x.Tensor != y.Tensor || !v.equal(rx, ry) {
				v.fail(badHome, -1, -1, "slot %d expects %s as %v, the forward pass keeps %s", b,
					v.say(y.Tensor, ry), role, v.say(x.Tensor, rx))
			}
		}
	}
	return v.kept
}

// known tells whether the table has the set.
func (v *verifier) known(set SetID) bool { return set >= 0 && int(set) < len(v.sets) }

// slotOf is the slot of a role, -1 if none.
func slotOf(p *Program, role Role) int {
	for i := range p.Slots {
		if p.Slots[i].Role == role {
			return i
		}
	}
	return -1
}
