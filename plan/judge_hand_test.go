package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// fixed is a plan whose programs are all there.
type fixed struct {
	hdr   *plan.Header
	progs [2][]*plan.Program
}

// Header is what all programs share.
func (f *fixed) Header() *plan.Header { return f.hdr }

// Passes are those with programs.
func (f *fixed) Passes() []plan.Pass {
	if f.progs[plan.Backward] == nil {
		return []plan.Pass{plan.Forward}
	}
	return []plan.Pass{plan.Forward, plan.Backward}
}

// Program is one rank's program of a pass.
func (f *fixed) Program(pass plan.Pass, rank int) (*plan.Program, error) {
	return f.progs[pass][rank], nil
}

// handTensors are the tensors' names in programs written by hand, the longest that fits counts.
func handTensors() []string {
	return []string{"q", "kv", "st", "o", "do", "de", "dq", "dkv", "part", "visit", "dkvw"}
}

// byHand reads one program. First the slots, one a line: "slot role tensor[set,lo:hi] in keep";
// then the ops in the form of plan texts, as "attend rq[a,0:2]@s0 rkv[a,0:1]@s2 +st[a,0:2]@s5
// after 4 5". Slots are as large as what is written there, or their frame.
func byHand(hdr *plan.Header, pass plan.Pass, rank int, text string) *plan.Program {
	p := &plan.Program{Rank: rank, Pass: pass}
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		f := strings.Fields(line)
		if f[0] == "slot" {
			p.Slots = append(p.Slots, handSlot(hdr, f[1:]))
			continue
		}
		op, args, deps := handOp(hdr, f)
		for _, a := range args {
			if s := &p.Slots[a.Slot]; a.Access == plan.Write || op.Kind == plan.Finalize {
				s.Bytes = max(s.Bytes, hdr.OperandBytes(&a))
			}
		}
		p.Append(op, args, deps)
	}
	return p
}

func handSlot(hdr *plan.Header, f []string) plan.Slot {
	var s plan.Slot
	for _, w := range f {
		switch {
		case w == "in":
			s.In = true
		case w == "keep":
			s.Keep = true
		case strings.Contains(w, "["):
			a := handOperand(hdr, "r"+w+"@s0")
			s.Tensor, s.Set, s.Heads = a.Tensor, a.Set, a.Heads
			s.Bytes = hdr.OperandBytes(&a)
		default:
			for i, name := range []string{"scratch", "HomeQ", "HomeKV", "HomeOut", "HomeDO",
				"HomeDQ", "HomeDKV", "HeadQ", "HeadKV", "HeadOut"} {
				if name == w {
					s.Role = plan.Role(i)
				}
			}
		}
	}
	return s
}

func handOp(hdr *plan.Header, f []string) (op plan.Op, args []plan.Operand, deps []int32) {
	op.Peer = -1
	for k := plan.Pack; k <= plan.VisitOp; k++ {
		if k.String() == f[0] {
			op.Kind = k
		}
	}
	after := false
	for _, w := range f[1:] {
		switch {
		case after:
			var d int32
			scan(w, "%d", &d)
			deps = append(deps, d)
		case w == "after":
			after = true
		case w[:2] == "->" || w[:2] == "<-":
			scan(w[2:], "%d/%d/%d", &op.Peer, &op.Lane, &op.Tick)
		default:
			args = append(args, handOperand(hdr, w))
		}
	}
	return op, args, deps
}

// handOperand reads an access (r w + c), a tensor, a set's name, heads and a slot.
func handOperand(hdr *plan.Header, w string) plan.Operand {
	a := plan.Operand{Access: plan.Access(strings.IndexByte("rw+c", w[0]))}
	name, rest, _ := strings.Cut(w[1:], "[")
	for t, n := range handTensors() {
		if n == name {
			a.Tensor = plan.Tensor(t)
		}
	}
	set, rest, _ := strings.Cut(rest, ",")
	for id, n := range hdr.Names {
		if n == set {
			a.Set = plan.SetID(id)
		}
	}
	scan(rest, "%d:%d]@s%d", &a.Heads.Lo, &a.Heads.Hi, &a.Slot)
	return a
}

func scan(s, form string, to ...any) {
	if _, err := fmt.Sscanf(s, form, to...); err != nil {
		panic(fmt.Sprintf("%q is not of the form %q: %v", s, form, err))
	}
}

