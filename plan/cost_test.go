package plan_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/headshuffle"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
	"github.com/kvloom/kvloom/ringbus"
	"github.com/kvloom/kvloom/sim"
	"pgregory.net/rapid"
)

// cluster is 2 nodes of 8 ranks; a local link is 8 times a remote one.
func cluster() *plan.Topology {
	return &plan.Topology{
		Nodes: 2, RanksPerNode: 8, Flops: 4e14, Memory: 3e12,
		Local:  plan.LinkModel{BytesPerS: 4e11, LatencyNanos: 2000},
		Remote: plan.LinkModel{BytesPerS: 5e10, LatencyNanos: 5000},
		Ranks:  map[int]plan.RankModel{},
	}
}

// layer is 64K tokens of a large model's layer, causal.
func layer(m mesh.Mesh, ring plan.RingAxis) plan.Spec {
	const tokens = 64 << 10
	return plan.Spec{
		Shape: plan.Shape{
			QTokens: tokens, KTokens: tokens, QHeads: 32, KHeads: 8, Dim: 128, VDim: 128,
			ElemBytes: 2, AccBytes: 4, Scale: 1, Mask: attn.Causal(tokens, tokens),
		},
		Mesh: m, Ring: ring, Heads: headshuffle.AllToAll{},
	}
}

