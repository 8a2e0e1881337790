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
	for _, isa := range []ISA{AVX512, AVX2} {
		if Supported(isa) != nil {
			continue
		}
		for _, c := range []struct{ n, d int }{{1024, 64}, {4096, 64}, {1024, 128}, {4096, 128}} {
			for _, full := range []bool{true, false} {
				for _, backward := range []bool{false, true} {
					name := fmt.Sprintf("%v/d%d/n%d/%s/%s", isa, c.d, c.n,
						pick(full, "full", "causal"), pick(backward, "backward", "forward"))
					b.Run(name, func(b *testing.B) { share(b, isa, c.n, c.d, full, backward) })
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

// share times the tasks of one KV head of 8, with the multiply-adds between them.
func share(b *testing.B, isa ISA, n, d int, full, backward bool) {
	block := contiguous(n, 8, 1, d, d)
	if full {
		block.Mask = attn.Full(n, n)
	}
	do := fillBlock(block, 1)
	p := path{isa, NewScratch(d, d, 1, 1)}
	s := newState(block)
	flops := float64(block.Mask.Pairs(block.QSpans, block.KSpans)) * float64(4*d)
	work := func() {
		for task := 0; task < ForwardTasks(block); task += block.KHeads {
			Forward(isa, block, s, task, p.sc)
		}
	}
	if backward {
		out, lse := forwardAll(p, block)
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
	const rounds = 4000
	at := coreSeconds()
	isa.peak(rounds)
	vecs, width := 24.0, 16.0
	if isa == AVX2 {
		vecs, width = 12, 8
	}
	return rounds * 8 * vecs * width * 2 / (coreSeconds() - at) / 1e9
}
