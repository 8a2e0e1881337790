package choose

import "fmt"

// why says what was chosen and what is wrong with the next best.
func (t *Table) why(free Free) string {
	best := t.Chosen()
	words := fmt.Sprintf("%s: %s", best.words(free), nanosText(best.Nanos))
	n := t.next()
	if n == nil {
		return words + "; no other candidate is possible"
	}
	words += fmt.Sprintf("; next %s %s", n.words(free), nanosText(n.Nanos))
	switch {
	case n.Nanos == best.Nanos:
		return words + ", as fast: the first of equals is taken"
	case n.WorkRatio > 1.02*best.WorkRatio:
		return words + fmt.Sprintf(": rank %d computes %.3g times the mean", n.Busiest,
			n.WorkRatio)
	case n.ExposedNanos > best.ExposedNanos:
		return words + fmt.Sprintf(": its slowest device waits %s for links, %s more",
			nanosText(n.ExposedNanos), nanosText(n.ExposedNanos-best.ExposedNanos))
	}
	return words + fmt.Sprintf(": its slowest device computes for %s, %s more",
		nanosText(n.ComputeNanos), nanosText(n.ComputeNanos-best.ComputeNanos))
}

// words name what of the candidate was free.
func (r *Row) words(free Free) string {
	s := ""
	for _, x := range []struct {
		free        bool
		name, value string
	}{
		{free.Layout, "layout", r.Layout}, {free.Scheme, "scheme", r.Scheme},
		{free.Rotate, "rotate", r.Rotate},
	} {
		if !x.free {
			continue
		}
		if s != "" {
			s += ", "
		}
		s += x.name + " " + x.value
	}
	return s
}

// next is the best candidate but the chosen one.
func (t *Table) next() *Row {
	var next *Row
	for i := range t.Rows {
		r := &t.Rows[i]
		if i != t.Best && r.Refused == "" && (next == nil || r.Nanos < next.Nanos) {
			next = r
		}
	}
	return next
}

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
