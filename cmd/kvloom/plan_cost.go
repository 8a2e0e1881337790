package main

import (
	"fmt"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/kvloom/kvloom/choose"
	"github.com/kvloom/kvloom/plan"
	"github.com/spf13/cobra"
)

func newPlanCost(std streams) *cobra.Command {
	f := &planFlags{attendFlags: attendFlags{clocked: true}}
	cmd := &cobra.Command{
		Use:   "cost",
		Short: "prices a plan on a modelled cluster",
		Long: "cost says what the plan of a problem takes on the cluster that --topology " +
			"describes: time,\ntime in which a device waits for a link, bytes by link, memory; " +
			"per rank, and step by step\nfor the slowest rank. With --candidates it prices every " +
			"layout, scheme and rotation that no\nflag names, and says which is best. Nothing is " +
			"run.",
		Args: flagsOnly,
		RunE: func(*cobra.Command, []string) error { return f.cost(std) },
	}
	f.bindPlan(cmd)
	f.bindBackward(cmd)
	set := cmd.Flags()
	set.BoolVar(&f.survey, "candidates", false, "price all candidates: layouts, schemes and "+
		"rotations that are not given by name")
	set.Lookup("topology").Usage = "the cluster: a YAML or JSON `file` (default nodes of 8 ranks " +
		"with 400 TFLOP/s each, links of 400 and 50 GB/s)"
	return cmd
}

// costJSON is the JSON of plan cost; all figures but ranks are of the slowest rank.
type costJSON struct {
	PlanHash       string           `json:"plan_hash"`
	Passes         []string         `json:"passes"`
	Ranks          int              `json:"ranks"`
	Rank           int              `json:"rank"`
	Seconds        number           `json:"seconds"`
	ComputeSeconds number           `json:"compute_seconds"`
	ExposedSeconds number           `json:"exposed_seconds"`
	Flops          int64            `json:"flops"`
	Bytes          map[string]int64 `json:"bytes"`
	PeakBytes      int64            `json:"peak_bytes"`
	Steps          []costStepJSON   `json:"steps"`
	Layout         string           `json:"layout"`
	Scheme         string           `json:"scheme"`
	waysJSON
	Candidates []candidateJSON `json:"candidates,omitempty"`
}

// candidateJSON is a row of the table of candidates: figures, or why it was refused.
type candidateJSON struct {
	Layout string `json:"layout"`
	Scheme string `json:"scheme"`
	Rotate string `json:"rotate"`
	*priceJSON
	Refused string `json:"refused,omitempty"`
}

// priceJSON are a candidate's figures: seconds are modelled, compute and exposed are those of the
// slowest rank, bytes those that all ranks send, peak_bytes the most of any rank.
type priceJSON struct {
	Seconds        number `json:"seconds"`
	ComputeSeconds number `json:"compute_seconds"`
	ExposedSeconds number `json:"exposed_seconds"`
	Bytes          int64  `json:"bytes"`
	PeakBytes      int64  `json:"peak_bytes"`
	Imbalance      number `json:"imbalance"`
}

type costStepJSON struct {
	Pass           string `json:"pass"`
	Tick           int32  `json:"tick"`
	Flops          int64  `json:"flops"`
	Bytes          int64  `json:"bytes"`
	Seconds        number `json:"seconds"`
	ExposedSeconds number `json:"exposed_seconds"`
}

func (f *planFlags) cost(std streams) error {
	r, err := f.planned()
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.savePlan(); err != nil {
		return err
	}
	sealed := newSealing(r.plan)
	e, err := plan.Cost(sealed, r.topology, plan.CostOptions{Passes: r.passes()})
	if err != nil {
		return badValue("topology", f.topology, "%v", err)
	}
	hash, err := sealed.name()
	if err != nil {
		return err
	}
	if f.json {
		x := newCostJSON(e, hash.String(), r.passes())
		x.Layout, x.Scheme, x.waysJSON = r.layoutText(), r.scheme, r.ways()
		if f.survey {
			x.Candidates = candidatesJSON(r.choice)
		}
		return printJSON(std.out, x)
	}
	total := costTotal(r, e)
	if f.quiet {
		return printText(std.out, r.choiceText()+total)
	}
	page := r.heading(hash.String())
	if f.survey {
		page += candidatesPage(r.choice)
	}
	return printText(std.out, page+costPage(r, r.topology, e)+total)
}

func newCostJSON(e *plan.Estimate, hash string, passes []plan.Pass) *costJSON {
	s := &e.Ranks[e.Slowest]
	x := &costJSON{
		PlanHash: hash, Ranks: len(e.Ranks), Rank: e.Slowest, Seconds: seconds(e.Nanos),
		ComputeSeconds: seconds(s.ComputeNanos), ExposedSeconds: seconds(s.ExposedNanos),
		Flops: s.Flops, PeakBytes: s.PeakBytes, Bytes: map[string]int64{}, Steps: []costStepJSON{},
	}
	for _, p := range passes {
		x.Passes = append(x.Passes, p.String())
	}
	for k := range plan.NumLinkKinds {
		x.Bytes[k.String()] = s.BytesBy(k)
	}
	for c := range plan.NumClasses {
		if n := s.BytesOf(c); n > 0 || c <= plan.A2ABackward {
			x.Bytes[c.String()] = n
		}
	}
	for _, t := range e.Steps {
		x.Steps = append(x.Steps, costStepJSON{t.Pass.String(), t.Tick, t.Flops, t.Bytes,
			seconds(t.Nanos), seconds(t.ExposedNanos)})
	}
	return x
}

