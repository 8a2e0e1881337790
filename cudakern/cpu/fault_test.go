package cpu_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// The hand-written programs of these tests have 8 tokens, 4 heads, 2 KV heads, D = DV = 2.
const (
	none plan.SetID = iota
	whole
	front
	back
)

func handHeader() *plan.Header {
	return &plan.Header{
		Shape: plan.Shape{
			QTokens: 8, KTokens: 8, QHeads: 4, KHeads: 2, Dim: 2, VDim: 2, ElemBytes: 8,
			AccBytes: 8, Scale: 1, Mask: attn.Full(8, 8),
		},
		Ranks: 2,
		Sets: []mesh.Set{
			nil, {{Start: 0, Stride: 1, Count: 8}}, {{Start: 0, Stride: 1, Count: 4}},
			{{Start: 4, Stride: 1, Count: 4}},
		},
		Names: []string{"none", "c0", "c0.0", "c0.1"},
	}
}

func arg(access plan.Access, t plan.Tensor, set plan.SetID, lo, hi, slot int32) plan.Operand {
	return plan.Operand{
		Slot: slot, Set: set, Heads: mesh.Heads{Lo: lo, Hi: hi}, Tensor: t, Access: access}
}

// hand is a program of ops without dependencies over 6 scratch slots of 4096 bytes.
func hand(ops ...handOp) *plan.Program {
	p := &plan.Program{}
	for range 6 {
		p.Slots = append(p.Slots, plan.Slot{Bytes: 4096})
	}
	for _, op := range ops {
		p.Append(plan.Op{Kind: op.kind, Peer: op.peer}, op.args, nil)
	}
	return p
}

type handOp struct {
	kind plan.Kind
	peer int32
	args []plan.Operand
}

func do(kind plan.Kind, args ...plan.Operand) handOp { return handOp{kind: kind, args: args} }

