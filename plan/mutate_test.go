package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// mutant is a plan with one random mistake in it.
type mutant struct {
	src  *fixed
	kind string
	what string  // the mistake in words
	near []place // ops whose delay may bring it out, the likeliest first
}

// draft is a program that can be changed.
type draft struct {
	slots []plan.Slot
	ops   []draftOp
}

type draftOp struct {
	plan.Op
	args []plan.Operand
	deps []int32
}

// edit is a mutation being made: the programs changed so far, and by how.
type edit struct {
	base   *fixed
	hdr    plan.Header
	drafts [2][]*draft
	rng    *rand.Rand
	near   []place
}

// action makes one mistake at an op and says what it did, or "" if the op has no room for it.
type action struct {
	kind   string
	weight int
	do     func(e *edit, at place) string
}

// oneOp are the mistakes at one op.
func oneOp() []action {
	return []action{
		{"op dropped", 10, (*edit).dropOp},
		{"op doubled", 8, (*edit).doubleOp},
		{"op moved to another step", 10, (*edit).moveOp},
		{"set changed", 8, (*edit).changeSet},
		{"heads changed", 6, (*edit).changeHeads},
		{"slot changed", 6, (*edit).changeSlot},
		{"block moved to another slot", 6, (*edit).moveBlock},
		{"peer changed", 4, (*edit).changePeer},
		{"tick changed", 6, (*edit).changeTick},
		{"lane changed", 3, (*edit).changeLane},
		{"access changed", 3, (*edit).changeAccess},
		{"tensor changed", 4, (*edit).changeTensor},
		{"made again in another slot", 5, (*edit).remake},
		{"merged elsewhere", 5, (*edit).mergeElsewhere},
		{"dependency dropped", 24, (*edit).dropDep},
		{"send or receive dropped", 6, (*edit).dropLink},
	}
}

// wide are the mistakes that are not at one op; the place they are given is a hint.
func wide() []action {
	return []action{
		{"both ends changed alike", 20, (*edit).bothEnds},
		{"same mistake on all ranks", 24, (*edit).allRanks},
		{"slot shrunk", 4, (*edit).shrinkSlot},
		{"role, keep or frame of a slot", 6, (*edit).changeRole},
		{"home changed", 2, (*edit).changeHome},
	}
}

// newEdit is no change yet.
func newEdit(base *fixed, seed uint64) *edit {
	e := &edit{base: base, hdr: *base.hdr, rng: rand.New(rand.NewPCG(seed, 4))}
	for pass := range base.progs {
		e.drafts[pass] = make([]*draft, len(base.progs[pass]))
	}
	return e
}

// mutate makes one random mistake in base.
func mutate(base *fixed, seed uint64) mutant {
	rng := rand.New(rand.NewPCG(seed, 2))
	all := append(oneOp(), wide()...)
	for {
		e := newEdit(base, 0)
		e.rng = rng
		a := weighted(rng, all)
		at, ok := e.anywhere()
		if !ok {
			continue
		}
		what := a.do(e, at)
		if what == "" {
			continue
		}
		if src := e.build(); src != nil {
			return mutant{src: src, kind: a.kind, what: what, near: distinct(e.near)}
		}
	}
}

