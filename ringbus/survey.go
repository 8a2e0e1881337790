package ringbus

import "github.com/kvloom/kvloom/plan"

// survey is when a block meets something on its way: the same for all ranks, so it is found once a
// plan. Steps are those of the walk, in windows.
//
//	block j, w = 4     window 0            window 1
//	step               0   1   2   3       4   5   6   7
//	meets              x   .   x   .       .   .   .   .
//	                   first 0, last 2     first 8, last -1 (never)
type survey struct {
	lanes, outs int
	kv, q       []meeting // by block, lane, window; of KV on its way, of queries
}

// meeting is the first and the last step of a window at which a block meets something.
type meeting struct{ first, last int32 }

// Survey finds when blocks meet something, whichever travel.
func (r Ring) Survey(b *plan.Builder) any {
	l := &loop{Builder: b, ring: r, n: b.Mesh.Ring}
	l.cutWindows()
	s := &survey{lanes: l.lanes, outs: l.outs}
	l.moves = plan.KV
	s.kv = l.meetings()
	l.moves = plan.Q
	s.q = l.meetings()
	return s
}

// meetings walks every block through every window.
func (l *loop) meetings() []meeting {
	out := make([]meeting, 0, l.n*l.lanes*l.outs)
	for j := range l.n {
		for lane := range l.lanes {
			for o := range l.outs {
				m := meeting{int32(l.n), -1}
				for t := o * l.w; t < (o+1)*l.w; t++ {
					if l.meets(l.holder(j, t), j, lane) {
						m.first, m.last = min(m.first, int32(t)), int32(t)
					}
				}
				out = append(out, m)
			}
		}
	}
	return out
}

// windows is the meetings of a lane of block j.
func (l *loop) windows(j, lane int) []meeting {
	s := l.survey
	all := s.kv
	if l.moves != plan.KV {
		all = s.q
	}
	return all[(j*s.lanes+lane)*s.outs:][:s.outs]
}

// met reports whether a lane of block j meets something at one of the steps from <= t < to of its
// journey, of which from is the first of a window, or to the end of one.
func (l *loop) met(j, lane, from, to int) bool {
	for o, m := range l.windows(j, lane) {
		lo, hi := o*l.w, (o+1)*l.w
		switch {
		case hi <= from || to <= lo || m.last < 0:
		case from <= lo && hi <= to, from <= lo && int(m.first) < to,
			hi <= to && int(m.last) >= from:
			return true
		}
	}
	return false
}

// lastMeeting is the last step at which a lane of block j meets something; -1 if there is none.
func (l *loop) lastMeeting(j, lane int) int {
	last := -1
	for _, m := range l.windows(j, lane) {
		last = max(last, int(m.last))
	}
	return last
}
