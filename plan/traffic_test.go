package plan_test

import (
	"fmt"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/headshuffle"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/ringbus"
)

// TestTrafficFormulas: the tables of docs/plans.md, "How much is sent", for lengths that divide.
func TestTrafficFormulas(t *testing.T) {
	for _, heads := range [][2]int{{8, 8}, {8, 2}, {6, 3}} {
		for _, m := range []mesh.Mesh{
			{Head: 1, Ring: 1}, {Head: 1, Ring: 8}, {Head: 2, Ring: 6}, {Head: 4, Ring: 4},
			{Head: 5, Ring: 1},
		} {
			for inner := 1; inner <= m.Ring; inner++ {
				if m.Ring%inner != 0 {
					continue
				}
				for _, ring := range []ringbus.Ring{
					{Inner: inner}, {Inner: inner, Lanes: 2}, {Inner: inner, DKV: ringbus.Local},
				} {
					name := fmt.Sprintf("%d/%d heads %dx%d %v", heads[0], heads[1], m.Head, m.Ring,
						ring)
					t.Run(name, func(t *testing.T) { checkTraffic(t, heads, m, ring) })
				}
			}
		}
	}
}

func checkTraffic(t *testing.T, heads [2]int, m mesh.Mesh, ring ringbus.Ring) {
	const tokens, d, dv, elem, acc = 960, 6, 4, 2, 4
	p := mustPlan(t, plan.Spec{
		Shape: plan.Shape{QTokens: tokens, KTokens: tokens, QHeads: heads[0], KHeads: heads[1],
			Dim: d, VDim: dv, ElemBytes: elem, AccBytes: acc, Scale: 1,
			Mask: attn.Causal(tokens, tokens)},
		Mesh: m, Ring: ring, Heads: headshuffle.AllToAll{},
	})
	c, w, lanes := m.Ring, ring.Inner, ring.LaneCount()
	if c == 1 {
		lanes = 1
	}
	dkv := c
	switch {
	case c == 1:
		dkv = 0
	case ring.DKV == ringbus.Local && w > 1 && w < c:
		dkv = c + c/w
	}
	shard := int64(tokens / c)
	home := shard / int64(m.Head)
	for rank := range m.Ranks() {
		h := m.Coord(rank).H
		q, k := mesh.SplitHeads(heads[0], heads[1], m.Head, h)
		hq, hk := int64(q.Len()), int64(k.Len())
		others := int64(0)
		for peer := range m.Head {
			if _, kv := mesh.SplitHeads(heads[0], heads[1], m.Head, peer); peer != h {
				others += int64(kv.Len())
			}
		}
		block, grad := shard*hk*(d+dv)*elem, shard*hk*(d+dv)*acc
		f, b := counts(t, p, plan.Forward, rank), counts(t, p, plan.Backward, rank)
		pieces := m.Head - 1
		for _, x := range []struct {
			name      string
			got, want int64
		}{
			{"KV sends forward", int64(f.Sends[plan.KVForward]), int64(lanes * (c - 1))},
			{"KV sends backward", int64(b.Sends[plan.KVBackward]), int64(lanes * (c - 1))},
			{"dKV sends", int64(b.Sends[plan.DKVHops]), int64(lanes * dkv)},
			{"KV bytes forward", f.Bytes[plan.KVForward], int64(c-1) * block},
			{"KV bytes backward", b.Bytes[plan.KVBackward], int64(c-1) * block},
			{"dKV bytes", b.Bytes[plan.DKVHops], int64(dkv) * grad},
			{"pieces forward", int64(f.Pieces), int64(3 * pieces)},
			{"pieces backward", int64(b.Pieces), int64(3 * pieces)},
			{"exchange bytes forward", f.Bytes[plan.A2AForward],
				home*(int64(heads[0])-hq)*d*elem + home*others*(d+dv)*elem +
					(shard-home)*hq*(dv*elem+acc)},
			{"exchange bytes backward", b.Bytes[plan.A2ABackward],
				home*(int64(heads[0])-hq)*dv*elem + (shard-home)*hq*d*acc +
					(shard-home)*hk*(d+dv)*acc},
		} {
			if x.got != x.want {
				t.Errorf("rank %d: %s %d, want %d", rank, x.name, x.got, x.want)
			}
		}
		checkWindows(t, p, m, ring, rank, lanes)
	}
}

func counts(t *testing.T, p *plan.Plan, pass plan.Pass, rank int) plan.Counts {
	t.Helper()
	prog, err := p.Program(pass, rank)
	if err != nil {
		t.Fatal(err)
	}
	return plan.Count(p.Header(), prog)
}

// checkWindows counts the hops inside windows and between them.
func checkWindows(t *testing.T, p *plan.Plan, m mesh.Mesh, ring ringbus.Ring, rank, lanes int) {
	t.Helper()
	c, w := m.Ring, ring.Inner
	outs := c / w
	if c == 1 {
		return
	}
	prog, err := p.Program(plan.Backward, rank)
	if err != nil {
		t.Fatal(err)
	}
	var inside, between [plan.NumClasses]int
	for i := range prog.Ops {
		op := &prog.Ops[i]
		if op.Kind != plan.Send {
			continue
		}
		class := plan.ClassOf(plan.Backward, op.Lane)
		if outs == 1 || m.Coord(int(op.Peer)).C/w == m.Coord(rank).C/w {
			inside[class]++
		} else {
			between[class]++
		}
	}
	wantIn, wantOut := c-outs, outs
	switch {
	case outs == 1:
		wantIn, wantOut = c, 0
	case ring.DKV == ringbus.Local && w > 1:
		wantIn = c
	}
	if inside[plan.KVBackward] != lanes*(c-outs) || between[plan.KVBackward] != lanes*(outs-1) {
		t.Errorf("rank %d: %d KV hops inside, %d between windows", rank, inside[plan.KVBackward],
			between[plan.KVBackward])
	}
	if inside[plan.DKVHops] != lanes*wantIn || between[plan.DKVHops] != lanes*wantOut {
		t.Errorf("rank %d: %d dKV hops inside, %d between windows", rank, inside[plan.DKVHops],
			between[plan.DKVHops])
	}
}
