package choose

import (
	"fmt"
	"strings"
)

// Impossible is the error of Choose when no candidate is possible.
type Impossible struct {
	Rows       []Row // of each the reason is in Refused
	RankMemory int64 // of the question
}

// Reason is why some candidates cannot be.
type Reason struct {
	Text  string
	Names []string // of the candidates, in their order
}

// Reasons has each reason once, in the order of the candidates. Those that a rank has not the
// memory for have one together, which says how little would do.
func (e *Impossible) Reasons() []Reason {
	var out []Reason
	least := e.Least()
next:
	for i := range e.Rows {
		r := &e.Rows[i]
		text := r.Refused
		if r.OverMemory {
			text = fmt.Sprintf("a rank holds at least %s (%s), its memory is %s",
				bytesText(least.PeakBytes), least.Name(), bytesText(e.RankMemory))
		}
		for k := range out {
			if out[k].Text == text {
				out[k].Names = append(out[k].Names, r.Name())
				continue next
			}
		}
		out = append(out, Reason{text, []string{r.Name()}})
	}
	return out
}

// Least is of the candidates that were refused for the memory of a rank the one that needs the
// least; nil if there is none.
func (e *Impossible) Least() *Row {
	var least *Row
	for i := range e.Rows {
		if r := &e.Rows[i]; r.OverMemory && (least == nil || r.PeakBytes < least.PeakBytes) {
			least = r
		}
	}
	return least
}

// Error says how many candidates there are and why none of them can be.
func (e *Impossible) Error() string {
	if len(e.Rows) == 1 {
		return fmt.Sprintf("choose: the one candidate, %s, is impossible: %s", e.Rows[0].Name(),
			e.Rows[0].Refused)
	}
	reasons := e.Reasons()
	var why []string
	for _, r := range reasons {
		who := ""
		switch n := len(r.Names); {
		case len(reasons) == 1:
		case n == 1:
			who = r.Names[0] + ": "
		default:
			who = fmt.Sprintf("%s and %d more: ", r.Names[0], n-1)
		}
		why = append(why, who+r.Text)
	}
	return fmt.Sprintf("choose: none of %d candidates is possible: %s", len(e.Rows),
		strings.Join(why, "; "))
}

func bytesText(n int64) string {
	x, units := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for len(units) > 1 && x >= 1024 {
		x, units = x/1024, units[1:]
	}
	if x == float64(n) {
		return fmt.Sprintf("%d %s", n, units[0])
	}
	return fmt.Sprintf("%.1f %s", x, units[0])
}
