package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// TestOrder runs the tasks in another order, each with a scratch full of NaN.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, do := drawBlock[float32](t, 150)
		out, lse := forwardAll(b)
		g := backwardAll(b, do, out, lse)
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 1))

		s, out2, lse2 := newState(b)
		for _, task := range rng.Perm(ForwardTasks(b)) {
			Forward(b, s, task, dirty[float32](b))
		}
		for x := range lse2 {
			Finalize(out2, lse2, s, nil, b.DV, x, x+1)
		}
		g2 := newGrad(b, do, out2, lse2)
		for _, task := range rng.Perm(BackwardTasks(b)) {
			Backward(b, g2, task, dirty[float32](b))
		}
		mustMatch(t, out, out2, lse, lse2, g.DQ, g2.DQ, g.DK, g2.DK, g.DV, g2.DV)
	})
}

// dirty is a scratch whose memory holds NaN, as a former task may have left it.
func dirty[T attn.Float](b *attn.Block[T]) *Scratch[T] {
	sc := NewScratch[T](b.D, b.DV, len(b.Mask))
	for _, a := range [][]T{sc.q, sc.do, sc.k, sc.v, sc.p, sc.ds, sc.sum} {
		fill(a, T(math.NaN()))
	}
	for i := range sc.allow {
		sc.allow[i], sc.seen[i] = ^uint64(0), ^uint64(0)
	}
	return sc
}

// mustMatch compares pairs of arrays bit for bit.
func mustMatch[T attn.Float](t *rapid.T, pairs ...[]T) {
	for i := 0; i < len(pairs); i += 2 {
		if !sameBits(pairs[i], pairs[i+1]) {
			t.Fatalf("array %d has other bits", i/2)
		}
	}
}

// TestHeadSplit computes the heads in two calls. Where the cut goes through a group, dK and dV of
// its KV head come in two shares, so only the KV heads that are whole are compared.
func TestHeadSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, do := drawBlock[float32](t, 100)
		if b.QHeads < 2 {
			t.Skip("one head")
		}
		out, lse := forwardAll(b)
		g := backwardAll(b, do, out, lse)
		cut := rapid.IntRange(1, b.QHeads-1).Draw(t, "cut")
		for _, r := range [][2]int{{0, cut}, {cut, b.QHeads}} {
			lo, hi := r[0], r[1]
			part := queryHeads(b, lo, hi)
			partDO := pickHeads(do, b.QHeads, b.DV, lo, hi)
			out2, lse2 := forwardAll(part)
			g2 := backwardAll(part, partDO, out2, lse2)
			mustMatch(t, pickHeads(out, b.QHeads, b.DV, lo, hi), out2,
				pickHeads(lse, b.QHeads, 1, lo, hi), lse2,
				pickHeads(g.DQ, b.QHeads, b.D, lo, hi), g2.DQ)
			for kv := range part.KHeads {
				whole := part.KHead0 - b.KHead0 + kv
				f, l := readers(b, whole)
				if f2, l2 := readers(part, kv); l-f != l2-f2 {
					continue
				}
				mustMatch(t,
					pickHeads(g.DK, b.KHeads, b.D, whole, whole+1),
					pickHeads(g2.DK, part.KHeads, b.D, kv, kv+1),
					pickHeads(g.DV, b.KHeads, b.DV, whole, whole+1),
					pickHeads(g2.DV, part.KHeads, b.DV, kv, kv+1))
			}
		}
	})
}

// TestPoison puts a NaN or an infinity into one vector. What the mask lets see it shows NaN; all
// else keeps its bits.
func TestPoison(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, do := drawBlock[float32](t, 100)
		nq, nk := b.QSpans.Len(), b.KSpans.Len()
		if nq == 0 || nk == 0 {
			t.Skip("nothing to poison")
		}
		out, lse := forwardAll(b)
		g := backwardAll(b, do, out, lse)

		bad := float32(math.NaN())
		array := rapid.SampledFrom([]string{"q", "k", "v", "do"}).Draw(t, "array")
		if array == "v" && rapid.Bool().Draw(t, "infinity") {
			bad = float32(math.Inf(1))
		}
		i := rapid.IntRange(0, nq-1).Draw(t, "row")
		h := rapid.IntRange(0, b.QHeads-1).Draw(t, "head")
		j, kv := rapid.IntRange(0, nk-1).Draw(t, "key"), b.KVHead(h)
		switch array {
		case "q":
			b.Q[(i*b.QHeads+h)*b.D] = bad
		case "do":
			do[(i*b.QHeads+h)*b.DV] = bad
		case "k":
			b.K[(j*b.KHeads+kv)*b.D] = bad
		case "v":
			b.V[(j*b.KHeads+kv)*b.DV] = bad
		}
		hit := poisoned{b: b, array: array, i: i, h: h, j: j, kv: kv}
		out2, lse2 := forwardAll(b)
		g2 := backwardAll(b, do, out2, lse2)
		hit.check(t, "out", out, out2, b.QHeads, b.DV, hit.out)
		hit.check(t, "lse", lse, lse2, b.QHeads, 1, hit.lse)
		hit.check(t, "dq", g.DQ, g2.DQ, b.QHeads, b.D, hit.row)
		hit.check(t, "dk", g.DK, g2.DK, b.KHeads, b.D, hit.key)
		hit.check(t, "dv", g.DV, g2.DV, b.KHeads, b.DV, hit.value)
	})
}

