package integration

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	kvloom "github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/internal/safetensors"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/ringbus"
)

// realData is q, k, v and do of a real model's attention layer, with references computed densely in
// float64 by other hands; see testdata/README.md.
type realData struct {
	file  *safetensors.File
	shape problem // tokens, heads and dim
	scale float64
	masks map[string]struct {
		Mask string `json:"mask"`
		Docs []int  `json:"docs"`
	}
}

// openReal opens a file of testdata or of the folder of shared data beside the module; it skips the
// test when the file is in neither.
func openReal(t *testing.T, name string) *realData {
	t.Helper()
	var d realData
	var err error
	for _, dir := range []string{"testdata", filepath.Join("..", "..", "shared", "data")} {
		d.file, err = safetensors.Open(filepath.Join(dir, name))
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("%s is not at hand: it is too large for the repository and is looked for in "+
			"../shared/data beside the module's root", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.file.Close(); err != nil {
			t.Error(err)
		}
	})
	q, okQ := d.file.Tensor("q")
	k, okK := d.file.Tensor("k")
	if !okQ || !okK || len(q.Shape) != 3 || len(k.Shape) != 3 {
		t.Fatalf("q is %+v and k %+v", q, k)
	}
	d.shape = problem{tokens: q.Shape[0], heads: q.Shape[1], kvHeads: k.Shape[1], dim: q.Shape[2]}
	meta := d.file.Metadata()
	if d.scale, err = strconv.ParseFloat(meta["scale"], 64); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(meta["masks"]), &d.masks); err != nil || len(d.masks) == 0 {
		t.Fatalf("masks %q: %v", meta["masks"], err)
	}
	return &d
}

// problem is the file's problem under a mask of the file on a mesh.
func (d *realData) problem(t *testing.T, mask string, on problem) problem {
	t.Helper()
	p, m := d.shape, d.masks[mask]
	p.mesh, p.layout, p.ring = on.mesh, on.layout, on.ring
	inner, err := attn.ParseMask(m.Mask)
	if err != nil {
		t.Fatal(err)
	}
	slices := inner(p.tokens)
	if m.Docs != nil {
		if slices, err = attn.Documents(m.Docs, inner); err != nil {
			t.Fatal(err)
		}
	}
	p.other = &slices
	return p
}

