package plan_test

import (
	"fmt"
	"math/bits"

	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// A judge runs the programs of a plan with symbolic contents, in orders meant to do harm. It is
// the second opinion on Verify and shares no code with it: Verify proves, the judge tries.
//
//	plan.Source -> newJudge: atoms, forms of ops, lanes, mates
//	                  |
//	                  +-> run(order): forward then backward, ops start and end one event at a time
//	                        world    who may move, who is running        (judge_run_test.go)
//	                        memory   lives, regions in use, contents     (judge_memory_test.go)
//	                        home     what must be where after a pass     (judge_home_test.go)
//
// Tokens that no token set of the plan tells apart form an atom. The content of a token atom and
// head of an accumulator is how often each contribution (query atom, key atom, query head) is in
// it. The rest needs no content: whoever copies or sends a region of a block gets that region.
type judge struct {
	hdr    *plan.Header
	q, k   atoms
	group  int      // query heads a KV head
	sees   []uint64 // by query atom: the key atoms it may see
	passes []judgePass
}

type judgePass struct {
	pass  plan.Pass
	progs []*plan.Program
	base  []int32 // by rank: number of its first op
	ops   []judgeOp
}

// judgeOp is an op with what its start waits for resolved to numbers over all ranks.
type judgeOp struct {
	kind      plan.Kind
	rank, num int32
	tick      int32
	args      []plan.Operand
	needs     int32   // deps, the op before in the lane, a send's credit
	after     []int32 // ops that wait for the end of this one
	mate      int32   // the other end of a transfer, -1 without
}

// place is an op of a plan.
type place struct {
	pass plan.Pass
	rank int
	op   int
}

// order is one adversarial order of events: random by seed, and with late set holding back the
// start (or with atEnd the end) of that op as long as anything else can move.
type order struct {
	seed  uint64
	late  *place
	atEnd bool
}

// Judge runs src once in the order of seed and says in words the first thing that goes wrong.
func Judge(src plan.Source, seed uint64, delay *place) error {
	j, err := newJudge(src)
	if err != nil {
		return err
	}
	_, err = j.run(order{seed: seed, late: delay})
	return err
}

// judgeOrders runs src in n orders, half of which hold back an op of near, and says what goes
// wrong in the first bad one. A result that depends on the order is wrong too: the order of
// addition is contract.
func judgeOrders(src plan.Source, seed uint64, n int, near []place) error {
	j, err := newJudge(src)
	if err != nil {
		return err
	}
	first := uint64(0)
	for i := range n {
		o := order{seed: mix(seed, uint64(i))}
		if i < n/2 && len(near) > 0 {
			// The likeliest op is late at its start and at its end, the others at either.
			o.late, o.atEnd = &near[max(i-1, 0)%len(near)], i == 1 || i > 1 && o.seed%3 == 0
		}
		digest, err := j.run(o)
		if err != nil {
			return err
		}
		if i == 0 {
			first = digest
		}
		if digest != first {
			return fmt.Errorf("additions into an accumulator came in another order than before")
		}
	}
	return nil
}

// newJudge prepares a plan. Its error is a fault that needs no running: an op whose operands no
// device could serve, a lane with a tick twice.
func newJudge(src plan.Source) (*judge, error) {
	h := src.Header()
	j := &judge{hdr: h, group: h.QHeads / h.KHeads}
	j.q, j.k = newAtoms(h.Sets, h.QTokens), newAtoms(h.Sets, h.KTokens)
	if j.q.n > 64 || j.k.n > 64 {
		panic("the judge is made for problems of up to 64 atoms a sequence")
	}
	if err := j.homes(); err != nil {
		return nil, err
	}
	j.sees = make([]uint64, j.q.n)
	for i, a := range j.q.of {
		for k, b := range j.k.of {
			if h.Mask.Allows(i, k) {
				j.sees[a] |= 1 << b
			}
		}
	}
	for _, pass := range src.Passes() {
		p := judgePass{pass: pass}
		for r := range h.Ranks {
			prog, err := src.Program(pass, r)
			if err != nil {
				return nil, err
			}
			p.progs = append(p.progs, prog)
			p.base = append(p.base, int32(len(p.ops)))
			if err := j.load(&p, prog, r); err != nil {
				return nil, err
			}
		}
		if err := p.connect(); err != nil {
			return nil, err
		}
		j.passes = append(j.passes, p)
	}
	return j, nil
}

// load checks the form of one program's ops and slots and appends its ops.
func (j *judge) load(p *judgePass, prog *plan.Program, rank int) error {
	if err := j.slotForms(prog, rank, p.pass); err != nil {
		return err
	}
	for i := range prog.Ops {
		o := &prog.Ops[i]
		op := judgeOp{
			kind: o.Kind, rank: int32(rank), num: int32(i), tick: o.Tick,
			args: prog.Args(i), needs: int32(len(prog.Deps(i))), mate: -1,
		}
		if err := j.form(prog, &op, o); err != nil {
			return fmt.Errorf("%s: %w", p.name(&op), err)
		}
		p.ops = append(p.ops, op)
	}
	return nil
}

// connect turns dependencies, lanes and credits into waits between ops.
func (p *judgePass) connect() error {
	type lane struct{ from, to, lane int32 }
	type transfer struct {
		lane
		tick int32
	}
	lanes := [2]map[lane][]int32{{}, {}} // sends, receives, by rising tick
	ends := [2]map[transfer]int32{{}, {}}
	for id := range p.ops {
		op := &p.ops[id]
		prog := p.progs[op.rank]
		for _, d := range prog.Deps(int(op.num)) {
			if d < 0 || int(d) >= len(prog.Ops) {
				return fmt.Errorf("%s waits for op %d, which is none", p.name(op), d)
			}
			before := &p.ops[p.base[op.rank]+d]
			before.after = append(before.after, int32(id))
		}
		if !op.kind.Link() {
			continue
		}
		o := &prog.Ops[op.num]
		dir, l := 0, lane{op.rank, o.Peer, o.Lane}
		if op.kind == plan.Recv {
			dir, l = 1, lane{o.Peer, op.rank, o.Lane}
		}
		t := transfer{l, o.Tick}
		if other, twice := ends[dir][t]; twice {
			return fmt.Errorf("%s has the lane and tick of %s", p.name(op), p.name(&p.ops[other]))
		}
		ends[dir][t] = int32(id)
		q := append(lanes[dir][l], int32(id))
		for i := len(q) - 1; i > 0 && p.ops[q[i-1]].tick > op.tick; i-- {
			q[i], q[i-1] = q[i-1], q[i]
		}
		lanes[dir][l] = q
		if other, ok := ends[1-dir][t]; ok {
			op.mate, p.ops[other].mate = other, int32(id)
		}
		if op.kind == plan.Send {
			op.needs++ // the credit; without a mate it never comes
		}
	}
	for _, dir := range lanes {
		for _, q := range dir {
			for i := 1; i < len(q); i++ {
				p.ops[q[i-1]].after = append(p.ops[q[i-1]].after, q[i])
				p.ops[q[i]].needs++
			}
		}
	}
	return nil
}

// name is an op in words.
func (p *judgePass) name(op *judgeOp) string {
	return fmt.Sprintf("%s rank %d op %d (%s)", p.pass, op.rank, op.num, op.kind)
}

// atoms are the classes of tokens of one sequence that no set tells apart.
type atoms struct {
	n     int
	of    []int    // by token
	set   []uint64 // by SetID: its atoms
	wrong []bool   // by SetID: has tokens that the sequence does not have
	one   []int    // by atom: a token of it
}

func newAtoms(sets []mesh.Set, tokens int) atoms {
	a := atoms{n: 1, of: make([]int, tokens), wrong: make([]bool, len(sets))}
	for id, s := range sets {
		all, in := make([]int, a.n), make([]int, a.n)
		for _, c := range a.of {
			all[c]++
		}
		for _, t := range s.Positions() {
			if t < 0 || t >= tokens {
				a.wrong[id] = true
				break
			}
			in[a.of[t]]++
		}
		if a.wrong[id] {
			continue
		}
		to := make([]int, a.n)
		for c := range to {
			to[c] = c
			if in[c] > 0 && in[c] < all[c] {
				to[c] = a.n
				a.n++
			}
		}
		for _, t := range s.Positions() {
			a.of[t] = to[a.of[t]]
		}
	}
	a.set = make([]uint64, len(sets))
	for id, s := range sets {
		for _, t := range s.Positions() {
			if !a.wrong[id] {
				a.set[id] |= 1 << a.of[t]
			}
		}
	}
	a.one = make([]int, a.n)
	for t, c := range a.of {
		a.one[c] = t
	}
	return a
}

// each calls f for every atom of a set of atoms.
func each(set uint64, f func(atom int)) {
	for ; set != 0; set &= set - 1 {
		f(bits.TrailingZeros64(set))
	}
}