func mustPlan(t testing.TB, s plan.Spec) *plan.Plan {
	t.Helper()
	p, err := plan.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustCost(t testing.TB, src plan.Source, top *plan.Topology,
	passes ...plan.Pass) *plan.Estimate {
	t.Helper()
	e, err := plan.Cost(src, top, plan.CostOptions{Passes: passes})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// simCosts prices the simulator's ops with the same topology.
type simCosts struct {
	t    *plan.Topology
	h    *plan.Header
	book *rank.Rounds
}

func (c simCosts) Op(r, round, op int32) actors.Time {
	return actors.Time(c.t.OpNanos(c.h, c.book.Script(r, round).Program, int(op), int(r)))
}

func (c simCosts) Transfer(src, dst, round, op int32) (int, actors.Time, actors.Time) {
	id, occupy, latency := c.t.Transfer(c.h, c.book.Script(src, round).Program, int(op), int(src),
		int(dst))
	return id, actors.Time(occupy), actors.Time(latency)
}

func (c simCosts) Mail(_, _ actors.Addr) actors.Time { return 0 }

func simNanos(t *testing.T, p *plan.Plan, top *plan.Topology, passes ...plan.Pass) int64 {
	t.Helper()
	compiled, err := rank.CompilePlan(p, nil, p.Seal)
	if err != nil {
		t.Fatal(err)
	}
	b := &rank.Rounds{}
	for _, pass := range passes {
		b.Entries = append(b.Entries, rank.Entry{Plan: compiled, Pass: pass})
	}
	cfg := sim.Config{Ranks: p.Header().Ranks, Book: b, Costs: simCosts{top, p.Header(), b},
		Deadline: 3600e9}
	res, err := sim.New(cfg).Run(len(passes))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range res.Violations {
		t.Error(v)
	}
	return int64(res.Nanos())
}

// TestCostByHand: two ranks, one KV hop. An attend is 8x8 pairs of 4 heads, q.k and p*v of 4: 4096
// FLOP, 4096 ns at 1 GFLOP/s. KV is 8 tokens of 8 floats: 256 B, 512 ns at 0.5 GB/s, and 100 ns of
// latency for the credit, which is there before anything else.
func TestCostByHand(t *testing.T) {
	top := &plan.Topology{Nodes: 2, RanksPerNode: 1, Flops: 1e9,
		Local:  plan.LinkModel{BytesPerS: 1},
		Remote: plan.LinkModel{BytesPerS: 0.5e9, LatencyNanos: 100}}
	s := plan.Spec{
		Shape: plan.Shape{QTokens: 16, KTokens: 16, QHeads: 4, KHeads: 1, Dim: 4, VDim: 4,
			ElemBytes: 4, AccBytes: 4, Scale: 1, Mask: attn.Full(16, 16)},
		Mesh: mesh.Mesh{Head: 1, Ring: 2}, Ring: ringbus.Ring{}, Heads: headshuffle.AllToAll{},
	}
	p := mustPlan(t, s)
	e := mustCost(t, p, top, plan.Forward)
	if e.Nanos != 8192 || e.Slowest != 0 || len(e.Ranks) != 2 || e.Ops != 14 {
		t.Errorf("%+v: want two attends of 4096 ns", e)
	}
	r := e.Ranks[1]
	if r.Nanos != 8192 || r.ComputeNanos != 8192 || r.ExposedNanos != 0 || r.Flops != 8192 ||
		r.BytesBy(plan.RemoteLink) != 256 || r.BytesBy(plan.LocalLink) != 0 ||
		r.BytesOf(plan.KVForward) != 256 {
		t.Errorf("rank 1: %+v", r)
	}
	wantSteps(t, e, []plan.StepCost{
		{Tick: 0, Flops: 4096, Nanos: 4096},
		{Tick: 4, Flops: 4096, Bytes: 256, Nanos: 4096},
	})
	// The credit takes 100 ns, the block 25,600 on its link and 100 more.
	top.Remote.BytesPerS = 1e7
	e = mustCost(t, p, top, plan.Forward)
	wantSteps(t, e, []plan.StepCost{
		{Tick: 0, Flops: 4096, Nanos: 4096},
		{Tick: 4, Flops: 4096, Bytes: 256, Nanos: 100 + 25600 + 100, ExposedNanos: 25800 - 4096},
	})
	if e.Ranks[0].ExposedNanos != 25800-4096 || e.Nanos != 25800+4096 {
		t.Errorf("%+v", e)
	}
	// In the backward pass dKV comes home when the rest is done: a step of its own.
	e = mustCost(t, p, top, plan.Backward)
	last := e.Steps[len(e.Steps)-1]
	if last.Flops != 0 || last.ExposedNanos != last.Nanos || last.Bytes != 256 {
		t.Errorf("the last hop home: %+v", last)
	}
}

func wantSteps(t *testing.T, e *plan.Estimate, want []plan.StepCost) {
	t.Helper()
	if diff := cmp.Diff(want, e.Steps); diff != "" {
		t.Error(diff)
	}
}

// TestCostAddsUp: on any plan, what steps say adds up to what their rank says, and what ranks say
// is what Count and PeakBytes say.
func TestCostAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := plan.New(drawSpec(t))
		if err != nil {
			t.Fatal(err)
		}
		h := p.Header()
		top := &plan.Topology{
			Nodes: h.Ranks, RanksPerNode: rapid.IntRange(1, 4).Draw(t, "node"), Flops: 1e9,
			Memory: 1e9, Local: plan.LinkModel{BytesPerS: 1e9, LatencyNanos: 10},
			Remote: plan.LinkModel{BytesPerS: 1e8, LatencyNanos: 100},
			Ranks:  map[int]plan.RankModel{0: {Speed: rapid.Float64Range(0.1, 2).Draw(t, "speed")}},
		}
		e, err := plan.Cost(p, top, plan.CostOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for rank := range h.Ranks {
			checkRankCost(t, p, e, rank)
		}
		var sum plan.StepCost
		for _, s := range e.Steps {
			if s.Nanos < 0 || s.ExposedNanos < 0 || s.ExposedNanos > s.Nanos || s.Bytes < 0 {
				t.Fatalf("step %+v", s)
			}
			sum.Flops, sum.Bytes = sum.Flops+s.Flops, sum.Bytes+s.Bytes
			sum.Nanos, sum.ExposedNanos = sum.Nanos+s.Nanos, sum.ExposedNanos+s.ExposedNanos
		}
		r := e.Ranks[e.Slowest]
		if sum.Flops != r.Flops || sum.Nanos != r.Nanos || sum.ExposedNanos != r.ExposedNanos ||
			sum.Bytes != r.BytesBy(plan.LocalLink)+r.BytesBy(plan.RemoteLink) {
			t.Fatalf("steps add up to %+v, the rank has %+v: %+v", sum, r, e.Steps)
		}
	})
}

