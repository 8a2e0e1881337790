package ringbus_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/headshuffle"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/ringbus"
	"pgregory.net/rapid"
)

// ringPlan is a plan with all its programs, and what the tests need to know of its ring.
type ringPlan struct {
	spec  plan.Spec
	hdr   *plan.Header
	progs [2][]*plan.Program // by pass and rank
}

func newPlan(t testing.TB, m mesh.Mesh, l mesh.Layout, tokens, q, kv int, mask attn.Mask,
	opt plan.Options) *ringPlan {
	t.Helper()
	p, err := plan.New(plan.Spec{
		Shape: plan.Shape{
			QTokens: tokens, KTokens: tokens, QHeads: q, KHeads: kv, Dim: 8, VDim: 8, ElemBytes: 4,
			AccBytes: 4, Scale: 1, Mask: mask,
		},
		Mesh: m, Layout: l, Options: opt, Ring: ringbus.Ring{}, Heads: headshuffle.AllToAll{},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &ringPlan{spec: p.Spec(), hdr: p.Header()}
	for _, pass := range p.Passes() {
		for g := range m.Ranks() {
			prog, err := p.Program(pass, g)
			if err != nil {
				t.Fatal(err)
			}
			r.progs[pass] = append(r.progs[pass], prog)
		}
	}
	return r
}

// shard is ring shard c.
func (r *ringPlan) shard(c int) mesh.Set {
	return r.spec.Layout.Shard(r.spec.Shape.KTokens, r.spec.Mesh.Ring, c)
}

// meets reports whether a query of ring shard c may see a key of shard j.
func (r *ringPlan) meets(c, j int) bool {
	return r.spec.Shape.Mask.Pairs(r.shard(c), r.shard(j)) > 0
}

// blockAt is the block that ring rank c holds at step t.
func (r *ringPlan) blockAt(c, t int) int {
	n := r.spec.Mesh.Ring
	return (c + n - t) % n
}

// name is a place in an error.
func (r *ringPlan) name(p *plan.Program, op int) string {
	return fmt.Sprintf("%v rank %d of %dx%d, S=%d, op %s", p.Pass, p.Rank, r.spec.Mesh.Head,
		r.spec.Mesh.Ring, r.spec.Shape.QTokens, p.AppendOp(nil, r.hdr, op))
}

// ops lists the ops of a kind on a lane (0 for kinds without one), in program order.
func ops(p *plan.Program, k plan.Kind, lane int32) []int {
	var out []int
	for i := range p.Ops {
		if p.Ops[i].Kind == k && p.Ops[i].Lane == lane {
			out = append(out, i)
		}
	}
	return out
}

func count(p *plan.Program, k plan.Kind, lane int32) int { return len(ops(p, k, lane)) }

func attends(pass plan.Pass) plan.Kind {
	if pass == plan.Backward {
		return plan.AttendBackward
	}
	return plan.Attend
}

// lasts is the last step at which a block of keys is needed: the last of the ring under a full or
// causal mask of the whole sequence, else the last at which a query sees a key of it; -1 if none.
func (r *ringPlan) lasts(j int) int {
	n, s := r.spec.Mesh.Ring, r.spec.Shape.QTokens
	m := r.spec.Shape.Mask
	for _, whole := range []attn.Mask{attn.Full(s, s), attn.Causal(s, s)} {
		if m.TotalPairs() == whole.TotalPairs() {
			return n - 1
		}
	}
	for t := n - 1; t >= 0; t-- {
		if r.meets((j+t)%n, j) {
			return t
		}
	}
	return -1
}

// hops is how many transfers leave each ring rank, by the journey of each block: KV goes on with
// every block that has tokens as long as it is needed; the dKV of a block leaves every rank from
// the first that met it to the last that is to meet it, unless both are its home.
func (r *ringPlan) hops(c int) (kv, dkv int) {
	n := r.spec.Mesh.Ring
	for t := range n {
		j := r.blockAt(c, t)
		if r.shard(j).Len() == 0 || n == 1 {
			continue
		}
		last := r.lasts(j)
		if t < last {
			kv++
		}
		if r.begunBefore(j, t+1) && t <= last && last > 0 {
			dkv++
		}
	}
	return kv, dkv
}

// TestSendCounts: with full and causal masks and a token in every chunk each rank sends KV C-1
// times in either pass, and dKV C times; none of it on a ring of one.
func TestSendCounts(t *testing.T) {
	for _, layout := range []mesh.Layout{mesh.Zigzag, mesh.Contiguous} {
		for _, mask := range []attn.Mask{attn.Full(97, 97), attn.Causal(97, 97)} {
			for head := 1; head <= 3; head++ {
				for ring := 1; ring <= 8; ring++ {
					m := mesh.Mesh{Head: head, Ring: ring, Placement: mesh.Placement(ring % 2)}
					r := newPlan(t, m, layout, 97, 6, 3, mask, plan.Options{})
					dkv := ring
					if ring == 1 {
						dkv = 0
					}
					for g := range m.Ranks() {
						f, b := r.progs[plan.Forward][g], r.progs[plan.Backward][g]
						for _, end := range []plan.Kind{plan.Send, plan.Recv} {
							got := [4]int{count(f, end, plan.LaneKV), count(b, end, plan.LaneKV),
								count(b, end, plan.LaneDKV), count(f, end, plan.LaneDKV)}
							if want := [4]int{ring - 1, ring - 1, dkv, 0}; got != want {
								t.Errorf("%+v %v rank %d %v: KV forward, KV backward, dKV, dKV "+
									"forward %v, want %v", m, layout, g, end, got, want)
							}
						}
					}
				}
			}
		}
	}
}

// drawPlan draws any plan: few or many tokens, any layout, heads and a mask that may leave whole
// blocks out.
func drawPlan(t *rapid.T, tb testing.TB) *ringPlan {
	m := mesh.Mesh{
		Head:      rapid.IntRange(1, 3).Draw(t, "H"),
		Ring:      rapid.IntRange(1, 7).Draw(t, "C"),
		Placement: mesh.Placement(rapid.IntRange(0, 1).Draw(t, "placement")),
	}
	s := rapid.IntRange(1, 40).Draw(t, "S")
	mask := rapid.SampledFrom([]attn.Mask{
		attn.Full(s, s), attn.Causal(s, s), nil,
		{{Q0: s / 2, Q1: s, K1: s / 2, Lo: -attn.Unbounded, Hi: attn.Unbounded}}, // late see early
		{{Q1: s, K1: s, Lo: -2, Hi: 0}},                                          // a window
		{{Q1: s / 3, K1: s / 3, Lo: -attn.Unbounded, Hi: 0}},                     // the first third
	}).Draw(t, "mask")
	layout := rapid.SampledFrom([]mesh.Layout{mesh.Zigzag, mesh.Contiguous}).Draw(t, "layout")
	kv := rapid.IntRange(1, 3).Draw(t, "kv")
	q := kv * rapid.IntRange((m.Head+kv-1)/kv, 3).Draw(t, "group")
	opt := plan.Options{
		KVSlots:  rapid.IntRange(2, 4).Draw(t, "kv slots"),
		DKVSlots: rapid.IntRange(2, 3).Draw(t, "dkv slots"),
		Partials: rapid.IntRange(1, 3).Draw(t, "partials"),
	}
	return newPlan(tb, m, layout, s, q, kv, mask, opt)
}

// TestNothingTravelsForNothing: any mask and any sequence. A hop without rows is not sent, nor a
// block that no later rank needs, nor an accumulator that nobody has added to; all else goes to the
// next rank, and an accumulator that is whole goes home.
func TestNothingTravelsForNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := drawPlan(rt, t)
		for pass := range r.progs {
			for g, p := range r.progs[pass] {
				at := r.spec.Mesh.Coord(g)
				kv, dkv := r.hops(at.C)
				if plan.Pass(pass) == plan.Forward {
					dkv = 0
				}
				if got := count(p, plan.Send, plan.LaneKV); got != kv {
					rt.Fatalf("%v rank %d sends KV %d times, want %d", p.Pass, g, got, kv)
				}
				if got := count(p, plan.Send, plan.LaneDKV); got != dkv {
					rt.Fatalf("%v rank %d sends dKV %d times, want %d", p.Pass, g, got, dkv)
				}
				r.checkOps(rt, p, at)
			}
		}
	})
}

