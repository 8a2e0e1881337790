package plan_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// visits is two ranks with a causal mask and a sink, where keys stay and the queries of rank 1 go
// to rank 0: forward a part of out comes back and is merged, backward their dQ.
func visits() *fixed {
	h := handHeader(2, 4, attn.Causal(4, 4))
	h.Sink = true
	return handPlan(h, `
		slot HomeQ q[a,0:2] in keep
		slot HomeKV kv[a,0:1] in keep
		slot HomeOut o[a,0:2] keep
		slot scratch
		slot scratch
		zero wst[a,0:2]@s2
		attend rq[a,0:2]@s0 rkv[a,0:1]@s1 +st[a,0:2]@s2 after 0
		finalize cst[a,0:2]@s2 wo[a,0:2]@s2 after 1
		recv wq[b,0:2]@s3 <-1/7/1
		zero wst[b,0:2]@s4
		attend rq[b,0:2]@s3 rkv[a,0:1]@s1 +st[b,0:2]@s4 after 3 4
		release rq[b,0:2]@s3 after 5
		finalize cst[b,0:2]@s4 wpart[b,0:2]@s4 after 5
		send cpart[b,0:2]@s4 ->1/9/2 after 7
		release rpart[b,0:2]@s4 after 8
	`, `
		slot HomeQ q[b,0:2] in keep
		slot HomeKV kv[b,0:1] in keep
		slot HomeOut o[b,0:2] keep
		slot scratch
		send rq[b,0:2]@s0 ->0/7/1
		zero wst[b,0:2]@s2
		attend rq[b,0:2]@s0 rkv[b,0:1]@s1 +st[b,0:2]@s2 after 1
		recv wpart[b,0:2]@s3 <-0/9/2
		accumulate cpart[b,0:2]@s3 +st[b,0:2]@s2 after 2 3
		release rpart[b,0:2]@s3 after 4
		finalize cst[b,0:2]@s2 wo[b,0:2]@s2 after 4
	`, `
		slot HomeQ q[a,0:2] in keep
		slot HomeKV kv[a,0:1] in keep
		slot HomeOut o[a,0:2] in keep
		slot HomeDO do[a,0:2] in keep
		slot HomeDQ dq[a,0:2] keep
		slot HomeDKV dkv[a,0:1] keep
		slot scratch
		slot scratch
		slot scratch
		delta rdo[a,0:2]@s3 ro[a,0:2]@s2 wde[a,0:2]@s6
		zero wdq[a,0:2]@s4
		zero wdkv[a,0:1]@s5
		attend-bwd rq[a,0:2]@s0 rkv[a,0:1]@s1 rdo[a,0:2]@s3 ro[a,0:2]@s2 `+
		`rde[a,0:2]@s6 +dq[a,0:2]@s4 +dkv[a,0:1]@s5 after 0 1 2
		release rde[a,0:2]@s6 after 3
		recv wvisit[b,0:2]@s7 <-1/7/1
		zero wdq[b,0:2]@s8
		attend-bwd rvisit[b,0:2]@s7 rkv[a,0:1]@s1 +dq[b,0:2]@s8 +dkv[a,0:1]@s5 after 3 5 6
		release rvisit[b,0:2]@s7 after 7
		send cdq[b,0:2]@s8 ->1/8/2 after 7
		release rdq[b,0:2]@s8 after 9
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
		visit rq[b,0:2]@s0 rdo[b,0:2]@s3 ro[b,0:2]@s2 rde[b,0:2]@s6 wvisit[b,0:2]@s7 after 0
		release rde[b,0:2]@s6 after 1
		zero wdq[b,0:2]@s4
		send rvisit[b,0:2]@s7 ->0/7/1 after 1
		attend-bwd rvisit[b,0:2]@s7 rkv[b,0:1]@s1 +dq[b,0:2]@s4 wdkv[b,0:1]@s5 after 1 3
		release rvisit[b,0:2]@s7 after 4 5
		recv wdq[b,0:2]@s8 <-0/8/2
		accumulate cdq[b,0:2]@s8 +dq[b,0:2]@s4 after 5 7
		release rdq[b,0:2]@s8 after 8
	`)
}

