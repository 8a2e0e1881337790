package simd

import (
	"math"
	"runtime/debug"
	"syscall"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// guards makes arrays whose memory lies between two pages that nobody may touch.
type guards struct {
	t     interface{ Fatal(args ...any) }
	atEnd bool // the array ends where the second one begins, else it begins where the first ends
	maps  [][]byte
}

func (g *guards) close() {
	for _, m := range g.maps {
		if err := syscall.Munmap(m); err != nil {
			g.t.Fatal(err)
		}
	}
	g.maps = nil
}

// guarded is a copy of src between guards.
func guarded[E any](g *guards, src []E) []E {
	if len(src) == 0 {
		return nil
	}
	page := syscall.Getpagesize()
	size := len(src) * int(unsafe.Sizeof(src[0]))
	inner := (size + page - 1) / page * page
	m, err := syscall.Mmap(-1, 0, inner+2*page, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		g.t.Fatal(err)
	}
	g.maps = append(g.maps, m)
	for _, guard := range [][]byte{m[:page], m[page+inner:]} {
		if err := syscall.Mprotect(guard, syscall.PROT_NONE); err != nil {
			g.t.Fatal(err)
		}
	}
	at := page
	if g.atEnd {
		at += inner - size
	}
	dst := unsafe.Slice((*E)(unsafe.Pointer(&m[at])), len(src))
	copy(dst, src)
	return dst
}

// eachSide runs test with arrays that end at a guard, then with ones that begin at one. A touch of
// a guard is a panic.
func eachSide(t interface{ Fatal(args ...any) }, test func(g *guards)) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	for _, atEnd := range []bool{true, false} {
		g := &guards{t: t, atEnd: atEnd}
		func() {
			defer g.close()
			test(g)
		}()
	}
}

// canary is a NaN that no kernel makes.
var canary = math.Float32frombits(0x7fcaca13)

// isCanary reports whether all of a is as it was filled.
func isCanary(a []float32) bool {
	for _, x := range a {
		if math.Float32bits(x) != math.Float32bits(canary) {
			return false
		}
	}
	return true
}

// floatsOf are the arrays of floats of a Scratch.
func floatsOf(sc *Scratch) []*[]float32 {
	return []*[]float32{&sc.s, &sc.dp, &sc.q, &sc.o, &sc.do, &sc.qr, &sc.dor, &sc.k, &sc.v,
		&sc.clean, &sc.row, &sc.dk, &sc.dv, &sc.dot.woven, &sc.dot.ds}
}

// guardScratch puts each array of a Scratch that has been fitted between guards, full of canaries.
func guardScratch(g *guards, sc *Scratch) {
	for _, a := range floatsOf(sc) {
		*a = guarded(g, *a)
		fill(*a, canary)
	}
	for _, a := range []*[]attn.BF16{&sc.dot.few[0], &sc.dot.few[1], &sc.dot.clean} {
		*a = guarded(g, *a)
		fill(*a, attn.ToBF16(canary))
	}
	sc.groups = guarded(g, sc.groups[:cap(sc.groups)])
	sc.pos = guarded(g, sc.pos[:cap(sc.pos)])
}

// where are the places of the arrays of a Scratch.
func where(sc *Scratch) (at []*float32) {
	for _, a := range floatsOf(sc) {
		at = append(at, unsafe.SliceData(*a))
	}
	return at
}

