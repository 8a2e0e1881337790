package cpu

import (
	"slices"
	"testing"
	"unsafe"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"pgregory.net/rapid"
)

// drawTokens draws which of 24 tokens are in a set.
func drawTokens(t *rapid.T, name string, from []int) []int {
	var out []int
	for _, x := range from {
		if rapid.Bool().Draw(t, name) {
			out = append(out, x)
		}
	}
	return out
}

// cutSet makes spans of tokens, cut as draws say: runs of one stride, split at random, or
// interleaved. Rows are in span order.
func cutSet(t *rapid.T, tokens []int) mesh.Set {
	var set mesh.Set
	for left := slices.Clone(tokens); len(left) > 0; {
		span := mesh.Span{Start: left[0], Stride: rapid.IntRange(1, 3).Draw(t, "stride"), Count: 1}
		left = left[1:]
		for len(left) > 0 && rapid.IntRange(0, 4).Draw(t, "cut") > 0 {
			i := slices.Index(left, span.At(span.Count))
			if i < 0 {
				break
			}
			span.Count++
			left = slices.Delete(left, i, i+1)
		}
		set = append(set, span)
	}
	return set
}

func seq(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// blockOf makes a view whose values say seed, part, token, head and element.
func blockOf[T attn.Float](h *plan.Header, t plan.Tensor, set mesh.Set, heads mesh.Heads,
	seed int) view[T] {
	f := frame{header: h, tensor: t, heads: heads, set: set, rows: set.Len()}
	v := view[T]{mem: memory(int(f.bytes())), frame: f, region: f}
	for p := range f.widths() {
		at := 0
		put := func(x float64) { v.part(p)[at] = T(x) }
		if v.narrow(p) {
			put = func(x float64) { v.part16(p)[at] = attn.ToBF16(float32(x)) }
		}
		for _, token := range set.Positions() {
			for head := heads.Lo; head < heads.Hi; head++ {
				for e := range f.widths()[p] {
					put(value(seed, p, token, int(head), e))
					at++
				}
			}
		}
	}
	return v
}

// memory is zeroed bytes at a multiple of 8.
func memory(n int) []byte {
	words := make([]uint64, n/8+1)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}

// values are the elements of a block, part by part.
func values[T attn.Float](v *view[T]) []float64 {
	var out []float64
	for p := range v.widths() {
		if v.narrow(p) {
			for _, x := range v.part16(p) {
				out = append(out, float64(x.Float32()))
			}
			continue
		}
		for _, x := range v.part(p) {
			out = append(out, float64(x))
		}
	}
	return out
}

func value(seed, part, token, head, e int) float64 {
	return float64((((seed*10+part)*100+token)*10+head)*10 + e)
}

func TestSameRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens := drawTokens(t, "a", seq(12))
		a, b := cutSet(t, tokens), cutSet(t, tokens)
		if rapid.Bool().Draw(t, "other") {
			b = cutSet(t, drawTokens(t, "b", seq(12)))
		}
		want := slices.Equal(a.Positions(), b.Positions())
		if got := sameRows(a, b); got != want {
			t.Fatalf("%v and %v: same %v, want %v", a, b, got, want)
		}
	})
}

// TestPlace copies pieces of one block into another and compares every element.
func TestPlace(t *testing.T) {
	t.Run("full", testPlace[float64])
	t.Run("bf16", testPlace[float32])
}

