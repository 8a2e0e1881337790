package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/cudakern/cpu/simd"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/spf13/cobra"
)

func newBenchKernels(std streams) *cobra.Command {
	f := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "kernels",
		Short: "attention kernels against the machine's multiply-adds",
		Long: "kernels times one rank's passes on this machine and prints GF/s and the share of " +
			"what its cores\ndo in f32 multiply-adds on registers, of bf16 with amx in products " +
			"of " +
			"tiles, measured\nbetween the runs (avx512bf16 can be above 1). --peer puts the " +
			"figures of PyTorch beside\nthem, as its JSON lines say them.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := newKernelBench(f)
			if err != nil {
				return err
			}
			return b.run(cmd.Context(), std)
		},
	}
	f.bindCells(cmd.Flags(), "1K,4K,16K", "64,128")
	cmd.Flags().StringVar(&f.threads, "threads", "1,all", "worker `counts`, one or several")
	cmd.Flags().StringVar(&f.peer, "peer", "", "a `file` of JSON lines of a peer's times on the "+
		"same shapes")
	cmd.Flags().SortFlags = false
	return cmd
}

// kernelBench is what is to be measured.
type kernelBench struct {
	cells   []benchCell
	isas    []cpu.Kernels
	threads []int
	passes  []plan.Pass
	least   time.Duration
	peers   []peerLine
	json    bool
}

func newKernelBench(f *benchFlags) (*kernelBench, error) {
	b := &kernelBench{json: f.json}
	var err error
	if b.cells, err = f.cells(); err != nil {
		return nil, err
	}
	if b.threads, err = parseThreads(f.threads); err != nil {
		return nil, err
	}
	if b.isas, err = f.kernels(); err != nil {
		return nil, err
	}
	if b.passes, err = f.passes(); err != nil {
		return nil, err
	}
	if b.least, err = time.ParseDuration(f.seconds); err != nil || b.least < 0 {
		return nil, badValue("seconds", f.seconds, "is not a duration: use one such as 1s or 200ms")
	}
	if f.peer != "" {
		b.peers, err = readPeers(f.peer)
	}
	return b, err
}

// kernelLine is a line of the table, as JSON.
type kernelLine struct {
	Pass     string   `json:"pass"`
	DType    string   `json:"dtype"`
	ISA      string   `json:"isa"`
	Mask     string   `json:"mask"`
	Tokens   int      `json:"tokens"`
	Heads    int      `json:"heads"`
	KVHeads  int      `json:"kv_heads"`
	Dim      int      `json:"dim"`
	Threads  int      `json:"threads"`
	Seconds  float64  `json:"seconds"`
	GFlops   float64  `json:"gflops"`
	Peak     float64  `json:"peak_gflops"`
	OfPeak   float64  `json:"of_peak"`
	CPUWall  float64  `json:"cpu_over_wall"`
	Digest   string   `json:"digest"` // of out or dq: attend's on the same problem
	Peer     *float64 `json:"peer_gflops,omitempty"`
	OverPeer *float64 `json:"over_peer,omitempty"` // forward; after backward, both passes together
}

// run measures all lines.
func (b *kernelBench) run(ctx context.Context, std streams) error {
	t := plainTable("pass", "dtype", "kernels", "mask", "tokens", "heads", "dim", "threads",
		"seconds", "GF/s", "peak", "of peak", "cpu/wall", "over peer")
	for i, isa := range b.isas {
		for _, c := range b.cells {
			if c.computedBy(isa, b.isas[:i]) {
				continue
			}
			for _, threads := range b.threads {
				lines, err := b.measure(ctx, c, isa, threads)
				if err != nil {
					return err
				}
				for _, x := range lines {
					if err := b.print(std.out, t, x); err != nil {
						return err
					}
				}
			}
		}
	}
	if b.json {
		return nil
	}
	return writeBench(std.out, t)
}

// computedBy reports whether the kernels that really compute the cell when isa is asked for are
// those of a former one.
func (c *benchCell) computedBy(isa cpu.Kernels, former []cpu.Kernels) bool {
	shape := plan.Shape{
		Dim: c.dim, VDim: c.dim, ElemBytes: c.dtype.Bytes(), AccBytes: c.dtype.AccBytes(),
	}
	return slices.ContainsFunc(former, func(k cpu.Kernels) bool {
		return k.For(&shape) == isa.For(&shape)
	})
}

func (b *kernelBench) print(w io.Writer, t table.Writer, x kernelLine) error {
	if b.json {
		if err := json.NewEncoder(w).Encode(x); err != nil {
			return fmt.Errorf("the JSON cannot be written: %w", err)
		}
		return nil
	}
	over := ""
	if x.OverPeer != nil {
		over = fmt.Sprintf("%.2f", *x.OverPeer)
	}
	t.AppendRow(table.Row{x.Pass, x.DType, x.ISA, x.Mask, x.Tokens, x.Heads, x.Dim, x.Threads,
		fmt.Sprintf("%.4f", x.Seconds), fmt.Sprintf("%.1f", x.GFlops), fmt.Sprintf("%.1f", x.Peak),
		fmt.Sprintf("%.3f", x.OfPeak), fmt.Sprintf("%.2f", x.CPUWall), over})
	return nil
}