func checkRankCost(t *rapid.T, p *plan.Plan, e *plan.Estimate, rank int) {
	var progs [2]*plan.Program
	var want plan.RankCost
	r := &e.Ranks[rank]
	for i, pass := range p.Passes() {
		prog, err := p.Program(pass, rank)
		if err != nil {
			t.Fatal(err)
		}
		progs[i] = prog
		c := plan.Count(p.Header(), prog)
		want.Flops += c.Flops
		for class := range c.Bytes {
			want.Bytes[0][class] += c.Bytes[class]
		}
	}
	for class := range plan.NumClasses {
		if r.BytesOf(class) != want.BytesOf(class) {
			t.Fatalf("rank %d sends %d bytes of %v, want %d", rank, r.BytesOf(class), class,
				want.BytesOf(class))
		}
	}
	if peak := plan.PeakBytes(progs[0], progs[1]); r.Flops != want.Flops || r.PeakBytes != peak {
		t.Fatalf("rank %d: %+v, want %d FLOP, %d bytes at most", rank, r, want.Flops, peak)
	}
	if r.Nanos > e.Nanos || r.ExposedNanos+r.ComputeNanos > r.Nanos || r.Nanos < 0 {
		t.Fatalf("rank %d: %+v of %d ns", rank, r, e.Nanos)
	}
}

// TestPlacementKeepsTrafficInNodes: with 8 ranks a node, head-first keeps all pieces of exchanges
// inside nodes; context-first keeps all hops inside windows there, and one of eight leaves.
func TestPlacementKeepsTrafficInNodes(t *testing.T) {
	top := cluster()
	top.Nodes = 8
	pieces := []plan.Class{plan.A2AForward, plan.A2ABackward}
	hops := []plan.Class{plan.KVForward, plan.KVBackward, plan.DKVHops}
	sum := func(e *plan.Estimate, k plan.LinkKind, classes []plan.Class) (n int64) {
		for i := range e.Ranks {
			for _, c := range classes {
				n += e.Ranks[i].Bytes[k][c]
			}
		}
		return n
	}
	m := mesh.Mesh{Head: 8, Ring: 8}
	e := mustCost(t, mustPlan(t, layer(m, ringbus.Ring{})), top)
	if n := sum(e, plan.RemoteLink, pieces); n != 0 || sum(e, plan.LocalLink, pieces) == 0 {
		t.Errorf("head-first: %d bytes of pieces leave their node", n)
	}
	if n := sum(e, plan.LocalLink, hops); n != 0 {
		t.Errorf("head-first: %d bytes of hops stay inside: the test cannot fail", n)
	}
	m = mesh.Mesh{Head: 4, Ring: 16, Placement: mesh.ContextFirst}
	e = mustCost(t, mustPlan(t, layer(m, ringbus.Ring{Inner: 8})), top)
	if n := sum(e, plan.LocalLink, pieces); n != 0 {
		t.Errorf("context-first: %d bytes of pieces stay inside: the test cannot fail", n)
	}
	// Of C-1 = 15 KV hops one leads to the next window; of 16 dKV hops two do.
	local, remote := sum(e, plan.LocalLink, hops[:1]), sum(e, plan.RemoteLink, hops[:1])
	if local != 14*remote {
		t.Errorf("context-first: KV %d bytes inside, %d outside: want 14 to 1", local, remote)
	}
	local, remote = sum(e, plan.LocalLink, hops[2:]), sum(e, plan.RemoteLink, hops[2:])
	if local != 7*remote {
		t.Errorf("context-first: dKV %d bytes inside, %d outside: want 7 to 1", local, remote)
	}
}

func TestCostIsRepeatable(t *testing.T) {
	p := mustPlan(t, layer(mesh.Mesh{Head: 2, Ring: 8}, ringbus.Ring{Inner: 4, Lanes: 2}))
	a, b := mustCost(t, p, cluster()), mustCost(t, p, cluster())
	if diff := cmp.Diff(a, b); diff != "" {
		t.Error(diff)
	}
}

// edited is a plan with one rank's forward program changed.
type edited struct {
	plan.Source
	rank int
	keep func(p *plan.Program, op int) bool
}

func (e edited) Program(pass plan.Pass, rank int) (*plan.Program, error) {
	p, err := e.Source.Program(pass, rank)
	if err != nil || rank != e.rank {
		return p, err
	}
	out := &plan.Program{Rank: rank, Pass: pass, Slots: p.Slots}
	for i := range p.Ops {
		if e.keep(p, i) {
			out.Append(p.Ops[i], p.Args(i), p.Deps(i))
			continue
		}
		out.Append(p.Ops[i], p.Args(i), []int32{int32(i)}) // waits for itself
	}
	return out, nil
}

