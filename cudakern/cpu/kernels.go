package cpu

import (
	"fmt"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern/cpu/simd"
	"github.com/kvloom/kvloom/plan"
)

// Kernels is a way to do the arithmetic. The same ways give the same bits.
type Kernels uint8

// The kernels: tiles in portable Go; their slow twins of package attn, for comparison; and vectors
// (package simd), for sums of float32 and heads of up to 256 elements, with soft caps from 2^-60 to
// 2^60 or none. What vectors do not serve is done by the portable ones.
const (
	Portable Kernels = iota
	Twin
	AVX2
	AVX512
	AVX512BF16 // of BF16 elements, products of pairs of them; of others, the bits of AVX512
	AMX        // of BF16 elements, products of tiles of them; of others, the bits of AVX512
	numKernels
)

// String is the name in reports.
func (k Kernels) String() string {
	if k < numKernels {
		return [numKernels]string{"portable", "twin", "avx2", "avx512", "avx512bf16", "amx"}[k]
	}
	return fmt.Sprintf("kernels %d", uint8(k))
}

// isa is the instruction set of vectors.
func (k Kernels) isa() simd.ISA {
	switch k {
	case AVX2:
		return simd.AVX2
	case AVX512:
		return simd.AVX512
	case AVX512BF16:
		return simd.AVX512BF16
	case AMX:
		return simd.AMX
	}
	return simd.Portable
}

// For is what k really does a problem of such a shape with, for reports.
func (k Kernels) For(h *plan.Shape) Kernels {
	served := simd.Serves(&attn.Block[float32]{D: h.Dim, DV: h.VDim, SoftCap: h.SoftCap})
	switch {
	case k.isa() != simd.Portable && (h.AccBytes != 4 || !served):
		return Portable
	case k >= AVX512BF16 && (h.ElemBytes != narrowBytes || h.Dim%2 != 0 || h.VDim%2 != 0):
		return AVX512
	}
	return k
}

// Supported is nil where the kernels run on this machine, else why they do not.
func (k Kernels) Supported() error {
	if k >= numKernels {
		return fmt.Errorf("cpu: %v are unknown", k)
	}
	if isa := k.isa(); isa != simd.Portable {
		return simd.Supported(isa)
	}
	return nil
}

// Best is the fastest kernels of this machine for sums of T.
func Best[T attn.Float]() Kernels {
	if _, ok := any(T(0)).(float32); ok {
		for k := numKernels - 1; k > Twin; k-- {
			if k.Supported() == nil {
				return k
			}
		}
	}
	return Portable
}

// ParseKernels gives the kernels of a name for sums of T: auto (or nothing), portable, avx2,
// avx512, avx512bf16 or amx. The error says what this machine lacks, and what would work. Sums of
// float64 are always the portable kernels', whichever of this machine's is named: their bits are
// the same.
func ParseKernels[T attn.Float](name string) (Kernels, error) {
	if name == "" || name == "auto" {
		return Best[T](), nil
	}
	for k := Portable; k < numKernels; k++ {
		if k == Twin || k.String() != name {
			continue
		}
		if err := k.Supported(); err != nil {
			return 0, fmt.Errorf("kernels %s: %w; use %v or auto", name, err, Best[T]())
		}
		if _, wide := any(T(0)).(float64); wide {
			return Portable, nil
		}
		return k, nil
	}
	return 0, fmt.Errorf("kernels %q are unknown: use auto, portable, avx2, avx512, avx512bf16 "+
		"or amx", name)
}

// vector is the instruction set for the block at hand; Portable where vectors do not serve it.
func (j *Job[T]) vector() simd.ISA {
	isa := j.store.opt.Kernels.isa()
	_, single := any(&j.state).(*attn.State[float32])
	switch {
	case isa == simd.Portable || !single:
		return simd.Portable
	case j.narrow && simd.Serves(&j.bf16.block), !j.narrow && simd.Serves(&j.full.block):
		return isa
	}
	return simd.Portable
}

// single is what vectors take of a job whose sums are float32.
func single[T attn.Float](j *Job[T]) *Job[float32] { return any(j).(*Job[float32]) }

// vectorTasks is how many tasks attend has over the block at hand.
func (j *Job[T]) vectorTasks() int {
	f := single(j)
	if j.narrow {
		return simd.ForwardTasks(&f.bf16.block)
	}
	return simd.ForwardTasks(&f.full.block)
}

// vectorGrid cuts attend-bwd over the block at hand and says into how many tasks.
func (j *Job[T]) vectorGrid() (tasks int) {
	f := single(j)
	if j.narrow {
		j.grid, tasks = gridOf(&f.bf16.block, j.workers)
	} else {
		j.grid, tasks = gridOf(&f.full.block, j.workers)
	}
	return tasks
}