func handHeader(ranks, tokens int, mask attn.Mask) *plan.Header {
	half := tokens / 2
	h := &plan.Header{
		Shape: plan.Shape{
			QTokens: tokens, KTokens: tokens, QHeads: 2, KHeads: 1, Dim: 2, VDim: 2,
			ElemBytes: 4, AccBytes: 4, Scale: 1, Mask: mask,
		},
		Ranks: ranks,
		Sets: []mesh.Set{
			nil,
			{{Start: 0, Stride: 1, Count: tokens}},
			{{Start: 0, Stride: 1, Count: half}},
			{{Start: half, Stride: 1, Count: tokens - half}},
		},
		Names: []string{"none", "all", "a", "b"},
		HomeQ: []plan.SetID{1}, HomeK: []plan.SetID{1},
	}
	if ranks == 2 {
		h.HomeQ, h.HomeK = []plan.SetID{2, 3}, []plan.SetID{2, 3}
	}
	return h
}

func handPlan(hdr *plan.Header, texts ...string) *fixed {
	f := &fixed{hdr: hdr}
	for i, text := range texts {
		pass, rank := plan.Pass(i/hdr.Ranks), i%hdr.Ranks
		f.progs[pass] = append(f.progs[pass], byHand(hdr, pass, rank, text))
	}
	return f
}

// alone is one rank, no transfers.
func alone() *fixed {
	return handPlan(handHeader(1, 4, attn.Causal(4, 4)), `
		slot HomeQ q[all,0:2] in keep
		slot HomeKV kv[all,0:1] in keep
		slot HomeOut o[all,0:2] keep
		zero wst[all,0:2]@s2
		attend rq[all,0:2]@s0 rkv[all,0:1]@s1 +st[all,0:2]@s2 after 0
		finalize cst[all,0:2]@s2 wo[all,0:2]@s2 after 1
	`, `
		slot HomeQ q[all,0:2] in keep
		slot HomeKV kv[all,0:1] in keep
		slot HomeOut o[all,0:2] in keep
		slot HomeDO do[all,0:2] in keep
		slot HomeDQ dq[all,0:2] keep
		slot HomeDKV dkv[all,0:1] keep
		slot scratch
		delta rdo[all,0:2]@s3 ro[all,0:2]@s2 wde[all,0:2]@s6
		zero wdq[all,0:2]@s4
		attend-bwd rq[all,0:2]@s0 rkv[all,0:1]@s1 rdo[all,0:2]@s3 ro[all,0:2]@s2 `+
		`rde[all,0:2]@s6 +dq[all,0:2]@s4 wdkv[all,0:1]@s5 after 0 1
		release rde[all,0:2]@s6 after 2
	`)
}

// ring is two ranks with a causal mask: rank 1 needs the keys of both, rank 0 only its own. Rank
// 0's block comes to rank 1, and the gradient of it goes back as rank 1's part plus rank 0's.
func ring() *fixed {
	return handPlan(handHeader(2, 4, attn.Causal(4, 4)), `
		slot HomeQ q[a,0:2] in keep
		slot HomeKV kv[a,0:1] in keep
		slot HomeOut o[a,0:2] keep
		zero wst[a,0:2]@s2
		send rkv[a,0:1]@s1 ->1/0/1
		attend rq[a,0:2]@s0 rkv[a,0:1]@s1 +st[a,0:2]@s2 after 0
		finalize cst[a,0:2]@s2 wo[a,0:2]@s2 after 2
	`, `
		slot HomeQ q[b,0:2] in keep
		slot HomeKV kv[b,0:1] in keep
		slot HomeOut o[b,0:2] keep
		slot scratch
		zero wst[b,0:2]@s2
		attend rq[b,0:2]@s0 rkv[b,0:1]@s1 +st[b,0:2]@s2 after 0
		recv wkv[a,0:1]@s3 <-0/0/1
		attend rq[b,0:2]@s0 rkv[a,0:1]@s3 +st[b,0:2]@s2 after 1 2
		release rkv[a,0:1]@s3 after 3
		finalize cst[b,0:2]@s2 wo[b,0:2]@s2 after 3
	`, `
		slot HomeQ q[a,0:2] in keep
		slot HomeKV kv[a,0:1] in keep
		slot HomeOut o[a,0:2] in keep
		slot HomeDO do[a,0:2] in keep
		slot HomeDQ dq[a,0:2] keep
		slot HomeDKV dkv[a,0:1] keep
		slot scratch
		slot scratch
		delta rdo[a,0:2]@s3 ro[a,0:2]@s2 wde[a,0:2]@s6
		zero wdq[a,0:2]@s4
		send rkv[a,0:1]@s1 ->1/0/1
		attend-bwd rq[a,0:2]@s0 rkv[a,0:1]@s1 rdo[a,0:2]@s3 ro[a,0:2]@s2 `+
		`rde[a,0:2]@s6 +dq[a,0:2]@s4 wdkv[a,0:1]@s7 after 0 1
		release rde[a,0:2]@s6 after 3
		recv wdkv[a,0:1]@s5 <-1/1/2
		accumulate cdkv[a,0:1]@s7 +dkv[a,0:1]@s5 after 3 5
		release rdkv[a,0:1]@s7 after 6
	`, `
		slot HomeQ q[b,0:2] in keep
		slot HomeKV kv[b,0:1] in keep
		slot HomeOut o[b,0:2] in keep
		slot HomeDO do[b,0:2] in keep
		slot HomeDQ dq[b,0:2] keep
		slot HomeDKV dkv[b,0:1] keep
		slot scratch
		slot scratch
		slot scratch
		delta rdo[b,0:2]@s3 ro[b,0:2]@s2 wde[b,0:2]@s6
		zero wdq[b,0:2]@s4
		recv wkv[a,0:1]@s7 <-0/0/1
		attend-bwd rq[b,0:2]@s0 rkv[b,0:1]@s1 rdo[b,0:2]@s3 ro[b,0:2]@s2 `+
		`rde[b,0:2]@s6 +dq[b,0:2]@s4 wdkv[b,0:1]@s5 after 0 1
		attend-bwd rq[b,0:2]@s0 rkv[a,0:1]@s7 rdo[b,0:2]@s3 ro[b,0:2]@s2 `+
		`rde[b,0:2]@s6 +dq[b,0:2]@s4 wdkv[a,0:1]@s8 after 2 3
		release rkv[a,0:1]@s7 after 4
		release rde[b,0:2]@s6 after 4
		send cdkv[a,0:1]@s8 ->0/1/2 after 4
		release rdkv[a,0:1]@s8 after 7
	`)
}

