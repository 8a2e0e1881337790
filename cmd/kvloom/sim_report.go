package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/kvloom/kvloom/sim"
)

// simReport is sim's JSON object. Seconds are of all rounds together; those of a rank are of the
// rank that has most of them.
type simReport struct {
	OK             bool         `json:"ok"`
	Error          *failureJSON `json:"error,omitempty"`
	Ranks          int          `json:"ranks"`
	Rounds         int          `json:"rounds"`
	VirtualSeconds number       `json:"virtual_seconds"`
	IdealSeconds   number       `json:"ideal_seconds"`
	ComputeSeconds number       `json:"compute_seconds"`
	ExposedSeconds number       `json:"exposed_seconds"`
	WallSeconds    number       `json:"wall_seconds"`
	Events         int64        `json:"events"`
	TraceHash      string       `json:"trace_hash"`
	Seed           uint64       `json:"seed"`
	Violations     []string     `json:"violations"`
	Mesh           *meshJSON    `json:"mesh"`
	Scheme         string       `json:"scheme"`
	Layout         string       `json:"layout"`
	Mask           string       `json:"mask"`
	Tokens         int          `json:"tokens"`
	Heads          int          `json:"heads"`
	KVHeads        int          `json:"kv_heads"`
	Dim            int          `json:"dim"`
	waysJSON
	DType    string        `json:"dtype"`
	PlanHash string        `json:"plan_hash,omitempty"`
	Topology *topologyJSON `json:"topology"`
	Trace    string        `json:"trace,omitempty"`
	Kernels  string        `json:"kernels,omitempty"` // with --compute
	Digests  *digestsJSON  `json:"digests,omitempty"`
	Check    *verdict      `json:"check,omitempty"`

	byRank []simRank
}

// simRank is what a rank spent, in nanoseconds.
type simRank struct {
	rank                    int
	ideal, compute, exposed int64
}

// newSimReport has what is known before the run.
func newSimReport(r *simRequest) *simReport {
	x := newReport(r.request)
	return &simReport{
		Ranks: r.mesh.Ranks(), Rounds: r.rounds, Seed: r.weather, Violations: []string{},
		Mesh: x.Mesh, Scheme: x.Scheme, Layout: x.Layout, Mask: x.Mask, Tokens: x.Tokens,
		Heads: x.Heads, KVHeads: x.KVHeads, Dim: x.Dim, waysJSON: x.waysJSON, DType: x.DType,
		Topology: describeTopology(r.topology), Trace: r.trace,
	}
}

// account fills in what the world did.
func (x *simReport) account(s *simulation, w *sim.World, res sim.Result, wall time.Duration) {
	seconds := func(nanos int64) number { return number(time.Duration(nanos).Seconds()) }
	x.VirtualSeconds, x.WallSeconds = seconds(int64(res.Nanos())), number(wall.Seconds())
	x.Events, x.TraceHash = res.Events, fmt.Sprintf("%016x", res.TraceHash)
	x.Violations = append(x.Violations, res.Violations...)
	var most simRank
	for r := range x.Ranks {
		a := simRank{rank: r, compute: int64(w.ComputeNanos(r)),
			exposed: w.Rank(r).Stats().ExposedNanos}
		for i := range s.request.passes() {
			a.ideal += int64(s.costs.Work(int32(r), int32(i)).Compute) * int64(x.Rounds)
		}
		x.byRank = append(x.byRank, a)
		most.ideal, most.compute = max(most.ideal, a.ideal), max(most.compute, a.compute)
		most.exposed = max(most.exposed, a.exposed)
	}
	x.IdealSeconds, x.ComputeSeconds = seconds(most.ideal), seconds(most.compute)
	x.ExposedSeconds = seconds(most.exposed)
}

// print shows what is known, whatever the run came to, and gives the error that is left to tell.
func (s *simulation) print(err error, std streams) error {
	x := s.report
	switch code := exitCode(err); {
	case code == exitRequest:
		return err
	case s.request.json:
		x.OK = err == nil
		if err != nil {
			x.Error = describe(err)
			err = &reported{err}
		}
		return errors.Join(err, writeJSON(std.out, x))
	case code > exitCheck:
		return err
	}
	page := ""
	if !s.request.quiet {
		page = x.page(s.request)
	}
	if _, e := io.WriteString(std.out, page+x.verdict(s.request, err)); e != nil {
		return errors.Join(err, fmt.Errorf("the table cannot be written: %w", e))
	}
	return err
}

