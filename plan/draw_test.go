package plan_test

import (
	"fmt"
	"slices"

	"github.com/kvloom/kvloom/headshuffle"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/ringbus"
)

// picker draws a whole number from 0 to n-1. Tests that draw with rapid and tests that draw by a
// seed draw the same plans with it.
type picker func(what string, n int) int

// ring draws a scheme and what it leaves open, of which it takes no more than it can.
func (pick picker) ring(m mesh.Mesh) plan.RingAxis {
	schemes := ringbus.Schemes()
	s := schemes[pick("scheme", len(schemes))]
	var divisors []int
	for w := 1; w <= m.Ring; w++ {
		if m.Ring%w == 0 {
			divisors = append(divisors, w)
		}
	}
	r := s.New(ringbus.Ring{
		Inner: divisors[pick("inner", len(divisors))], Lanes: 1 + pick("lanes", 2),
		DKV: ringbus.Window(pick("dkv", 2)), Rotate: ringbus.Rotation(pick("rotate", 2)),
	})
	if r.Validate(m) != nil {
		return s.New(ringbus.Ring{})
	}
	return r
}

// options draws slot counts, and head chunks where heads are exchanged.
func (pick picker) options(m mesh.Mesh, qHeads int) plan.Options {
	o := plan.Options{
		KVSlots: 2 + pick("kv slots", 2), OuterSlots: 2 + pick("outer slots", 2),
		DKVSlots: 2 + pick("dkv slots", 2), Partials: 1 + pick("partials", 3),
		NarrowDKV: pick("narrow", 3) == 0,
	}
	if m.Head > 1 && pick("chunks", 3) == 0 {
		o.HeadChunks = 1 + pick("head chunks", min(qHeads/m.Head, 3))
	}
	return o
}

// layout draws any layout of a sequence for a ring.
func (pick picker) layout(tokens, ring int) mesh.Layout {
	switch pick("layout", 6) {
	case 0:
		return mesh.Contiguous
	case 1:
		return mesh.Striped{Size: 1 + pick("stripe", 5)}
	case 2:
		return mesh.DocZigzag{Starts: pick.starts(tokens)}
	case 3:
		l, err := mesh.NewWholeDoc(pick.starts(tokens), tokens, ring)
		if err != nil {
			panic(fmt.Sprintf("whole documents of %d tokens: %v", tokens, err))
		}
		return l
	}
	return mesh.Zigzag
}

// starts draws where documents start, and the end.
func (pick picker) starts(tokens int) []int {
	starts := []int{0, tokens}
	for range pick("documents", 4) {
		starts = append(starts, pick("start", tokens+1))
	}
	slices.Sort(starts)
	return starts
}

// spec draws all of a plan but its shape and mesh.
func (pick picker) spec(s plan.Shape, m mesh.Mesh) plan.Spec {
	spec := plan.Spec{Shape: s, Mesh: m, Ring: pick.ring(m), Heads: headshuffle.AllToAll{},
		Options: pick.options(m, s.QHeads), Layout: pick.layout(s.QTokens, m.Ring)}
	if k, ok := spec.Ring.(plan.Keeper); ok && k.KeepsDKV() {
		spec.Options.NarrowDKV = false
	}
	if s.KTokens != s.QTokens || pick("key layout", 4) == 0 {
		spec.KeyLayout = pick.layout(s.KTokens, m.Ring)
	}
	return spec
}
