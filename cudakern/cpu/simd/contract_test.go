package simd

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// eachVector is eachPath without the portable kernels, which have their own tests of these things.
func eachVector(t *testing.T, test func(t *testing.T, p path)) {
	eachPath(t, func(t *testing.T, p path) {
		if p.isa == Portable {
			t.Skip("package kernel has its own test")
		}
		test(t, p)
	})
}

// sameBits compares bit for bit, so that NaN equals itself and 0 is not -0.
func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool {
		return math.Float32bits(x) == math.Float32bits(y)
	})
}

// mustMatch compares pairs of arrays bit for bit.
func mustMatch(t *rapid.T, pairs ...[]float32) {
	for i := 0; i < len(pairs); i += 2 {
		if !sameBits(pairs[i], pairs[i+1]) {
			t.Fatalf("array %d has other bits", i/2)
		}
	}
}

// dirty is a scratch whose memory holds NaN, as a former task may have left it.
func dirty(b *attn.Block[float32]) *Scratch {
	sc := NewScratch(b.D, b.DV, b.Group, len(b.Mask))
	for _, a := range [][]float32{
		sc.s, sc.dp, sc.q, sc.o, sc.do, sc.qr, sc.dor, sc.k, sc.v, sc.clean, sc.row, sc.dk, sc.dv,
	} {
		fill(a, float32(math.NaN()))
	}
	sc.dot.spoil()
	fill(sc.words[:], ^uint64(0))
	fill(sc.pos[:cap(sc.pos)], -1)
	return sc
}

// TestOrder runs the tasks in another order, each with a scratch full of NaN.
func TestOrder(t *testing.T) {
	eachVector(t, func(t *testing.T, p path) {
		rapid.Check(t, func(t *rapid.T) {
			b, do := drawBlock(t, 250)
			out, lse := forwardAll(p, b)
			g := backwardAll(p, b, do, out, lse)
			rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 1))

			s := newState(b)
			for _, task := range rng.Perm(ForwardTasks(b)) {
				p.forward(b, s, task, dirty(b))
			}
			out2, lse2 := finish(p, s, b.DV)
			g2 := newGrad(p, b, do, out2, lse2)
			for _, task := range rng.Perm(BackwardTasks(b)) {
				p.backward(b, g2, task, dirty(b))
			}
			mustMatch(t, out, out2, lse, lse2, g.DQ, g2.DQ, g.DK, g2.DK, g.DV, g2.DV)
		})
	})
}

// TestHeadSplit computes the heads in two calls. Where the cut goes through a group, dK and dV of
// its KV head come in two shares, so only the KV heads that are whole are compared.
func TestHeadSplit(t *testing.T) {
	eachVector(t, func(t *testing.T, p path) {
		rapid.Check(t, func(t *rapid.T) {
			b, do := drawBlock(t, 150)
			if b.QHeads < 2 {
				t.Skip("one head")
			}
			out, lse := forwardAll(p, b)
			g := backwardAll(p, b, do, out, lse)
			cut := rapid.IntRange(1, b.QHeads-1).Draw(t, "cut")
			for _, r := range [][2]int{{0, cut}, {cut, b.QHeads}} {
				lo, hi := r[0], r[1]
				part := queryHeads(b, lo, hi)
				out2, lse2 := forwardAll(p, part)
				g2 := backwardAll(p, part, pickHeads(do, b.QHeads, b.DV, lo, hi), out2, lse2)
				mustMatch(t, pickHeads(out, b.QHeads, b.DV, lo, hi), out2,
					pickHeads(lse, b.QHeads, 1, lo, hi), lse2)
				for kv := range part.KHeads {
					whole := part.KHead0 - b.KHead0 + kv
					f, l := readers(b, whole)
					if f2, l2 := readers(part, kv); l-f != l2-f2 {
						continue
					}
					mustMatch(t,
						pickHeads(g.DQ, b.QHeads, b.D, f, l),
						pickHeads(g2.DQ, part.QHeads, b.D, f-lo, l-lo),
						pickHeads(g.DK, b.KHeads, b.D, whole, whole+1),
						pickHeads(g2.DK, part.KHeads, b.D, kv, kv+1),
						pickHeads(g.DV, b.KHeads, b.DV, whole, whole+1),
						pickHeads(g2.DV, part.KHeads, b.DV, kv, kv+1))
				}
			}
		})
	})
}

// TestHeadSplitBand has groups of lanes with the rows of two heads, which see other keys together
// than apart, under bands of all widths: no sum may depend on where the keys of a tile begin.
func TestHeadSplitBand(t *testing.T) {
	eachVector(t, func(t *testing.T, p path) {
		for width := range 40 {
			b := contiguous(60, 2, 2, 8, 8)
			fillBlock(b, uint64(width))
			b.Mask[0].Lo = -width
			out, lse := forwardAll(p, b)
			for h := range 2 {
				out2, lse2 := forwardAll(p, queryHeads(b, h, h+1))
				if !sameBits(pickHeads(out, 2, 8, h, h+1), out2) ||
					!sameBits(pickHeads(lse, 2, 1, h, h+1), lse2) {
					t.Errorf("width %d: head %d has other bits alone", width, h)
				}
			}
		}
	})
}

