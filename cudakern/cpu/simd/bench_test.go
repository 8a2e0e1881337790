package simd

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/kvloom/kvloom/attn"
)

// BenchmarkShare prints, for each instruction set, GF/s and the share of the multiply-adds that one
// core does on registers alone, measured in turns with it: medians of short runs.
func BenchmarkShare(b *testing.B) {
	for _, isa := range []ISA{AMX, AVX512BF16, AVX512, AVX2} {
		if Supported(isa) != nil {
			continue
		}
		for _, c := range []struct{ n, d int }{{1024, 64}, {4096, 64}, {1024, 128}, {4096, 128}} {
			for _, full := range []bool{true, false} {
				block := contiguous(c.n, 8, 1, c.d, c.d)
				if full {
					block.Mask = attn.Full(c.n, c.n)
				}
				do := fillBlock(block, 1)
				name := fmt.Sprintf("%v/d%d/n%d/%s", isa, c.d, c.n, pick(full, "full", "causal"))
				for _, back := range []bool{false, true} {
					pass := pick(back, "backward", "forward")
					b.Run(name+"/"+pass+"/f32", func(b *testing.B) {
						share(b, isa, block, do, back)
					})
					b.Run(name+"/"+pass+"/bf16", func(b *testing.B) {
						share(b, isa, narrow(block), narrowed(do), back)
					})
				}
			}
		}
	}
}

func pick(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}

// share times the tasks of one KV head of the block, with the multiply-adds between them.
func share[E attn.Elem](b *testing.B, isa ISA, block *attn.Block[E], do []E, back bool) {
	p := path{isa, NewScratch(block.D, block.DV, 1, 1)}
	s := newState(block)
	flops := float64(block.Mask.Pairs(block.QSpans, block.KSpans)) * float64(4*block.D)
	work := func() {
		for task := 0; task < ForwardTasks(block); task += block.KHeads {
			Forward(isa, block, s, task, p.sc)
		}
	}
	if back {
		work()
		out, lse := finish(p, s, block.DV)
		g := newGrad(p, block, do, out, lse)
		flops *= 2.5
		work = func() { Backward(isa, block, g, 0, p.sc) }
	}
	work()
	var times, peaks []float64
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for b.Loop() {
		peaks = append(peaks, peakRate(isa))
		attn.FreshState(s)
		at := coreSeconds()
		work()
		times = append(times, coreSeconds()-at)
	}
	slices.Sort(times)
	slices.Sort(peaks)
	rate, peak := flops/times[len(times)/2]/1e9, peaks[len(peaks)/2]
	b.ReportMetric(rate, "GF/s")
	b.ReportMetric(100*rate/peak, "%peak")
	b.ReportMetric(peak, "peak-GF/s")
	b.ReportMetric(0, "ns/op")
}

// peakRate is the multiply-adds on registers of a run of about 0.1 ms, in GF/s.
func peakRate(isa ISA) float64 {
	at := coreSeconds()
	flops := MultiplyAdds(isa, 4000)
	return flops / (coreSeconds() - at) / 1e9
}

// BenchmarkCap prints, for each instruction set, what a soft cap of 50 adds to the time of a pass
// on one core: blocks with it and without, in turns, medians of both.
func BenchmarkCap(b *testing.B) {
	for _, isa := range []ISA{AVX512, AVX2} {
		if Supported(isa) != nil {
			continue
		}
		for _, c := range []struct{ n, d int }{{1024, 128}, {4096, 128}, {1024, 256}, {4096, 256}} {
			for _, full := range []bool{true, false} {
				block := contiguous(c.n, 2, 1, c.d, c.d)
				if full {
					block.Mask = attn.Full(c.n, c.n)
				}
				do := fillBlock(block, 1)
				name := fmt.Sprintf("%v/d%d/n%d/%s", isa, c.d, c.n, pick(full, "full", "causal"))
				for _, back := range []bool{false, true} {
					b.Run(name+"/"+pick(back, "backward", "forward"), func(b *testing.B) {
						capCost(b, isa, block, do, back)
					})
				}
			}
		}
	}
}

// capCost times the tasks of one KV head of the block, without a cap and with one.
func capCost(b *testing.B, isa ISA, block *attn.Block[float32], do []float32, back bool) {
	capped, sc := *block, NewScratch(block.D, block.DV, 1, 1)
	capped.SoftCap = 50
	flops := float64(block.Mask.Pairs(block.QSpans, block.KSpans)) * float64(4*block.D)
	s := newState(block)
	var work [2]func()
	for i, x := range []*attn.Block[float32]{block, &capped} {
		work[i] = func() {
			for task := 0; task < ForwardTasks(x); task += x.KHeads {
				Forward(isa, x, s, task, sc)
			}
		}
		if back {
			out, lse := forwardAll(path{isa, sc}, x)
			g := newGrad(path{isa, sc}, x, do, out, lse)
			work[i] = func() { Backward(isa, x, g, 0, sc) }
		}
		work[i]()
	}
	if back {
		flops *= 2.5
	}
	var times [2][]float64
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for b.Loop() {
		for i := range work {
			attn.FreshState(s)
			at := coreSeconds()
			work[i]()
			times[i] = append(times[i], coreSeconds()-at)
		}
	}
	for i := range times {
		slices.Sort(times[i])
	}
	plain, with := times[0][len(times[0])/2], times[1][len(times[1])/2]
	b.ReportMetric(flops/plain/1e9, "plain-GF/s")
	b.ReportMetric(flops/with/1e9, "capped-GF/s")
	b.ReportMetric(100*(with/plain-1), "%slower")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkPieces prints what cutting a KV head into pieces adds to the time of Backward on one
// core: whole heads and pieces, in turns, medians of both.
func BenchmarkPieces(b *testing.B) {
	for _, isa := range []ISA{AVX512BF16, AVX512, AVX2} {
		if Supported(isa) != nil {
			continue
		}
		for _, group := range []int{1, 8} {
			for _, parts := range []int{1, 2, 4, 8, 16} {
				block := contiguous(4096, group, group, 128, 128)
				block.Mask = attn.Full(4096, 4096)
				do := fillBlock(block, 1)
				name := fmt.Sprintf("%v/group%d/parts%d", isa, group, parts)
				b.Run(name, func(b *testing.B) {
					if isa == AVX512BF16 {
						piecesCost(b, isa, narrow(block), narrowed(do), parts)
						return
					}
					piecesCost(b, isa, block, do, parts)
				})
			}
		}
	}
}

// piecesCost times the backward pass of a block of one KV head.
func piecesCost[E attn.Elem](b *testing.B, isa ISA, block *attn.Block[E], do []E, parts int) {
	p := path{isa, NewScratch(block.D, block.DV, block.Group, 1)}
	out, lse := forwardAll(p, block)
	g, grid := newGrad(p, block, do, out, lse), BackwardGrid(block, parts)
	work := [2]func(){
		func() { Backward(isa, block, g, 0, p.sc) },
		func() {
			for i := range grid.Len() {
				BackwardPiece(isa, block, g, grid.Piece(i), grid.Parts, p.sc)
			}
		},
	}
	var times [2][]float64
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for b.Loop() {
		for i := range work {
			at := coreSeconds()
			work[i]()
			times[i] = append(times[i], coreSeconds()-at)
		}
	}
	for i := range times {
		slices.Sort(times[i])
	}
	whole, cut := times[0][len(times[0])/2], times[1][len(times[1])/2]
	b.ReportMetric(1e3*whole, "whole-ms")
	b.ReportMetric(100*(cut/whole-1), "%slower")
	b.ReportMetric(0, "ns/op")
}
