package plan

import (
	"slices"
	"testing"

	"github.com/kvloom/kvloom/mesh"
)

const fw, bw = Forward, Backward

// Numbers of ops are those in the comments of ringForward and ringBackward.
func TestVerifyNamesWhatIsWrongInARing(t *testing.T) {
	checkBreakages(t, ringByHand, slices.Concat(sumBreakages(), pairBreakages(), slotBreakages(),
		linearBreakages(), orderBreakages(), homeBreakages()))
}

func sumBreakages() []breakage {
	again := block{4, State, 2, 0, 2}
	out := block{4, Out, 2, 0, 2}
	return []breakage{
		{"attend dropped", drop(fw, 1, 3), "coverage", -1, -1,
			[]string{"query 2 (home rank 1) x key 2 (home rank 1), head 0 is never computed"}},
		{"attend doubled", all(
			insert(fw, 0, Op{Kind: Attend, Peer: -1}, after(4), rd(block{0, Q, 1, 0, 2}),
				rd(block{1, KV, 1, 0, 1}), ad(block{2, State, 1, 0, 2})),
			at(fw, 0, 6, deps(7))), "coverage", 0, 7,
			[]string{"query 0 (home rank 0) x key 0", "head 0 is computed 2 times: rank 0 op 3, " +
				"rank 0 op 7"}},
		{"attend of the wrong block", at(fw, 1, 4, func(e *edit) {
			e.args[1] = rd(block{1, KV, 2, 0, 1})
		}), "coverage", -1, -1, []string{"query 2 (home rank 1) x key 0 (home rank 0)", "never"}},
		{"attend backward of fewer heads", func(p *hand) {
			for _, i := range []int{4, 7} {
				at(bw, 0, i, func(e *edit) {
					for _, k := range []int{0, 2, 3, 4, 5} {
						e.args[k].Heads.Hi = 1
					}
				})(p)
			}
		}, "coverage", -1, -1,
			[]string{"backward", "query 0", "key 0", "head 1 is never computed"}},
		{"row finalised twice", all(
			func(p *hand) { p.progs[fw][0].slot(p.h, Scratch, false, again) },
			insert(fw, 0, Op{Kind: Zero}, nil, wr(again)),
			insert(fw, 0, Op{Kind: Finalize}, after(7), co(again), wr(out)),
			insert(fw, 0, Op{Kind: Release}, after(8), rd(out))), "coverage", 1, 6,
			[]string{"query 2 (home rank 1), head 0 is finalised 2 times: rank 0 op 8, " +
				"rank 1 op 6"}},
		{"query at home twice", func(p *hand) { p.h.HomeQ[1] = 1 }, "ownership", 1, -1,
			[]string{"query 0 is at home on ranks 0 1"}},
		{"key at home nowhere", func(p *hand) { p.h.HomeK[0] = 0 }, "ownership", -1, -1,
			[]string{"key 0 is at home on no rank"}},
		{"home beyond the sequence", func(p *hand) { p.h.Sets[1][1].Count = 4 }, "ownership", 0, -1,
			[]string{"rank 0 is home of query 8: there are 8"}},
	}
}

func pairBreakages() []breakage {
	return []breakage{
		{"send dropped", drop(fw, 0, 2), "pairing", 1, 1,
			[]string{"rank 1 op 1 receives kv[a h0:1], lane 0, tick 1: rank 0 has no send"}},
		{"receive dropped", drop(fw, 1, 1), "pairing", 0, 2,
			[]string{"rank 0 op 2 sends kv[a h0:1], lane 0, tick 1: rank 1 has no receive"}},
		{"receive of another tick", at(fw, 1, 1, tick(2)), "pairing", 0, 2,
			[]string{"rank 1 has no receive for it (its op 1 has tick 2 there)"}},
		{"receive of another set", at(fw, 1, 1, set(0, 2)), "pairing", 0, 2,
			[]string{"sends kv[a h0:1] to rank 1, lane 0, tick 1",
				"op 1 of rank 1 receives kv[b h0:1]"}},
		{"receive of another tensor", at(bw, 1, 6, func(e *edit) { e.args[0].Tensor = KV }),
			"pairing", 0, 5, []string{"sends dkv[a", "receives kv[a"}},
		{"peer is the rank", at(fw, 0, 2, func(e *edit) { e.op.Peer = 0 }), "pairing", 0, 2,
			[]string{"rank 0 op 2 send", "itself"}},
		{"peer beyond", at(fw, 0, 2, func(e *edit) { e.op.Peer = 2 }), "pairing", 0, 2,
			[]string{"peer 2: ranks are 0 to 1"}},
		{"lane beyond", at(fw, 0, 2, func(e *edit) { e.op.Lane = NumLanes }), "pairing", 0, 2,
			[]string{"lane 14: lanes are 0 to 13"}},
	}
}