// TestFaultsOfOps runs programs op by op on rank 0; the last op must fail with these words.
func TestFaultsOfOps(t *testing.T) {
	w, r, a, c := plan.Write, plan.Read, plan.Add, plan.HandOn
	zero := do(plan.Zero, arg(w, plan.State, whole, 0, 4, 0))
	cases := []struct {
		name string
		ops  []handOp
		want string
	}{
		{"empty slot", []handOp{zero, do(plan.Attend, arg(r, plan.Q, whole, 0, 4, 1),
			arg(r, plan.KV, whole, 0, 2, 2), arg(a, plan.State, whole, 0, 4, 0))},
			"op 1 attend rq[c0 h0:4]@s1 rkv[c0 h0:2]@s2 +st[c0 h0:4]@s0 t0: slot 1 is empty"},
		{"other tensor in the slot", []handOp{zero, do(plan.Accumulate,
			arg(c, plan.DQ, whole, 0, 4, 0), arg(a, plan.DQ, whole, 0, 4, 1))},
			"slot 0 holds st of 8 tokens"},
		{"other heads in the slot", []handOp{zero, do(plan.Finalize,
			arg(c, plan.State, whole, 0, 2, 0), arg(w, plan.Out, whole, 0, 2, 0))},
			"the op takes whole blocks"},
		{"other set in the slot", []handOp{zero, do(plan.Finalize,
			arg(c, plan.State, front, 0, 4, 0), arg(w, plan.Out, front, 0, 4, 0))},
			"slot 0 holds st of 8 tokens"},
		{"heads that are not there", []handOp{zero, do(plan.Finalize,
			arg(c, plan.State, whole, 0, 5, 0), arg(w, plan.Out, whole, 0, 5, 0))},
			"heads 0:5 in slot 0: the plan has 4 heads"},
		{"finalize elsewhere", []handOp{zero, do(plan.Finalize,
			arg(c, plan.State, whole, 0, 4, 0), arg(w, plan.Out, whole, 0, 4, 1))},
			"out or part must take the place of the state"},
		{"finalize of other heads", []handOp{zero, do(plan.Finalize,
			arg(c, plan.State, whole, 0, 4, 0), arg(w, plan.Out, whole, 0, 3, 0))},
			"operands 0 and 1 have different rows or heads"},
		{"finalize twice", []handOp{zero, do(plan.Finalize,
			arg(c, plan.State, whole, 0, 4, 0), arg(w, plan.Out, whole, 0, 4, 0)),
			do(plan.Finalize,
				arg(c, plan.State, whole, 0, 4, 0), arg(w, plan.Out, whole, 0, 4, 0))},
			"slot 0 holds o of 8 tokens"},
		{"zero of q", []handOp{do(plan.Zero, arg(w, plan.Q, whole, 0, 4, 0))},
			"q is no accumulator"},
		{"empty operand", []handOp{do(plan.Zero, arg(w, plan.DQ, none, 0, 4, 0))},
			"ops have no empty operands"},
		{"slot outside", []handOp{do(plan.Zero, arg(w, plan.DQ, whole, 0, 4, 6))},
			"slot 6 is not in the program of 6 slots"},
		{"set outside", []handOp{do(plan.Zero, arg(w, plan.DQ, 9, 0, 4, 0))},
			"token set 9 is not in the plan's table"},
		{"too few operands", []handOp{do(plan.Accumulate, arg(c, plan.DQ, whole, 0, 4, 0))},
			"it has 1 operands, accumulate has 2"},
		{"too many operands", []handOp{do(plan.Zero, arg(w, plan.DQ, whole, 0, 4, 0),
			arg(w, plan.DQ, whole, 0, 4, 1))}, "it has 2 operands, zero has 1"},
		{"no device op", []handOp{do(plan.Release, arg(r, plan.DQ, whole, 0, 4, 0))},
			"release does not run on a device"},
		{"a partial is spent", []handOp{do(plan.Zero, arg(w, plan.DQ, whole, 0, 4, 0)),
			do(plan.Zero, arg(w, plan.DQ, whole, 0, 4, 1)),
			do(plan.Accumulate, arg(c, plan.DQ, whole, 0, 4, 0), arg(a, plan.DQ, whole, 0, 4, 1)),
			do(plan.Accumulate, arg(c, plan.DQ, whole, 0, 4, 0), arg(a, plan.DQ, whole, 0, 4, 1))},
			"op 3 accumulate cdq[c0 h0:4]@s0 +dq[c0 h0:4]@s1 t0: slot 0 is empty"},
		{"accumulate of state", []handOp{zero, do(plan.Accumulate,
			arg(c, plan.State, whole, 0, 4, 0), arg(a, plan.State, whole, 0, 4, 1))},
			"st is not summed into st"},
		{"unpack of a part", []handOp{do(plan.Zero, arg(w, plan.DQ, front, 0, 4, 0)),
			do(plan.Unpack, arg(c, plan.DQ, front, 0, 4, 0), arg(w, plan.DQ, whole, 0, 4, 1))},
			"its sources have 32 values together, dq of 8 tokens [{0 1 8}], heads 0:4 has 64"},
		{"unpack twice of one", []handOp{do(plan.Zero, arg(w, plan.DQ, whole, 0, 4, 0)),
			do(plan.Unpack, arg(c, plan.DQ, whole, 0, 4, 0), arg(c, plan.DQ, front, 0, 1, 0),
				arg(w, plan.DQ, whole, 0, 4, 1))},
			"its sources have 72 values together"},
		{"pack of rows that are not there", []handOp{
			do(plan.Zero, arg(w, plan.DQ, front, 0, 4, 0)),
			do(plan.Pack, arg(c, plan.DQ, back, 0, 4, 0), arg(w, plan.DQ, back, 0, 4, 1))},
			"slot 0 holds dq of 4 tokens [{0 1 4}], heads 0:4, of which dq of 4 tokens [{4 1 4}]"},
		{"pack to other heads", []handOp{do(plan.Zero, arg(w, plan.DQ, front, 0, 4, 0)),
			do(plan.Pack, arg(c, plan.DQ, front, 1, 3, 0), arg(w, plan.DQ, front, 2, 4, 1))},
			"was to go to dq"},
		{"zero of a part", []handOp{do(plan.Zero, arg(w, plan.Part, whole, 0, 4, 0))},
			"part is no accumulator that starts from nothing"},
		{"accumulate of state to part", []handOp{zero, do(plan.Accumulate,
			arg(c, plan.State, whole, 0, 4, 0), arg(a, plan.Part, whole, 0, 4, 1))},
			"st is not summed into part"},
		{"accumulate onto rows that are not there", []handOp{
			do(plan.Zero, arg(w, plan.DQ, whole, 0, 4, 0)),
			do(plan.Zero, arg(w, plan.DQ, front, 0, 4, 1)),
			do(plan.Accumulate, arg(c, plan.DQ, back, 0, 4, 0), arg(a, plan.DQ, back, 0, 4, 1))},
			"one has not all of its rows"},
		{"accumulate onto heads that are not there", []handOp{
			do(plan.Zero, arg(w, plan.DQ, whole, 0, 4, 0)),
			do(plan.Zero, arg(w, plan.DQ, whole, 0, 2, 1)),
			do(plan.Accumulate, arg(c, plan.DQ, whole, 1, 3, 0), arg(a, plan.DQ, whole, 1, 3, 1))},
			"slot 1 holds dq of 8 tokens [{0 1 8}], heads 0:2, dq of 8 tokens"},
		{"finalize into the state's slot, of neither", []handOp{zero, do(plan.Finalize,
			arg(c, plan.State, whole, 0, 4, 0), arg(w, plan.DO, whole, 0, 4, 0))},
			"out or part must take the place of the state"},
		{"visit without its blocks", []handOp{zero, do(plan.VisitOp,
			arg(r, plan.Q, whole, 0, 4, 1), arg(r, plan.DO, whole, 0, 4, 2),
			arg(r, plan.Out, whole, 0, 4, 3), arg(r, plan.Delta, whole, 0, 4, 4),
			arg(w, plan.Visit, whole, 0, 4, 5))}, "slot 1 is empty"},
		{"attend-bwd of 5", []handOp{zero, do(plan.AttendBackward,
			arg(r, plan.Visit, whole, 0, 4, 1), arg(r, plan.KV, whole, 0, 2, 2),
			arg(a, plan.DQ, whole, 0, 4, 3), arg(w, plan.DKV, whole, 0, 2, 4),
			arg(w, plan.DKV, whole, 0, 2, 5))}, "it has 5 operands, attend-bwd has 7"},
		{"pack of another tensor", []handOp{do(plan.Zero, arg(w, plan.DQ, front, 0, 4, 0)),
			do(plan.Pack, arg(c, plan.DQ, front, 1, 3, 0), arg(w, plan.Q, front, 1, 3, 1))},
			"operand 0 is dq, the op needs q"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := cpu.New[float64](&book{handHeader(), [2][]*plan.Program{{hand(c.ops...)}}}, 1,
				cpu.Options{})
			for i := range c.ops[:len(c.ops)-1] {
				if err := s.Do(0, 0, int32(i)); err != nil {
					t.Fatal(err)
				}
			}
			wantFault(t, s.Do(0, 0, int32(len(c.ops)-1)), "rank 0, round 0, op ", c.want)
			s.Close()
			nothingHeld(t, s, 1)
		})
	}
}