// poisoned says which items must show a poison in one row (i,h) of q or do or one key (j,kv).
type poisoned struct {
	b           *attn.Block[float32]
	array       string
	i, h, j, kv int
}

func (p *poisoned) sees(i, j int) bool {
	return p.b.Mask.Allows(p.b.QSpans.Positions()[i], p.b.KSpans.Positions()[j])
}

// row reports whether the gradients of query row i, head h are poisoned.
func (p *poisoned) row(i, h int) bool {
	if p.array == "q" || p.array == "do" {
		return i == p.i && h == p.h && p.any(i)
	}
	return p.b.KVHead(h) == p.kv && p.sees(i, p.j)
}

// any reports whether row i sees a key at all.
func (p *poisoned) any(i int) bool {
	for j := range p.b.KSpans.Len() {
		if p.sees(i, j) {
			return true
		}
	}
	return false
}

func (p *poisoned) out(i, h int) bool { return p.array != "do" && p.row(i, h) }
func (p *poisoned) lse(i, h int) bool { return (p.array == "q" || p.array == "k") && p.row(i, h) }

// key reports whether dk of key j is poisoned: some poisoned row sees it.
func (p *poisoned) key(j, kv int) bool {
	for i := range p.b.QSpans.Len() {
		for h := range p.b.QHeads {
			if p.b.KVHead(h) == kv && p.sees(i, j) && p.row(i, h) {
				return true
			}
		}
	}
	return false
}

// value is key for dv, which does not depend on v.
func (p *poisoned) value(j, kv int) bool { return p.array != "v" && p.key(j, kv) }

// check wants a NaN or an infinity in each poisoned vector of w elements, and the clean bits in
// all others.
func (p *poisoned) check(t *rapid.T, name string, clean, got []float32, heads, w int,
	hit func(row, head int) bool,
) {
	for x := range len(got) / w {
		v := got[x*w : (x+1)*w]
		if !hit(x/heads, x%heads) {
			if !sameBits(v, clean[x*w:(x+1)*w]) {
				t.Fatalf("%s row %d head %d: another row's %s came in: %v", name, x/heads,
					x%heads, p.array, v)
			}
			continue
		}
		if !slices.ContainsFunc(v, func(y float32) bool {
			return math.IsNaN(float64(y)) || math.IsInf(float64(y), 0)
		}) {
			t.Fatalf("%s row %d head %d hides the bad %s: %v", name, x/heads, x%heads, p.array, v)
		}
	}
}

// TestInfiniteLogits has keys whose logits are -Inf: they weigh nothing, and a row with no others
// has out 0 and lse -Inf.
func TestInfiniteLogits(t *testing.T) {
	b := contiguous[float32](70, 1, 1, 2, 2)
	do := fillBlock(b, 1)
	for i := range b.Q {
		b.Q[i] = 1
	}
	for i := range 66 {
		b.K[2*i] = float32(math.Inf(-1))
	}
	out, lse := forwardAll(b)
	for i := range 66 {
		if !math.IsInf(float64(lse[i]), -1) || out[2*i] != 0 || out[2*i+1] != 0 {
			t.Errorf("row %d sees weightless keys alone: out %v lse %v", i, out[2*i:2*i+2], lse[i])
		}
	}
	for i := 66; i < 70; i++ {
		if x := float64(lse[i]); math.IsNaN(x) || math.IsInf(x, 0) {
			t.Errorf("row %d: lse %v", i, x)
		}
	}
	g := backwardAll(b, do, out, lse)
	for i, x := range g.DQ[:2*66] {
		if x != 0 {
			t.Errorf("dq[%d] = %v of a row without weight", i, x)
		}
	}
}

// TestNothingAllowed: no mask, no rows, no keys.
func TestNothingAllowed(t *testing.T) {
	for name, change := range map[string]func(b *attn.Block[float64]){
		"mask":    func(b *attn.Block[float64]) { b.Mask = nil },
		"queries": func(b *attn.Block[float64]) { b.QSpans = nil },
		"keys":    func(b *attn.Block[float64]) { b.KSpans = nil },
		"future": func(b *attn.Block[float64]) {
			b.KSpans = mesh.Set{{Start: 99, Stride: 1, Count: 7}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := contiguous[float64](5, 2, 1, 3, 4)
			change(b)
			do := fillBlock(b, 1)
			out, lse := forwardAll(b)
			g := backwardAll(b, do, out, lse)
			for _, x := range slices.Concat(out, g.DQ, g.DK, g.DV) {
				if x != 0 {
					t.Fatalf("a number other than 0: %v", x)
				}
			}
			for _, x := range lse {
				if !math.IsInf(x, -1) {
					t.Fatalf("lse %v", x)
				}
			}
		})
	}
}

