package plan

import "sort"

// what happens in a flow.
type happening uint8

const (
	rankBegins happening = iota
	opOver
	creditCame // at the rank of send op
	blockCame  // at the rank of receive op
	sentKnown  // at the rank of send op
)

// event is one thing to come. Events of one time happen in the order in which they were pushed.
type event struct {
	at       int64
	seq      uint32
	op, rank int32
	what     happening
}

func (e event) before(o event) bool { return e.at < o.at || (e.at == o.at && e.seq < o.seq) }

// eventHeap gives events in order. Those of the present moment, the most by far, wait in a line
// and cost no sifting.
type eventHeap struct {
	later []event
	soon  []event // of time at, from first on
	first int
	at    int64
	seq   uint32
}

func (f *flow) push(at int64, what happening, op, rank int32) {
	f.events.push(event{at: at, op: op, rank: rank, what: what})
}

func (q *eventHeap) push(e event) {
	e.seq = q.seq
	q.seq++
	if e.at == q.at {
		q.soon = append(q.soon, e)
		return
	}
	h := append(q.later, e)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !e.before(h[up]) {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = e
	q.later = h
}

func (q *eventHeap) pop() (e event, ok bool) {
	if len(q.later) > 0 && (q.first == len(q.soon) || q.later[0].before(q.soon[q.first])) {
		e = q.popLater()
		if q.first == len(q.soon) {
			q.soon, q.first, q.at = q.soon[:0], 0, e.at
		}
		return e, true
	}
	if q.first == len(q.soon) {
		return e, false
	}
	q.first++
	return q.soon[q.first-1], true
}

func (q *eventHeap) popLater() event {
	h := q.later
	top, n := h[0], len(h)-1
	e := h[n]
	h = h[:n]
	for i := 0; n > 0; {
		least := 2*i + 1
		if least >= n {
			h[i] = e
			break
		}
		if least+1 < n && h[least+1].before(h[least]) {
			least++
		}
		if !h[least].before(e) {
			h[i] = e
			break
		}
		h[i] = h[least]
		i = least
	}
	q.later = h
	return top
}

// readyOp is an op that may be queued; the lowest tick goes first, then the lowest number.
type readyOp struct{ tick, op int32 }

func (a readyOp) before(b readyOp) bool {
	return a.tick < b.tick || (a.tick == b.tick && a.op < b.op)
}

// push keeps the ready ops sorted, last one first out: there are few at a time.
func (s *costStream) push(r readyOp) {
	i := sort.Search(len(s.ready), func(i int) bool { return s.ready[i].before(r) })
	s.ready = append(s.ready, r)
	copy(s.ready[i+1:], s.ready[i:])
	s.ready[i] = r
}

func (s *costStream) pop() int32 {
	op := s.ready[len(s.ready)-1].op
	s.ready = s.ready[:len(s.ready)-1]
	return op
}

// rankOf is the rank whose program has op.
func (f *flow) rankOf(op int32) int32 {
	return int32(sort.Search(len(f.base), func(r int) bool { return f.base[r] > op })) - 1
}