func slotBreakages() []breakage {
	kv2 := block{3, KV, 2, 0, 1}
	return []breakage{
		{"reads what is not there", at(fw, 0, 4, set(1, 1)), "slot", 0, 4,
			[]string{"kv[a h0:1] does not lie in kv[b h0:1], which lives in slot 3", "op 1 recv"}},
		{"release dropped", drop(fw, 0, 5), "slot", 0, 1,
			[]string{"slot 3 still holds kv[b h0:1]"}},
		{"release doubled", insert(fw, 0, Op{Kind: Release}, after(5), rd(kv2)), "slot", 0, 7,
			[]string{"slot 3 is released already", "op 5 release"}},
		{"release of nothing", insert(bw, 0, Op{Kind: Release}, nil, rd(block{8, DKV, 1, 0, 1})),
			"slot", 0, -2, []string{"slot 8"}},
		{"writes a live slot", insert(fw, 0, Op{Kind: Zero}, after(6),
			wr(block{2, State, 1, 0, 2})), "slot", 0, 7,
			[]string{"it writes slot 2, where o[a h0:2] lives", "op 6 finalize"}},
		{"slot too small", slots(bw, 1, func(s []Slot) { s[9].Bytes-- }), "slot", 1, 7,
			[]string{"slot 9 has 159 bytes, dkv[a h0:1] needs 160"}},
		{"live-in too small", slots(fw, 1, func(s []Slot) { s[0].Bytes = 8 }), "slot", 1, -1,
			[]string{"slot 0 of 8 bytes: live-in q[b h0:2] needs 128"}},
		{"release names another block", at(fw, 0, 5, set(0, 1)), "slot", 0, 5,
			[]string{"it names kv[a h0:1], in slot 3 lives kv[b h0:1]"}},
		{"used after release", insert(bw, 0, Op{Kind: DeltaOp}, after(14),
			rd(block{2, DO, 1, 0, 2}), rd(block{9, Out, 1, 0, 2}), wr(block{10, Delta, 1, 0, 2})),
			"slot", 0, 16, []string{"nothing lives in slot 9 any more", "op 14 release"}},
		{"read before written", at(fw, 0, 4, slot(1, 4)), "slot", 0, 4,
			[]string{"slot 4: there are 4"}},
		{"empty set", at(fw, 0, 4, set(1, 0)), "slot", 0, 4, []string{"operand 1 is empty"}},
		{"no heads", at(fw, 0, 4, heads(1, 1, 1)), "slot", 0, 4, []string{"operand 1 is empty"}},
		{"heads beyond", at(fw, 0, 4, heads(1, 0, 2)), "slot", 0, 4, []string{"kv has 1"}},
		{"unknown set", at(fw, 0, 4, set(1, -3)), "slot", 0, 4, []string{"token set -3"}},
		{"one slot twice", at(fw, 0, 3, slot(1, 0)), "slot", 0, 3,
			[]string{"it names slot 0 twice"}},
		{"unknown kind", at(fw, 0, 3, func(e *edit) { e.op.Kind = 77 }), "slot", 0, 3,
			[]string{"its kind is 77"}},
		{"too few operands", at(bw, 0, 4, func(e *edit) { e.args = e.args[:6] }), "slot", 0, 4,
			[]string{"it has 6 operands: attend-bwd has 7"}},
		{"q and state differ", at(fw, 0, 3, heads(2, 0, 1)), "slot", 0, 3,
			[]string{"q and st are not of the same rows and heads"}},
		{"attend in backward", insert(bw, 0, Op{Kind: Attend}, nil, rd(block{0, Q, 1, 0, 2}),
			rd(block{1, KV, 1, 0, 1}), ad(block{4, State, 1, 0, 2})), "slot", 0, 16,
			[]string{"attend belongs to a forward pass"}},
	}
}

