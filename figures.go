package kvloom

import "github.com/kvloom/kvloom/plan"

// Figures is what a rank did since the session was opened. Bytes and blocks are counted at its
// links, peak where memory is taken, times where they are spent.
type Figures struct {
	Tokens       int // query tokens at home
	Blocks       [plan.NumClasses]int64
	Bytes        [plan.NumClasses]int64
	PeakBytes    int64
	ExposedNanos int64 // nothing to run, waiting on a link
	BusyNanos    int64 // own-stream time of its ops
}

// Links is the number of directed links in use, by transport, counted where blocks move.
func (s *Session[T]) Links() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return map[string]int{"inproc": s.meter.Links()}
}

// Figures is the account of one rank; without tokens if there is no such problem. Call it between
// runs.
func (s *Session[T]) Figures(problem, r int) Figures {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := Figures{}
	if l, err := s.layer(problem); err == nil {
		h := l.plan.Header()
		f.Tokens = h.Sets[h.HomeQ[r]].Len()
	}
	if s.closed {
		return f
	}
	for c := range plan.NumClasses {
		t := s.meter.Sent(r, int(c))
		f.Blocks[c], f.Bytes[c] = t.Blocks, t.Bytes
	}
	f.PeakBytes = s.store.Peak(int32(r))
	f.ExposedNanos, f.BusyNanos = s.owner.figures(r)
	return f
}
