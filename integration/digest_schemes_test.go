package integration

import (
	"runtime"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/balance"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/ringbus"
)

// bitTasks are every scheme and choice, layout and dtype at least once, with what goes into sums
// of many parts: straddling KV heads, documents, sinks and soft caps.
func bitTasks(t *testing.T) []task {
	t.Helper()
	const tokens, degree = 61, 4
	docs := []int{0, 20, 20, 33, tokens}
	mask, err := attn.Documents(docs, func(n int) attn.Mask { return attn.Window(n, n, 9, 2) })
	if err != nil {
		t.Fatal(err)
	}
	dealt, _, err := balance.Deal(balance.Problem{QTokens: tokens, KTokens: tokens, Mask: mask,
		Ring: degree})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := mesh.NewWholeDoc(docs, tokens, degree)
	if err != nil {
		t.Fatal(err)
	}
	layouts := []mesh.Layout{dealt, whole, mesh.Striped{Size: 1}, mesh.Striped{Size: 4},
		mesh.DocZigzag{Starts: docs}, mesh.Zigzag, mesh.Contiguous}
	dtypes := []tensors.DType{tensors.F32, tensors.BF16, tensors.F64}
	var out []task
	for i, way := range schemes(degree) {
		way.tokens, way.heads, way.kvHeads, way.dim, way.vdim = tokens, 6, 3, 8, 4
		way.mesh.Head, way.layout, way.dtype = 2, layouts[i%len(layouts)], dtypes[i%len(dtypes)]
		way.word, way.docs = "window:9,2", docs
		way.sink, way.softCap = i%2 == 0, float64(i%3*20)
		if i%4 == 1 {
			way.opt.HeadChunks = 3
		}
		way.opt.NarrowDKV = i%4 < 2 && way.dtype != tensors.F64 && way.scheme != "passq" &&
			way.ring.Rotate == ringbus.RotateKV
		out = append(out, way.full())
	}
	for i, layout := range layouts { // the plain ring with each
		c := out[i]
		c.scheme, c.ring, c.layout, c.dtype = "ring", ringbus.Ring{}, layout, dtypes[(i+1)%3]
		c.opt.NarrowDKV = false
		out = append(out, c)
	}
	return out
}

// TestDigestsOfSchemes: each scheme, layout and dtype gives the same bits live at GOMAXPROCS 1 and
// 2 and for 20 seeds of delays in virtual time.
func TestDigestsOfSchemes(t *testing.T) {
	for _, c := range bitTasks(t) {
		if c.dtype == tensors.F64 {
			sameBits[float64](t, c)
		} else {
			sameBits[float32](t, c)
		}
	}
}

func sameBits[T attn.Float](t *testing.T, c task) {
	t.Helper()
	const seeds = 20
	want, in := "", taskInputs[T](&c)
	try := func(how string) {
		t.Helper()
		got, err := run(t.Context(), &c, in)
		if err != nil {
			t.Fatalf("%v: %v", c, err)
		}
		bits := digests(got.Outputs)
		if want == "" {
			want = bits
		}
		if bits != want {
			t.Errorf("%v %v: %s gives other bits", c, c.dtype, how)
		}
	}
	c.live = true
	for _, procs := range []int{1, 2} {
		before := runtime.GOMAXPROCS(procs)
		try("another GOMAXPROCS")
		runtime.GOMAXPROCS(before)
	}
	c.live = false
	for c.world = range seeds {
		try("virtual time")
	}
}