func linearBreakages() []breakage {
	mine, acc := block{8, DKV, 1, 0, 1}, block{10, DKV, 2, 0, 1}
	return []breakage{
		{"partial lost", drop(bw, 0, 8), "slot", 0, 13,
			[]string{"of dkv[b h0:1] in slot 9, 0 of 4 rows times heads are handed on"}},
		{"handed on twice", all(
			insert(bw, 0, Op{Kind: Send, Peer: 1, Lane: LaneDKV, Tick: 9}, after(4), co(mine)),
			at(bw, 0, 13, deps(5, 16))), "slot", 0, 16,
			[]string{"some is handed on already", "op 5 send"}},
		{"added to after handing on", all(at(bw, 0, 9, deps(6)), at(bw, 0, 8, deps(6, 7, 9))),
			"slot", 0, 8, []string{"it adds to dkv[b h0:1] in slot 10", "op 9 send"}},
		{"accumulator read", at(bw, 0, 5, access(0, Read)), "slot", 0, 5,
			[]string{"send reads a block, or hands on dq or dkv"}},
		{"block handed on", at(bw, 0, 3, access(0, HandOn)), "slot", 0, 3, []string{"send reads"}},
		{"state never finalised", all(drop(fw, 0, 6), insert(fw, 0, Op{Kind: Release}, after(4),
			rd(block{2, State, 1, 0, 2}))), "home", 0, 6, []string{"slot 2 is the session's"}},
		{"home output handed on", insert(bw, 0, Op{Kind: Send, Peer: 1, Lane: LaneDKV, Tick: 9},
			after(10), co(block{5, DKV, 1, 0, 1})), "home", 0, 16, []string{"where it is to stay"}},
		{"part of a partial", all(at(bw, 0, 9, set(0, 3)), func(p *hand) {
			p.h.Sets = append(p.h.Sets, mesh.Set{{Start: 3, Stride: 1, Count: 2}})
			p.h.Names = append(p.h.Names, "part")
		}), "slot", 0, 15, []string{"of dkv[b h0:1] in slot 10, 2 of 4 rows"}},
		{"accumulate of other rows", at(bw, 0, 8, set(1, 1)), "slot", 0, 8,
			[]string{"accumulate hands a partial"}},
		{"accumulator twice begun", all(insert(bw, 0, Op{Kind: Zero}, after(6), wr(acc)),
			at(bw, 0, 8, deps(6, 7, 16))), "slot", 0, 16,
			[]string{"it writes slot 10, where dkv[b h0:1] lives", "op 6 recv"}},
	}
}

func orderBreakages() []breakage {
	return []breakage{
		{"attend does not wait for the block", at(fw, 0, 4, deps(3)), "order", 0, 4,
			[]string{"uses slot 3 and does not wait for the op that wrote it", "op 1 recv"}},
		{"release does not wait", at(fw, 0, 5, deps(1)), "order", 0, 5,
			[]string{"releases slot 3 and does not wait for an op that uses it", "op 4 attend"}},
		{"adds in any order", at(fw, 0, 4, deps(0, 1)), "order", 0, 4,
			[]string{"does not wait for an op that adds to it", "op 3 attend"}},
		{"finalize too soon", at(fw, 0, 6, deps(3)), "order", 0, 6, []string{"op 4 attend"}},
		{"written before released", insert(fw, 0, Op{Kind: Recv, Peer: 1, Lane: LaneKV, Tick: 2},
			nil, wr(block{3, KV, 2, 0, 1})), "order", 0, 7,
			[]string{"it writes slot 3 and does not wait for its release", "op 5 release"}},
		{"accumulate does not wait", at(bw, 0, 8, deps(7)), "order", 0, 8, []string{"op 6 recv"}},
		{"send does not wait for the sum", at(bw, 0, 9, deps(6)), "order", 0, 9,
			[]string{"does not wait for an op that adds to it", "op 8 accumulate"}},
		{"waits for no op", at(fw, 0, 6, deps(99)), "order", 0, 6,
			[]string{"waits for op 99 of 7"}},
		{"cycle", at(fw, 0, 0, deps(4)), "deadlock", 0, -2,
			[]string{"waits for itself", "op 4 waits for op 3", "op 3 waits for op 0"}},
		{"waits for itself", at(fw, 0, 5, deps(5)), "deadlock", 0, 5,
			[]string{"op 5 waits for op 5"}},
		{"both send after receiving", all(at(fw, 0, 2, deps(1)), at(fw, 1, 2, deps(1))), "deadlock",
			1, 2, []string{"its tick 1 is not above tick 1", "op 1 recv"}},
		{"ring of late sends", at(bw, 1, 9, func(e *edit) { e.deps = append(e.deps, 10) }),
			"deadlock", 1, 9, []string{"its tick 3 is not above tick 3", "op 10 recv"}},
		{"a lane's tick twice", all(at(bw, 0, 9, tick(2)), at(bw, 1, 10, tick(2))),
			"deadlock", 0, 9, []string{"its lane has tick 2 twice", "op 5 send"}},
		{"against the lane", all(at(bw, 0, 5, tick(4)), at(bw, 1, 6, tick(4)),
			at(bw, 0, 9, func(e *edit) { e.deps = append(e.deps, 5) })), "deadlock", 0, -2,
			[]string{"comes in its lane after"}},
	}
}