// narrow is ring with the gradient of rank 0's keys rounded for the way: what rank 1 finds is
// packed as dkvw and added to rank 0's own part at home.
func narrow() *fixed {
	src := ring()
	src.progs[plan.Backward] = []*plan.Program{
		byHand(src.hdr, plan.Backward, 0, `
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
			`rde[a,0:2]@s6 +dq[a,0:2]@s4 wdkv[a,0:1]@s5 after 0 1
		release rde[a,0:2]@s6 after 3
		recv wdkvw[a,0:1]@s7 <-1/1/2
		accumulate cdkvw[a,0:1]@s7 +dkv[a,0:1]@s5 after 3 5
		release rdkvw[a,0:1]@s7 after 6
		`),
		byHand(src.hdr, plan.Backward, 1, `
		slot HomeQ q[b,0:2] in keep
		slot HomeKV kv[b,0:1] in keep
		slot HomeOut o[b,0:2] in keep
		slot HomeDO do[b,0:2] in keep
		slot HomeDQ dq[b,0:2] keep
		slot HomeDKV dkv[b,0:1] keep
		slot scratch
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
		pack cdkv[a,0:1]@s8 wdkvw[a,0:1]@s9 after 4
		release rdkv[a,0:1]@s8 after 7
		send cdkvw[a,0:1]@s9 ->0/1/2 after 7
		release rdkvw[a,0:1]@s9 after 9
		`),
	}
	return src
}

// byHands are the valid plans written by hand.
func byHands() []*fixed { return []*fixed{alone(), ring(), shuffle(), visits(), narrow()} }

// visitBreakages are mistakes with what only visits and rounded sums have.
func visitBreakages() []breakage {
	const f, b = plan.Forward, plan.Backward
	again := func(pass plan.Pass, rank, n int) func(e *edit) {
		return func(e *edit) { // once more after op n, and what waited for it waits for both
			d := e.prog(pass, rank)
			op := d.ops[n]
			op.deps = []int32{int32(n)}
			d.insert(n+1, op)
			for i := n + 2; i < len(d.ops); i++ {
				for k, x := range d.ops[i].deps {
					if x == int32(n) {
						d.ops[i].deps[k] = x + 1
					}
				}
			}
		}
	}
	drop := func(pass plan.Pass, rank, n int) func(e *edit) {
		return func(e *edit) { e.prog(pass, rank).drop(n, true) }
	}
	return []breakage{
		{"part merged twice", visits(), again(f, 1, 4), "was handed on"},
		{"part never merged", visits(), drop(f, 1, 4), "was not handed on"},
		{"part sent as out", visits(), func(e *edit) {
			e.op(place{f, 0, 7}).args[1].Tensor = plan.Out
			e.op(place{f, 0, 8}).args[0] = plan.Operand{Slot: 4, Set: 3, Tensor: plan.Out,
				Heads: mesh.Heads{Hi: 2}}
			e.op(place{f, 0, 9}).args[0].Tensor = plan.Out
		}, "sends another block"},
		{"part merged into out", visits(), func(e *edit) {
			e.op(place{f, 1, 4}).args[1].Tensor = plan.Out
		}, "immutable block"},
		{"part begun by zero", visits(), func(e *edit) {
			e.op(place{f, 0, 4}).args[0].Tensor = plan.Part
		}, "wrong kind"},
		{"visit before its delta", visits(), func(e *edit) {
			e.op(place{b, 1, 1}).deps = nil
		}, "holds nothing|being written"},
		{"visit of other heads", visits(), func(e *edit) {
			e.op(place{b, 1, 1}).args[1].Heads.Hi = 1
		}, "wrong kind"},
		{"gradient before zero", visits(), func(e *edit) {
			e.op(place{b, 0, 3}).deps = []int32{0, 1}
		}, "holds nothing|being written"},
		{"gradient written over", visits(), func(e *edit) {
			e.op(place{b, 0, 7}).args[3].Access = plan.Write
		}, "holds a live block"},
		{"delta twice with a sink", visits(), func(e *edit) {
			at := place{b, 1, 0}
			e.remake(at)
		}, "share 2 times"},
		{"rounded sum twice", narrow(), again(b, 0, 6), "was handed on"},
		{"rounded sum for a sum", narrow(), func(e *edit) {
			e.op(place{b, 0, 5}).args[0].Tensor = plan.DKV
			e.op(place{b, 0, 6}).args[0].Tensor = plan.DKV
			e.op(place{b, 0, 7}).args[0].Tensor = plan.DKV
			e.prog(b, 0).slots[7].Bytes *= 2
		}, "sends another block"},
	}
}

// TestTextsByHand: the files of testdata/hand, which other tests read, are these plans.
func TestTextsByHand(t *testing.T) {
	for name, src := range map[string]*fixed{"visits": visits(), "narrow": narrow()} {
		text, err := os.ReadFile("testdata/hand/" + name + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(text), string(mustText(t, src))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