// TestCarriedState cuts the keys of a problem into blocks in any way: forward carries its state
// over them, backward adds its DQ up and gives each block its own DK and DV, set or added.
func TestCarriedState(t *testing.T) {
	eachPath(t, func(t *testing.T, p path) {
		rapid.Check(t, func(t *rapid.T) {
			b, do := drawBlock(t, 250)
			p.fit(b, do)
			want, keys := exact(b, do), b.KSpans.Len()
			cuts := []int{0}
			for range rapid.IntRange(0, 4).Draw(t, "cuts") {
				cuts = append(cuts, rapid.IntRange(cuts[len(cuts)-1], keys).Draw(t, "cut"))
			}
			cuts = append(cuts, keys)
			s := newState(b)
			for i, lo := range cuts[:len(cuts)-1] {
				fold(p, keyRows(b, lo, cuts[i+1]), s, nil)
			}
			out, lse := finish(p, s, b.DV)
			g := newGrad(p, b, do, out, lse)
			g.AddKV = rapid.Bool().Draw(t, "add")
			if g.AddKV {
				fill(g.DK, 1)
				fill(g.DV, 1)
				for i := range want.dk {
					want.dk[i]++
				}
				for i := range want.dv {
					want.dv[i]++
				}
			}
			for i, lo := range cuts[:len(cuts)-1] {
				hi, share := cuts[i+1], g
				share.DK = g.DK[lo*b.KHeads*b.D : hi*b.KHeads*b.D]
				share.DV = g.DV[lo*b.KHeads*b.DV : hi*b.KHeads*b.DV]
				descend(p, keyRows(b, lo, hi), share)
			}
			got := result{wide(out), wide(lse), wide(g.DQ), wide(g.DK), wide(g.DV)}
			for i, e := range got.errors(&want, 1) {
				if !(e <= p.random(b, i, 3e-5)) {
					t.Fatalf("%s: relative error %.3g", names[i], e)
				}
			}
		})
	})
}

// TestManyTiles has more rows than a task takes, or a pass of backward, and more keys than a tile.
func TestManyTiles(t *testing.T) {
	eachVector(t, func(t *testing.T, p path) {
		for _, group := range []int{1, 2} {
			b := contiguous(1300, 2, group, 9, 8)
			do := fillBlock(b, 1)
			p.fit(b, do)
			want, got := path{isa: Portable}.run(b, do), p.run(b, do)
			for i, e := range got.errors(&want, 1e-3) {
				if !(e <= p.bound(i, 2e-6)) {
					t.Errorf("group %d: %s is off by %.3g", group, names[i], e)
				}
			}
		}
	})
}

// taskSpan is the rows of a task of Forward: those that remain when the later tasks have theirs.
func taskSpan(b *attn.Block[float32], task int) (row0, n int) {
	at := cursor{set: b.QSpans}
	for left := ForwardTasks(b)/b.KHeads - task/b.KHeads; left > 0; left-- {
		row0, n = row0+n, at.reach(taskRows(b))
		at.skip(n)
	}
	return row0, n
}

// TestWritesOwnItems runs one task on states and gradients full of canaries.
func TestWritesOwnItems(t *testing.T) {
	const canary = -12345.5
	mustKeep := func(t *rapid.T, name string, a []float32, w int, mine func(x int) bool) {
		for i, v := range a {
			if v != canary && !mine(i/w) {
				t.Fatalf("%s: element %d was overwritten by %v", name, i, v)
			}
		}
	}
	eachVector(t, func(t *testing.T, p path) {
		rapid.Check(t, func(t *rapid.T) {
			b, do := drawBlock(t, 500)
			if ForwardTasks(b) == 0 {
				t.Skip("no rows")
			}
			out, lse := forwardAll(p, b)
			s, g := newState(b), newGrad(p, b, do, out, lse)
			for _, a := range [][]float32{s.Acc, s.M, s.L, g.DQ, g.DK, g.DV} {
				fill(a, canary)
			}
			task := rapid.IntRange(0, ForwardTasks(b)-1).Draw(t, "forward task")
			kv := task % b.KHeads
			lo, n := taskSpan(b, task)
			p.forward(b, s, task, p.sc)
			mine := func(x int) bool {
				return b.KVHead(x%b.QHeads) == kv && lo <= x/b.QHeads && x/b.QHeads < lo+n
			}
			mustKeep(t, "acc", s.Acc, b.DV, mine)
			mustKeep(t, "m", s.M, 1, mine)
			mustKeep(t, "l", s.L, 1, mine)
			p.backward(b, g, kv, p.sc)
			mustKeep(t, "dq", g.DQ, b.D, func(x int) bool { return b.KVHead(x%b.QHeads) == kv })
			mustKeep(t, "dk", g.DK, b.D, func(x int) bool { return x%b.KHeads == kv })
			mustKeep(t, "dv", g.DV, b.DV, func(x int) bool { return x%b.KHeads == kv })
		})
	})
}