// tensor reads a tensor of the file, in its own memory where T is its dtype.
func tensor[T attn.Float](t *testing.T, d *realData, name string) []T {
	t.Helper()
	x, err := safetensors.View[T](d.file, name)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func (d *realData) references(t *testing.T, mask string) kvloom.Outputs[float64] {
	t.Helper()
	get := func(name string) []float64 { return tensor[float64](t, d, mask+"."+name) }
	return kvloom.Outputs[float64]{Out: get("out"), LSE: get("lse"), DQ: get("dq"), DK: get("dk"),
		DV: get("dv")}
}

// liveReal runs a forward and a backward round of the file's tensors on real actors.
func liveReal[T attn.Float](t *testing.T, d *realData, p problem) kvloom.Outputs[T] {
	t.Helper()
	cfg := config[T](p)
	cfg.Problems[0].Scale = d.scale
	s, err := kvloom.Open[T](t.Context(), cfg)
	if err != nil {
		t.Fatalf("%v: %v", p, err)
	}
	defer closeSession(t, s)
	err = s.Load(0, 0, kvloom.Inputs[T]{Q: tensor[T](t, d, "q"), K: tensor[T](t, d, "k"),
		V: tensor[T](t, d, "v"), DO: tensor[T](t, d, "do")})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context(), both...); err != nil {
		t.Fatalf("%v: %v", p, err)
	}
	out, err := s.Results(0, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// gates are bounds of the relative errors of one run.
type gates struct{ out, lse, dq, dk, dv float64 }

// f32Gates are 4 times the largest errors that a blockwise f32 computation in plain numpy has on
// these files (four uneven blocks, merged by maximum). All lie inside the gate of attend --check,
// which is 1e-5 or more.
func f32Gates() gates {
	const f = 4
	return gates{f * 6.5e-7, f * 1.1e-7, f * 1.1e-6, f * 9.2e-7, f * 7.5e-7}
}

// f64Gates are those of the references themselves, which were rounded to F32 (2.5e-8) but for lse.
func f64Gates() gates { return gates{3e-8, 1e-12, 3e-8, 3e-8, 3e-8} }

// errorsOf compares each output with its reference, in the order of gates.list.
func errorsOf[T attn.Float](got kvloom.Outputs[T], ref kvloom.Outputs[float64]) [5]attn.Error {
	return [5]attn.Error{attn.Compare(got.Out, ref.Out), attn.Compare(got.LSE, ref.LSE),
		attn.Compare(got.DQ, ref.DQ), attn.Compare(got.DK, ref.DK), attn.Compare(got.DV, ref.DV)}
}

func (g gates) list() [5]float64 { return [5]float64{g.out, g.lse, g.dq, g.dk, g.dv} }

// onMeshes runs every mask of the file on every mesh and holds the results to the references.
func onMeshes[T attn.Float](t *testing.T, d *realData, g gates, meshes []problem) {
	for _, mask := range slices.Sorted(maps.Keys(d.masks)) {
		t.Run(mask, func(t *testing.T) {
			ref := d.references(t, mask)
			var worst [5]float64
			for _, on := range meshes {
				p := d.problem(t, mask, on)
				got := liveReal[T](t, d, p)
				for i, e := range errorsOf(got, ref) {
					if gate := g.list()[i]; !e.OK(gate) {
						name := [...]string{"out", "lse", "dq", "dk", "dv"}[i]
						t.Errorf("%v: %s has a relative error of %.3g, the gate is %g", p, name,
							e.Rel, gate)
					}
					worst[i] = max(worst[i], e.Rel)
				}
			}
			t.Logf("%d meshes, largest relative errors of out, lse, dq, dk, dv: %.2g", len(meshes),
				worst)
		})
	}
}

// on is a mesh with its ring.
func on(head, ring, inner, lanes int, layout mesh.Layout) problem {
	return problem{mesh: mesh.Mesh{Head: head, Ring: ring}, layout: layout,
		ring: ringbus.Ring{Inner: inner, Lanes: lanes}}
}

// smallMeshes: one rank, each axis alone, both, head degrees that split, straddle and replicate the
// KV heads, double rings, two lanes, contiguous shards, both placements and both ways of dKV.
func smallMeshes() []problem {
	contextFirst := on(2, 6, 3, 2, mesh.Zigzag)
	contextFirst.mesh.Placement = mesh.ContextFirst
	local := on(1, 8, 4, 1, mesh.Zigzag)
	local.ring.DKV = ringbus.Local
	return []problem{
		on(1, 1, 0, 1, mesh.Zigzag), on(2, 1, 0, 1, mesh.Zigzag), on(1, 4, 0, 1, mesh.Zigzag),
		on(2, 2, 0, 1, mesh.Zigzag), on(3, 2, 0, 1, mesh.Zigzag), on(4, 2, 0, 1, mesh.Zigzag),
		on(1, 4, 2, 1, mesh.Zigzag), on(2, 4, 2, 1, mesh.Zigzag), on(1, 4, 0, 2, mesh.Zigzag),
		on(1, 16, 4, 2, mesh.Zigzag), contextFirst, local,
		on(2, 2, 0, 1, mesh.Contiguous), on(3, 4, 2, 2, mesh.Contiguous),
	}
}

func TestRealSmallF32(t *testing.T) {
	onMeshes[float32](t, openReal(t, "attn_small.safetensors"), f32Gates(), smallMeshes())
}

func TestRealSmallF64(t *testing.T) {
	onMeshes[float64](t, openReal(t, "attn_small.safetensors"), f64Gates(), smallMeshes())
}

// TestRealGQA has 9 query heads over 3 KV heads: head degrees 2 and 4 straddle them.
func TestRealGQA(t *testing.T) {
	d := openReal(t, "attn_gqa.safetensors")
	meshes := []problem{
		on(3, 2, 0, 1, mesh.Zigzag), on(2, 2, 0, 1, mesh.Contiguous), on(4, 4, 2, 2, mesh.Zigzag),
	}
	if testing.Short() {
		meshes = meshes[:1]
	}
	onMeshes[float32](t, d, f32Gates(), meshes)
}

// TestReal is the long one: logits down to -70, and first tokens of documents that take nearly all
// the weight of their heads.
func TestReal(t *testing.T) {
	if testing.Short() {
		t.Skip("2,048 tokens take seconds")
	}
	d := openReal(t, "attn_real.safetensors")
	onMeshes[float32](t, d, f32Gates(), []problem{on(2, 4, 2, 2, mesh.Zigzag)})
}

// TestOracleOnRealData: the oracle that all else here is held against gives what others computed.
func TestOracleOnRealData(t *testing.T) {
	d := openReal(t, "attn_small.safetensors")
	get := func(name string) []float64 { return tensor[float64](t, d, name) }
	for _, mask := range []string{"causal", "full", "docs"} {
		p := d.problem(t, mask, problem{})
		dense := &attn.Problem{
			QTokens: p.tokens, KTokens: p.tokens, QHeads: p.heads, KHeads: p.kvHeads, D: p.dim,
			DV: p.dim, Scale: d.scale, Mask: p.mask(), Q: get("q"), K: get("k"), V: get("v"),
		}
		var got kvloom.Outputs[float64]
		got.Out, got.LSE = attn.Dense(dense, parallel)
		got.DQ, got.DK, got.DV, _ = attn.DenseBackward(dense, get("do"), got.Out, got.LSE, parallel)
		for i, e := range errorsOf(got, d.references(t, mask)) {
			if !e.OK(f64Gates().list()[i]) {
				t.Errorf("%s: output %d is %.3g from its reference", mask, i, e.Rel)
			}
		}
		// What the references of another mask are for: every gate can be missed, and by far.
		other := "docs"
		if mask == other {
			other = "full"
		}
		for i, e := range errorsOf(got, d.references(t, other)) {
			if e.Rel < 1e3*f32Gates().list()[i] {
				t.Errorf("output %d under %s is %.3g from another mask's", i, mask, e.Rel)
			}
		}
	}
}