// checkOps checks that no operand is empty and that ring hops go to the next rank of the ring.
func (r *ringPlan) checkOps(t *rapid.T, p *plan.Program, at mesh.Coord) {
	n := r.spec.Mesh.Ring
	rank := func(c int) int { return r.spec.Mesh.Rank(mesh.Coord{H: at.H, C: (c + n) % n}) }
	next, prev := rank(at.C+1), rank(at.C-1)
	first := firstTick(p, r.spec.Mesh.Head)
	for i := range p.Ops {
		op := &p.Ops[i]
		for _, a := range p.Args(i) {
			if r.hdr.Sets[a.Set].Len() == 0 || a.Heads.Len() < 1 {
				t.Fatalf("%s: an operand has no rows or no heads", r.name(p, i))
			}
		}
		if !op.Kind.Link() || (op.Lane != plan.LaneKV && op.Lane != plan.LaneDKV) {
			continue
		}
		want := next
		if op.Kind == plan.Recv {
			want = prev
		}
		if op.Lane == plan.LaneDKV { // at the end of its journey it goes home
			t := int(op.Tick-2-first) / 4 // of the receiver
			if op.Kind == plan.Send {
				if j := r.blockAt(at.C, t-1); r.lasts(j) == t-1 {
					want = rank(j)
				}
			} else if slices.Equal(r.hdr.Sets[p.Args(i)[0].Set], r.shard(at.C)) {
				want = rank(at.C + r.lasts(at.C))
			}
		}
		if int(op.Peer) != want {
			t.Fatalf("%s: its peer should be rank %d", r.name(p, i), want)
		}
	}
}