// testPlace is TestPlace; with T of float32 elements are BF16.
func testPlace[T attn.Float](t *testing.T) {
	h := &plan.Header{Shape: plan.Shape{Dim: 3, VDim: 5, ElemBytes: 8, AccBytes: 8}}
	if elemBytes[T]() == 4 {
		h.ElemBytes, h.AccBytes = 2, 4
	}
	rapid.Check(t, func(t *rapid.T) {
		tensor := plan.Tensor(rapid.IntRange(0, int(plan.DKVWire)).Draw(t, "tensor"))
		region := drawTokens(t, "region", seq(20))
		extra := drawTokens(t, "extra", []int{20, 21, 22, 23})
		from := append(slices.Clone(region), extra...)
		src := blockOf[T](h, tensor, cutSet(t, from), mesh.Heads{Lo: 1, Hi: 5}, 1)
		lo := rapid.Int32Range(1, 4).Draw(t, "lo")
		heads := mesh.Heads{Lo: lo, Hi: rapid.Int32Range(lo+1, 5).Draw(t, "hi")}
		if rapid.Bool().Draw(t, "all heads") {
			heads = src.heads
		}
		to := tensor
		if tensor == plan.DKV && rapid.Bool().Draw(t, "rounded for the way") {
			to = plan.DKVWire
		}
		dst := blockOf[T](h, to, cutSet(t, region), heads, 0)
		rows := len(region)
		clear(dst.mem)
		src.region = frame{header: h, tensor: tensor, heads: heads, rows: rows}
		src.region.set = cutSet(t, region)
		if !inside(src.region.set, src.set, dst.set) {
			t.Fatalf("%v is not found in %v and %v", src.region.set, src.set, dst.set)
		}
		cut := rapid.IntRange(0, rows).Draw(t, "cut")
		place(&dst, &src, 0, cut)
		place(&dst, &src, cut, rows)
		want := blockOf[T](h, to, dst.set, heads, 1)
		if !slices.Equal(dst.mem, want.mem) {
			t.Fatalf("placed %v, want %v", values(&dst), values(&want))
		}
		outside := slices.Clone(src.region.set)
		outside = append(outside, mesh.Span{Start: 30, Stride: 1, Count: 1})
		if inside(outside, src.set, dst.set) {
			t.Fatalf("token 30 was found in %v", src.set)
		}
	})
}

// TestParts draws blocks of every tensor: their sizes are the plan's, their parts fill the block
// without gaps and each is aligned for its elements.
func TestParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &plan.Header{Shape: plan.Shape{
			Dim: rapid.IntRange(1, 5).Draw(t, "dim"), VDim: rapid.IntRange(1, 5).Draw(t, "v-dim"),
			ElemBytes: rapid.SampledFrom([]int{2, 4}).Draw(t, "bytes"), AccBytes: 4}}
		tensor := plan.Tensor(rapid.IntRange(0, int(plan.DKVWire)).Draw(t, "tensor"))
		heads := rapid.IntRange(1, 3).Draw(t, "heads")
		v := blockOf[float32](h, tensor, cutSet(t, drawTokens(t, "rows", seq(7))),
			mesh.Heads{Hi: int32(heads)}, 1)
		if want := h.Bytes(tensor, v.rows, heads); v.bytes() != want {
			t.Fatalf("%v has %d bytes, the plan says %d", v.frame, v.bytes(), want)
		}
		if v.rows == 0 {
			return
		}
		seen := make([]bool, len(v.mem))
		base := uintptr(unsafe.Pointer(unsafe.SliceData(v.mem)))
		for p := range maxParts {
			mem := v.part8(p)
			if len(mem) == 0 {
				continue
			}
			at := uintptr(unsafe.Pointer(unsafe.SliceData(mem))) - base
			if size := uintptr(v.size(p) / v.widths()[p]); at%size != 0 {
				t.Fatalf("part %d of %v, of elements of %d bytes, begins at %d", p, v.frame, size,
					at)
			}
			for i := range mem {
				if seen[int(at)+i] {
					t.Fatalf("byte %d of %v is of two parts", int(at)+i, v.frame)
				}
				seen[int(at)+i] = true
			}
		}
		if i := slices.Index(seen, false); i >= 0 {
			t.Fatalf("byte %d of %v is of no part", i, v.frame)
		}
	})
}

