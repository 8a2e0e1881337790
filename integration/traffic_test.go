package integration

import (
	"fmt"
	"testing"

	kvloom "github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
	"github.com/kvloom/kvloom/ringbus"
	"github.com/kvloom/kvloom/sim"
	"github.com/kvloom/kvloom/transport"
)

// Closed formulas of docs/plans.md, "Traffic of the schemes", against what links count.

// flow is blocks and bytes that leave a rank and come into it, by class.
type flow struct {
	out, in [plan.NumClasses]transport.Traffic
}

// tally counts at the links, at both ends.
type tally struct {
	transport.Mover
	book  *rank.Rounds
	flows []flow
}

func (m *tally) Hop(src, dst, round, sendOp, recvOp int32) (int64, error) {
	n, err := m.Mover.Hop(src, dst, round, sendOp, recvOp)
	s := m.book.Script(src, round)
	class := plan.ClassOf(s.Program.Pass, s.Program.Ops[sendOp].Lane)
	for _, x := range []*transport.Traffic{&m.flows[src].out[class], &m.flows[dst].in[class]} {
		x.Blocks++
		x.Bytes += n
	}
	return n, err
}

// flows runs a task's two rounds in virtual time and counts at the links.
func flows(t *testing.T, c *task) (*plan.Plan, []flow) {
	t.Helper()
	cfg, err := c.config()
	if err != nil {
		t.Fatal(err)
	}
	p, err := cfg.Plan(0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := planBook(p)
	if err != nil {
		t.Fatal(err)
	}
	n := c.mesh.Ranks()
	store := cpu.New[float32](storeBook{b}, n, cpu.Options{})
	defer store.Close()
	if err := kvloom.LoadShards(store, p, 0, taskInputs[float32](c)); err != nil {
		t.Fatal(err)
	}
	count := &tally{Mover: store, book: b, flows: make([]flow, n)}
	_, err = sim.New(sim.Config{Ranks: n, Book: b, Costs: evenCosts{n}, Exec: store, Mover: count}).
		Run(2)
	if err != nil {
		t.Fatal(err)
	}
	return p, count.flows
}

// sums adds up blocks of the given numbers of rows, of bytes a row.
func sums(rows []int, bytes int64) transport.Traffic {
	var x transport.Traffic
	for _, n := range rows {
		x.Blocks++
		x.Bytes += int64(n) * bytes
	}
	return x
}

// formula is what a rank is to send and get, with a full mask and a token in every chunk.
type formula struct {
	scheme string
	ring   ringbus.Ring
	narrow bool
	of     func(r *ringRank) flow
}

// ringRank is a rank of a ring as the formulas see it.
type ringRank struct {
	n, c  int   // ring degree, this ring index
	rows  []int // of each ring shard
	q, kv struct{ elem, part, visit, grad int64 }
}

// around is the shards c-from, c-from-1 ... c-to.
func (r *ringRank) around(from, to int) []int {
	var out []int
	for t := from; t <= to; t++ {
		out = append(out, r.rows[(r.c-t+2*r.n)%r.n])
	}
	return out
}

// own is the own shard n times.
func (r *ringRank) own(n int) []int {
	var out []int
	for range n {
		out = append(out, r.rows[r.c])
	}
	return out
}

// formulas are the closed forms, b bytes a row of a block.
func formulas() []formula {
	ringKV := func(r *ringRank, f *flow, k plan.Class) {
		f.out[k] = sums(r.around(0, r.n-2), r.kv.elem)
		f.in[k] = sums(r.around(1, r.n-1), r.kv.elem)
	}
	ringed := func(r *ringRank, f *flow, k plan.Class, bytes int64) { // C hops, the last one home
		f.out[k], f.in[k] = sums(r.around(0, r.n-1), bytes), sums(r.around(1, r.n), bytes)
	}
	ringFlow := func(r *ringRank) (f flow) {
		ringKV(r, &f, plan.KVForward)
		ringKV(r, &f, plan.KVBackward)
		ringed(r, &f, plan.DKVHops, r.kv.grad)
		return f
	}
	rotateQ := func(r *ringRank, f *flow) {
		f.out[plan.QBackward] = sums(r.around(0, r.n-2), r.q.visit)
		f.in[plan.QBackward] = sums(r.around(1, r.n-1), r.q.visit)
		ringed(r, f, plan.DQHops, r.q.grad)
	}
	direct := func(r *ringRank) (f flow) {
		for _, k := range []plan.Class{plan.KVForward, plan.KVBackward} {
			f.out[k], f.in[k] = sums(r.own(r.n-1), r.kv.elem), sums(r.around(1, r.n-1), r.kv.elem)
		}
		f.out[plan.DKVHops] = sums(r.around(1, r.n-1), r.kv.grad)
		f.in[plan.DKVHops] = sums(r.own(r.n-1), r.kv.grad)
		return f
	}
	passQ := func(r *ringRank) (f flow) {
		f.out[plan.QForward] = sums(r.around(0, r.n-2), r.q.elem)
		f.in[plan.QForward] = sums(r.around(1, r.n-1), r.q.elem)
		f.out[plan.PartForward] = sums(r.around(1, r.n-1), r.q.part)
		f.in[plan.PartForward] = sums(r.own(r.n-1), r.q.part)
		rotateQ(r, &f)
		return f
	}
	turned := func(r *ringRank) (f flow) {
		ringKV(r, &f, plan.KVForward)
		rotateQ(r, &f)
		return f
	}
	return []formula{
		{"ring", ringbus.Ring{}, false, ringFlow}, {"ring", ringbus.Ring{}, true, ringFlow},
		{"ring", ringbus.Ring{Rotate: ringbus.RotateQ}, false, turned},
		{"allgather", ringbus.Ring{}, false, direct}, {"allgather", ringbus.Ring{}, true, direct},
		{"halo", ringbus.Ring{}, false, direct}, {"passq", ringbus.Ring{}, false, passQ},
	}
}

// TestTrafficOfSchemes: with a full mask links count what the closed formulas say, at both ends,
// in each class: also with shards of different sizes and with heads that straddle.
func TestTrafficOfSchemes(t *testing.T) {
	for _, x := range formulas() {
		for _, m := range []mesh.Mesh{ring(2), ring(5), grids(2, 4), grids(3, 2)} {
			for _, s := range []int{60, 97} {
				for _, dtype := range []tensors.DType{tensors.F32, tensors.BF16} {
					c := task{tokens: s, word: "full", heads: 6, kvHeads: 2, dim: 8, vdim: 4,
						dtype: dtype, mesh: m, layout: mesh.Contiguous, scheme: x.scheme,
						ring: x.ring, opt: plan.Options{NarrowDKV: x.narrow}}.full()
					checkFormula(t, &c, x)
				}
			}
		}
	}
}

func checkFormula(t *testing.T, c *task, x formula) {
	t.Helper()
	p, got := flows(t, c)
	h := p.Header()
	for r := range got {
		at := c.mesh.Coord(r)
		q, kv := mesh.SplitHeads(c.heads, c.kvHeads, c.mesh.Head, at.H)
		rr := ringRank{n: c.mesh.Ring, c: at.C}
		for shard := range c.mesh.Ring {
			rr.rows = append(rr.rows, c.layout.Shard(c.tokens, c.mesh.Ring, shard).Len())
		}
		e, a, d, dv := int64(h.ElemBytes), int64(h.AccBytes), int64(h.Dim), int64(h.VDim)
		hq, hk := int64(q.Len()), int64(kv.Len())
		rr.q.elem, rr.q.part = hq*d*e, hq*(dv+1)*a
		rr.q.visit, rr.q.grad = hq*((d+dv)*e+2*a), hq*d*a
		rr.kv.elem, rr.kv.grad = hk*(d+dv)*e, hk*(d+dv)*a
		if x.narrow {
			rr.kv.grad = hk * (d + dv) * 2
		}
		want := x.of(&rr)
		for k := range plan.NumClasses {
			if k == plan.A2AForward || k == plan.A2ABackward {
				continue // of the exchanges, not of the ring
			}
			if got[r].out[k] != want.out[k] || got[r].in[k] != want.in[k] {
				t.Errorf("%v, S=%d, %v, rank %d, %v: out %+v, in %+v; want %+v, %+v", *c, c.tokens,
					c.dtype, r, k, got[r].out[k], got[r].in[k], want.out[k], want.in[k])
			}
		}
	}
}

// TestRingEqualsAllGather: the ring and all-gather bring the same bytes of KV into a rank, (C-1)
// blocks, whatever way they take, and pass-Q and rotate q are worth it where the formula says so.
func TestRingEqualsAllGather(t *testing.T) {
	in := func(scheme string, kvHeads int, rotate ringbus.Rotation) (forward, backward int64) {
		c := task{tokens: 64, word: "full", heads: 8, kvHeads: kvHeads, dim: 16, mesh: ring(4),
			layout: mesh.Contiguous, scheme: scheme, dtype: tensors.BF16,
			ring: ringbus.Ring{Rotate: rotate}}.full()
		_, all := flows(t, &c)
		for _, k := range []plan.Class{plan.KVForward, plan.QForward, plan.PartForward} {
			forward += all[1].in[k].Bytes
		}
		for _, k := range []plan.Class{plan.KVBackward, plan.DKVHops, plan.QBackward, plan.DQHops} {
			backward += all[1].in[k].Bytes
		}
		return forward, backward
	}
	ringF, ringB := in("ring", 8, ringbus.RotateKV)
	if gather, _ := in("allgather", 8, ringbus.RotateKV); gather != ringF || ringF != 3*16*8*32*2 {
		t.Errorf("ring brings %d bytes of KV, all-gather %d", ringF, gather)
	}
	if _, turned := in("ring", 8, ringbus.RotateQ); turned >= ringB {
		t.Errorf("with as many KV heads as heads rotate q brings %d bytes, rotate kv %d", turned,
			ringB)
	}
	_, few := in("ring", 1, ringbus.RotateKV)
	if _, turned := in("ring", 1, ringbus.RotateQ); turned <= few {
		t.Errorf("with one KV head rotate q brings %d bytes, rotate kv %d", turned, few)
	}
}

// TestWholeDocumentsStay: documents that lie whole on a rank each move nothing, with any scheme.
func TestWholeDocumentsStay(t *testing.T) {
	docs := []int{0, 16, 16, 32, 48, 64}
	layout, err := mesh.NewWholeDoc(docs, 64, 4)
	if err != nil {
		t.Fatal(err)
	}
	for _, way := range schemes(4) {
		for _, word := range []string{"causal", "full", "window:5,1"} {
			way.tokens, way.docs, way.word, way.layout = 64, docs, word, layout
			c := way.full()
			_, all := flows(t, &c)
			for r := range all {
				for k := range plan.NumClasses {
					if all[r].out[k] != (transport.Traffic{}) {
						t.Errorf("%v %s: rank %d sends %+v of %v", c, word, r, all[r].out[k], k)
					}
				}
			}
		}
	}
	c := task{tokens: 64, docs: docs, layout: mesh.Zigzag, mesh: ring(4)}.full()
	if _, all := flows(t, &c); all[0].out[plan.KVForward].Blocks == 0 {
		t.Error("zigzag over the same documents sends nothing: the test shows nothing")
	}
}

// runsOf is how many contiguous runs of tokens a set is.
func runsOf(s mesh.Set) int {
	owned := map[int]bool{}
	for _, p := range s.Positions() {
		owned[p] = true
	}
	n := 0
	for p := range owned {
		if !owned[p-1] {
			n++
		}
	}
	return n
}

// TestHaloRows: into a rank come exactly the KV rows that its queries see and that it does not
// own: at most left + right for each contiguous run that it owns; backward the gradients of as
// many go.
func TestHaloRows(t *testing.T) {
	docs := []int{0, 30, 31, 31, 100, 128}
	for _, layout := range []mesh.Layout{mesh.Contiguous, mesh.Zigzag, mesh.Striped{Size: 16},
		mesh.Striped{Size: 5}, mesh.DocZigzag{Starts: docs}} {
		for _, window := range [][2]int{{0, 0}, {7, 0}, {4, 3}, {0, 2}, {40, 9}} {
			for _, packed := range []bool{false, true} {
				for _, m := range []mesh.Mesh{ring(4), grids(2, 4)} {
					c := task{tokens: 128, heads: 4, kvHeads: 2, mesh: m, layout: layout,
						scheme: "halo",
						word:   fmt.Sprintf("window:%d,%d", window[0], window[1])}
					if packed {
						c.docs = docs
					}
					c = c.full()
					checkHalo(t, &c, window[0]+window[1])
				}
			}
		}
	}
}

func checkHalo(t *testing.T, c *task, width int) {
	t.Helper()
	p, all := flows(t, c)
	h := p.Header()
	mask := h.Mask
	for r := range all {
		at := c.mesh.Coord(r)
		shard := c.layout.Shard(c.tokens, c.mesh.Ring, at.C)
		owned, seen := map[int]bool{}, map[int]bool{}
		for _, i := range shard.Positions() {
			owned[i] = true
		}
		for i := range owned {
			for j := range c.tokens {
				if !owned[j] && mask.Allows(i, j) {
					seen[j] = true
				}
			}
		}
		_, kv := mesh.SplitHeads(c.heads, c.kvHeads, c.mesh.Head, at.H)
		row := int64(kv.Len() * (c.dim + c.vdim) * h.ElemBytes)
		for _, k := range []plan.Class{plan.KVForward, plan.KVBackward} {
			if got := all[r].in[k].Bytes; got != int64(len(seen))*row {
				t.Errorf("%v %s %v: %d bytes of %v come into rank %d, want %d rows of %d", *c,
					c.word, c.docs, got, k, r, len(seen), row)
			}
		}
		grads := row * int64(h.AccBytes) / int64(h.ElemBytes)
		if got := all[r].out[plan.DKVHops].Bytes; got != int64(len(seen))*grads {
			t.Errorf("%v %s: %d bytes of dKV leave rank %d, want %d rows of %d", *c, c.word, got, r,
				len(seen), grads)
		}
		if most := width * runsOf(shard); len(seen) > most {
			t.Errorf("%v %s: %d rows come into rank %d, which has %d runs: at most %d", *c, c.word,
				len(seen), r, runsOf(shard), most)
		}
	}
}

// TestTrafficOfHeadChunks: n chunks exchange q, o, do, dq as one does; KV once for each chunk
// whose heads read it; and the backward pass exchanges q, KV and o again.
func TestTrafficOfHeadChunks(t *testing.T) {
	for _, x := range []struct{ head, ring, q, kv, chunks int }{
		{2, 2, 8, 8, 1}, {2, 2, 8, 8, 2}, {2, 2, 8, 8, 4}, {2, 3, 8, 2, 2}, {2, 1, 8, 2, 4},
		{3, 2, 7, 7, 2}, {4, 1, 8, 1, 2},
	} {
		c := task{tokens: 96, word: "full", heads: x.q, kvHeads: x.kv, dim: 8, vdim: 4,
			mesh: grids(x.head, x.ring), layout: mesh.Contiguous,
			opt: plan.Options{HeadChunks: x.chunks}}.full()
		_, all := flows(t, &c)
		for r := range all {
			want := chunkFlow(&c, r)
			for k, bytes := range want {
				if got := all[r].out[k].Bytes; got != bytes {
					t.Errorf("%v heads %d/%d, %d chunks, rank %d: %d bytes of %v, want %d", c, x.q,
						x.kv, x.chunks, r, got, plan.Class(k), bytes)
				}
			}
		}
	}
}

// chunkFlow is the closed form of what a rank sends by exchanges and round the ring, in bytes, for
// lengths that divide.
func chunkFlow(c *task, r int) map[plan.Class]int64 {
	const e, a = 4, 4
	at, d, dv := c.mesh.Coord(r), int64(c.dim), int64(c.vdim)
	rows := int64(c.tokens / c.mesh.Ring)
	home := rows / int64(c.mesh.Head)
	kvHeads := func(head int) (sum int64) { // of all chunks: a head in two chunks counts twice
		q, _ := mesh.SplitHeads(c.heads, c.kvHeads, c.mesh.Head, head)
		group := c.heads / c.kvHeads
		for i := range max(c.opt.HeadChunks, 1) {
			lo, hi := mesh.CutEven(q.Len(), max(c.opt.HeadChunks, 1), i)
			lo, hi = lo+int(q.Lo), hi+int(q.Lo)
			sum += int64((hi-1)/group - lo/group + 1)
		}
		return sum
	}
	q, _ := mesh.SplitHeads(c.heads, c.kvHeads, c.mesh.Head, at.H)
	hq, hk, others := int64(q.Len()), kvHeads(at.H), int64(0)
	for peer := range c.mesh.Head {
		if peer != at.H {
			others += kvHeads(peer)
		}
	}
	toQ := home * (int64(c.heads) - hq)
	forward := toQ*d*e + home*others*(d+dv)*e + (rows-home)*hq*(dv*e+a)
	backward := toQ*dv*e + (rows-home)*hq*d*a + (rows-home)*hk*(d+dv)*a
	if c.opt.HeadChunks > 1 { // q, KV and o go the same way again
		backward += toQ*d*e + home*others*(d+dv)*e + toQ*(dv*e+a)
	}
	hops := int64(c.mesh.Ring - 1)
	dkv := hops + 1
	if hops == 0 {
		dkv = 0
	}
	row := rows * hk * (d + dv)
	return map[plan.Class]int64{
		plan.A2AForward: forward, plan.A2ABackward: backward, plan.KVForward: hops * row * e,
		plan.KVBackward: hops * row * e, plan.DKVHops: dkv * row * a,
	}
}