// shuffle is two ranks that share the tokens of one shard by halves and split the query heads; the
// one KV head is on both, so its gradient comes home in two parts.
func shuffle() *fixed {
	var texts []string
	for pass := range 2 {
		for r := range 2 {
			text := shuffleForward()
			if pass == 1 {
				text = shuffleBackward()
			}
			me, other := []string{"a", "b"}[r], []string{"b", "a"}[r]
			texts = append(texts, strings.NewReplacer("ME", me, "OTHER", other,
				"MINE", fmt.Sprintf("%d:%d", r, r+1), "THEIRS", fmt.Sprintf("%d:%d", 1-r, 2-r),
				"PEER", fmt.Sprint(1-r)).Replace(text))
		}
	}
	return handPlan(handHeader(2, 5, attn.Full(5, 5)), texts...)
}

func shuffleForward() string {
	return `
		slot HomeQ q[ME,0:2] in keep
		slot HomeKV kv[ME,0:1] in keep
		slot HomeOut o[ME,0:2] keep
		slot HeadQ q[all,MINE] keep
		slot HeadKV kv[all,0:1] keep
		slot HeadOut o[all,MINE] keep
		slot scratch
		slot scratch
		slot scratch
		slot scratch
		pack rq[ME,THEIRS]@s0 wq[ME,THEIRS]@s6
		send rq[ME,THEIRS]@s6 ->PEER/3/1 after 0
		release rq[ME,THEIRS]@s6 after 1
		recv wq[OTHER,MINE]@s7 <-PEER/3/1
		unpack rq[ME,MINE]@s0 rq[OTHER,MINE]@s7 wq[all,MINE]@s3 after 3
		release rq[OTHER,MINE]@s7 after 4
		send rkv[ME,0:1]@s1 ->PEER/2/1
		recv wkv[OTHER,0:1]@s8 <-PEER/2/1
		unpack rkv[ME,0:1]@s1 rkv[OTHER,0:1]@s8 wkv[all,0:1]@s4 after 7
		release rkv[OTHER,0:1]@s8 after 8
		zero wst[all,MINE]@s5
		attend rq[all,MINE]@s3 rkv[all,0:1]@s4 +st[all,MINE]@s5 after 4 8 10
		finalize cst[all,MINE]@s5 wo[all,MINE]@s5 after 11
		send ro[OTHER,MINE]@s5 ->PEER/3/2 after 12
		recv wo[ME,THEIRS]@s9 <-PEER/3/2
		unpack ro[ME,MINE]@s5 ro[ME,THEIRS]@s9 wo[ME,0:2]@s2 after 12 14
		release ro[ME,THEIRS]@s9 after 15
	`
}

