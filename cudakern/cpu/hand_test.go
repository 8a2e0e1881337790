package cpu_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// The programs of these tests have 7 tokens, 3 heads, D = 3 and DV = 5, so that the elements of
// every part of every block are odd in number. Slots 0 to 5 are the session's.
const (
	sQ int32 = iota
	sKV
	sDO
	sOut
	sDQ
	sDKV
	sA // scratch from here on
	sB
	sC
	sD
	sE
)

const (
	all3 plan.SetID = iota + 1
	rows3
	rows4
)

// oddHeader is of elements and accumulators as wide as T's, or of BF16 in f32.
func oddHeader(bytes int) *plan.Header {
	return &plan.Header{
		Shape: plan.Shape{
			QTokens: 7, KTokens: 7, QHeads: 3, KHeads: 3, Dim: 3, VDim: 5, ElemBytes: bytes,
			AccBytes: max(bytes, 4), Scale: 0.5, SoftCap: 3, Mask: attn.Causal(7, 7),
		},
		Ranks: 1, HomeQ: []plan.SetID{all3}, HomeK: []plan.SetID{all3},
		Sets: []mesh.Set{nil, {{Start: 0, Stride: 1, Count: 7}}, {{Start: 0, Stride: 1, Count: 3}},
			{{Start: 3, Stride: 1, Count: 4}}},
		Names: []string{"none", "all", "front", "back"},
	}
}

// handRun runs a program on the odd problem's data and gives what it leaves in out, dq and dkv.
func handRun[T attn.Float](t *testing.T, h *plan.Header, opt cpu.Options, ops ...handOp) [][]T {
	t.Helper()
	s := handStore[T](t, h, opt, handSlots(ops...))
	defer s.Close()
	for i := range ops {
		if err := s.Do(0, 0, int32(i)); err != nil {
			t.Fatal(err)
		}
	}
	return handOutputs(t, s, 0)
}

// handSlots is a program over the session's slots and some scratch ones.
func handSlots(ops ...handOp) *plan.Program {
	prog := hand(ops...)
	prog.Pass = plan.Backward
	prog.Slots = make([]plan.Slot, sE+1)
	for i := range prog.Slots {
		prog.Slots[i].Bytes = 4096
	}
	for i, x := range []plan.Slot{
		{Role: plan.HomeQ, In: true, Tensor: plan.Q},
		{Role: plan.HomeKV, In: true, Tensor: plan.KV},
		{Role: plan.HomeDO, In: true, Tensor: plan.DO},
		{Role: plan.HomeOut}, {Role: plan.HomeDQ}, {Role: plan.HomeDKV},
	} {
		x.Keep, x.Set, x.Heads, x.Bytes = true, all3, mesh.Heads{Hi: 3}, 4096
		prog.Slots[i] = x
	}
	return prog
}

// handStore is a store of programs by rank, each rank with all of the odd problem's data.
func handStore[T attn.Float](t *testing.T, h *plan.Header, opt cpu.Options,
	programs ...*plan.Program) *cpu.Store[T] {
	t.Helper()
	p := newProblem(7, 3, 3, 3, 5, nil)
	if h.Sink {
		p.Sink = []float64{0.5, -1, 2}
	}
	b := &book{h, [2][]*plan.Program{programs}}
	s := cpu.New[T](b, len(programs), opt)
	setInputs(t, s, b, p, 0)
	return s
}

// handOutputs are a rank's out, lse, dq, dk and dv, as far as it has made them, and dsink.
func handOutputs[T attn.Float](t *testing.T, s *cpu.Store[T], rank int32) [][]T {
	t.Helper()
	var got [][]T
	for _, role := range []plan.Role{plan.HomeOut, plan.HomeDQ, plan.HomeDKV} {
		parts, err := s.Output(rank, 0, role)
		if err != nil {
			continue // not made by this program
		}
		for _, p := range parts {
			got = append(got, slices.Clone(p))
		}
	}
	return append(got, s.SinkGrad(rank, 0))
}

func near[T attn.Float](t *testing.T, what string, got, want [][]T, gate float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d results, want %d", what, len(got), len(want))
	}
	for i := range got {
		ref := make([]float64, len(want[i]))
		for k, x := range want[i] {
			ref[k] = float64(x)
		}
		if e := attn.Compare(got[i], ref); len(got[i]) != len(ref) || !e.OK(gate) {
			t.Errorf("%s: result %d has error %.3g, the gate is %g", what, i, e.Rel, gate)
		}
	}
}

// The regions that these programs name.
func all(a plan.Access, t plan.Tensor, slot int32) plan.Operand {
	return arg(a, t, all3, 0, 3, slot)
}

func part(a plan.Access, t plan.Tensor, set plan.SetID, slot int32) plan.Operand {
	return arg(a, t, set, 0, 3, slot)
}