// TestBlockAtStep: a rank meets block (c-t) mod C at step t, once, when the mask allows a pair of
// it, with all the rank's heads, in either pass; other blocks it only passes on.
func TestBlockAtStep(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := drawPlan(rt, t)
		n := r.spec.Mesh.Ring
		for pass := range r.progs {
			for g, p := range r.progs[pass] {
				c := r.spec.Mesh.Coord(g).C
				first, stride := firstTick(p, r.spec.Mesh.Head), int32(4)
				met := make([]int, n)
				for _, i := range ops(p, attends(p.Pass), 0) {
					step := int((p.Ops[i].Tick - first) / stride)
					j := r.blockAt(c, step)
					kv := p.Args(i)[1]
					if !slices.Equal(r.hdr.Sets[kv.Set], r.shard(j)) {
						rt.Fatalf("%s: at step %d rank %d holds block %d: %v", r.name(p, i), step,
							g, j, r.shard(j))
					}
					q, _ := mesh.SplitHeads(r.spec.Shape.QHeads, r.spec.Shape.KHeads,
						r.spec.Mesh.Head, r.spec.Mesh.Coord(g).H)
					if got := p.Args(i)[0].Heads; got != q {
						rt.Fatalf("%s: it attends heads %v of %v", r.name(p, i), got, q)
					}
					met[j]++
				}
				for j := range n {
					want := 0
					if r.meets(c, j) {
						want = 1
					}
					if met[j] != want {
						rt.Fatalf("%v: rank %d attends block %d %d times, want %d", p.Pass, g, j,
							met[j], want)
					}
				}
			}
		}
	})
}

// firstTick is the tick of ring step 0: after the exchange of q and kv, or of dO.
func firstTick(p *plan.Program, head int) int32 {
	switch {
	case head == 1:
		return 0
	case p.Pass == plan.Forward:
		return 2
	}
	return 1
}

// TestEndsMatch: sends and receives of all ranks pair up one to one by (source, destination, lane,
// tick), with the same tensor, tokens and heads at both ends, and ticks in a lane are distinct.
func TestEndsMatch(t *testing.T) {
	type wire struct{ src, dst, lane, tick int32 }
	type frame struct {
		tensor plan.Tensor
		set    plan.SetID
		heads  mesh.Heads
	}
	rapid.Check(t, func(rt *rapid.T) {
		r := drawPlan(rt, t)
		for pass := range r.progs {
			ends := [2]map[wire]frame{{}, {}} // sends, receives
			for g, p := range r.progs[pass] {
				for i := range p.Ops {
					op := &p.Ops[i]
					if !op.Kind.Link() {
						continue
					}
					w, side := wire{int32(g), op.Peer, op.Lane, op.Tick}, 0
					if op.Kind == plan.Recv {
						w.src, w.dst, side = op.Peer, int32(g), 1
					}
					if _, twice := ends[side][w]; twice {
						rt.Fatalf("%s: its tick is taken in its lane", r.name(p, i))
					}
					a := p.Args(i)[0]
					ends[side][w] = frame{a.Tensor, a.Set, a.Heads}
				}
			}
			if len(ends[0]) != len(ends[1]) {
				rt.Fatalf("%v: %d sends, %d receives", plan.Pass(pass), len(ends[0]), len(ends[1]))
			}
			for w, sent := range ends[0] {
				if got, ok := ends[1][w]; !ok || got != sent {
					rt.Fatalf("%v %+v: sent %+v, received %+v", plan.Pass(pass), w, sent, got)
				}
			}
		}
	})
}

