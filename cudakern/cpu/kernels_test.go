package cpu_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern"
	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// TestEveryKernelOfThisMachine: the vectors that this machine has agree with the oracle, for
// elements of f32 and BF16, in any cut over the ring and the heads, and give the same bits twice.
func TestEveryKernelOfThisMachine(t *testing.T) {
	p := rounded(newProblem(131, 6, 3, 24, 24, attn.Window(131, 131, 50, 9)))
	want := dense(p)
	for _, k := range []cpu.Kernels{cpu.Portable, cpu.AVX2, cpu.AVX512, cpu.AVX512BF16, cpu.AMX} {
		t.Run(k.String(), func(t *testing.T) {
			if err := k.Supported(); err != nil {
				t.Skip(err)
			}
			for _, m := range []mesh.Mesh{
				{Head: 1, Ring: 1}, {Head: 3, Ring: 2}, {Head: 2, Ring: 4}} {
				for bytes, gate := range map[int]float64{4: attn.BaseF32, 2: gateBF16} {
					b := newBook(t, p, m, mesh.Zigzag, bytes)
					first := run[float32](t, b, p, cpu.Options{Kernels: k}, 1)
					if err := compare(first, want, gate); err != nil {
						t.Errorf("%dx%d, %d bytes: %v", m.Head, m.Ring, bytes, err)
					}
					again := run[float32](t, b, p,
						cpu.Options{Kernels: k, Copy: true, Poison: true}, 2)
					if !same(first, again) {
						t.Errorf("%dx%d, %d bytes: another run has other bits", m.Head, m.Ring,
							bytes)
					}
				}
			}
		})
	}
}