// keptCanaries names an array of the Scratch of a task in which more was written than its parts:
// s and dp are as long as the widest lanes need, k, v and what is made of them have a row for each
// key of a tile, of which the block may have fewer. The fixed arrays keep what they hold.
func keptCanaries(sc *Scratch, isa ISA, d, dv, keys int) string {
	rows := min(maxKeys, max(minKeys, keys))
	lanes, turned := isa.lanes(), rows
	if isa == AMX {
		turned = max(rows, tilePairs) // rows of pairs of a whole tile
	}
	for name, a := range map[string][]float32{
		"s": sc.s[(maxKeys+zeroRows)*lanes:], "k": sc.k[rows*padded(d):],
		"v": sc.v[rows*padded(dv):], "clean": sc.clean[turned*padded(max(d, dv)):],
	} {
		if !isCanary(a) {
			return name
		}
	}
	if sc.dp != nil && !isCanary(sc.dp[(maxKeys+zeroRows)*lanes:]) {
		return "dp"
	}
	for i, x := range sc.ones {
		if x != 1 || i >= lanes && sc.alpha[i] != 0 {
			return "ones or alpha"
		}
	}
	for i, x := range sc.count {
		if x != i {
			return "count"
		}
	}
	for i := range sc.groups {
		for lane := lanes; lane < maxLanes; lane++ {
			if g := &sc.groups[i]; g.m[lane] != 0 || g.l[lane] != 0 {
				return "m or l of a group"
			}
		}
	}
	return ""
}

// guardDim is a head dimension up to the largest, with any remainder.
func guardDim(t *rapid.T, name string) int {
	return rapid.OneOf(rapid.IntRange(1, 40), rapid.IntRange(1, maxDim),
		rapid.SampledFrom([]int{8, 15, 16, 17, 31, 32, 48, 64, 65, 127, 128, 129, 255, maxDim})).
		Draw(t, name)
}

// guardBlock is a block of such dims, some of its numbers not finite now and then.
func guardBlock(t *rapid.T) (b *attn.Block[float32], do []float32) {
	b, _ = drawBlock(t, 130)
	b.D, b.DV = guardDim(t, "large dim"), guardDim(t, "large v dim")
	if rapid.Bool().Draw(t, "even dims") {
		b.D, b.DV = (b.D+1)&^1, (b.DV+1)&^1
	}
	b.Scale = 1 / math.Sqrt(float64(b.D))
	do = fillBlock(b, rapid.Uint64().Draw(t, "numbers"))
	if rapid.IntRange(0, 4).Draw(t, "odd numbers") == 0 {
		for _, a := range [][]float32{b.Q, b.K, b.V, do} {
			if len(a) > 0 {
				a[rapid.IntRange(0, len(a)-1).Draw(t, "at")] = float32(math.Inf(1))
			}
		}
	}
	return b, do
}

// TestGuardPages runs all passes on arrays whose neighbours must not be touched, those of a Scratch
// too, and wants the bits of a run on ordinary ones. Masks and sets are read in Go alone.
func TestGuardPages(t *testing.T) {
	eachVector(t, func(t *testing.T, p path) {
		if !p.isa.dots() { // that would compute a copy of the block
			t.Run("f32", rapid.MakeCheck(func(t *rapid.T) {
				b, do := guardBlock(t)
				guardPages(t, p, b, do)
			}))
		}
		t.Run("bf16", rapid.MakeCheck(func(t *rapid.T) {
			b, do := guardBlock(t)
			guardPages(t, p, narrow(b), narrowed(do))
		}))
	})
}

func guardPages[E attn.Elem](t *rapid.T, p path, b *attn.Block[E], do []E) {
	out, lse := forwardAll(p, b)
	grad := newGrad(p, b, do, out, lse)
	grad.AddKV = rapid.Bool().Draw(t, "add")
	if grad.AddKV {
		fill(grad.DK, 1)
		fill(grad.DV, 1)
	}
	descend(p, b, grad)
	kvHead := rapid.IntRange(0, b.KHeads-1).Draw(t, "head of guarded scratch")
	eachSide(t, func(g *guards) {
		in := *b
		in.Q, in.K, in.V = guarded(g, b.Q), guarded(g, b.K), guarded(g, b.V)
		s := newState(b)
		s.Acc, s.M, s.L = guarded(g, s.Acc), guarded(g, s.M), guarded(g, s.L)
		for task := range ForwardTasks(b) {
			sc := p.sc
			if task%b.KHeads == kvHead {
				sc = fitted(p.isa, b, kvHead, false)
				guardScratch(g, sc)
			}
			at := where(sc)
			Forward(p.isa, &in, s, task, sc)
			if sc != p.sc {
				mustKeepScratch(t, sc, at, p.isa, b.D, b.DV, b.KSpans)
			}
		}
		out2, lse2 := guarded(g, make([]float32, len(out))), guarded(g, make([]float32, len(lse)))
		Finalize(p.isa, out2, lse2, s, nil, b.DV, 0, len(s.M))
		mustMatch(t, out, out2, lse, lse2)
		halves := guarded(g, make([]attn.BF16, len(out)))
		FinalizeNarrow(p.isa, halves, s, nil, b.DV, 0, len(s.M))
		mustMatch(t, lse, s.M)
		guardGrad(t, g, p, &in, grad, out2, lse2, halves, kvHead)
	})
}