// pieces reports whether the tasks at hand are pieces of KV heads, with needs, and not whole ones.
func (j *Job[T]) pieces() bool { return j.grid.Parts > 0 }

// needs is Batch.Needs of pieces.
func (j *Job[T]) needs(task int) (a, b int) { return j.grid.Needs(task) }

// A part of fewer keys would have much to pack for little arithmetic; more parts for each worker of
// a KV head gain little: while the first and last pieces are at work, not all have any.
const (
	leastPart   = 512
	workerParts = 8
)

// gridOf is how so many workers share the backward pass over b, and in how many tasks; no grid
// where tasks of whole KV heads are as good. Heads that are as many as the workers or more are cut
// into passes alone, which costs nothing. This is the one cut in which workers have a say, as bits
// do not depend on it.
func gridOf[E attn.Elem](b *attn.Block[E], workers int) (g simd.Grid, tasks int) {
	heads, parts := b.KHeads, 1
	if heads < workers {
		each := (workers + heads - 1) / heads
		parts = min(workerParts*each, b.KSpans.Len()/leastPart)
	}
	g = simd.BackwardGrid(b, parts)
	if workers < 2 || heads%workers == 0 || heads < workers && g.Parts == 1 || g.Passes == 1 {
		return simd.Grid{}, simd.BackwardTasks(b)
	}
	return g, g.Len()
}

// pastCaches reports whether the sums of all ranks are more than caches hold until a rank comes
// back to its own, a step of the ring later.
func (j *Job[T]) pastCaches() bool {
	const most = 32 << 20
	h := &j.what.Header.Shape
	return h.QTokens*h.QHeads*max(h.Dim, h.VDim)*h.AccBytes >= most
}

// attendVector does a task of attend.
func (j *Job[T]) attendVector(task int, scratch *Scratch) {
	f := single(j)
	scratch.vectors.Past = j.pastCaches()
	if j.narrow {
		simd.Forward(j.isa, &f.bf16.block, f.state, task, &scratch.vectors)
		return
	}
	simd.Forward(j.isa, &f.full.block, f.state, task, &scratch.vectors)
}

// attendBackwardVector does a task of attend-bwd.
func (j *Job[T]) attendBackwardVector(task int, scratch *Scratch) {
	f := single(j)
	scratch.vectors.Past = j.pastCaches()
	if j.narrow {
		backwardVector(j.isa, &f.bf16, j.grid, task, &scratch.vectors)
		return
	}
	backwardVector(j.isa, &f.full, j.grid, task, &scratch.vectors)
}

func backwardVector[E attn.Elem](isa simd.ISA, a *arrays[E, float32], grid simd.Grid, task int,
	sc *simd.Scratch,
) {
	if grid.Parts == 0 {
		simd.Backward(isa, &a.block, a.grad, task, sc)
		return
	}
	simd.BackwardPiece(isa, &a.block, a.grad, grid.Piece(task), grid.Parts, sc)
}

// turn is the tasks at hand that should follow each other. Tasks of the vectors go over the heads
// of some rows, then of the next rows: what one brings to the caches lies beside what the next
// needs, and after all heads, the keys are there still. So a turn is all heads of the same rows,
// and again until it is 16 tasks: of long blocks a tenth of a second, by which ranks that began
// together may end apart.
func (j *Job[T]) turn() int {
	if heads := j.full.block.KHeads + j.bf16.block.KHeads; heads > 0 && j.isa != simd.Portable {
		return (16 + heads - 1) / heads * heads
	}
	return 1
}

// arrayISA is the instruction set for what is done to arrays of sums around attention: that of the
// blocks of the plan at hand.
func (j *Job[T]) arrayISA() simd.ISA {
	h := j.what.Header
	shape := attn.Block[float32]{D: h.Dim, DV: h.VDim, SoftCap: h.SoftCap}
	if _, ok := any(T(0)).(float32); !ok || !simd.Serves(&shape) {
		return simd.Portable
	}
	return j.store.opt.Kernels.isa()
}

// deltaVector is deltaItems by vectors.
func deltaVector(j *Job[float32], lo, hi int) {
	do, out, dv := &j.sources[0], &j.sources[1], j.what.Header.VDim
	if do.narrow(0) {
		simd.Delta(j.isa, j.dst.part(0), do.cut16(0), out.cut16(0), dv, lo, hi)
		return
	}
	simd.Delta(j.isa, j.dst.part(0), do.cut(0), out.cut(0), dv, lo, hi)
}

// finalizeVector makes items [lo,hi) of the state out and lse by vectors, and out halves, if any.
func finalizeVector(j *Job[float32], halves []attn.BF16, lo, hi int) {
	dv, s := j.what.Header.VDim, j.state
	simd.Finalize(j.isa, s.Acc, s.M, s, j.sink, dv, lo, hi)
	simd.Narrow(j.isa, halves, s.Acc[lo*dv:][:len(halves)])
}