func shuffleBackward() string {
	return `
		slot HeadQ q[all,MINE] in keep
		slot HeadKV kv[all,0:1] in keep
		slot HeadOut o[all,MINE] in keep
		slot HomeDO do[ME,0:2] in keep
		slot HomeDQ dq[ME,0:2] keep
		slot HomeDKV dkv[ME,0:1] keep
		slot scratch
		slot scratch
		slot scratch
		slot scratch
		slot scratch
		slot scratch
		slot scratch
		send rdo[ME,THEIRS]@s3 ->PEER/3/1
		recv wdo[OTHER,MINE]@s6 <-PEER/3/1
		unpack rdo[ME,MINE]@s3 rdo[OTHER,MINE]@s6 wdo[all,MINE]@s7 after 1
		release rdo[OTHER,MINE]@s6 after 2
		delta rdo[all,MINE]@s7 ro[all,MINE]@s2 wde[all,MINE]@s8 after 2
		zero wdq[all,MINE]@s9
		attend-bwd rq[all,MINE]@s0 rkv[all,0:1]@s1 rdo[all,MINE]@s7 ro[all,MINE]@s2 ` +
		`rde[all,MINE]@s8 +dq[all,MINE]@s9 wdkv[all,0:1]@s10 after 4 5
		release rde[all,MINE]@s8 after 6
		release rdo[all,MINE]@s7 after 6
		send cdq[OTHER,MINE]@s9 ->PEER/3/2 after 6
		recv wdq[ME,THEIRS]@s11 <-PEER/3/2
		unpack cdq[ME,MINE]@s9 cdq[ME,THEIRS]@s11 wdq[ME,0:2]@s4 after 6 10
		release rdq[all,MINE]@s9 after 9 11
		release rdq[ME,THEIRS]@s11 after 11
		send cdkv[OTHER,0:1]@s10 ->PEER/2/2 after 6
		recv wdkv[ME,0:1]@s12 <-PEER/2/2
		unpack cdkv[ME,0:1]@s10 cdkv[ME,0:1]@s12 wdkv[ME,0:1]@s5 after 6 15
		release rdkv[all,0:1]@s10 after 14 16
		release rdkv[ME,0:1]@s12 after 16
	`
}

// TestJudgeClean: plans written by hand run clean in many orders, also with any one op held back,
// and the order of additions is the same in all.
func TestJudgeClean(t *testing.T) {
	for _, src := range byHands() {
		if err := judgeOrders(src, 1, 200, nil); err != nil {
			t.Error(err)
		}
		if err := verifyAll(src); err != nil {
			t.Error(err)
		}
		for pass, progs := range src.progs {
			for rank, p := range progs {
				for i := range p.Ops {
					at := place{plan.Pass(pass), rank, i}
					if err := Judge(src, uint64(i), &at); err != nil {
						t.Errorf("%v late: %v", at, err)
					}
				}
			}
		}
	}
}

// TestJudgeMissesNothing: these plans have no op and no dependency that they could do without, so
// without any one of them the judge must find an order that goes wrong.
func TestJudgeMissesNothing(t *testing.T) {
	for _, src := range byHands() {
		for pass, progs := range src.progs {
			for rank, p := range progs {
				for i := range p.Ops {
					at := place{plan.Pass(pass), rank, i}
					e := newEdit(src, 1)
					what := e.dropOp(at)
					if judgeOrders(e.build(), 1, 20, e.near) == nil || verifyAll(e.build()) == nil {
						t.Errorf("runs clean, or is accepted: %s", what)
					}
					for k := range p.Deps(i) {
						e := newEdit(src, 1)
						e.near = []place{{at.pass, rank, int(p.Deps(i)[k])}, at}
						op := e.op(at)
						op.deps = slices.Delete(op.deps, k, k+1)
						if judgeOrders(e.build(), 1, 20, e.near) == nil {
							t.Errorf("runs clean: %s without wait for %d", e.name(at), p.Deps(i)[k])
						}
					}
				}
			}
		}
	}
}

// breakage is a plan written by hand with one mistake, and words of what the judge says of it.
type breakage struct {
	name   string
	src    *fixed
	change func(e *edit)
	want   string
}