// guardGrad is the backward half; want has its results on ordinary arrays.
func guardGrad[E attn.Elem](t *rapid.T, g *guards, p path, in *attn.Block[E],
	want attn.Grad[E, float32], out, lse []float32, halves []attn.BF16, kvHead int,
) {
	got := attn.Grad[E, float32]{
		DO: guarded(g, want.DO), LSE: lse, Delta: guarded(g, want.Delta), AddKV: want.AddKV,
		DQ: guarded(g, make([]float32, len(in.Q))), DK: guarded(g, want.DK),
		DV: guarded(g, want.DV),
	}
	start := float32(math.NaN())
	if got.AddKV {
		start = 1
	}
	fill(got.DK, start)
	fill(got.DV, start)
	Delta(p.isa, got.Delta, got.DO, halves, in.DV, 0, len(lse))
	Delta(p.isa, got.Delta, got.DO, out, in.DV, 0, len(lse))
	for task := range BackwardTasks(in) {
		sc := p.sc
		if task == kvHead {
			sc = fitted(p.isa, in, kvHead, true)
			guardScratch(g, sc)
		}
		at := where(sc)
		Backward(p.isa, in, got, task, sc)
		if sc != p.sc {
			mustKeepScratch(t, sc, at, p.isa, in.D, in.DV, in.KSpans)
		}
	}
	mustMatch(t, want.Delta, got.Delta, want.DQ, got.DQ, want.DK, got.DK, want.DV, got.DV)
	Accumulate(p.isa, got.DQ, got.DQ, 0, len(got.DQ))
}

// fitted is a Scratch that has just the room for the largest pass of a KV head.
func fitted[E attn.Elem](isa ISA, b *attn.Block[E], kvHead int, backward bool) *Scratch {
	sc := &Scratch{}
	h0, h1 := readers(b, kvHead)
	per := taskRows(b)
	if backward {
		per = max(1, backwardPack/max(1, h1-h0))
	}
	isa = pathOf(isa, b)
	if backward {
		sc.fitBackward(isa, b.D, b.DV, 0) // no rows: there are keys to clear
	}
	for at := (cursor{set: b.QSpans}); len(at.set) > 0; {
		n := at.reach(per)
		at.skip(n)
		if backward {
			sc.fitBackward(isa, b.D, b.DV, n*(h1-h0))
		} else {
			sc.fitForward(isa, b.D, b.DV, n*(h1-h0))
		}
	}
	return sc
}

// mustKeepScratch wants the arrays of a Scratch where they were, none written beyond its parts.
func mustKeepScratch(t *rapid.T, sc *Scratch, at []*float32, isa ISA, d, dv int, keys mesh.Set) {
	for i, x := range where(sc) {
		if x != at[i] {
			t.Fatalf("array %d of the scratch was made anew: it was to be large enough", i)
		}
	}
	if len(sc.s) == 0 {
		return
	}
	if name := keptCanaries(sc, isa, d, dv, keys.Len()); name != "" {
		t.Fatalf("%s was written beyond its parts", name)
	}
}