// TestUnseenRowsKeepState folds keys that some rows do not see into a state of any numbers.
func TestUnseenRowsKeepState(t *testing.T) {
	eachVector(t, func(t *testing.T, p path) {
		rapid.Check(t, func(t *rapid.T) {
			b, _ := drawBlock(t, 200)
			s := newState(b)
			rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "state"), 1))
			for _, a := range [][]float32{s.Acc, s.M, s.L} {
				for i := range a {
					a[i] = float32(rng.NormFloat64())
				}
			}
			before := attn.State[float32]{
				Acc: slices.Clone(s.Acc), M: slices.Clone(s.M), L: slices.Clone(s.L),
			}
			fold(p, b, s, nil)
			qpos, kpos := b.QSpans.Positions(), b.KSpans.Positions()
			for x := range s.M {
				if slices.ContainsFunc(kpos, func(k int) bool {
					return b.Mask.Allows(qpos[x/b.QHeads], k)
				}) {
					continue
				}
				lo, hi := x*b.DV, (x+1)*b.DV
				mustMatch(t, s.Acc[lo:hi], before.Acc[lo:hi], s.M[x:x+1], before.M[x:x+1],
					s.L[x:x+1], before.L[x:x+1])
			}
		})
	})
}

// TestInfiniteLogits has keys whose logits are -Inf: they weigh nothing, and a row with no others
// has out 0, lse -Inf and no gradient.
func TestInfiniteLogits(t *testing.T) {
	eachPath(t, func(t *testing.T, p path) {
		b := contiguous(150, 1, 1, 2, 2)
		do := fillBlock(b, 1)
		fill(b.Q, 1)
		for i := range 66 {
			b.K[2*i] = float32(math.Inf(-1))
		}
		out, lse := forwardAll(p, b)
		for i := range 66 {
			if !math.IsInf(float64(lse[i]), -1) || out[2*i] != 0 || out[2*i+1] != 0 {
				t.Errorf("row %d sees weightless keys alone: out %v lse %v", i, out[2*i:2*i+2],
					lse[i])
			}
		}
		for i := 66; i < 150; i++ {
			if x := float64(lse[i]); math.IsNaN(x) || math.IsInf(x, 0) {
				t.Errorf("row %d: lse %v", i, x)
			}
		}
		fill(do[:2*66], float32(math.NaN())) // must not matter
		g := backwardAll(p, b, do, out, lse)
		for i, x := range g.DQ[:2*66] {
			if x != 0 {
				t.Errorf("dq[%d] = %v of a row without weight", i, x)
			}
		}
		for i, x := range g.DV {
			if math.IsNaN(float64(x)) {
				t.Errorf("dv[%d] is NaN", i)
			}
		}
	})
}

// TestNothingAllowed: no mask, no rows, no keys.
func TestNothingAllowed(t *testing.T) {
	for name, change := range map[string]func(b *attn.Block[float32]){
		"mask":    func(b *attn.Block[float32]) { b.Mask = nil },
		"queries": func(b *attn.Block[float32]) { b.QSpans = nil },
		"keys":    func(b *attn.Block[float32]) { b.KSpans = nil },
		"future": func(b *attn.Block[float32]) {
			b.KSpans = mesh.Set{{Start: 99, Stride: 1, Count: 7}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachVector(t, func(t *testing.T, p path) {
				b := contiguous(5, 2, 1, 3, 4)
				change(b)
				do := fillBlock(b, 1)
				out, lse := forwardAll(p, b)
				g := backwardAll(p, b, do, out, lse)
				for _, x := range slices.Concat(out, g.DQ, g.DK, g.DV) {
					if x != 0 {
						t.Fatalf("a number other than 0: %v", x)
					}
				}
				for _, x := range lse {
					if !math.IsInf(float64(x), -1) {
						t.Fatalf("lse %v", x)
					}
				}
			})
		})
	}
}

// TestSubnormal has inputs whose products lie below the normal numbers, and logits so far apart
// that weights do.
func TestSubnormal(t *testing.T) {
	eachPath(t, func(t *testing.T, p path) {
		b := contiguous(200, 2, 1, 24, 16)
		do := fillBlock(b, 3)
		for i := range b.K {
			b.Q[i] *= 1e-22
			b.K[i] *= 1e-20
		}
		mustBeClose(t, p, b, do)
		b = contiguous(200, 2, 1, 24, 16)
		do = fillBlock(b, 4)
		for i := range b.K {
			b.K[i] *= float32(math.Exp2(float64(i/24%9) - 2))
		}
		mustBeClose(t, p, b, do)
	})
}

func mustBeClose(t *testing.T, p path, b *attn.Block[float32], do []float32) {
	t.Helper()
	got, twin := p.gap(b, do, 1e-3)
	for i, e := range got {
		if !(e <= p.bound(i, 2*max(twin[i], 3e-7))) {
			t.Errorf("%s: error %.3g, the portable kernels' is %.3g", names[i], e, twin[i])
		}
	}
}