// TestSlotLimits: ring KV, travelling dKV and partials live in no more slots than the options
// say; home blocks are besides them. With the default of two each, a long ring needs just two.
func TestSlotLimits(t *testing.T) {
	check := func(t interface{ Fatalf(string, ...any) }, r *ringPlan, full bool) {
		for pass := range r.progs {
			for g, p := range r.progs[pass] {
				kv, dkv, part := ringSlots(p)
				o := r.spec.Options
				ok := len(kv) <= o.KVSlots && len(dkv) <= o.DKVSlots && len(part) <= o.Partials
				if full {
					ok = len(kv) == 2 && (pass == 0 || len(dkv) == 2 && len(part) == 2)
				}
				if !ok {
					t.Fatalf("%v rank %d uses slots %v for KV, %v for dKV, %v for partials of %+v",
						p.Pass, g, kv, dkv, part, o)
				}
			}
		}
	}
	for _, head := range []int{1, 2} {
		m := mesh.Mesh{Head: head, Ring: 8}
		check(t, newPlan(t, m, mesh.Zigzag, 64, 4, 2, attn.Causal(64, 64), plan.Options{}), true)
	}
	rapid.Check(t, func(rt *rapid.T) { check(rt, drawPlan(rt, t), false) })
}

// TestTooFewSlotsAreRefused: with one KV or one dKV slot every rank of a longer ring would wait for
// the next one to take its block, for ever.
func TestTooFewSlotsAreRefused(t *testing.T) {
	s := newPlan(t, mesh.Mesh{Head: 1, Ring: 3}, mesh.Zigzag, 9, 1, 1, attn.Full(9, 9),
		plan.Options{}).spec
	for _, tc := range []struct {
		opt  plan.Options
		want string // in the error; empty: none
	}{
		{plan.Options{KVSlots: 1}, "kv slots 1: use 2 to 64"},
		{plan.Options{DKVSlots: 1}, "dkv slots 1: use 2 to 64"},
		{plan.Options{Partials: -1}, "partials -1: use 1 to 64"},
		{plan.Options{KVSlots: plan.MaxSlots + 1}, "kv slots 65: use 2 to 64"},
		{plan.Options{KVSlots: 2, DKVSlots: 2, Partials: 1}, ""},
	} {
		s.Options = tc.opt
		_, err := plan.New(s)
		got := fmt.Sprint(err)
		if (err == nil) != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%+v: error %v, want %q", tc.opt, err, tc.want)
		}
	}
}

// ringSlots lists the scratch slots that receive KV, that receive dKV, and that partials lie in.
func ringSlots(p *plan.Program) (kv, dkv, part []int32) {
	add := func(list []int32, slot int32) []int32 {
		if p.Slots[slot].Role != plan.Scratch || slices.Contains(list, slot) {
			return list
		}
		return append(list, slot)
	}
	home := map[int32]bool{} // of dKV on its way into the exchange: received, never sent on
	for i := range p.Ops {
		if a := p.Args(i); p.Ops[i].Kind == plan.Unpack || p.Ops[i].Kind == plan.Pack {
			home[a[0].Slot] = true
		}
	}
	for i := range p.Ops {
		a := p.Args(i)
		slot := a[len(a)-1].Slot
		switch op := p.Ops[i]; {
		case op.Kind == plan.Recv && op.Lane == plan.LaneKV:
			kv = add(kv, slot)
		case op.Kind == plan.Recv && op.Lane == plan.LaneDKV && !home[slot]:
			dkv = add(dkv, slot)
		case op.Kind == plan.AttendBackward && !home[slot]:
			part = add(part, slot)
		}
	}
	return kv, dkv, part
}