// page is the report for a person.
func (x *simReport) page(r *simRequest) string {
	like := newReport(r.request)
	like.PlanHash = x.PlanHash
	s := heading(r.request, like)
	s += "cluster: " + topologyText(r.topology)
	if r.usual {
		s += " (the usual one; --topology describes another)"
	}
	s += "\n" + x.table(r)
	s += fmt.Sprintf("virtual %s, %.4g times the ideal %s", timeText(x.VirtualSeconds),
		float64(x.VirtualSeconds/x.IdealSeconds), timeText(x.IdealSeconds))
	if x.Rounds > 1 {
		s += fmt.Sprintf(", all %d rounds", x.Rounds)
	}
	s += fmt.Sprintf("\n%d events in %s, %.2f million a second; world seed %d, trace hash %s\n",
		x.Events, timeText(x.WallSeconds), float64(x.Events)/float64(x.WallSeconds)/1e6, x.Seed,
		x.TraceHash)
	if x.Trace != "" {
		s += "timeline: " + x.Trace + " (open it at ui.perfetto.dev)\n"
	}
	return s
}

// timeText is a number of seconds for a person, three digits of it.
func timeText(seconds number) string {
	x, unit := float64(seconds)*1e9, "ns"
	for _, next := range []string{"us", "ms", "s"} {
		if x < 999.5 {
			break
		}
		x, unit = x/1000, next
	}
	return strconv.FormatFloat(x, 'g', max(3, len(strconv.Itoa(int(x)))), 64) + " " + unit
}

// allRanks is up to how many ranks the table shows each.
const allRanks = 16

// table shows each rank, or of many those that stand out.
func (x *simReport) table(r *simRequest) string {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	head := table.Row{"rank", "h,c", "arithmetic", "exposed wait"}
	if x.Ranks > allRanks {
		head = append(head, "of all ranks")
	}
	t.AppendHeader(head)
	var right []table.ColumnConfig
	for n := range 4 {
		right = append(right, table.ColumnConfig{Number: n + 1, Align: text.AlignRight,
			AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(right)
	row := func(a simRank, what ...any) {
		at := r.mesh.Coord(a.rank)
		t.AppendRow(append(table.Row{a.rank, fmt.Sprintf("%d,%d", at.H, at.C),
			timeText(number(a.compute) / 1e9), timeText(number(a.exposed) / 1e9)}, what...))
	}
	if x.Ranks <= allRanks {
		for _, a := range x.byRank {
			row(a)
		}
		return t.Render() + "\n"
	}
	ranks := slices.Clone(x.byRank)
	slices.SortStableFunc(ranks, func(a, b simRank) int {
		return cmp.Compare(b.compute, a.compute)
	})
	row(ranks[0], "most arithmetic")
	row(ranks[x.Ranks/2], "median")
	row(ranks[x.Ranks-1], "least arithmetic")
	t.AppendSeparator()
	slices.SortStableFunc(ranks, func(a, b simRank) int {
		return cmp.Compare(b.exposed, a.exposed)
	})
	row(ranks[0], "most waiting")
	row(ranks[x.Ranks/2], "median")
	row(ranks[x.Ranks-1], "least waiting")
	return t.Render() + "\n"
}

// verdict is the last lines: the checkers', and the oracle's if it was asked.
func (x *simReport) verdict(r *simRequest, failed error) string {
	if n := len(x.Violations); n > 0 {
		s := fmt.Sprintf("FAIL: %d violations\n", n)
		for _, v := range x.Violations[:min(n, 10)] {
			s += "  " + v + "\n"
		}
		return s
	}
	s := "no slot was touched too early, no pair was left out\n"
	if r.quiet {
		s = ""
	}
	if x.Check != nil {
		s += verdictText(r.request, &report{Check: x.Check}, failed)
	}
	return s
}