// measure times the passes of one shape: rounds of a session of one rank, as attend runs them.
func (b *kernelBench) measure(ctx context.Context, c benchCell, isa cpu.Kernels, threads int) (
	[]kernelLine, error) {
	s, err := c.open(ctx, mesh.Mesh{Head: 1, Ring: 1}, isa.String(), threads)
	if err != nil {
		return nil, err
	}
	var out []kernelLine
	var took [2]float64
	for _, pass := range []plan.Pass{plan.Forward, plan.Backward} {
		var peaks []float64
		work := func() error { return s.Run(ctx, kvloom.Round{Pass: pass}) }
		if !slices.Contains(b.passes, pass) {
			if err = work(); err != nil { // the backward pass needs what the forward one keeps
				break
			}
			continue
		}
		x := kernelLine{
			Pass: pass.String(), DType: c.dtype.String(), ISA: s.Kernels(), Mask: c.mask,
			Tokens: c.tokens, Heads: c.heads, KVHeads: c.kvHeads, Dim: c.dim, Threads: threads,
		}
		x.Seconds, x.CPUWall, err = timeRuns(b.least, work, func() {
			peaks = append(peaks, peakGFlops(x.ISA, threads))
		})
		if err != nil {
			break
		}
		took[pass] = x.Seconds
		x.GFlops, x.Peak = c.flops(pass)/x.Seconds/1e9, median(peaks)
		x.OfPeak = x.GFlops / x.Peak
		if x.Digest, err = digestOf(s, pass, c.dtype); err != nil {
			break
		}
		b.compare(&x, &c, took)
		out = append(out, x)
	}
	if closed := s.Close(context.WithoutCancel(ctx)); err == nil {
		err = closed
	}
	return out, err
}

// compare puts a peer's figure beside a line.
func (b *kernelBench) compare(x *kernelLine, c *benchCell, took [2]float64) {
	what, seconds := "forward", took[plan.Forward]
	if x.Pass == "backward" {
		if took[plan.Forward] == 0 {
			return
		}
		what, seconds = "forward_backward", took[plan.Forward]+took[plan.Backward]
	}
	for _, p := range b.peers {
		if p.What == what && p.Tokens == c.tokens && p.Heads == c.heads && p.KVHeads == c.kvHeads &&
			p.Dim == c.dim && p.DType == x.DType && p.Mask == c.mask && p.Threads == x.Threads {
			over := p.Seconds / seconds
			x.Peer, x.OverPeer = &p.GFlops, &over
		}
	}
}

// open is a session on the cell's problem with attend's inputs.
func (c *benchCell) open(ctx context.Context, m mesh.Mesh, kernels string, threads int) (
	*kvloom.Session[float32], error) {
	s, err := kvloom.Open[float32](ctx, kvloom.Config{
		Mesh: m, Kernels: kernels, Workers: threads, Deadline: time.Hour,
		Problems: []kvloom.Problem{{
			Tokens: c.tokens, Heads: c.heads, KVHeads: c.kvHeads, Dim: c.dim,
			Scale: defaultScale(c.dim), Mask: c.attnMask(), ElemBytes: c.dtype.Bytes(),
			AccBytes: c.dtype.AccBytes(),
		}},
	})
	if err != nil {
		return nil, err
	}
	nq, nk := c.tokens*c.heads*c.dim, c.tokens*c.kvHeads*c.dim
	err = s.Load(0, 0, kvloom.Inputs[float32]{
		Q: tensors.Draw[float32](1, "q", nq), K: tensors.Draw[float32](1, "k", nk),
		V: tensors.Draw[float32](1, "v", nk), DO: tensors.Draw[float32](1, "do", nq),
	})
	if err != nil {
		_ = s.Close(ctx) // the first error says more
		return nil, err
	}
	return s, nil
}

// digestOf names the bits of out, or of dq after a backward pass.
func digestOf(s *kvloom.Session[float32], pass plan.Pass, dtype tensors.DType) (string, error) {
	out, err := s.Results(0, 0, pass == plan.Backward)
	if err != nil {
		return "", err
	}
	if pass == plan.Backward {
		return tensors.DigestAs(dtype, out.DQ), nil
	}
	return tensors.DigestAs(dtype, out.Out), nil
}

// peakGFlops is what the threads do on registers alone in about a millisecond, with the
// instructions of the kernels, or of the best vectors.
func peakGFlops(kernels string, threads int) float64 {
	set, err := simd.ParseISA(kernels)
	if err != nil || set == simd.Portable {
		if set = simd.AVX512; simd.Supported(set) != nil {
			set = simd.AVX2
		}
		if simd.Supported(set) != nil {
			return 0
		}
	}
	const calls, rounds = 20, 1000 // a call cannot be interrupted
	flops := make([]float64, threads)
	var all sync.WaitGroup
	began := time.Now()
	for i := range flops {
		all.Go(func() {
			for range calls {
				flops[i] += simd.MultiplyAdds(set, rounds)
			}
		})
	}
	all.Wait()
	took, sum := time.Since(began).Seconds(), 0.0
	for _, x := range flops {
		sum += x
	}
	return sum / took / 1e9
}

// peerLine is what is read of a peer's line.
type peerLine struct {
	What    string  `json:"what"`
	DType   string  `json:"dtype"`
	Mask    string  `json:"mask"`
	Tokens  int     `json:"tokens"`
	Heads   int     `json:"heads"`
	KVHeads int     `json:"kv_heads"`
	Dim     int     `json:"dim"`
	Threads int     `json:"threads"`
	Seconds float64 `json:"seconds"`
	GFlops  float64 `json:"gflops"`
}

// readPeers reads JSON lines; those of other kinds are passed over.
func readPeers(path string) ([]peerLine, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, badValue("peer", path, "cannot be read: %v", errors.Unwrap(err))
	}
	var out []peerLine
	for n, line := range strings.Split(string(text), "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		var p peerLine
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			return nil, badValue("peer", path, "line %d is no JSON object: %v", n+1, err)
		}
		if p.Seconds > 0 {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		return nil, badValue("peer", path, "has no line with a time: give the output of "+
			"torch_attention.py")
	}
	return out, nil
}
