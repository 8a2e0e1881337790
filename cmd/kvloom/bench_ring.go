package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/spf13/cobra"
)

func newBenchRing(std streams) *cobra.Command {
	f := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "ring",
		Short: "rank actors in one process against one rank on the same work",
		Long: "ring runs the same problem on one rank and on a mesh of rank actors, in turns, " +
			"all on the cores of\nthis process: the ratio is what the mesh costs, or gives.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return benchRing(cmd.Context(), f, std)
		},
	}
	f.bindCells(cmd.Flags(), "16K", "128")
	cmd.Flags().StringVar(&f.mesh, "mesh", "1x8", "`HxC`, one or several")
	cmd.Flags().Lookup("heads").Usage = "query heads `N` (default 8)"
	set := cmd.Flags()
	f.heads, f.dtype, f.mask = "8", "f32", "causal"
	for name, value := range map[string]string{"heads": "8", "dtype": "f32", "mask": "causal"} {
		set.Lookup(name).DefValue = value
	}
	set.SortFlags = false
	return cmd
}

// ringLine is a line of the table, as JSON.
type ringLine struct {
	Mesh      string  `json:"mesh"`
	Processes int     `json:"processes"`
	Transport string  `json:"transport"`
	Pass      string  `json:"pass"`
	Mask      string  `json:"mask"`
	Tokens    int     `json:"tokens"`
	Heads     int     `json:"heads"`
	KVHeads   int     `json:"kv_heads"`
	Dim       int     `json:"dim"`
	DType     string  `json:"dtype"`
	ISA       string  `json:"isa"`
	Seconds   float64 `json:"seconds"`
	One       float64 `json:"one_rank_seconds"`
	Ratio     float64 `json:"ratio"`     // medians
	CPURatio  float64 `json:"cpu_ratio"` // processor time, which other work disturbs less
}

func benchRing(ctx context.Context, f *benchFlags, std streams) error {
	cells, err := f.cells()
	if err != nil {
		return err
	}
	passes, err := f.passes()
	if err != nil {
		return err
	}
	isas, err := f.kernels()
	if err != nil {
		return err
	}
	least, err := time.ParseDuration(f.seconds)
	if err != nil || least < 0 {
		return badValue("seconds", f.seconds, "is not a duration: use one such as 1s or 200ms")
	}
	t := plainTable("mesh", "pass", "mask", "tokens", "heads", "dim", "dtype", "seconds",
		"one rank", "ratio", "cpu ratio")
	if len(isas) > 1 {
		return badValue("isa", f.isa, "name one: a ring is measured with one kind of kernels")
	}
	for _, word := range words(f.mesh) {
		m, err := parseMesh(word)
		if err != nil {
			return err
		}
		for _, c := range cells {
			if err := mesh.ValidateHeads(c.heads, c.kvHeads, m.Head); err != nil {
				return badValue("mesh", word, "%v", err)
			}
			lines, err := c.ring(ctx, m, least, isas[0], passes)
			if err != nil {
				return err
			}
			for _, x := range lines {
				if f.json {
					if err := json.NewEncoder(std.out).Encode(x); err != nil {
						return fmt.Errorf("the JSON cannot be written: %w", err)
					}
				}
				t.AppendRow(table.Row{x.Mesh, x.Pass, x.Mask, x.Tokens,
					fmt.Sprintf("%d/%d", x.Heads, x.KVHeads), x.Dim, x.DType,
					fmt.Sprintf("%.3f", x.Seconds), fmt.Sprintf("%.3f", x.One),
					fmt.Sprintf("%.3f", x.Ratio), fmt.Sprintf("%.3f", x.CPURatio)})
			}
		}
	}
	if f.json {
		return nil
	}
	return writeBench(std.out, t)
}

// ring times one rank and the mesh in turns.
func (c *benchCell) ring(ctx context.Context, m mesh.Mesh, least time.Duration, isa cpu.Kernels,
	passes []plan.Pass) (out []ringLine, err error) {
	workers := runtime.GOMAXPROCS(0)
	var s [2]*kvloom.Session[float32]
	for i, at := range []mesh.Mesh{{Head: 1, Ring: 1}, m} {
		if s[i], err = c.open(ctx, at, isa.String(), workers); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s[i].Close(context.WithoutCancel(ctx))) }()
	}
	for _, pass := range []plan.Pass{plan.Forward, plan.Backward} {
		wall, used, err := inTurns(ctx, s, pass, least)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(passes, pass) {
			continue
		}
		x := ringLine{
			Mesh: fmt.Sprintf("%dx%d", m.Head, m.Ring), Processes: 1, Transport: "inproc",
			Pass: pass.String(), Mask: c.mask, Tokens: c.tokens, Heads: c.heads,
			KVHeads: c.kvHeads, Dim: c.dim, DType: c.dtype.String(), One: median(wall[0]),
			ISA:     isa.For(&s[1].Plan(0).Header().Shape).String(),
			Seconds: median(wall[1]), CPURatio: median(used[1]) / median(used[0]),
		}
		x.Ratio = x.Seconds / x.One
		out = append(out, x)
	}
	return out, nil
}

// inTurns runs a pass on both sessions in turn, at least three times each, and gives the times.
func inTurns(ctx context.Context, s [2]*kvloom.Session[float32], pass plan.Pass,
	least time.Duration) (wall, cpu [2][]float64, err error) {
	const warm, runs = 1, 3
	var all time.Duration
	for n := 0; n < warm+runs || all < least; n++ {
		for i := range s {
			used, began := processTime(), time.Now()
			if err = s[i].Run(ctx, kvloom.Round{Pass: pass}); err != nil {
				return wall, cpu, err
			}
			if n >= warm {
				took := time.Since(began)
				all += took
				wall[i] = append(wall[i], took.Seconds())
				cpu[i] = append(cpu[i], (processTime() - used).Seconds())
			}
		}
	}
	return wall, cpu, nil
}
