package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/kvloom/kvloom/plan"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newBench(std streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "measures kernels and rings on this machine",
		Long: "bench measures this machine: kernels against its multiply-adds on registers, and " +
			"rank actors\nagainst one rank on the same work. Figures are medians; with other " +
			"work on the machine\ncpu/wall falls below the threads, and the line is worth little.",
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBenchKernels(std), newBenchRing(std))
	for _, c := range [][2]string{
		{"bench transport", "bytes a second over each transport"},
		{"bench control", "how long an envelope takes"},
	} {
		cmd.AddCommand(newLater(c[0], c[1], benchNow))
	}
	return cmd
}

// benchFlags narrow the table of a bench.
type benchFlags struct {
	tokens, heads, kvHeads, dim string
	dtype, mask, pass, isa      string
	threads, peer, mesh         string
	seconds                     string
	json                        bool
}

// bindCells declares the flags that both benches have; lists are comma separated.
func (f *benchFlags) bindCells(set *pflag.FlagSet, tokens, dim string) {
	for _, x := range []struct {
		to                *string
		name, value, help string
	}{
		{&f.tokens, "tokens", tokens, "sequence `lengths`, one or several"},
		{&f.heads, "heads", "", "query heads `N` (default 8, and 2 from 16K tokens on)"},
		{&f.kvHeads, "kv-heads", "", "key/value heads `N` (default as many as heads)"},
		{&f.dim, "dim", dim, "head `dimensions`, one or several"},
		{&f.dtype, "dtype", "f32,bf16", "element `types`"},
		{&f.mask, "mask", "full,causal", "`masks`: full, causal"},
		{&f.pass, "pass", "forward,backward", "`passes`"},
		{&f.isa, "isa", "", "`kernels`: auto (the fastest), portable, avx2, avx512, avx512bf16, " +
			"amx, " +
			"one or several (default KVLOOM_KERNELS, or auto)"},
		{&f.seconds, "seconds", "1s", "how `long` to measure each line, at least two runs"},
	} {
		set.StringVar(x.to, x.name, x.value, x.help)
	}
	set.BoolVar(&f.json, "json", false, "print one JSON object a line instead of a table")
}

// benchCell is one shape that is measured.
type benchCell struct {
	tokens, heads, kvHeads, dim int
	dtype                       tensors.DType
	mask                        string
}

// kernels are those of a list of names. Without one they are those of the environment, as attend
// has them.
func (f *benchFlags) kernels() ([]cpu.Kernels, error) {
	if f.isa == "" {
		name := os.Getenv(kernelsVariable)
		k, err := cpu.ParseKernels[float32](name)
		if err != nil {
			return nil, &requestError{problem: fmt.Sprintf("%s=%s: %v", kernelsVariable,
				show(name), err)}
		}
		return []cpu.Kernels{k}, nil
	}
	var out []cpu.Kernels
	for _, name := range words(f.isa) {
		k, err := cpu.ParseKernels[float32](name)
		if err != nil {
			return nil, badValue("isa", name, "%v", err)
		}
		out = append(out, k)
	}
	return out, nil
}

// passes are those of the list.
func (f *benchFlags) passes() ([]plan.Pass, error) {
	var out []plan.Pass
	for _, name := range words(f.pass) {
		pass := slices.Index([]string{"forward", "backward"}, name)
		if pass < 0 {
			return nil, badValue("pass", name, "is unknown: use forward, backward or both")
		}
		out = append(out, plan.Pass(pass))
	}
	return out, nil
}

// cells are all shapes of the flags, in their order.
func (f *benchFlags) cells() ([]benchCell, error) {
	var out []benchCell
	for _, dtype := range words(f.dtype) {
		t, err := tensors.ParseDType(dtype)
		if err != nil || t == tensors.F64 {
			return nil, badValue("dtype", dtype, "is not measured: use f32, bf16 or both")
		}
		for _, dim := range words(f.dim) {
			for _, tokens := range words(f.tokens) {
				for _, mask := range words(f.mask) {
					c, err := f.cell(tokens, dim, mask)
					if err != nil {
						return nil, err
					}
					c.dtype = t
					out = append(out, c)
				}
			}
		}
	}
	return out, nil
}

func (f *benchFlags) cell(tokens, dim, mask string) (c benchCell, err error) {
	c.mask = mask
	if mask != "full" && mask != "causal" {
		return c, badValue("mask", mask, "is not measured: use full, causal or both")
	}
	if c.tokens, err = parseCount("tokens", tokens, plan.MaxTokens); err != nil {
		return c, err
	}
	if c.dim, err = parseCount("dim", dim, plan.MaxDim); err != nil {
		return c, err
	}
	const long = 16 << 10
	if c.heads = 8; c.tokens >= long {
		c.heads = 2
	}
	if f.heads != "" {
		if c.heads, err = parseCount("heads", f.heads, plan.MaxHeads); err != nil {
			return c, err
		}
	}
	if c.kvHeads = c.heads; f.kvHeads != "" {
		if c.kvHeads, err = parseCount("kv-heads", f.kvHeads, plan.MaxHeads); err != nil {
			return c, err
		}
	}
	if c.heads%c.kvHeads != 0 {
		return c, badValue("kv-heads", f.kvHeads, "does not divide %d heads", c.heads)
	}
	return c, nil
}

// words are the parts of a list.
func words(list string) []string { return strings.Split(list, ",") }

// attnMask is the cell's mask.
func (c *benchCell) attnMask() attn.Mask {
	if c.mask == "full" {
		return attn.Full(c.tokens, c.tokens)
	}
	return attn.Causal(c.tokens, c.tokens)
}

// flops is the arithmetic of a pass: forward 4*dim*pairs*heads, backward 2.5 times that.
func (c *benchCell) flops(pass plan.Pass) float64 {
	n := 4 * float64(c.dim) * float64(c.attnMask().TotalPairs()) * float64(c.heads)
	if pass == plan.Backward {
		return 2.5 * n
	}
	return n
}

// timeRuns runs work until it has taken so long, at least twice after a first time that does not
// count, with between in between; it gives the median of the wall times and cpu over wall.
func timeRuns(least time.Duration, work func() error, between func()) (seconds, cpuOverWall float64,
	err error) {
	const runs = 2
	if err = work(); err != nil {
		return 0, 0, err
	}
	var wall []float64
	var all, cpu time.Duration
	for all < least || len(wall) < runs {
		between()
		used, began := processTime(), time.Now()
		if err = work(); err != nil {
			return 0, 0, err
		}
		took := time.Since(began)
		all, cpu = all+took, cpu+processTime()-used
		wall = append(wall, took.Seconds())
	}
	return median(wall), cpu.Seconds() / all.Seconds(), nil
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	s := slices.Clone(x)
	slices.Sort(s)
	return s[len(s)/2]
}

// parseThreads reads a list of worker counts; all stands for all cores.
func parseThreads(list string) ([]int, error) {
	var out []int
	for _, w := range words(list) {
		n := runtime.GOMAXPROCS(0)
		if w != "all" {
			var err error
			if n, err = parseCount("threads", w, runtime.GOMAXPROCS(0)); err != nil {
				return nil, err
			}
		}
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out, nil
}

// writeBench prints a table, or nothing in JSON, whose lines are out already.
func writeBench(w io.Writer, t table.Writer) error {
	if _, err := fmt.Fprintln(w, t.Render()); err != nil {
		return fmt.Errorf("the table cannot be written: %w", err)
	}
	return nil
}