// TestWritesOwnItems runs one task on arrays full of canaries, each inside a larger array.
func TestWritesOwnItems(t *testing.T) {
	const canary = -12345.5
	framed := func(n int) (frame, inner []float64) {
		frame = make([]float64, n+16)
		fill(frame, canary)
		return frame, frame[8 : n+8]
	}
	rapid.Check(t, func(t *rapid.T) {
		b, do := drawBlock[float64](t, 100)
		out, lse := forwardAll(b)
		if ForwardTasks(b) == 0 {
			t.Skip("no rows")
		}
		task := rapid.IntRange(0, ForwardTasks(b)-1).Draw(t, "forward task")
		tiles := ForwardTasks(b) / b.QHeads
		s, _, _ := newState(b)
		var frames [6][]float64
		frames[0], s.Acc = framed(len(s.Acc))
		frames[1], s.M = framed(len(s.M))
		frames[2], s.L = framed(len(s.L))
		Forward(b, s, task, NewScratch[float64](b.D, b.DV, 0))
		mine := func(x int) bool { return x%b.QHeads == task/tiles && x/b.QHeads/64 == task%tiles }
		mustKeep(t, "acc", frames[0], b.DV, canary, mine)
		mustKeep(t, "m", frames[1], 1, canary, mine)
		mustKeep(t, "l", frames[2], 1, canary, mine)

		g := newGrad(b, do, out, lse)
		frames[3], g.DQ = framed(len(g.DQ))
		frames[4], g.DK = framed(len(g.DK))
		frames[5], g.DV = framed(len(g.DV))
		kv := rapid.IntRange(0, BackwardTasks(b)-1).Draw(t, "backward task")
		Backward(b, g, kv, NewScratch[float64](b.D, b.DV, 0))
		reads := func(x int) bool { return b.KVHead(x%b.QHeads) == kv }
		own := func(x int) bool { return x%b.KHeads == kv }
		mustKeep(t, "dq", frames[3], b.D, canary, reads)
		mustKeep(t, "dk", frames[4], b.D, canary, own)
		mustKeep(t, "dv", frames[5], b.DV, canary, own)
	})
}

// mustKeep wants the canary in the 8 elements of frame on both sides and in each item of w elements
// that is not mine.
func mustKeep(t *rapid.T, name string, frame []float64, w int, canary float64,
	mine func(x int) bool,
) {
	for i, v := range frame {
		inside := i >= 8 && i < len(frame)-8
		if v != canary && !(inside && mine((i-8)/w)) {
			t.Fatalf("%s: element %d was overwritten by %v", name, i-8, v)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	for _, heads := range []int{1, 4} {
		b := contiguous[float32](150, heads, 1, 16, 8)
		b.SoftCap = float64(heads - 1)
		do := fillBlock(b, 1)
		small, _ := narrowed(b)
		sink, smallDO, smallOut := make([]float32, heads), narrow(do), narrow(do)
		s, out, lse := newState(b)
		g := newGrad(b, do, out, lse)
		sc := NewScratch[float32](b.D, b.DV, len(b.Mask))
		if n := testing.AllocsPerRun(3, func() {
			FreshState(s, b.DV, 0, len(lse))
			for task := range ForwardTasks(b) {
				Forward(b, s, task, sc)
			}
			Finalize(out, lse, s, nil, b.DV, 0, len(lse))
			Delta(g.Delta, do, out, b.DV, 0, len(lse))
			for task := range BackwardTasks(b) {
				Backward(b, g, task, sc)
			}
			Accumulate(g.DQ, g.DQ, 0, len(g.DQ))

			FreshState(s, b.DV, 0, len(lse))
			for task := range ForwardTasks(small) {
				Forward(small, s, task, sc)
			}
			FinalizeNarrow(smallOut, s, sink, b.DV, 0, len(lse))
			Delta(g.Delta, smallDO, smallOut, b.DV, 0, len(lse))
			narrowGrad := attn.Grad[attn.BF16, float32]{
				DO: smallDO, LSE: lse, Delta: g.Delta, DQ: g.DQ, DK: g.DK, DV: g.DV,
			}
			for task := range BackwardTasks(small) {
				Backward(small, narrowGrad, task, sc)
			}
			SinkGrad(sink, lse, g.Delta, sink, 0, heads)
		}); n != 0 {
			t.Errorf("%d heads: %v allocations", heads, n)
		}
	}
}
