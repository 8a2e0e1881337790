package main

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/spf13/cobra"
)

func newPlanShow(std streams) *cobra.Command {
	f := &planFlags{}
	cmd := &cobra.Command{
		Use:   "show",
		Short: "shows who does what, and when",
		Long: "show prints the plan of a problem: what each rank holds and does, the mask, at " +
			"which ring\nstep each chunk of queries meets each chunk of keys, and the timeline " +
			"of one rank.",
		Args: flagsOnly,
		RunE: func(*cobra.Command, []string) error { return f.showPlan(std) },
	}
	f.bindPlan(cmd)
	f.bindBackward(cmd)
	set := cmd.Flags()
	set.StringVar(&f.rank, "rank", "0", "whose timeline and program: rank `N`")
	set.BoolVar(&f.program, "program", false, "print the rank's program too, as text")
	set.StringVar(&f.svg, "svg", "", "draw who meets what when into this SVG `file`")
	return cmd
}

// showJSON is the JSON of plan show.
type showJSON struct {
	PlanHash string         `json:"plan_hash"`
	Mesh     *meshJSON      `json:"mesh"`
	Passes   []string       `json:"passes"`
	Ranks    []planRankJSON `json:"ranks"`
	Scheme   string         `json:"scheme"`
	Layout   string         `json:"layout"`
	Mask     string         `json:"mask"`
	waysJSON
}

// planRankJSON is one rank: spans are the query tokens at home, q_heads and kv_heads what it
// attends with; flops and bytes sent are of the passes asked for, steps of one pass.
type planRankJSON struct {
	Rank      int      `json:"rank"`
	H         int      `json:"h"`
	C         int      `json:"c"`
	QHeads    [2]int32 `json:"q_heads"`
	KVHeads   [2]int32 `json:"kv_heads"`
	Spans     [][]int  `json:"spans"`
	Flops     int64    `json:"flops"`
	Bytes     int64    `json:"bytes"`
	PeakBytes int64    `json:"peak_bytes"`
	Steps     int      `json:"steps"`

	tokens int
}

func (f *planFlags) showPlan(std streams) error {
	r, err := f.planned()
	if err != nil {
		return err
	}
	defer r.close()
	rank, err := f.parseRank(r)
	if err != nil {
		return err
	}
	if f.set.Changed("svg") && f.svg == "" {
		return badValue("svg", "", "needs the path of the picture to be written")
	}
	ranks, hash, err := r.survey()
	if err != nil {
		return err
	}
	if err := r.savePlan(); err != nil {
		return err
	}
	var g *grid
	if f.svg != "" || !f.json && !f.quiet {
		if g, err = newGrid(r); err != nil {
			return err
		}
	}
	if f.svg != "" {
		err := writeFile("svg", f.svg, func(w io.Writer) error {
			_, err := io.WriteString(w, g.drawable().svg(r))
			return err
		})
		if err != nil {
			return err
		}
	}
	if f.json {
		x := &showJSON{PlanHash: hash.String(), Ranks: ranks, Mesh: newReport(r.request).Mesh,
			Scheme: r.scheme, Layout: r.layoutText(), Mask: r.maskName, waysJSON: r.ways()}
		for _, p := range r.passes() {
			x.Passes = append(x.Passes, p.String())
		}
		return printJSON(std.out, x)
	}
	if f.quiet {
		return nil // what --svg and --out ask for is written
	}
	page, err := f.showPage(r, rank, g)
	if err != nil {
		return err
	}
	return printText(std.out, r.heading(hash.String())+rankPage(ranks)+page)
}

// survey builds every program once: figures of the ranks, and the plan's hash.
func (r *planRequest) survey() ([]planRankJSON, plan.Hash, error) {
	h, sealed := r.plan.Header(), newSealing(r.plan)
	ranks := make([]planRankJSON, h.Ranks)
	for i := range ranks {
		x := &ranks[i]
		at := r.mesh.Coord(i)
		q, kv := mesh.SplitHeads(h.QHeads, h.KHeads, r.mesh.Head, at.H)
		home := h.Sets[h.HomeQ[i]]
		*x = planRankJSON{Rank: i, H: at.H, C: at.C, QHeads: [2]int32{q.Lo, q.Hi},
			KVHeads: [2]int32{kv.Lo, kv.Hi}, Spans: spansOf(home), tokens: home.Len()}
		var both [2]*plan.Program
		for _, pass := range r.plan.Passes() {
			p, err := sealed.Program(pass, i)
			if err != nil {
				return nil, plan.Hash{}, err
			}
			if pass == plan.Backward && !r.backward {
				continue
			}
			both[pass] = p
			c := plan.Count(h, p)
			x.Flops += c.Flops
			for _, b := range c.Bytes {
				x.Bytes += b
			}
			x.Steps = max(x.Steps, len(attendTicks(p)))
		}
		x.PeakBytes = plan.PeakBytes(both[plan.Forward], both[plan.Backward])
	}
	hash, err := sealed.name()
	return ranks, hash, err
}

// spansOf are runs [a,b), with a third number for strides other than 1.
func spansOf(set mesh.Set) [][]int {
	out := [][]int{}
	for _, s := range set {
		span := []int{s.Start, s.Last() + 1}
		if s.Stride != 1 {
			span = append(span, s.Stride)
		}
		out = append(out, span)
	}
	return out
}

// attendTicks are the ticks at which a program attends, each once, in the order of its list.
func attendTicks(p *plan.Program) []int32 {
	var out []int32
	for i := range p.Ops {
		k := p.Ops[i].Kind
		if k != plan.Attend && k != plan.AttendBackward {
			continue
		}
		if n := len(out); n == 0 || out[n-1] != p.Ops[i].Tick {
			out = append(out, p.Ops[i].Tick)
		}
	}
	return out
}

func rankPage(ranks []planRankJSON) string {
	t := plainTable("rank", "h,c", "q heads", "kv heads", "tokens", "steps", "work", "sent",
		"peak memory")
	for i := range ranks {
		if i == tableRows {
			t.SetCaption("and %d more ranks", len(ranks)-tableRows)
			break
		}
		x := &ranks[i]
		t.AppendRow(table.Row{i, fmt.Sprintf("%d,%d", x.H, x.C), runText(x.QHeads),
			runText(x.KVHeads), x.tokens, x.Steps, flopsText(x.Flops), bytesText(x.Bytes),
			bytesText(x.PeakBytes)})
	}
	return t.Render() + "\n"
}

func runText(h [2]int32) string { return fmt.Sprintf("%d:%d", h[0], h[1]) }

// showPage is what follows the ranks: grid, timelines, program.
func (f *planFlags) showPage(r *planRequest, rank int, g *grid) (string, error) {
	page := "\n" + maskPage(r.mask, r.tokens) + "\n" + g.fit().text()
	for _, pass := range r.passes() {
		p, err := r.plan.Program(pass, rank)
		if err != nil {
			return "", err
		}
		ring, err := r.ringPrograms(pass)
		if err != nil {
			return "", err
		}
		page += "\n" + newTimeline(r.plan.Header(), p).text(clockOf(ring))
	}
	if !f.program {
		return page, nil
	}
	for _, pass := range r.passes() {
		p, err := r.plan.Program(pass, rank)
		if err != nil {
			return "", err
		}
		page += "\n" + string(p.AppendText(nil, r.plan.Header()))
	}
	return page, nil
}
