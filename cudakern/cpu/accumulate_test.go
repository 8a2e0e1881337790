package cpu

import (
	"slices"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern/cpu/kernel"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"pgregory.net/rapid"
)

// item is the place of a token and head among the items of a block, -1 if it has not the two.
func item(v *frame, token int, head int32) int {
	row := slices.Index(v.set.Positions(), token)
	if row < 0 || head < v.heads.Lo || head >= v.heads.Hi {
		return -1
	}
	return row*v.heads.Len() + int(head-v.heads.Lo)
}

// TestAccumulateRegions adds regions of blocks to regions of others, in two tasks, and compares
// with what each row and head gives by itself; those outside the region stay as they are.
func TestAccumulateRegions(t *testing.T) {
	h := &plan.Header{Shape: plan.Shape{Dim: 3, VDim: 5, ElemBytes: 8, AccBytes: 8}}
	rapid.Check(t, func(t *rapid.T) {
		pair := rapid.SampledFrom([][2]plan.Tensor{{plan.DQ, plan.DQ}, {plan.DKV, plan.DKV},
			{plan.DKVWire, plan.DKV}, {plan.Part, plan.State}}).Draw(t, "tensors")
		region := drawTokens(t, "region", seq(10))
		cutHeads := func(name string) mesh.Heads {
			if rapid.Bool().Draw(t, name) {
				return mesh.Heads{Lo: 2, Hi: 4}
			}
			return mesh.Heads{Lo: 1, Hi: 5}
		}
		block := func(tensor plan.Tensor, name string, seed int) view[float64] {
			extra := drawTokens(t, name, []int{11, 12, 13})
			return blockOf[float64](h, tensor, cutSet(t, slices.Concat(region, extra)),
				cutHeads(name+"'s heads"), seed)
		}
		part, acc := block(pair[0], "part", 1), block(pair[1], "acc", 2)
		want := blockOf[float64](h, pair[1], acc.set, acc.heads, 2)
		for _, v := range []*view[float64]{&part, &acc, &want} {
			if v.tensor == plan.State || v.tensor == plan.Part {
				for i := range v.part(1) {
					v.part(1)[i] /= 1e6 // so that both sides have a weight
				}
			}
		}
		heads := mesh.Heads{Lo: max(part.heads.Lo, acc.heads.Lo),
			Hi: min(part.heads.Hi, acc.heads.Hi)}
		set := cutSet(t, region)
		part.region = frame{header: h, tensor: pair[0], heads: heads, set: set, rows: len(region)}
		acc.region = part.region
		acc.region.tensor = pair[1]
		j := &Job[float64]{dst: acc, sources: []view[float64]{part}}
		cut := rapid.IntRange(0, part.rows).Draw(t, "cut")
		j.accumulate(cut, part.rows)
		j.accumulate(0, cut)
		for _, token := range region {
			for head := heads.Lo; head < heads.Hi; head++ {
				x, y := item(&want.frame, token, head), item(&part.frame, token, head)
				addItem(&want, x, &part, y)
			}
		}
		if !slices.Equal(acc.mem, want.mem) {
			t.Fatalf("%v: sums %v, want %v", pair, values(&acc), values(&want))
		}
	})
}

// addItem adds item y of part to item x of acc.
func addItem(acc *view[float64], x int, part *view[float64], y int) {
	if part.tensor == plan.Part {
		s := attn.State[float64]{Acc: acc.part(0)[5*x:][:5], M: acc.part(1)[x:][:1],
			L: acc.part(2)[x:][:1]}
		kernel.MergePart(s, part.part(0)[5*y:][:5], part.part(1)[y:][:1], 5, 0, 1)
		return
	}
	for p, w := range acc.widths() {
		for e := range w {
			if part.narrow(p) {
				acc.part(p)[x*w+e] += float64(part.part16(p)[y*w+e].Float32())
			} else {
				acc.part(p)[x*w+e] += part.part(p)[y*w+e]
			}
		}
	}
}

// TestCut: tasks have items of about a chunk together, and at least one, however long it is.
func TestCut(t *testing.T) {
	for _, c := range []struct{ items, elems, each, tasks int }{
		{1, 1, chunk, 1}, {chunk + 1, 1, chunk, 2}, {10, chunk / 4, 4, 3}, {3, chunk, 1, 3},
		{3, chunk + 1, 1, 3}, {5, 0, chunk, 1},
	} {
		var j Job[float32]
		if tasks := j.cut(c.items, c.elems); tasks != c.tasks || j.each != c.each {
			t.Errorf("%d items of %d: %d tasks of %d, want %d of %d", c.items, c.elems, tasks,
				j.each, c.tasks, c.each)
		}
	}
}
