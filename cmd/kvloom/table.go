package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/kvloom/kvloom/ringbus"
)

// tableRows is how many ranks a table shows.
const tableRows = 64

// writeTable prints the report for a person: problem, ranks, times, verdict. failed is the check's
// error, if there is one. On a narrow terminal columns are left out, so that no line is broken.
func writeTable(w io.Writer, r *request, x *report, failed error) error {
	page := ""
	if !r.quiet {
		page = heading(r, x) + rankTable(r, x, columns(w)) + summary(x)
	}
	_, err := io.WriteString(w, page+verdictText(r, x, failed))
	if err != nil {
		return fmt.Errorf("the table cannot be written: %w", err)
	}
	return nil
}

func heading(r *request, x *report) string {
	passes := "forward"
	if r.backward {
		passes = "forward and backward"
	}
	return fmt.Sprintf("%s, %s\n%s; plan %.12s\n%s\n", r.problemText(), passes,
		r.planText(r.schemeText(x.Scheme)), x.PlanHash, r.choiceText())
}

// problemText is the problem in a line.
func (r *request) problemText() string {
	dim := fmt.Sprintf("dim %d", r.dim)
	if r.vDim != r.dim {
		dim += fmt.Sprintf(" (values %d)", r.vDim)
	}
	s := fmt.Sprintf("%d tokens, %d query heads, %d KV heads, %s, %s, %s", r.tokens, r.heads,
		r.kvHeads, dim, r.dtype, r.maskText())
	if r.softCap != 0 {
		s += fmt.Sprintf(", logits capped at %g", r.softCap)
	}
	if r.sink {
		s += ", sinks"
	}
	return s
}

// maskText is the mask in words.
func (r *request) maskText() string {
	s := r.maskName + " mask"
	if r.maskName == "slices" {
		s = fmt.Sprintf("mask of %d slices", len(r.mask))
	}
	if r.docs != nil {
		s += fmt.Sprintf(" in %d documents", len(r.docs)-1)
	}
	return s
}

// planText is the mesh, the layout and the scheme, which is given in words.
func (r *request) planText(scheme string) string {
	return fmt.Sprintf("mesh %dx%d %s, %s layout, %s", r.mesh.Head, r.mesh.Ring,
		r.mesh.Placement, r.layoutText(), scheme)
}

// layoutText is the layout as the command line spells it.
func (r *request) layoutText() string {
	if r.layoutName == "striped" {
		return r.layout.String() // with the size that was left out
	}
	return r.layoutName
}

// choiceText is a line about what auto chose.
func (r *request) choiceText() string {
	if r.choice == nil {
		return ""
	}
	on := "on the usual cluster (--topology describes another)"
	if !r.usual {
		on = "on the cluster of --topology"
	}
	possible := r.choice.Possible()
	of := fmt.Sprint(possible)
	if n := len(r.choice.Rows) - possible; n > 0 {
		of += fmt.Sprintf(" (%d more refused)", n)
	}
	return fmt.Sprintf("chosen of %s: %s; modelled %s\n", of, r.choice.Why, on)
}

// schemeText is the scheme with what is not usual about its ring.
func (r *request) schemeText(scheme string) string {
	if r.inner() != r.mesh.Ring {
		scheme += fmt.Sprintf(" of %d windows, dkv %v", r.mesh.Ring/r.inner(), r.ring.DKV)
	}
	if n := r.ring.LaneCount(); n > 1 {
		scheme += fmt.Sprintf(" on %d lanes", n)
	}
	return scheme + r.optionText()
}

// optionText is what else is not usual about the plan.
func (r *request) optionText() string {
	s := ""
	if r.ring.Rotate != ringbus.RotateKV {
		s += ", rotate q"
	}
	if n := r.options.HeadChunks; n > 1 {
		s += fmt.Sprintf(", heads in %d chunks", n)
	}
	if r.options.NarrowDKV {
		s += ", dkv as bf16"
	}
	return s
}

// rankTable has a row for each rank, of many for the first. It is as wide as it likes when width is
// 0; otherwise it leaves out columns until it fits, those first that a person misses least.
func rankTable(r *request, x *report, width int) string {
	t := newRankTable(r, x)
	page := t.Render()
	var hidden []string
	for _, name := range []string{"h,c", "exposed wait", "peak memory", "tokens", "sent"} {
		if width == 0 || text.LongestLineLen(page) <= width {
			break
		}
		hidden = append(hidden, name)
		t.SetColumnConfigs(rankColumns(hidden))
		page = t.Render()
	}
	if n := r.mesh.Ranks(); n > tableRows {
		page += fmt.Sprintf("\nand %d more ranks", n-tableRows)
	}
	return page + "\n"
}