// distinct keeps the first of equal places.
func distinct(near []place) []place {
	var out []place
	for _, p := range near {
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

func weighted(rng *rand.Rand, all []action) action {
	sum := 0
	for _, a := range all {
		sum += a.weight
	}
	n := rng.IntN(sum)
	for _, a := range all {
		if n -= a.weight; n < 0 {
			return a
		}
	}
	panic("weights changed while drawing")
}

// anywhere is a random op.
func (e *edit) anywhere() (place, bool) {
	passes := e.base.Passes()
	at := place{pass: passes[e.rng.IntN(len(passes))], rank: e.rng.IntN(e.hdr.Ranks)}
	n := len(e.base.progs[at.pass][at.rank].Ops)
	if n == 0 {
		return at, false
	}
	at.op = e.rng.IntN(n)
	return at, true
}

// prog is the draft of a program.
func (e *edit) prog(pass plan.Pass, rank int) *draft {
	if d := e.drafts[pass][rank]; d != nil {
		return d
	}
	p := e.base.progs[pass][rank]
	d := &draft{slots: slices.Clone(p.Slots)}
	for i, op := range p.Ops {
		d.ops = append(d.ops, draftOp{
			Op: op, args: slices.Clone(p.Args(i)), deps: slices.Clone(p.Deps(i)),
		})
	}
	e.drafts[pass][rank] = d
	return d
}

func (e *edit) op(at place) *draftOp { return &e.prog(at.pass, at.rank).ops[at.op] }

// name is an op in words.
func (e *edit) name(at place) string {
	return fmt.Sprintf("%v rank %d op %d (%v)", at.pass, at.rank, at.op, e.op(at).Kind)
}

// around notes an op and those that it waits for or that wait for it as worth a delay.
func (e *edit) around(at place) {
	e.near = append(e.near, at)
	for _, d := range e.op(at).deps {
		e.near = append(e.near, place{at.pass, at.rank, int(d)})
	}
	for i, op := range e.prog(at.pass, at.rank).ops {
		if slices.Contains(op.deps, int32(at.op)) {
			e.near = append(e.near, place{at.pass, at.rank, i})
		}
	}
	if mate, ok := e.mate(at); ok {
		e.near = append(e.near, mate)
	}
}

// mate is the other end of a transfer in the plan as it was.
func (e *edit) mate(at place) (place, bool) {
	progs := e.base.progs[at.pass]
	if at.op >= len(progs[at.rank].Ops) || !progs[at.rank].Ops[at.op].Kind.Link() {
		return at, false
	}
	op := progs[at.rank].Ops[at.op]
	for i, o := range progs[op.Peer].Ops {
		if o.Kind.Link() && o.Kind != op.Kind && int(o.Peer) == at.rank && o.Lane == op.Lane &&
			o.Tick == op.Tick {
			return place{at.pass, int(op.Peer), i}, true
		}
	}
	return at, false
}

// build puts the changed plan together; nil if nothing is changed.
func (e *edit) build() *fixed {
	f := &fixed{hdr: e.base.hdr}
	changed := false
	if !sameHeader(&e.hdr, e.base.hdr) {
		f.hdr, changed = &e.hdr, true
	}
	for pass := range e.drafts {
		f.progs[pass] = slices.Clone(e.base.progs[pass])
		for rank, d := range e.drafts[pass] {
			if d == nil {
				continue
			}
			p := &plan.Program{Rank: rank, Pass: plan.Pass(pass), Slots: d.slots}
			for _, o := range d.ops {
				p.Append(o.Op, o.args, o.deps)
			}
			if !e.sameProgram(p, f.progs[pass][rank]) {
				f.progs[pass][rank], changed = p, true
			}
		}
	}
	if !changed {
		return nil
	}
	return f
}

// sameHeader leaves out new sets that no op or home names: an op that does is changed itself.
func sameHeader(a, b *plan.Header) bool {
	return slices.Equal(a.HomeQ, b.HomeQ) && slices.Equal(a.HomeK, b.HomeK) &&
		len(a.Sets) == len(b.Sets)
}

func (e *edit) sameProgram(a, b *plan.Program) bool {
	if !slices.Equal(a.Slots, b.Slots) || len(a.Ops) != len(b.Ops) {
		return false
	}
	for i := range a.Ops {
		x, y := a.Ops[i], b.Ops[i]
		if x.Kind != y.Kind || x.Peer != y.Peer || x.Lane != y.Lane || x.Tick != y.Tick ||
			!slices.Equal(a.Args(i), b.Args(i)) || !slices.Equal(a.Deps(i), b.Deps(i)) {
			return false
		}
	}
	return true
}

// drop takes op i out. Those that waited for it then wait for what it waited for, or for nothing
// in its place.
func (d *draft) drop(i int, rewire bool) {
	gone := d.ops[i].deps
	d.ops = slices.Delete(d.ops, i, i+1)
	for n := range d.ops {
		var deps []int32
		for _, x := range d.ops[n].deps {
			switch {
			case x != int32(i):
				deps = append(deps, x)
			case rewire:
				deps = append(deps, gone...)
			}
		}
		slices.Sort(deps)
		deps = slices.Compact(deps)
		for k, x := range deps {
			if x > int32(i) {
				deps[k]--
			}
		}
		d.ops[n].deps = deps
	}
}

// insert puts an op in at place i.
func (d *draft) insert(i int, op draftOp) {
	d.ops = slices.Insert(d.ops, i, op)
	for n := range d.ops {
		for k, x := range d.ops[n].deps {
			if x >= int32(i) {
				d.ops[n].deps[k]++
			}
		}
	}
}

// shift renumbers the noted ops of a program after op i is gone.
func (e *edit) shift(at place) {
	var near []place
	for _, p := range e.near {
		if p.pass == at.pass && p.rank == at.rank {
			if p.op == at.op {
				continue
			}
			if p.op > at.op {
				p.op--
			}
		}
		near = append(near, p)
	}
	e.near = near
}

func (e *edit) dropOp(at place) string {
	e.around(at)
	what, rewire := e.name(at), e.rng.IntN(2) == 0
	e.prog(at.pass, at.rank).drop(at.op, rewire)
	e.shift(at)
	return fmt.Sprintf("%s dropped, those after it wait for what it waited for: %v", what, rewire)
}

func (e *edit) dropLink(at place) string {
	d := e.prog(at.pass, at.rank)
	for range d.ops {
		if d.ops[at.op].Kind.Link() {
			return e.dropOp(at)
		}
		at.op = (at.op + 1) % len(d.ops)
	}
	return ""
}

func (e *edit) doubleOp(at place) string {
	d := e.prog(at.pass, at.rank)
	what, way := e.name(at), e.rng.IntN(4)
	op := d.ops[at.op]
	op.args, op.deps = slices.Clone(op.args), slices.Clone(op.deps)
	if op.Kind.Link() && way == 3 {
		op.Tick++
	}
	d.insert(at.op+1, op)
	double := int32(at.op + 1)
	if way&1 == 1 { // one after the other
		d.ops[double].deps = append(d.ops[double].deps, int32(at.op))
	}
	for i := range d.ops {
		if way&2 == 2 && i != int(double) && slices.Contains(d.ops[i].deps, int32(at.op)) {
			d.ops[i].deps = append(d.ops[i].deps, double)
		}
	}
	e.near = append(e.near, place{at.pass, at.rank, int(double)})
	e.around(at)
	return fmt.Sprintf("%s doubled, way %d", what, way)
}

// other is another op of the same kind in the same program.
func (e *edit) other(at place) (place, bool) {
	d := e.prog(at.pass, at.rank)
	var like []int
	for i := range d.ops {
		if i != at.op && d.ops[i].Kind == d.ops[at.op].Kind {
			like = append(like, i)
		}
	}
	if len(like) == 0 {
		return at, false
	}
	at.op = like[e.rng.IntN(len(like))]
	return at, true
}

func (e *edit) moveOp(at place) string {
	to, ok := e.other(at)
	if !ok {
		return ""
	}
	e.around(at)
	e.around(to)
	a, b := e.op(at), e.op(to)
	what := ""
	switch e.rng.IntN(5) {
	case 0:
		what = "exchange operands"
		a.args, b.args = b.args, a.args
	case 1:
		what = "exchange dependencies"
		a.deps, b.deps = b.deps, a.deps
	case 2:
		what = "exchange ticks"
		a.Tick, b.Tick = b.Tick, a.Tick
	case 3:
		what = "exchange one operand"
		k := e.rng.IntN(min(len(a.args), len(b.args)))
		a.args[k], b.args[k] = b.args[k], a.args[k]
	case 4:
		what = "are at one step, that of the second"
		a.deps, a.Tick = slices.Clone(b.deps), b.Tick
	}
	return fmt.Sprintf("%s and op %d %s", e.name(at), to.op, what)
}

// otherSet is the id of another set: one of the table, or one row less, or one row moved.
func (e *edit) otherSet(id plan.SetID) plan.SetID {
	set := e.hdr.Sets[id]
	n := set.Len()
	var to mesh.Set
	switch e.rng.IntN(4) {
	case 0:
		to = set.Rows(0, max(n-1, 0))
	case 1:
		to = set.Rows(min(1, n), n)
	case 2:
		to = slices.Clone(set)
		if len(to) > 0 {
			to[len(to)-1].Start++
		}
	default:
		return plan.SetID(e.rng.IntN(len(e.hdr.Sets)))
	}
	e.hdr.Sets = append(slices.Clone(e.hdr.Sets), to)
	e.hdr.Names = append(slices.Clone(e.hdr.Names), fmt.Sprint(to))
	return plan.SetID(len(e.hdr.Sets) - 1)
}

func (e *edit) changeSet(at place) string {
	op := e.op(at)
	k := e.rng.IntN(len(op.args))
	a := &op.args[k]
	old := a.Set
	a.Set = e.otherSet(old)
	e.around(at)
	return fmt.Sprintf("%s operand %d: set %s instead of %s", e.name(at), k, e.hdr.Names[a.Set],
		e.hdr.Names[old])
}

// otherHeads is a run of heads that differs at one end.
func (e *edit) otherHeads(h mesh.Heads) mesh.Heads {
	d := int32(1 - 2*e.rng.IntN(2))
	switch e.rng.IntN(3) {
	case 0:
		h.Lo += d
	case 1:
		h.Hi += d
	case 2:
		h.Lo, h.Hi = h.Lo+d, h.Hi+d
	}
	return h
}

func (e *edit) changeHeads(at place) string {
	op := e.op(at)
	k := e.rng.IntN(len(op.args))
	a := &op.args[k]
	old := a.Heads
	a.Heads = e.otherHeads(old)
	e.around(at)
	return fmt.Sprintf("%s operand %d: heads %v instead of %v", e.name(at), k, a.Heads, old)
}

func (e *edit) changeSlot(at place) string {
	op := e.op(at)
	k := e.rng.IntN(len(op.args))
	a := &op.args[k]
	old := a.Slot
	a.Slot = int32(e.rng.IntN(len(e.prog(at.pass, at.rank).slots)))
	e.around(at)
	return fmt.Sprintf("%s operand %d: slot %d instead of %d", e.name(at), k, a.Slot, old)
}

// moveBlock moves a block with all its uses to another slot, without the order that this needs.
func (e *edit) moveBlock(at place) string {
	d := e.prog(at.pass, at.rank)
	block := d.ops[at.op].args[e.rng.IntN(len(d.ops[at.op].args))]
	to := int32(e.rng.IntN(len(d.slots)))
	if d.slots[block.Slot].Role != plan.Scratch || d.slots[to].Role != plan.Scratch {
		return ""
	}
	for i := range d.ops {
		for k := range d.ops[i].args {
			a := &d.ops[i].args[k]
			if a.Slot == block.Slot && a.Tensor == block.Tensor && a.Set == block.Set &&
				a.Heads == block.Heads {
				a.Slot = to
				e.near = append(e.near, place{at.pass, at.rank, i})
			}
		}
	}
	return fmt.Sprintf("%s: its block in slot %d is in slot %d", e.name(at), block.Slot, to)
}

// link is a random send or receive of the program, starting to look at the place given.
func (e *edit) link(at place, kinds ...plan.Kind) (place, bool) {
	d := e.prog(at.pass, at.rank)
	for range d.ops {
		if slices.Contains(kinds, d.ops[at.op].Kind) {
			return at, true
		}
		at.op = (at.op + 1) % len(d.ops)
	}
	return at, false
}

func (e *edit) changePeer(at place) string {
	at, ok := e.link(at, plan.Send, plan.Recv)
	if !ok {
		return ""
	}
	op := e.op(at)
	old := op.Peer
	op.Peer = int32(e.rng.IntN(e.hdr.Ranks))
	e.around(at)
	return fmt.Sprintf("%s: peer %d instead of %d", e.name(at), op.Peer, old)
}

// changeTick changes what a transfer is called, or at times the place in the queue of another op,
// which is for show.
func (e *edit) changeTick(at place) string {
	if e.rng.IntN(6) > 0 {
		var ok bool
		if at, ok = e.link(at, plan.Send, plan.Recv); !ok {
			return ""
		}
	}
	op := e.op(at)
	old := op.Tick
	op.Tick += int32(e.rng.IntN(7) - 3)
	e.around(at)
	return fmt.Sprintf("%s: tick %d instead of %d", e.name(at), op.Tick, old)
}

func (e *edit) changeLane(at place) string {
	at, ok := e.link(at, plan.Send, plan.Recv)
	if !ok {
		return ""
	}
	op := e.op(at)
	old := op.Lane
	op.Lane = int32(e.rng.IntN(int(plan.NumLanes)))
	e.around(at)
	return fmt.Sprintf("%s: lane %d instead of %d", e.name(at), op.Lane, old)
}

func (e *edit) changeAccess(at place) string {
	op := e.op(at)
	k := e.rng.IntN(len(op.args))
	a := &op.args[k]
	old := a.Access
	a.Access = plan.Access(e.rng.IntN(4))
	e.around(at)
	return fmt.Sprintf("%s operand %d: access %d instead of %d", e.name(at), k, a.Access, old)
}

func (e *edit) dropDep(at place) string {
	d := e.prog(at.pass, at.rank)
	for range d.ops {
		if len(d.ops[at.op].deps) > 0 {
			break
		}
		at.op = (at.op + 1) % len(d.ops)
	}
	op := &d.ops[at.op]
	if len(op.deps) == 0 {
		return ""
	}
	k := e.rng.IntN(len(op.deps))
	before := op.deps[k]
	op.deps = slices.Delete(op.deps, k, k+1)
	e.near = append(e.near, place{at.pass, at.rank, int(before)})
	e.around(at)
	return fmt.Sprintf("%s no longer waits for op %d", e.name(at), before)
}

// bothEnds changes a send and its receive alike.
func (e *edit) bothEnds(at place) string {
	at, ok := e.link(at, plan.Send)
	if !ok {
		return ""
	}
	to, ok := e.mate(at)
	if !ok || at.rank == to.rank {
		return ""
	}
	a, b := e.op(at), e.op(to)
	what := fmt.Sprintf("%s and its receive, rank %d op %d: ", e.name(at), to.rank, to.op)
	e.around(at)
	e.around(to)
	switch e.rng.IntN(7) {
	case 0:
		rewire := e.rng.IntN(2) == 0
		e.prog(at.pass, at.rank).drop(at.op, rewire)
		e.shift(at)
		e.prog(to.pass, to.rank).drop(to.op, rewire)
		e.shift(to)
		return what + "dropped"
	case 1:
		return what + e.bothSets(a, b)
	case 2:
		return what + e.downstream(to, a, b)
	case 3:
		a.args[0].Heads = e.otherHeads(a.args[0].Heads)
		b.args[0].Heads = a.args[0].Heads
		return what + fmt.Sprintf("heads %v", a.args[0].Heads)
	case 4:
		a.Tick += int32(e.rng.IntN(9) - 4)
		b.Tick = a.Tick
		return what + fmt.Sprintf("tick %d", a.Tick)
	case 5:
		a.Lane = int32(e.rng.IntN(int(plan.NumLanes)))
		b.Lane = a.Lane
		return what + fmt.Sprintf("lane %d", a.Lane)
	}
	return e.exchangeTransfers(at, to, what)
}

func (e *edit) bothSets(a, b *draftOp) string {
	a.args[0].Set = e.otherSet(a.args[0].Set)
	b.args[0].Set = a.args[0].Set
	return fmt.Sprintf("set %s", e.hdr.Names[a.args[0].Set])
}

// downstream changes the set of a transfer and of all that the receiver does with the block.
func (e *edit) downstream(to place, a, b *draftOp) string {
	was := b.args[0]
	what := e.bothSets(a, b)
	for i := range e.prog(to.pass, to.rank).ops {
		for k := range e.prog(to.pass, to.rank).ops[i].args {
			x := &e.prog(to.pass, to.rank).ops[i].args[k]
			if x.Slot == was.Slot && x.Set == was.Set && x.Tensor == was.Tensor {
				x.Set = a.args[0].Set
			}
		}
	}
	return what + " and in all uses of the block received"
}

// exchangeTransfers exchanges ticks, or what is sent, with another transfer between the same ranks.
func (e *edit) exchangeTransfers(at, to place, what string) string {
	for i := range e.prog(at.pass, at.rank).ops {
		at2 := place{at.pass, at.rank, i}
		o := e.op(at2)
		if i == at.op || o.Kind != plan.Send || int(o.Peer) != to.rank {
			continue
		}
		to2, ok := e.mate(at2)
		if !ok {
			continue
		}
		a, b, a2, b2 := e.op(at), e.op(to), o, e.op(to2)
		e.around(at2)
		e.around(to2)
		if e.rng.IntN(2) == 0 {
			a.Tick, a2.Tick = a2.Tick, a.Tick
			b.Tick, b2.Tick = b2.Tick, b.Tick
			return what + fmt.Sprintf("ticks exchanged with op %d", i)
		}
		a.args, a2.args = a2.args, a.args
		b.args, b2.args = b2.args, b.args
		return what + fmt.Sprintf("operands exchanged with op %d", i)
	}
	return ""
}

// allRanks makes the same mistake at the same op of every rank: the k-th of its kind.
func (e *edit) allRanks(at place) string {
	all := oneOp()
	a := weighted(e.rng, all)
	kind, seed, k := e.op(at).Kind, e.rng.Uint64(), 0
	for i := range at.op {
		if e.prog(at.pass, at.rank).ops[i].Kind == kind {
			k++
		}
	}
	what := ""
	for r := range e.hdr.Ranks {
		n := 0
		for i := range e.prog(at.pass, r).ops {
			here := place{at.pass, r, i}
			if e.op(here).Kind != kind {
				continue
			}
			if n == k {
				e.rng = rand.New(rand.NewPCG(seed, 3))
				if did := a.do(e, here); did != "" {
					what += "; " + did
				}
				break
			}
			n++
		}
	}
	if what == "" {
		return ""
	}
	return a.kind + " on all ranks" + what
}

// slot is a random slot of a program.
func (e *edit) slot(at place) (i int, s *plan.Slot) {
	d := e.prog(at.pass, at.rank)
	i = e.rng.IntN(len(d.slots))
	e.around(at)
	return i, &d.slots[i]
}

func (e *edit) shrinkSlot(at place) string {
	i, s := e.slot(at)
	old := s.Bytes
	s.Bytes = []int64{old - 1, old / 2, e.prog(at.pass, at.rank).slots[0].Bytes}[e.rng.IntN(3)]
	if s.Bytes > old {
		return ""
	}
	return fmt.Sprintf("%v rank %d slot %d: %d bytes instead of %d", at.pass, at.rank, i, s.Bytes,
		old)
}

func (e *edit) changeRole(at place) string {
	i, s := e.slot(at)
	old := *s
	switch e.rng.IntN(5) {
	case 0:
		s.Keep = !s.Keep
	case 1:
		s.In = !s.In
	case 2:
		s.Role = plan.Role(e.rng.IntN(int(plan.NumRoles)))
	case 3:
		s.Set = e.otherSet(s.Set)
	case 4:
		s.Heads = e.otherHeads(s.Heads)
	}
	if old.Role == plan.Scratch && s.Role == plan.Scratch && s.In == old.In && s.Keep == old.Keep {
		return "" // nobody reads the frame of a scratch slot
	}
	return fmt.Sprintf("%v rank %d slot %d: %+v instead of %+v", at.pass, at.rank, i, *s, old)
}

func (e *edit) changeHome(at place) string {
	homes := &e.hdr.HomeQ
	if e.rng.IntN(2) == 0 {
		homes = &e.hdr.HomeK
	}
	*homes = slices.Clone(*homes)
	other := e.rng.IntN(e.hdr.Ranks)
	e.around(at)
	if e.rng.IntN(2) == 0 {
		(*homes)[at.rank], (*homes)[other] = (*homes)[other], (*homes)[at.rank]
		return fmt.Sprintf("homes of ranks %d and %d exchanged", at.rank, other)
	}
	(*homes)[at.rank] = e.otherSet((*homes)[at.rank])
	return fmt.Sprintf("home of rank %d is %s", at.rank, e.hdr.Names[(*homes)[at.rank]])
}