// TestCostRefuses what cannot be evaluated.
func TestCostRefuses(t *testing.T) {
	p := mustPlan(t, layer(mesh.Mesh{Head: 1, Ring: 4}, ringbus.Ring{}))
	small, bad, slow := cluster(), cluster(), cluster()
	small.Nodes, small.RanksPerNode = 1, 3
	bad.Flops = -1
	slow.Flops = 1
	var forward []plan.Pass
	for range 2 {
		forward = append(forward, plan.Forward)
	}
	stuck := edited{p, 2, func(p *plan.Program, op int) bool { return p.Ops[op].Kind != plan.Zero }}
	for _, tc := range []struct {
		src  plan.Source
		top  *plan.Topology
		want string
	}{
		{p, small, "nodes 1 of ranks_per_node 3 are 3 ranks, the mesh has 4: use at least 2 nodes"},
		{p, bad, "flops -1: use a device's FLOP/s"},
		{stuck, cluster(), "of the forward pass never start"},
		{mutePlan{p}, cluster(), "a send or a receive has no other end"},
		{longPlan{p}, slow, "more than the limit of 72057594 seconds"},
	} {
		_, err := plan.Cost(tc.src, tc.top, plan.CostOptions{})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v, want %q", err, tc.want)
		}
	}
	if e, err := plan.Cost(p, cluster(), plan.CostOptions{Passes: forward}); err != nil ||
		e.Nanos == 0 {
		t.Errorf("two forward passes: %v", err)
	}
}

// mutePlan lacks rank 1's sends.
type mutePlan struct{ plan.Source }

func (m mutePlan) Program(pass plan.Pass, rank int) (*plan.Program, error) {
	p, err := m.Source.Program(pass, rank)
	if err != nil || rank != 1 {
		return p, err
	}
	out := &plan.Program{Rank: rank, Pass: pass, Slots: p.Slots}
	for i := range p.Ops {
		op := p.Ops[i]
		if op.Kind == plan.Send {
			op.Kind, op.Peer = plan.Release, -1
		}
		out.Append(op, p.Args(i), p.Deps(i))
	}
	return out, nil
}

// longPlan is of a sequence that takes a device of 1 FLOP/s more than two years.
type longPlan struct{ plan.Source }

func (l longPlan) Header() *plan.Header {
	h := *l.Source.Header()
	h.Dim = 1 << 11
	return &h
}

func TestTopologyValidates(t *testing.T) {
	for _, tc := range []struct {
		change func(t *plan.Topology)
		want   string
	}{
		{func(*plan.Topology) {}, ""},
		{func(t *plan.Topology) { t.Memory = 0 }, ""},
		{func(t *plan.Topology) { t.Nodes = 0 }, "nodes 0: use 1 to 65536"},
		{func(t *plan.Topology) { t.RanksPerNode = 1 << 16 },
			"ranks_per_node 65536: use 1 to 32768"},
		{func(t *plan.Topology) { t.Flops = math.NaN() }, "flops NaN: use"},
		{func(t *plan.Topology) { t.Memory = -3 }, "memory -3: use"},
		{func(t *plan.Topology) { t.Local.BytesPerS = 0 }, "local.bytes_per_s 0: use"},
		{func(t *plan.Topology) { t.Remote.BytesPerS = math.Inf(1) },
			"remote.bytes_per_s +Inf: use"},
		{func(t *plan.Topology) { t.Local.LatencyNanos = -1 }, "local.latency of -1 ns: use 0 to"},
		{func(t *plan.Topology) { t.Remote.LatencyNanos = 1e12 },
			"remote.latency of 1000000000000"},
		{func(t *plan.Topology) { t.Ranks[16] = plan.RankModel{Speed: 1} }, "ranks.16: there are " +
			"ranks 0 to 15, 2 nodes of 8"},
		{func(t *plan.Topology) {
			t.Ranks[5], t.Ranks[3] = plan.RankModel{}, plan.RankModel{Speed: math.NaN()}
		}, "ranks.3.speed NaN: use"},
	} {
		top := cluster()
		tc.change(top)
		err := top.Validate()
		if tc.want == "" && err != nil || tc.want != "" &&
			(err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%v, want %q", err, tc.want)
		}
	}
}