func homeBreakages() []breakage {
	return []breakage{
		{"no place for out", slots(fw, 0, func(s []Slot) { s[2].Role = HeadOut }), "home", 0, -1,
			[]string{"no slot keeps home.o"}},
		{"gradient does not come home", drop(bw, 1, 10), "home", 1, -1,
			[]string{"slot 5 (home.dkv) has no block at the end, dkv[b h0:1] is expected"}},
		{"another block at the end", all(at(bw, 1, 10, set(0, 1)), at(bw, 0, 9, set(0, 1))), "home",
			1, 10, []string{"slot 5 (home.dkv) holds dkv[a h0:1] at the end, dkv[b"}},
		{"session slot released", insert(fw, 0, Op{Kind: Release}, after(4),
			rd(block{0, Q, 1, 0, 2})), "home", 0, 7, []string{"slot 0 is the session's"}},
		{"gradient before backward", slots(fw, 0, func(s []Slot) {
			s[0].Role, s[0].Tensor = HomeDO, DO
		}), "home", 0, -1, []string{"home.do is not there when a forward pass starts"}},
		{"live-in not kept", slots(fw, 0, func(s []Slot) { s[0].Keep = false }), "home", 0, -1,
			[]string{"must be kept"}},
		{"scratch kept", slots(fw, 0, func(s []Slot) { s[3].Keep = true }), "home", 0, -1,
			[]string{"slot 3 is scratch and live-in or kept"}},
		{"role twice", slots(fw, 0, func(s []Slot) { s[1] = s[0] }), "home", 0, -1,
			[]string{"slots 0 and 1 have one role, home.q"}},
		{"home block of the other rank", slots(fw, 0, func(s []Slot) { s[0].Set = 2 }),
			"home", 0, -1, []string{"its block is q[b h0:2], the rank's own is q[a h0:2]"}},
		{"programs exchanged", func(p *hand) { p.progs[fw][0] = p.progs[fw][1] }, "home", 1, -1,
			[]string{"this is no forward program of rank 0"}},
		{"backward expects what is not kept", slots(bw, 0, func(s []Slot) {
			s[0].Role = HeadQ
		}), "home", 0, -1, []string{"slot 0 expects head.q, which the forward pass does not keep"}},
		{"set table broken", func(p *hand) { p.h.Sets[2][0].Stride = 0 }, "home", -1, -1,
			[]string{"header: token set 2", "stride 0"}},
		{"homes missing", func(p *hand) { p.h.HomeQ = p.h.HomeQ[:1] }, "ownership", -1, -1,
			[]string{"1 query and 2 key home sets for 2 ranks"}},
	}
}