// TestManyTasksOfArrays has a block of which what is done to arrays around attention (delta and
// finalize, into BF16 too) takes many tasks.
func TestManyTasksOfArrays(t *testing.T) {
	p := newProblem(500, 3, 3, 4, 96, attn.Causal(500, 60))
	p.Sink = []float64{0.5, 1, -1}
	want := dense(rounded(p))
	for _, k := range []cpu.Kernels{cpu.Portable, cpu.AVX2, cpu.AVX512, cpu.AVX512BF16, cpu.AMX} {
		for bytes, gate := range map[int]float64{4: attn.BaseF32, 2: gateBF16} {
			t.Run(fmt.Sprintf("%v, %d bytes", k, bytes), func(t *testing.T) {
				if err := k.Supported(); err != nil {
					t.Skip(err)
				}
				b := newBook(t, p, mesh.Mesh{Head: 1, Ring: 1}, mesh.Zigzag, bytes)
				got := run[float32](t, b, p, cpu.Options{Kernels: k, Poison: true}, 1)
				if err := compare(got, want, gate); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestPiecesOnManyWorkers: a rank of fewer KV heads than workers, or of a number that does not
// divide, goes backward in pieces, with the bits of whole heads.
func TestPiecesOnManyWorkers(t *testing.T) {
	for _, c := range []struct{ heads, kvHeads, workers, tasks int }{
		{1, 1, 1, 1}, {1, 1, 4, 5 * 3}, {4, 1, 4, 5 * 10}, {2, 1, 3, 5 * 5}, {3, 3, 2, 3 * 3},
		{2, 2, 2, 2},
	} {
		p := rounded(newProblem(2600, c.heads, c.kvHeads, 8, 4, attn.Causal(2600, 2600)))
		for _, k := range []cpu.Kernels{cpu.AVX2, cpu.AVX512, cpu.AVX512BF16, cpu.AMX} {
			for _, bytes := range []int{4, 2} {
				if k.Supported() != nil {
					continue
				}
				b := newBook(t, p, mesh.Mesh{Head: 1, Ring: 1}, mesh.Zigzag, bytes)
				want := run[float32](t, b, p, cpu.Options{Kernels: k}, 1)
				pool := cpu.NewPool(c.workers)
				s := cpu.New[float32](b, 1, cpu.Options{Kernels: k})
				setInputs(t, s, b, p, 0)
				newGang(s, pool, b.programs[0], 0).run(t)
				ended := pool.Ended()
				newGang(s, pool, b.programs[1], 1).run(t)
				ended = pool.Ended() - ended
				if got := outputs(t, s, b, p, 0); !same(got, want) {
					t.Errorf("%+v, %v, %d bytes: pieces give other bits than whole heads", c, k,
						bytes)
				}
				if rest := ended - uint64(c.tasks); ended < uint64(c.tasks) || rest > 5 {
					t.Errorf("%+v: %d tasks ran", c, ended)
				}
				s.Close()
				pool.Close()
			}
		}
	}
}

// TestPiecesAllocateNothing runs the ops of one backward round again and again.
func TestPiecesAllocateNothing(t *testing.T) {
	if err := cpu.AVX2.Supported(); err != nil {
		t.Skip(err)
	}
	p := newProblem(2600, 1, 1, 8, 4, attn.Causal(2600, 2600))
	b := newBook(t, p, mesh.Mesh{Head: 1, Ring: 1}, mesh.Zigzag, 4)
	pool := cpu.NewPool(2)
	defer pool.Close()
	s := cpu.New[float32](b, 1, cpu.Options{Kernels: cpu.AVX2})
	defer s.Close()
	setInputs(t, s, b, p, 0)
	newGang(s, pool, b.programs[0], 0).run(t)
	mail := make(chan actors.Envelope, 8)
	d := cpu.NewDevice(0, s, pool, func(e actors.Envelope) { mail <- e }, cpu.DeviceOptions{})
	var out actors.Outbox
	once := func() {
		for i, op := range b.programs[1][0].Ops {
			if !op.Kind.Device() {
				continue
			}
			out.Reset()
			d.Step(0, launch(int32(i), 1, 1, cudakern.Compute), &out)
			d.Step(0, <-mail, &out)
			if len(out.Mail) != 1 || out.Mail[0].Kind != actors.Done {
				t.Fatalf("the device says %+v %q", out.Mail, out.Notes)
			}
		}
	}
	once()
	ended := pool.Ended()
	once()
	if ran := pool.Ended() - ended; ran < 5*3 {
		t.Errorf("%d tasks ran in a round: no pieces", ran)
	}
	n := 1.0 // some, until both workers have had each kind of task
	for try := 0; try < 20 && n != 0; try++ {
		n = testing.AllocsPerRun(3, once)
	}
	if n != 0 {
		t.Errorf("%v allocations a round", n)
	}
}

// TestKernelsByName: a name gives kernels that run here, or says why not and what would.
func TestKernelsByName(t *testing.T) {
	best, wide := cpu.Best[float32](), cpu.Best[float64]()
	if best.Supported() != nil || best == cpu.Twin || wide != cpu.Portable {
		t.Errorf("the best kernels are %v for f32, %v for f64", best, wide)
	}
	for _, tc := range []struct {
		name, err string
		want      cpu.Kernels
	}{
		{"", "", best}, {"auto", "", best}, {"portable", "", cpu.Portable},
		{"neon", "unknown: use auto, portable, avx2, avx512, avx512bf16 or amx", 0},
		{"twin", "unknown", 0},
	} {
		got, err := cpu.ParseKernels[float32](tc.name)
		switch {
		case tc.err == "" && (err != nil || got != tc.want):
			t.Errorf("%q gives %v, %v, want %v", tc.name, got, err, tc.want)
		case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
			t.Errorf("%q gives error %v, want %q", tc.name, err, tc.err)
		}
	}
	for _, k := range []cpu.Kernels{cpu.AVX512, cpu.AMX} {
		_, err := cpu.ParseKernels[float32](k.String())
		if has := k.Supported(); (err == nil) != (has == nil) {
			t.Errorf("%v: %v, supported: %v", k, err, has)
		}
		if use := "; use " + best.String() + " or auto"; err != nil &&
			!strings.HasSuffix(err.Error(), use) {
			t.Errorf("%v: %v, want what to use: %q", k, err, use)
		}
	}
}

// TestCappedLogits: the vectors compute capped logits themselves, as the oracle has them, with the
// bits of the kernels that they are named. Caps that no vectors serve have the bits of the
// portable kernels.
func TestCappedLogits(t *testing.T) {
	p := rounded(newProblem(131, 6, 3, 24, 16, attn.Causal(131, 131)))
	for _, bytes := range []int{4, 2} {
		gate := map[int]float64{4: attn.BaseF32, 2: gateBF16}[bytes]
		for _, limit := range []float64{0.5, 3, 50, 1e-20} {
			p.SoftCap = limit
			want := dense(p)
			b := newBook(t, p, mesh.Mesh{Head: 1, Ring: 2}, mesh.Zigzag, bytes)
			bits := map[cpu.Kernels]results[float32]{}
			for _, k := range []cpu.Kernels{
				cpu.Portable, cpu.AVX2, cpu.AVX512, cpu.AVX512BF16, cpu.AMX,
			} {
				if k.Supported() != nil {
					continue
				}
				bits[k] = run[float32](t, b, p, cpu.Options{Kernels: k}, 1)
				if err := compare(bits[k], want, gate); err != nil {
					t.Errorf("%v, %d bytes, cap %v: %v", k, bytes, limit, err)
				}
				names := k.For(&b.header.Shape)
				if got, of := bits[k], bits[names]; !same(got, of) {
					t.Errorf("%v, %d bytes, cap %v: named %v, with other bits", k, bytes, limit,
						names)
				}
				if names != cpu.Portable && same(bits[k], bits[cpu.Portable]) {
					t.Errorf("%v, %d bytes, cap %v: named %v, with bits of the portable", k, bytes,
						limit, names)
				}
			}
		}
	}
}

// TestKernelsOfShapes: reports name what really computes: vectors do not serve wide sums, long
// heads and caps of no use, and pairs of bf16 are for even heads of such elements without a cap.
func TestKernelsOfShapes(t *testing.T) {
	for _, tc := range []struct {
		shape plan.Shape
		want  cpu.Kernels // of AVX512BF16
	}{
		{plan.Shape{Dim: 64, VDim: 64, ElemBytes: 2, AccBytes: 4}, cpu.AVX512BF16},
		{plan.Shape{Dim: 63, VDim: 64, ElemBytes: 2, AccBytes: 4}, cpu.AVX512},
		{plan.Shape{Dim: 64, VDim: 63, ElemBytes: 2, AccBytes: 4}, cpu.AVX512},
		{plan.Shape{Dim: 64, VDim: 64, ElemBytes: 4, AccBytes: 4}, cpu.AVX512},
		{plan.Shape{Dim: 64, VDim: 64, ElemBytes: 4, AccBytes: 4, SoftCap: 30}, cpu.AVX512},
		{plan.Shape{Dim: 64, VDim: 64, ElemBytes: 2, AccBytes: 4, SoftCap: 30}, cpu.AVX512BF16},
		{plan.Shape{Dim: 64, VDim: 64, ElemBytes: 4, AccBytes: 4, SoftCap: 1e-20}, cpu.Portable},
		{plan.Shape{Dim: 64, VDim: 64, ElemBytes: 2, AccBytes: 4, SoftCap: 1e20}, cpu.Portable},
		{plan.Shape{Dim: 64, VDim: 258, ElemBytes: 4, AccBytes: 4}, cpu.Portable},
		{plan.Shape{Dim: 64, VDim: 64, ElemBytes: 8, AccBytes: 8}, cpu.Portable},
	} {
		if got := cpu.AVX512BF16.For(&tc.shape); got != tc.want {
			t.Errorf("%+v: %v, want %v", tc.shape, got, tc.want)
		}
	}
}