func candidatesJSON(t *choose.Table) []candidateJSON {
	out := []candidateJSON{}
	for i := range t.Rows {
		r := &t.Rows[i]
		x := candidateJSON{Layout: r.Layout, Scheme: r.Scheme, Rotate: r.Rotate, Refused: r.Refused}
		if r.Refused == "" {
			x.priceJSON = &priceJSON{seconds(r.Nanos), seconds(r.ComputeNanos),
				seconds(r.ExposedNanos), r.SentBytes, r.PeakBytes, number(r.WorkRatio)}
		}
		out = append(out, x)
	}
	return out
}

// candidatesPage is the table of candidates, in their order; the chosen one has a mark.
func candidatesPage(c *choose.Table) string {
	t := plainTable("", "layout", "scheme", "rotate", "time", "compute", "exposed wait", "sent",
		"peak memory", "largest/mean")
	refused := ""
	for i := range c.Rows {
		r := &c.Rows[i]
		mark := ""
		if i == c.Best {
			mark = ">"
		}
		if r.Refused != "" {
			t.AppendRow(table.Row{mark, r.Layout, r.Scheme, r.Rotate, "refused"})
			refused += fmt.Sprintf("%s: %s\n", r.Name(), r.Refused)
			continue
		}
		t.AppendRow(table.Row{mark, r.Layout, r.Scheme, r.Rotate, nanosText(r.Nanos),
			nanosText(r.ComputeNanos), nanosText(r.ExposedNanos), bytesText(r.SentBytes),
			bytesText(r.PeakBytes), fmt.Sprintf("%.3f", r.WorkRatio)})
	}
	return t.Render() + "\n" + refused + "\n"
}

func seconds(nanos int64) number { return number(float64(nanos) / 1e9) }

func nanosText(nanos int64) string {
	switch {
	case nanos < 1000:
		return fmt.Sprintf("%d ns", nanos)
	case nanos < 1e6:
		return fmt.Sprintf("%.1f us", float64(nanos)/1e3)
	case nanos < 1e9:
		return fmt.Sprintf("%.2f ms", float64(nanos)/1e6)
	}
	return fmt.Sprintf("%.2f s", float64(nanos)/1e9)
}

// costPage is the estimate for a person.
func costPage(r *planRequest, top *plan.Topology, e *plan.Estimate) string {
	page := fmt.Sprintf("on %s of %s, %.3g FLOP/s each; %.3g bytes/s inside a node, %.3g "+
		"between\n", plural(top.Nodes, "node"), plural(top.RanksPerNode, "rank"), top.Flops,
		top.Local.BytesPerS, top.Remote.BytesPerS)
	t := plainTable("rank", "h,c", "work", "sent inside", "sent outside", "time", "compute",
		"exposed wait", "peak memory")
	for i := range e.Ranks {
		if i == tableRows {
			t.SetCaption("and %d more ranks", len(e.Ranks)-tableRows)
			break
		}
		c, at := &e.Ranks[i], r.mesh.Coord(i)
		t.AppendRow(table.Row{i, fmt.Sprintf("%d,%d", at.H, at.C), flopsText(c.Flops),
			bytesText(c.BytesBy(plan.LocalLink)), bytesText(c.BytesBy(plan.RemoteLink)),
			nanosText(c.Nanos), nanosText(c.ComputeNanos), nanosText(c.ExposedNanos),
			bytesText(c.PeakBytes)})
	}
	page += t.Render() + fmt.Sprintf("\n\nsteps of rank %d, the slowest\n", e.Slowest)
	t = plainTable("pass", "step", "tick", "work", "sent", "time", "exposed wait")
	n, pass := 0, plan.Pass(255)
	for _, x := range e.Steps {
		if x.Pass != pass {
			n, pass = 0, x.Pass
		}
		step := strconv.Itoa(n)
		if x.Flops == 0 {
			step = "end"
		}
		n++
		t.AppendRow(table.Row{x.Pass, step, x.Tick, flopsText(x.Flops), bytesText(x.Bytes),
			nanosText(x.Nanos), nanosText(x.ExposedNanos)})
	}
	return page + t.Render() + "\n\n"
}

// costTotal is the estimate in a line.
func costTotal(r *planRequest, e *plan.Estimate) string {
	s := &e.Ranks[e.Slowest]
	return fmt.Sprintf("%s: %s, of which its device computes %s and waits %s\n",
		passWords(r.passes()), nanosText(e.Nanos), nanosText(s.ComputeNanos),
		nanosText(s.ExposedNanos))
}

// plainTable is a table with a head, all columns to the right.
func plainTable(head ...any) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(head)
	var right []table.ColumnConfig
	for n := range head {
		right = append(right, table.ColumnConfig{Number: n + 1, Align: text.AlignRight,
			AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(right)
	return t
}