// TestGather sums overlapping sources, in the order given, and compares with sums by element.
func TestGather(t *testing.T) {
	h := &plan.Header{Shape: plan.Shape{Dim: 2, VDim: 3, ElemBytes: 8, AccBytes: 8}}
	rapid.Check(t, func(t *rapid.T) {
		tokens := drawTokens(t, "tokens", seq(12))
		heads := mesh.Heads{Lo: 2, Hi: 6}
		dst := blockOf[float64](h, plan.DKV, cutSet(t, tokens), heads, 0)
		for p := range 2 {
			for i := range dst.part(p) {
				dst.part(p)[i] = -1
			}
		}
		n := rapid.IntRange(1, 4).Draw(t, "sources")
		sources := make([]view[float64], n)
		has := make([]map[[2]int]bool, n)
		for i := range sources {
			lo := rapid.Int32Range(2, 5).Draw(t, "lo")
			hi := rapid.Int32Range(lo+1, 6).Draw(t, "hi")
			part := tokens
			if rapid.Bool().Draw(t, "some rows") {
				part = drawTokens(t, "rows", tokens)
			}
			sources[i] = blockOf[float64](h, plan.DKV, cutSet(t, part),
				mesh.Heads{Lo: lo, Hi: hi}, i+1)
			has[i] = map[[2]int]bool{}
			for _, token := range part {
				for head := lo; head < hi; head++ {
					has[i][[2]int{token, int(head)}] = true
				}
			}
		}
		cut := rapid.IntRange(0, len(tokens)).Draw(t, "cut")
		gather(&dst, sources, cut, len(tokens))
		gather(&dst, sources, 0, cut)
		at, got := 0, values(&dst)
		for p, w := range dst.widths() {
			for _, token := range dst.set.Positions() {
				for head := 2; head < 6; head++ {
					for e := range w {
						want, any := 0.0, false
						for i := range sources {
							if has[i][[2]int{token, head}] {
								want, any = want+value(i+1, p, token, head, e), true
							}
						}
						if !any {
							want = -1
						}
						if got[at] != want {
							t.Fatalf("token %d head %d: %v, want %v", token, head,
								got[at], want)
						}
						at++
					}
				}
			}
		}
	})
}

// TestSum adds the parts of contributors, which come in sources of one and more and of some rows
// each, and compares with sums in the order of contributors, bit by bit.
func TestSum(t *testing.T) {
	const contributors = 5
	h := &plan.Header{Shape: plan.Shape{
		QHeads: contributors, KHeads: 1, ElemBytes: 8, AccBytes: 8}}
	rapid.Check(t, func(t *rapid.T) {
		tokens := drawTokens(t, "elements", seq(12))
		want := make([]float64, 12)
		var sources []view[float64]
		for lo := int32(0); lo < contributors; {
			hi := rapid.Int32Range(lo+1, contributors).Draw(t, "hi")
			front := drawTokens(t, "front", tokens)
			back := slices.DeleteFunc(slices.Clone(tokens), func(x int) bool {
				return slices.Contains(front, x)
			})
			for _, part := range [][]int{front, back} {
				v := blockOf[float64](h, plan.Vec, cutSet(t, part), mesh.Heads{Lo: lo, Hi: hi}, 1)
				for i, x := range v.part(0) {
					v.part(0)[i] = 1 / x // not exact, so that the order shows
				}
				sources = append(sources, v)
			}
			lo = hi
		}
		for _, token := range tokens {
			want[token] = 1 / value(1, 0, token, 0, 0)
			for c := 1; c < contributors; c++ {
				want[token] += 1 / value(1, 0, token, c, 0)
			}
		}
		dst := blockOf[float64](h, plan.Sum, cutSet(t, tokens), mesh.Heads{Hi: 1}, 0)
		cut := rapid.IntRange(0, len(tokens)).Draw(t, "cut")
		sum(&dst, sources, cut, len(tokens))
		sum(&dst, sources, 0, cut)
		for i, token := range dst.set.Positions() {
			if got := dst.part(0)[i]; got != want[token] {
				t.Fatalf("element %d is %v, want %v", token, got, want[token])
			}
		}
	})
}

func TestClassesWasteAtMostAnEighth(t *testing.T) {
	last, before := -1, int64(0)
	for words := int64(1); words < 70000; words++ {
		class, size := classOf(words)
		if size < words || (words > 64 && (size-words)*8 > words) || size%8 != 0 {
			t.Fatalf("%d words get a block of %d", words, size)
		}
		if class != last && (class != last+1 || before >= words) {
			t.Fatalf("%d words are of class %d after %d", words, class, last)
		}
		last, before = class, size
	}
	if class, size := classOf(maxBytes / wordBytes); class >= numClasses || size != maxBytes/8 {
		t.Errorf("the largest block is of class %d with %d words", class, size)
	}
}