// rankHead names the columns of the table of ranks.
func rankHead() []string {
	return []string{"rank", "h,c", "tokens", "work", "sent", "exposed wait", "peak memory"}
}

// rankColumns sets all columns to the right, and leaves out those hidden.
func rankColumns(hidden []string) []table.ColumnConfig {
	var all []table.ColumnConfig
	for n, name := range rankHead() {
		all = append(all, table.ColumnConfig{Number: n + 1, Align: text.AlignRight,
			AlignHeader: text.AlignRight, AlignFooter: text.AlignRight,
			Hidden: slices.Contains(hidden, name)})
	}
	return all
}

func newRankTable(r *request, x *report) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.Style().Format.Footer = text.FormatDefault
	var head table.Row
	for _, name := range rankHead() {
		head = append(head, name)
	}
	t.AppendHeader(head)
	t.SetColumnConfigs(rankColumns(nil))
	var flops, sent, peak int64
	for i := range r.mesh.Ranks() {
		s := x.Bytes.sent(i)
		flops, sent, peak = flops+x.Flops[i], sent+s, peak+x.PeakBytes[i]
		if i >= tableRows {
			continue
		}
		at := r.mesh.Coord(i)
		t.AppendRow(table.Row{i, fmt.Sprintf("%d,%d", at.H, at.C), x.homeTokens[i],
			flopsText(x.Flops[i]), bytesText(s), secondsText(float64(x.ExposedSeconds[i])),
			bytesText(x.PeakBytes[i])})
	}
	t.AppendFooter(table.Row{"all", "", x.Tokens, flopsText(flops), bytesText(sent), "",
		bytesText(peak)})
	return t
}

func summary(x *report) string {
	s := fmt.Sprintf("work is forward; largest over mean %.3f\nforward %s",
		float64(*x.Imbalance), secondsText(float64(x.Seconds.Forward)))
	if x.Seconds.Backward > 0 {
		s += ", backward " + secondsText(float64(x.Seconds.Backward))
	}
	s += fmt.Sprintf(", %.3g GFLOP/s", float64(*x.TFlops)*1000)
	if x.Rounds > 1 {
		s += fmt.Sprintf(", means over %d rounds", x.Rounds)
	}
	return s + "\n"
}

// verdictText is the last lines: the check's, or that there was none.
func verdictText(r *request, x *report, failed error) string {
	if x.Check == nil {
		if r.quiet {
			return ""
		}
		return "not checked: add --check\n"
	}
	s := ""
	if !r.quiet {
		s = "relative error:"
		for _, t := range x.Check.tensors() {
			s += fmt.Sprintf("  %s %.1e", t.name, float64(t.Rel))
		}
		s += "\n"
	}
	how := "every number"
	if x.Check.Sampled {
		how = fmt.Sprintf("a sample of %d rows", min(sampledRows, r.tokens))
		if r.backward {
			how += fmt.Sprintf(" and %d keys", min(sampledKeys, r.tokens))
		}
	}
	if failed != nil {
		return s + fmt.Sprintf("FAIL: %v (%s compared)\n", failed, how)
	}
	widest := x.Check.Gate
	for _, t := range x.Check.tensors() {
		widest = max(widest, t.Gate)
	}
	within := fmt.Sprintf("%.1e", float64(x.Check.Gate))
	if widest != x.Check.Gate {
		within += fmt.Sprintf(", gradients within %.1e,", float64(widest))
	}
	return s + fmt.Sprintf("PASS: %s is within %s of the float64 oracle\n", how, within)
}

func flopsText(n int64) string { return scaled(float64(n), 1000, "FLOP", " ", "k", "M", "G", "T") }

func bytesText(n int64) string { return scaled(float64(n), 1024, "B", " ", "Ki", "Mi", "Gi", "Ti") }

// scaled writes x in the largest unit that leaves it at 1 or more.
func scaled(x, step float64, unit string, prefixes ...string) string {
	i := 0
	for x >= step && i < len(prefixes)-1 {
		x /= step
		i++
	}
	if i == 0 {
		return strconv.Itoa(int(x)) + " " + unit
	}
	return fmt.Sprintf("%.1f %s%s", x, prefixes[i], unit)
}

// plural is a count with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func secondsText(s float64) string {
	if s < 1 {
		return fmt.Sprintf("%.1f ms", s*1000)
	}
	return fmt.Sprintf("%.2f s", s)
}