func TestVerifyNamesWhatIsWrongInAnExchange(t *testing.T) {
	checkBreakages(t, shuffleByHand, []breakage{
		{"kv heads do not serve", at(fw, 0, 9, heads(1, 1, 2)), "slot", 0, 9,
			[]string{"query heads 0:1 read kv heads 0:1, at hand are 1:2"}},
		{"pieces overlap", at(fw, 0, 3, set(0, 3)), "home", 0, 3,
			[]string{"its sources are not each cell of its result once"}},
		{"piece of the wrong rows", at(fw, 0, 3, set(0, 2)), "home", 0, 3,
			[]string{"not each cell of its result once"}},
		{"piece of the wrong head", at(fw, 0, 0, heads(0, 0, 1)), "slot", 0, 0,
			[]string{"its result is not of the source's rows and heads"}},
		{"pieces delivered crosswise", all(at(fw, 0, 11, slot(1, 6)), at(fw, 0, 12, slot(0, 6))),
			"slot", 0, -2, nil},
		{"unpack of one tensor into another", at(fw, 0, 3, func(e *edit) {
			e.args[2].Tensor = KV
		}), "slot", 0, 3, []string{"source 0 is not of kv"}},
		{"out read before finalize", at(fw, 0, 11, deps(9)), "order", 0, 11,
			[]string{"op 10 finalize"}},
		{"head state handed out", at(fw, 1, 11, func(e *edit) {
			e.args[0].Tensor, e.args[1].Tensor = State, State
			e.args[0].Access = HandOn
		}), "slot", 1, 11, []string{"is no st"}},
		{"head block kept in part", slots(fw, 1, func(s []Slot) { s[3].Set = 1 }), "home", 1, 3,
			[]string{"slot 3 (head.q) holds q[c h1:2] at the end, q[a h1:2] is expected"}},
	})
}

func TestVerifyNamesWhatIsWrongInVisits(t *testing.T) {
	checkBreakages(t, visitsByHand, []breakage{
		{"part begun by zero", at(fw, 0, 4, func(e *edit) { e.args[0].Tensor = Part }), "slot", 0,
			4, []string{"zero starts no part"}},
		{"part added to a gradient", at(fw, 1, 4, func(e *edit) { e.args[1].Tensor = DQ }), "slot",
			1, 4, []string{"accumulate adds dq to dq, dkv or dkvw to dkv, or part to st"}},
		{"state becomes a gradient", at(fw, 0, 7, func(e *edit) { e.args[1].Tensor = DQ }), "slot",
			0, 7, []string{"finalize turns st into o or part"}},
		{"part read", at(fw, 0, 8, access(0, Read)), "slot", 0, 8, []string{"send reads a block"}},
		{"row finalised twice", at(fw, 0, 7, func(e *edit) { e.args[1].Tensor = Out }), "slot", 0,
			8, []string{"part[b h0:2] does not lie in o[b h0:2]"}},
		{"visit with queries of its own", at(bw, 0, 7, func(e *edit) {
			e.args[0].Tensor = Q
		}), "slot", 0, 7, []string{"attend-bwd of 4 operands reads a visit and kv"}},
		{"five operands", at(bw, 0, 7, func(e *edit) { e.args = append(e.args, e.args[0]) }),
			"slot", 0, 7, []string{"it names slot 7 twice"}},
		{"three operands", at(bw, 0, 7, func(e *edit) { e.args = e.args[:3] }), "slot", 0, 7,
			[]string{"it has 3 operands: attend-bwd has 7, or 4 with a visit"}},
		{"part of the gradient lost", at(bw, 0, 7, access(3, Write)), "slot", 0, 7,
			[]string{"it writes slot 5, where dkv[a h0:1] lives"}},
		{"sums in any order", at(bw, 0, 7, deps(2, 5, 6)), "order", 0, 7,
			[]string{"does not wait for an op that adds to it", "op 3 attend-bwd"}},
		{"delta of half the heads", at(bw, 1, 0, func(e *edit) {
			for i := range e.args {
				e.args[i].Heads.Hi = 1
			}
		}), "slot", 1, 1, []string{"dl[b h0:2] does not lie in dl[b h0:1]"}},
	})
	checkBreakages(t, narrowByHand, []breakage{
		{"rounded for no reason", at(bw, 1, 7, func(e *edit) { e.args[0].Tensor = DQ }), "slot", 1,
			7, []string{"source 0 is not of dkvw"}},
		{"rounded sum of other rows", at(bw, 1, 7, set(1, 3)), "slot", 1, 7,
			[]string{"its result is not of the source's rows and heads"}},
		{"wide sum comes narrow", at(bw, 0, 5, func(e *edit) { e.args[0].Tensor = DKV }), "slot",
			0, 5, []string{"slot 7 has 16 bytes, dkv[a h0:1] needs 32"}},
	})
}