func breakages() []breakage {
	const f, b = plan.Forward, plan.Backward
	op := func(e *edit, pass plan.Pass, rank, n int) *draftOp { return e.op(place{pass, rank, n}) }
	drop := func(pass plan.Pass, rank, n int) func(e *edit) {
		return func(e *edit) { e.prog(pass, rank).drop(n, true) }
	}
	free := func(pass plan.Pass, rank, n, dep int) func(e *edit) {
		return func(e *edit) {
			o := op(e, pass, rank, n)
			o.deps = append(o.deps[:dep:dep], o.deps[dep+1:]...)
		}
	}
	return []breakage{
		{"attend missing", ring(), drop(f, 1, 3), "0 times instead of 1"},
		{"attend twice", alone(), func(e *edit) {
			d := e.prog(f, 0)
			again := d.ops[1]
			again.deps = []int32{1}
			d.insert(2, again)
			d.ops[3].deps = []int32{2}
		}, "2 times instead of 1"},
		{"recv missing", ring(), drop(f, 1, 2), "holds nothing"},
		{"credit missing", shuffle(), drop(b, 0, 15), "holds nothing|hang"},
		{"send missing", shuffle(), drop(f, 0, 6), "never ends"},
		{"release missing", ring(), drop(f, 1, 4), "left taken"},
		{"no wait for recv", ring(), free(f, 1, 3, 1), "holds nothing|being written"},
		{"no order of additions", ring(), free(f, 1, 3, 0),
			"at the same time|in another order|being written|holds nothing"},
		{"release too soon", shuffle(), free(f, 0, 2, 0), "in use by|holds nothing|being written"},
		{"piece too soon", shuffle(), free(f, 0, 1, 0), "holds nothing|being written"},
		{"read after hand-on", shuffle(), free(b, 1, 9, 0), "at the same time|handed on|holds"},
		{"part not handed on", shuffle(), func(e *edit) {
			e.prog(b, 0).drop(9, true)
			e.prog(b, 1).drop(10, true)
		}, "holds nothing"},
		{"part lost", ring(), drop(b, 0, 6), "not handed on"},
		{"header", ring(), func(e *edit) { op(e, f, 0, 1).args[0].Heads.Hi = 0 }, "is empty"},
		{"header of a part", shuffle(), func(e *edit) {
			op(e, f, 0, 13).args[0].Set = 2
		}, "sends another block"},
		{"write to a live slot", ring(), func(e *edit) {
			op(e, f, 1, 2).args[0].Slot = 2
		}, "holds a live block|holds nothing|another tensor"},
		{"outside of the block", ring(), func(e *edit) {
			op(e, f, 0, 1).args[0].Set = 3
			op(e, f, 1, 2).args[0].Set = 3
		}, "outside of the block"},
		{"slot too small", ring(), func(e *edit) { e.prog(f, 1).slots[3].Bytes-- }, "bytes into"},
		{"result not kept", ring(), func(e *edit) { e.prog(b, 1).slots[4].Keep = false },
			"left taken"},
		{"result of another", ring(), func(e *edit) {
			e.hdr.HomeQ = []plan.SetID{3, 2}
		}, "no such block lives there"},
		{"head block not kept", shuffle(), func(e *edit) { e.prog(f, 0).slots[3].Keep = false },
			"left taken"},
		{"both receive first", shuffle(), func(e *edit) {
			for r := range 2 {
				op(e, f, r, 6).deps = []int32{7}
			}
		}, "hang"},
		{"circle", alone(), func(e *edit) { op(e, f, 0, 0).deps = []int32{2} }, "circle"},
		{"lanes cross", shuffle(), func(e *edit) {
			op(e, f, 0, 1).Tick, op(e, f, 0, 13).Tick = 2, 1
		}, "hang|sends another"},
		{"tick twice", shuffle(), func(e *edit) { op(e, f, 0, 13).Tick = 1 }, "lane and tick"},
		{"shared, replica lost", shuffle(), func(e *edit) {
			o := op(e, b, 0, 16)
			o.args = append(o.args[:1:1], o.args[2:]...)
		}, "not handed on"},
		{"wrong access", alone(), func(e *edit) {
			op(e, f, 0, 1).args[2].Access = plan.Read
		}, "reads an accumulator"},
		{"heads not served", shuffle(), func(e *edit) {
			e.hdr.KHeads = 2
		}, "no such block|wrong kind"},
	}
}

// TestJudgeFaults: the judge sees each kind of fault and says the right thing of it.
func TestJudgeFaults(t *testing.T) {
	for _, x := range append(breakages(), visitBreakages()...) {
		e := newEdit(x.src, 1)
		x.change(e)
		src := e.build()
		if src == nil {
			src = &fixed{hdr: &e.hdr, progs: x.src.progs}
		}
		err := judgeOrders(src, 1, 20, nil)
		if err == nil {
			t.Errorf("%s: runs clean", x.name)
			continue
		}
		ok := false
		for _, want := range strings.Split(x.want, "|") {
			ok = ok || strings.Contains(err.Error(), want)
		}
		if !ok {
			t.Errorf("%s: %q does not say %q", x.name, err, x.want)
		}
	}
}