// TestTopologyPrices: OpNanos and Transfer by the formulas.
func TestTopologyPrices(t *testing.T) {
	top := cluster()
	top.Ranks[1] = plan.RankModel{Speed: 0.5}
	seen := map[plan.Kind]bool{}
	m := mesh.Mesh{Head: 2, Ring: 8}
	for _, ring := range []plan.RingAxis{ringbus.Ring{}, ringbus.PassQ{}} {
		p := mustPlan(t, layer(m, ring))
		for _, pass := range p.Passes() {
			prog, err := p.Program(pass, 1)
			if err != nil {
				t.Fatal(err)
			}
			checkPrices(t, top, p.Header(), prog, seen)
		}
	}
	for k := plan.Pack; k <= plan.VisitOp; k++ {
		if !seen[k] {
			t.Errorf("no %v is priced here", k)
		}
	}
	if id, occupy, latency := top.Transfer(nil, nil, -1, 0, 8); id != 8 || occupy != 0 ||
		latency != 5000 {
		t.Errorf("a credit 0->8: link %d, %d ns, %d ns", id, occupy, latency)
	}
	if top.Link(7, 0) != plan.LocalLink || top.Link(7, 8) != plan.RemoteLink {
		t.Error("rank r is on node r/8")
	}
}

// checkPrices checks every op of a program of rank 1, which has half the speed.
func checkPrices(t *testing.T, top *plan.Topology, h *plan.Header, p *plan.Program,
	seen map[plan.Kind]bool) {
	t.Helper()
	for i := range p.Ops {
		k, args := p.Ops[i].Kind, p.Args(i)
		seen[k] = true
		b := func(i int) float64 { return float64(h.OperandBytes(&args[i])) }
		want := 0.0
		switch k {
		case plan.Attend:
			want = 4 * 128 * float64(h.OpPairs(p, i)) / top.Flops
		case plan.AttendBackward:
			want = 10 * 128 * float64(h.OpPairs(p, i)) / top.Flops
		case plan.Accumulate:
			want = (b(0) + 2*b(1)) / top.Memory
		case plan.Send, plan.Recv, plan.Release:
		default:
			for i := range args {
				want += b(i) / top.Memory
			}
		}
		got := top.OpNanos(h, p, i, 1)
		if math.Abs(float64(got)-2e9*want) > 1 {
			t.Errorf("%v takes %d ns at half speed, want %.0f", k, got, 2e9*want)
		}
		if usual := top.OpNanos(h, p, i, 2); math.Abs(float64(got-2*usual)) > 2 {
			t.Errorf("%v takes %d ns at half speed, %d at full", k, got, usual)
		}
		if k == plan.Send {
			id, occupy, latency := top.Transfer(h, p, i, 1, 0)
			if id != top.LinkID(1, 0) || latency != 2000 ||
				math.Abs(float64(occupy)-1e9*b(0)/4e11) > 1 {
				t.Errorf("1->0: link %d, %d ns, %d ns", id, occupy, latency)
			}
		}
	}
}

func BenchmarkCost(b *testing.B) {
	p := mustPlan(b, layer(mesh.Mesh{Head: 8, Ring: 128}, ringbus.Ring{}))
	top := cluster()
	top.Nodes = 128
	for b.Loop() {
		e := mustCost(b, p, top)
		b.ReportMetric(float64(e.Ops), "ops")
	}
}

// BenchmarkBuildVerify builds the programs of both passes and proves them.
func BenchmarkBuildVerify(b *testing.B) {
	for _, ring := range []int{8, 32, 128} {
		s := layer(mesh.Mesh{Head: 8, Ring: ring}, ringbus.Ring{})
		b.Run(fmt.Sprintf("ranks=%d", 8*ring), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := mustVerify(b, mustPlan(b, s)).Err(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestCostOfEmptyRanks: ranks without tokens have programs without ops, also the first of them.
func TestCostOfEmptyRanks(t *testing.T) {
	s := layer(mesh.Mesh{Head: 1, Ring: 4}, ringbus.Ring{})
	s.Shape.QTokens, s.Shape.KTokens, s.Shape.Mask = 1, 1, attn.Causal(1, 1)
	shards := []mesh.Set{nil, nil, {{Start: 0, Stride: 1, Count: 1}}, nil}
	dealt, err := mesh.NewDealt("test", 1, shards)
	if err != nil {
		t.Fatal(err)
	}
	s.Layout = dealt
	if e := mustCost(t, mustPlan(t, s), cluster()); e.Nanos <= 0 {
		t.Errorf("one token takes %d ns", e.Nanos)
	}
}