const (
	rd = plan.Read
	wr = plan.Write
	ad = plan.Add
	ho = plan.HandOn
)

// attended leaves out in slot sOut and delta in slot sA.
func attended() []handOp {
	return []handOp{
		do(plan.Zero, all(wr, plan.State, sOut)),
		do(plan.Attend, all(rd, plan.Q, sQ), all(rd, plan.KV, sKV), all(ad, plan.State, sOut)),
		do(plan.Finalize, all(ho, plan.State, sOut), all(wr, plan.Out, sOut)),
		do(plan.DeltaOp, all(rd, plan.DO, sDO), all(rd, plan.Out, sOut), all(wr, plan.Delta, sA)),
		do(plan.Zero, all(wr, plan.DQ, sDQ)),
	}
}

// byHand is the backward pass of the plain form, on whole blocks.
func byHand() []handOp {
	return append(attended(), do(plan.AttendBackward, all(rd, plan.Q, sQ), all(rd, plan.KV, sKV),
		all(rd, plan.DO, sDO), all(rd, plan.Out, sOut), all(rd, plan.Delta, sA),
		all(ad, plan.DQ, sDQ), all(wr, plan.DKV, sDKV)))
}

func visitOf(set plan.SetID, to int32) handOp {
	return do(plan.VisitOp, part(rd, plan.Q, set, sQ), part(rd, plan.DO, set, sDO),
		part(rd, plan.Out, set, sOut), part(rd, plan.Delta, set, sA), part(wr, plan.Visit, set, to))
}

// eachStore runs a test with f64, and with BF16 in f32, each with both kernels.
func eachStore(t *testing.T, f64, bf16 func(*testing.T, int, cpu.Options)) {
	for _, k := range []cpu.Kernels{cpu.Portable, cpu.Twin} {
		opt := cpu.Options{Kernels: k, Poison: true}
		t.Run(fmt.Sprintf("f64 %v", k), func(t *testing.T) { f64(t, 8, opt) })
		t.Run(fmt.Sprintf("bf16 %v", k), func(t *testing.T) { bf16(t, 2, opt) })
	}
}

// TestVisit: attend-bwd from a visit, into a dkv that is there, gives the bits of the plain form;
// from visits of some rows each and onto regions of dkv it gives the same sums.
func TestVisit(t *testing.T) { eachStore(t, testVisit[float64], testVisit[float32]) }

func testVisit[T attn.Float](t *testing.T, bytes int, opt cpu.Options) {
	h := oddHeader(bytes)
	want := handRun[T](t, h, opt, byHand()...)
	whole := append(attended(), visitOf(all3, sB), do(plan.Zero, all(wr, plan.DKV, sDKV)),
		do(plan.AttendBackward, all(rd, plan.Visit, sB), all(rd, plan.KV, sKV),
			all(ad, plan.DQ, sDQ), all(ad, plan.DKV, sDKV)))
	got := handRun[T](t, h, opt, whole...)
	for i := range want {
		if !slices.Equal(got[i], want[i]) {
			t.Errorf("result %d is %v, want %v", i, got[i], want[i])
		}
	}
	cut := append(attended(), visitOf(rows3, sB), visitOf(rows4, sC),
		do(plan.Zero, all(wr, plan.DKV, sDKV)))
	for _, keys := range []plan.SetID{rows4, rows3} {
		for i, rows := range []plan.SetID{rows3, rows4} {
			cut = append(cut, do(plan.AttendBackward, part(rd, plan.Visit, rows, sB+int32(i)),
				part(rd, plan.KV, keys, sKV), part(ad, plan.DQ, rows, sDQ),
				part(ad, plan.DKV, keys, sDKV)))
		}
	}
	near(t, "cut visits", handRun[T](t, h, opt, cut...), want, gateOf[T]())
}

// gateOf bounds what another order of sums changes. Where gradients are rounded to BF16 at the end,
// a number may go to its other neighbour.
func gateOf[T attn.Float]() float64 {
	if _, narrow := any(T(0)).(float32); narrow {
		return 1.0 / 256
	}
	return 1e-14
}

// TestBlocksTravel sends a part, a dkv as bf16 and a visit to another rank, which makes of them
// what the first has.
func TestBlocksTravel(t *testing.T) { eachStore(t, testTravel[float64], testTravel[float32]) }