func wantFault(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %q", words)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

func TestFaultsOfHops(t *testing.T) {
	dq := func(access plan.Access, set plan.SetID, slot int32) plan.Operand {
		return arg(access, plan.DQ, set, 0, 4, slot)
	}
	sender := hand(
		do(plan.Zero, dq(plan.Write, front, 0)),
		handOp{plan.Send, 1, []plan.Operand{dq(plan.HandOn, front, 0)}},
		handOp{plan.Send, 1, []plan.Operand{arg(plan.HandOn, plan.DQ, front, 0, 2, 0)}},
	)
	receiver := hand(
		handOp{plan.Recv, 0, []plan.Operand{dq(plan.Write, front, 0)}},
		handOp{plan.Recv, 0, []plan.Operand{dq(plan.Write, back, 1)}},
		handOp{plan.Recv, 0, []plan.Operand{dq(plan.Write, whole, 2)}},
	)
	receiver.Slots[2].Bytes = 100
	for _, opt := range []cpu.Options{{}, {Copy: true, Poison: true}} {
		b := &book{handHeader(), [2][]*plan.Program{{sender, receiver}}}
		s := cpu.New[float64](b, 2, opt)
		hop := func(send, recv int32) error {
			_, err := s.Hop(0, 1, 0, send, recv)
			return err
		}
		try := func(errs ...error) {
			t.Helper()
			for _, err := range errs {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		wantFault(t, hop(1, 0), "rank 0, round 0, op 1 send", "slot 0 is empty")
		try(s.Do(0, 0, 0))
		wantFault(t, hop(1, 0), "rank 1, round 0, op 0 recv", "before the receive was posted")
		try(s.Do(0, 0, 0), s.Post(1, 0, 1))
		wantFault(t, hop(1, 1), "rank 1", "dq of 4 tokens [{0 1 4}], heads 0:4 came")
		wantFault(t, s.Post(1, 0, 2), "has 512 bytes", "its slot has room for 100")
		wantFault(t, s.Post(0, 0, 0), "it is not a recv of one block")
		wantFault(t, s.Post(1, 0, 3), "op 3 is not in the program of 3 ops")
		wantFault(t, s.Post(2, 0, 3), "rank 2: this process has ranks 0 to 1")
		try(s.Do(0, 0, 0), s.Post(1, 0, 0))
		wantFault(t, hop(2, 0), "accumulators move whole")
		n, err := s.Hop(0, 1, 0, 1, 0)
		try(err)
		if n != 4*4*2*8 {
			t.Errorf("the block had %d bytes", n)
		}
		try(s.Do(0, 0, 0))
		wantFault(t, hop(1, 0), "before the receive was posted")
		try(s.Post(1, 0, 0))
		wantFault(t, hop(1, 0), "slot 0 is empty")
		s.Close()
		nothingHeld(t, s, 2)
	}
}

func TestFaultsOfRounds(t *testing.T) {
	p := newProblem(9, 4, 2, 4, 4, attn.Causal(9, 9))
	b := newBook(t, p, mesh.Mesh{Head: 1, Ring: 1}, mesh.Zigzag, 8)
	s := cpu.New[float64](b, 1, cpu.Options{})
	defer s.Close()
	wantFault(t, s.Do(0, 0, 0), "rank 0, round 0: slot 0, home.", "give the inputs (SetInput)")
	wantFault(t, s.Do(0, -1, 0), "rank 0: round -1 is not in its book")
	wantFault(t, s.Do(-1, 0, 0), "rank -1: this process has ranks 0 to 0")
	wantFault(t, s.SetInput(0, 0, plan.HomeQ), "home.q was given as 0 parts")
	wantFault(t, s.SetInput(0, 0, plan.HomeOut, nil), "home.o was given as 1 parts")
	wantFault(t, s.SetInput(0, 0, plan.VecIn, nil, nil), "vec.in was given as 2 parts")
	wantFault(t, s.SetInput(0, 0, plan.SumOut, nil), "sum.out was given as 1 parts")
	setInputs(t, s, b, p, 0)
	if err := s.SetInput(0, 0, plan.HomeKV, make([]float64, 72), make([]float64, 71)); err != nil {
		t.Fatal(err)
	}
	wantFault(t, s.Do(0, 0, 0), "home.kv of state 0: part 2 was given with 71 values", "needs 72")
	setInputs(t, s, b, p, 0)
	wantFault(t, s.Do(0, 1, 0), "home.o of state 0: nothing is there")
	_, err := s.Output(0, 0, plan.HomeOut)
	wantFault(t, err, "rank 0 has no home.o of state 0")
	_, err = s.Output(0, 5, plan.HomeOut)
	wantFault(t, err, "rank 0 has no home.o of state 5")
	wantFault(t, s.Do(0, 0, 99), "op 99 is not in the program")
	narrow := cpu.New[float32](b, 1, cpu.Options{})
	wantFault(t, narrow.Do(0, 0, 0), "the plan's elements have 8 bytes", "this store's have 4")
}

// TestPlansOfOneState refuses a backward round of another plan than the forward one.
func TestPlansOfOneState(t *testing.T) {
	p := newProblem(9, 4, 2, 4, 4, attn.Causal(9, 9))
	b := newBook(t, p, mesh.Mesh{Head: 1, Ring: 2}, mesh.Zigzag, 8)
	other := newBook(t, p, mesh.Mesh{Head: 1, Ring: 2}, mesh.Contiguous, 8)
	mixed := &mixedBook{b, other}
	s := cpu.New[float64](mixed, 2, cpu.Options{})
	defer s.Close()
	setInputs(t, s, b, p, 0)
	steps := schedule(t, b.programs[0], rand.New(rand.NewPCG(1, 1)))
	if err := replay(s, 0, steps); err != nil {
		t.Fatal(err)
	}
	wantFault(t, s.Do(0, 1, 0), "both rounds of a state must be of one plan")
}

type mixedBook [2]*book

func (m *mixedBook) Round(rank, round int32) (cpu.Round, bool) {
	return m[round%2].Round(rank, round)
}

func TestMemoryLimitNamesTheSlot(t *testing.T) {
	b := &book{handHeader(), [2][]*plan.Program{{hand(
		do(plan.Zero, arg(plan.Write, plan.DQ, whole, 0, 4, 0)),
	)}}}
	s := cpu.New[float64](b, 1, cpu.Options{Arena: cpu.NewArena(0, 1000)})
	defer s.Close()
	wantFault(t, s.Do(0, 0, 0), "rank 0, round 0: slot 0 of 4096 bytes",
		"memory limit of 1000 bytes")
	if now, _ := s.Used(0); now != 0 {
		t.Errorf("%d bytes are held after a round that did not begin", now)
	}
}

// TestLargerThanTheSlot refuses a block that the slot has no right to.
func TestLargerThanTheSlot(t *testing.T) {
	p := hand(do(plan.Zero, arg(plan.Write, plan.DQ, whole, 0, 4, 0)))
	p.Slots[0].Bytes = 511
	s := cpu.New[float64](&book{handHeader(), [2][]*plan.Program{{p}}}, 1, cpu.Options{})
	defer s.Close()
	wantFault(t, s.Do(0, 0, 0), "has 512 bytes, slot 0 has room for 511")
}

// TestSlotsAreTakenAtTheStart: a rank holds its slots' memory from the first op of a round on,
// whatever its ops need of it.
func TestSlotsAreTakenAtTheStart(t *testing.T) {
	p := hand(
		do(plan.Zero, arg(plan.Write, plan.DQ, whole, 0, 4, 0)),
		do(plan.Zero, arg(plan.Write, plan.DQ, front, 0, 4, 0)),
	)
	s := cpu.New[float64](&book{handHeader(), [2][]*plan.Program{{p}}}, 1, cpu.Options{})
	defer s.Close()
	for op := range int32(2) {
		if err := s.Do(0, 0, op); err != nil {
			t.Fatal(err)
		}
		if now, peak := s.Used(0); now != p.PeakBytes() || peak != now {
			t.Errorf("op %d: %d bytes used, at most %d; want %d", op, now, peak, p.PeakBytes())
		}
	}
}

// TestOutTravelsWithoutItsState sends an out that lies in the block of its state.
func TestOutTravelsWithoutItsState(t *testing.T) {
	out := func(a plan.Access) plan.Operand { return arg(a, plan.Out, front, 0, 4, 0) }
	sender := hand(do(plan.Zero, arg(plan.Write, plan.State, front, 0, 4, 0)),
		do(plan.Finalize, arg(plan.HandOn, plan.State, front, 0, 4, 0), out(plan.Write)),
		handOp{plan.Send, 1, []plan.Operand{out(plan.Read)}})
	receiver := hand(handOp{plan.Recv, 0, []plan.Operand{out(plan.Write)}})
	receiver.Slots[0].Bytes = 4 * 4 * 3 * 8
	s := cpu.New[float64](&book{handHeader(), [2][]*plan.Program{{sender, receiver}}}, 2,
		cpu.Options{})
	defer s.Close()
	n, err := int64(0), error(nil)
	for _, call := range []func() error{
		func() error { return s.Do(0, 0, 0) },
		func() error { return s.Do(0, 0, 1) },
		func() error { return s.Post(1, 0, 0) },
		func() error { n, err = s.Hop(0, 1, 0, 2, 0); return err },
	} {
		if err := call(); err != nil {
			t.Fatal(err)
		}
	}
	if now, peak := s.Used(1); n != 4*4*3*8 || now > peak || peak != receiver.PeakBytes() {
		t.Errorf("%d bytes came, %d are used, at most %d; want %d and %d", n, now, peak, 4*4*3*8,
			receiver.PeakBytes())
	}
}

// TestFailedJobLeavesNothing ends a job that failed: what it was to write is not there.
func TestFailedJobLeavesNothing(t *testing.T) {
	s := cpu.New[float64](accumulators(), 1, cpu.Options{})
	defer s.Close()
	var job cpu.Job[float64]
	for op := range int32(2) {
		if _, err := s.Begin(0, 0, op, &job); err != nil {
			t.Fatal(err)
		}
		wantFault(t, s.Do(0, 0, 2), "is empty") // not there before End
		job.End(op == 0)
	}
	wantFault(t, s.Do(0, 0, 2), "slot 1 is empty")
	if err := s.Do(0, 0, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Begin(0, 0, 1, &job); err != nil {
		t.Fatal(err)
	}
	wantFault(t, s.Do(0, 0, 2), "slot 1 is empty") // its block is being written again
	job.End(true)
}

// TestOperandsMustAgree gives ops blocks of different rows or heads.
func TestOperandsMustAgree(t *testing.T) {
	w, r, a, c := plan.Write, plan.Read, plan.Add, plan.HandOn
	q, kv := arg(r, plan.Q, whole, 0, 4, 0), arg(r, plan.KV, whole, 0, 2, 1)
	dO, out := arg(r, plan.DO, whole, 0, 4, 2), arg(r, plan.Out, whole, 0, 4, 4)
	delta := arg(r, plan.Delta, whole, 0, 4, 5)
	few := func(x plan.Operand) plan.Operand {
		x.Set = front
		return x
	}
	dq, dkv := arg(a, plan.DQ, whole, 0, 4, 6), arg(w, plan.DKV, whole, 0, 2, 7)
	const others = "operands 0 and "
	ops := []struct {
		op   handOp
		want string
	}{
		{do(plan.Zero, arg(w, plan.State, front, 0, 4, 3)), ""},
		{do(plan.Attend, q, kv, arg(a, plan.State, front, 0, 4, 3)), "operands 0 and 2 have"},
		{do(plan.Zero, arg(w, plan.State, whole, 0, 4, 4)), ""},
		{do(plan.Attend, q, kv, arg(a, plan.State, whole, 0, 4, 4)), ""},
		{do(plan.Finalize, arg(c, plan.State, whole, 0, 4, 4), arg(w, plan.Out, whole, 0, 4, 4)),
			""},
		{do(plan.DeltaOp, dO, out, arg(w, plan.Delta, front, 0, 4, 5)), "operands 0 and 2 have"},
		{do(plan.DeltaOp, dO, out, arg(w, plan.Delta, whole, 0, 4, 5)), ""},
		{do(plan.Zero, arg(w, plan.DQ, whole, 0, 3, 6)), ""},
		{do(plan.AttendBackward, q, kv, dO, out, delta, arg(a, plan.DQ, whole, 0, 3, 6),
			arg(w, plan.DKV, whole, 0, 2, 7)), "operands 0 and 5 have"},
		{do(plan.Zero, arg(w, plan.DQ, whole, 0, 4, 6)), ""},
		{do(plan.AttendBackward, q, kv, few(dO), out, delta, dq, dkv), others + "2 have"},
		{do(plan.AttendBackward, q, kv, dO, few(out), delta, dq, dkv), others + "3 have"},
		{do(plan.AttendBackward, q, kv, dO, out, few(delta), dq, dkv), others + "4 have"},
		{do(plan.AttendBackward, q, kv, dO, out, delta, arg(a, plan.DQ, whole, 0, 4, 6),
			arg(w, plan.DKV, front, 0, 2, 7)), "operands 1 and 6 have"},
		{do(plan.AttendBackward, q, kv, dO, out, delta, arg(a, plan.DQ, whole, 0, 4, 6),
			arg(w, plan.DKV, whole, 0, 2, 7)), ""},
		{do(plan.Zero, arg(w, plan.DKV, whole, 0, 1, 3)), ""},
		{do(plan.Accumulate, arg(c, plan.DKV, whole, 0, 2, 7), arg(a, plan.DKV, whole, 0, 1, 3)),
			"operands 0 and 1 have"},
	}
	var all []handOp
	for _, o := range ops {
		all = append(all, o.op)
	}
	p := hand(all...)
	p.Slots = make([]plan.Slot, 8)
	for i := range p.Slots {
		p.Slots[i].Bytes = 4096
	}
	for i, x := range []plan.Operand{q, kv, dO} {
		role := [...]plan.Role{plan.HomeQ, plan.HomeKV, plan.HomeDO}[i]
		p.Slots[i] = plan.Slot{Role: role, In: true, Keep: true, Tensor: x.Tensor, Set: x.Set,
			Heads: x.Heads, Bytes: 4096}
	}
	b := &book{handHeader(), [2][]*plan.Program{{p}}}
	b.header.HomeQ, b.header.HomeK = []plan.SetID{whole}, []plan.SetID{whole}
	b.header.Ranks = 1
	s := cpu.New[float64](b, 1, cpu.Options{})
	defer s.Close()
	setInputs(t, s, b, newProblem(8, 4, 2, 2, 2, nil), 0)
	for i, o := range ops {
		err := s.Do(0, 0, int32(i))
		if o.want == "" && err != nil {
			t.Fatal(err)
		}
		if o.want != "" {
			wantFault(t, err, o.want)
		}
	}
}

// TestLateEnd ends a job when its rank has gone on to another round: there it leaves nothing.
func TestLateEnd(t *testing.T) {
	s := cpu.New[float64](accumulators(), 1, cpu.Options{})
	defer s.Close()
	var job cpu.Job[float64]
	if _, err := s.Begin(0, 0, 0, &job); err != nil {
		t.Fatal(err)
	}
	if err := s.Do(0, 1, 1); err != nil {
		t.Fatal(err)
	}
	job.End(true)
	wantFault(t, s.Do(0, 1, 2), "slot 0 is empty")
}