func testTravel[T attn.Float](t *testing.T, bytes int, opt cpu.Options) {
	h := oddHeader(bytes)
	h.Ranks, h.HomeQ, h.HomeK = 2, []plan.SetID{all3, all3}, []plan.SetID{all3, all3}
	made := append(byHand(), do(plan.Zero, all(wr, plan.State, sE)),
		do(plan.Attend, all(rd, plan.Q, sQ), all(rd, plan.KV, sKV), all(ad, plan.State, sE)),
		do(plan.Finalize, all(ho, plan.State, sE), all(wr, plan.Part, sE)), visitOf(all3, sD),
		do(plan.Zero, all(wr, plan.DQ, sDQ)),
		do(plan.AttendBackward, all(rd, plan.Visit, sD), all(rd, plan.KV, sKV),
			all(ad, plan.DQ, sDQ), all(wr, plan.DKV, sB)),
		do(plan.Pack, all(ho, plan.DKV, sB), all(wr, plan.DKVWire, sC)))
	first := int32(len(made))
	var recvs []handOp
	for i, x := range []plan.Operand{all(ho, plan.Part, sE), all(ho, plan.DKVWire, sC),
		all(rd, plan.Visit, sD)} {
		made = append(made, handOp{plan.Send, 1, []plan.Operand{x}})
		recvs = append(recvs, handOp{plan.Recv, 0, []plan.Operand{all(wr, x.Tensor, sA+int32(i))}})
	}
	here := append(recvs, do(plan.Zero, all(wr, plan.State, sOut)),
		do(plan.Accumulate, all(ho, plan.Part, sA), all(ad, plan.State, sOut)),
		do(plan.Finalize, all(ho, plan.State, sOut), all(wr, plan.Out, sOut)),
		do(plan.Zero, all(wr, plan.DQ, sDQ)), do(plan.Zero, all(wr, plan.DKV, sDKV)),
		do(plan.Accumulate, all(ho, plan.DKVWire, sB), all(ad, plan.DKV, sDKV)),
		do(plan.AttendBackward, all(rd, plan.Visit, sC), all(rd, plan.KV, sKV),
			all(ad, plan.DQ, sDQ), all(wr, plan.DKV, sD)))
	for _, opt.Copy = range []bool{false, true} {
		s := handStore[T](t, h, opt, handSlots(made...), handSlots(here...))
		for i, op := range append(made, here...) {
			rank, n, err := int32(0), int32(i), error(nil)
			if i >= len(made) {
				rank, n = 1, n-int32(len(made))
			}
			switch to := n - first; op.kind {
			case plan.Recv:
			case plan.Send:
				if err = s.Post(1, 0, to); err == nil {
					var size int64
					size, err = s.Hop(0, 1, 0, n, to)
					if want := h.Bytes(op.args[0].Tensor, 7, 3); size != want {
						t.Errorf("%v had %d bytes on its way, want %d", op.args[0].Tensor, size,
							want)
					}
				}
			default:
				err = s.Do(rank, 0, n)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		got, want := handOutputs(t, s, 1), handOutputs(t, s, 0)
		for i := range want[:5] {
			if i > 2 { // dk and dv
				short := make([]attn.BF16, len(want[i]))
				attn.Narrow(short, want[i])
				attn.Widen(want[i], short)
			}
			if !slices.Equal(got[i], want[i]) {
				t.Errorf("copy %v: result %d is %v, want %v", opt.Copy, i, got[i], want[i])
			}
		}
		s.Close()
	}
}

// TestMergedParts merges a part of other keys, of all rows or of some rows and heads, into a state.
func TestMergedParts(t *testing.T) { eachStore(t, testParts[float64], testParts[float32]) }

func testParts[T attn.Float](t *testing.T, bytes int, opt cpu.Options) {
	h := oddHeader(bytes)
	h.Sink = true
	attend := func(rows, keys plan.SetID, st int32) handOp {
		return do(plan.Attend, part(rd, plan.Q, rows, sQ), part(rd, plan.KV, keys, sKV),
			part(ad, plan.State, rows, st))
	}
	zero := func(rows plan.SetID, st int32) handOp {
		return do(plan.Zero, part(wr, plan.State, rows, st))
	}
	finish := do(plan.Finalize, all(ho, plan.State, sOut), all(wr, plan.Out, sOut))
	toPart := func(rows plan.SetID, st int32) handOp {
		return do(plan.Finalize, part(ho, plan.State, rows, st), part(wr, plan.Part, rows, st))
	}
	want := handRun[T](t, h, opt, zero(all3, sOut), attend(all3, all3, sOut), finish)
	for name, ops := range map[string][]handOp{
		"part last": {zero(all3, sOut), attend(all3, rows3, sOut), zero(all3, sA),
			attend(all3, rows4, sA), toPart(all3, sA),
			do(plan.Accumulate, all(ho, plan.Part, sA), all(ad, plan.State, sOut)), finish},
		"part first": {zero(all3, sOut), zero(all3, sA), attend(all3, rows4, sA), toPart(all3, sA),
			do(plan.Accumulate, all(ho, plan.Part, sA), all(ad, plan.State, sOut)),
			attend(all3, rows3, sOut), finish},
		"rows and heads": {zero(all3, sOut), attend(all3, rows3, sOut),
			zero(rows4, sA), attend(rows4, rows4, sA), toPart(rows4, sA),
			do(plan.Accumulate, arg(ho, plan.Part, rows4, 0, 1, sA),
				arg(ad, plan.State, rows4, 0, 1, sOut)),
			do(plan.Accumulate, arg(ho, plan.Part, rows4, 1, 3, sA),
				arg(ad, plan.State, rows4, 1, 3, sOut)), finish},
	} {
		near(t, name, handRun[T](t, h, opt, ops...), want, max(gateOf[T](), 1e-14))
	}
}

// TestRoundedOnTheWay packs dkv as bf16, whole and in regions, and adds it to zero.
func TestRoundedOnTheWay(t *testing.T) { eachStore(t, testWire[float64], testWire[float32]) }

func testWire[T attn.Float](t *testing.T, bytes int, opt cpu.Options) {
	h := oddHeader(bytes)
	want := handRun[T](t, h, opt, byHand()...)
	for _, x := range want[3:5] {
		short := make([]attn.BF16, len(x))
		attn.Narrow(short, x)
		attn.Widen(x, short)
	}
	plain := byHand()
	last := &plain[len(plain)-1].args[6]
	last.Slot = sB
	whole := append(slices.Clone(plain),
		do(plan.Pack, all(ho, plan.DKV, sB), all(wr, plan.DKVWire, sC)),
		do(plan.Zero, all(wr, plan.DKV, sDKV)),
		do(plan.Accumulate, all(ho, plan.DKVWire, sC), all(ad, plan.DKV, sDKV)))
	cut := append(slices.Clone(plain),
		do(plan.Pack, part(ho, plan.DKV, rows4, sB), part(wr, plan.DKVWire, rows4, sC)),
		do(plan.Pack, part(ho, plan.DKV, rows3, sB), part(wr, plan.DKVWire, rows3, sD)),
		do(plan.Zero, all(wr, plan.DKV, sDKV)))
	for _, x := range []struct {
		set  plan.SetID
		slot int32
	}{{rows3, sD}, {rows4, sC}} {
		cut = append(cut, do(plan.Accumulate, part(ho, plan.DKVWire, x.set, x.slot),
			part(ad, plan.DKV, x.set, sDKV)))
	}
	for _, ops := range [][]handOp{whole, cut} {
		got := handRun[T](t, h, opt, ops...)
		for i := range want {
			if !slices.Equal(got[i], want[i]) {
				t.Errorf("result %d is %v, want %v", i, got[i], want[i])
			}
		}
	}
}

// TestSharedAccumulators refuses to add to an accumulator that a peer holds too, as after a send
// that should have handed it on.
func TestSharedAccumulators(t *testing.T) {
	h := oddHeader(8)
	h.Ranks, h.HomeQ, h.HomeK = 2, []plan.SetID{all3, all3}, []plan.SetID{all3, all3}
	for _, x := range []struct {
		tensor plan.Tensor
		op     handOp
	}{
		{plan.State, do(plan.Attend, all(rd, plan.Q, sQ), all(rd, plan.KV, sKV),
			all(ad, plan.State, sB))},
		{plan.State, do(plan.Finalize, all(ho, plan.State, sB), all(wr, plan.Out, sB))},
		{plan.DQ, do(plan.Accumulate, all(ho, plan.DQ, sDQ), all(ad, plan.DQ, sB))},
		{plan.DQ, do(plan.AttendBackward, all(rd, plan.Visit, sC), all(rd, plan.KV, sKV),
			all(ad, plan.DQ, sB), all(wr, plan.DKV, sD))},
		{plan.DKV, do(plan.AttendBackward, all(rd, plan.Visit, sC), all(rd, plan.KV, sKV),
			all(ad, plan.DQ, sDQ), all(ad, plan.DKV, sB))},
	} {
		ops := append(attended(), visitOf(all3, sC), do(plan.Zero, all(wr, x.tensor, sB)))
		n := int32(len(ops))
		ops = append(ops, handOp{plan.Send, 1, []plan.Operand{all(rd, x.tensor, sB)}}, x.op)
		there := handSlots(handOp{plan.Recv, 0, []plan.Operand{all(wr, x.tensor, sB)}})
		s := handStore[float64](t, h, cpu.Options{}, handSlots(ops...), there)
		for i := range n {
			if err := s.Do(0, 0, i); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Post(1, 0, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Hop(0, 1, 0, n, 0); err != nil {
			t.Fatal(err)
		}
		wantFault(t, s.Do(0, 0, n+1), "the accumulator in slot 7 is held 2 times")
		s.Close()
	}
}
