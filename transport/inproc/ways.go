package inproc

import (
	"slices"
	"sync"
	"time"

	"github.com/kvloom/kvloom/actors"
)

// ways are the queues of a paced net. Lock order: ways.mu, then an end's mu.
type ways struct {
	net    *Net
	began  time.Time
	mu     sync.Mutex
	list   []*queue
	index  map[way]*queue
	closed bool
}

// way names a queue: a directed pair of ranks, or LinkOf's number.
type way struct{ src, dst, number int32 }

// queue is the blocks on one way, in order. Times are since began. Each block holds the way from
// the end of the one before, or from when it came if that is later.
//
//	block 1 |=======|            put at 0, pace 8
//	block 2         |=====|      put at 3, pace 6: due at 14
//	block 3                |==|  put at 15
type queue struct {
	waiting []paced
	busy    bool // a timer's goroutine moves its blocks
	timer   *time.Timer
}

type paced struct {
	transfer
	came, holds, due time.Duration
}

func (w *ways) now() time.Duration { return time.Since(w.began) }

// add puts a transfer on its way, unless it was flushed meanwhile. The caller holds claims.
func (w *ways) add(t transfer) {
	n, e := w.net, &t.put
	holds := n.o.Pace(t.src(), t.dst(), e.Lane, e.Round, e.Op)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || n.ends[t.src()].isOver(e.Epoch) || n.ends[t.dst()].isOver(e.Epoch) {
		n.dropped.Add(1)
		return
	}
	q := w.find(&t)
	q.waiting = append(q.waiting, paced{transfer: t, came: w.now(), holds: holds})
	q.plan(len(q.waiting) - 1)
	if len(q.waiting) == 1 && !q.busy {
		q.timer.Reset(holds)
	}
}

func (w *ways) find(t *transfer) *queue {
	key := way{src: t.src(), dst: t.dst()}
	if w.net.o.LinkOf != nil {
		key = way{src: -1, number: int32(w.net.o.LinkOf(t.src(), t.dst(), t.put.Lane))}
	}
	q := w.index[key]
	if q == nil {
		q = &queue{}
		q.timer = time.AfterFunc(time.Hour, func() { w.serve(q) })
		q.timer.Stop()
		w.index[key] = q
		w.list = append(w.list, q)
	}
	return q
}

// plan sets when the blocks from index i on are due.
func (q *queue) plan(i int) {
	for ; i < len(q.waiting); i++ {
		b := &q.waiting[i]
		start := b.came
		if i > 0 {
			start = max(start, q.waiting[i-1].due)
		}
		b.due = start + b.holds
	}
}

// serve moves the blocks that are due, and sets the timer for the next. Blocks of one way move one
// after the other: while one moves, busy keeps others from it.
func (w *ways) serve(q *queue) {
	n := w.net
	w.mu.Lock()
	defer w.mu.Unlock()
	if q.busy {
		return
	}
	for len(q.waiting) > 0 {
		if early := q.waiting[0].due - w.now(); early > 0 {
			q.timer.Reset(early)
			return
		}
		t := q.waiting[0].transfer
		n.ends[t.src()].claim()
		n.ends[t.dst()].claim()
		q.waiting = slices.Delete(q.waiting, 0, 1)
		q.busy = true
		w.mu.Unlock()
		n.move(&t)
		n.release(t.src())
		n.release(t.dst())
		w.mu.Lock()
		q.busy = false
	}
}

// purge drops what waits to or from a rank in epochs up to one. The blocks behind move up.
func (w *ways) purge(r int32, epoch actors.Epoch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.list {
		before := len(q.waiting)
		head := before > 0 && q.waiting[0].stale(r, epoch)
		q.waiting = slices.DeleteFunc(q.waiting, func(b paced) bool { return b.stale(r, epoch) })
		w.net.dropped.Add(int64(before - len(q.waiting)))
		if len(q.waiting) == before || len(q.waiting) == 0 {
			continue
		}
		w.moveUp(q, head)
	}
}

func (b *paced) stale(r int32, epoch actors.Epoch) bool {
	return (b.src() == r || b.dst() == r) && b.put.Epoch <= epoch
}

// moveUp plans a way anew after a purge: its first block goes on, or starts now if it is first only
// since.
func (w *ways) moveUp(q *queue, first bool) {
	now := w.now()
	if first {
		q.waiting[0].due = now + q.waiting[0].holds
	}
	q.plan(1)
	if !q.busy {
		q.timer.Reset(max(q.waiting[0].due-now, 0))
	}
}

// close drops all that waits.
func (w *ways) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, q := range w.list {
		q.timer.Stop()
		w.net.dropped.Add(int64(len(q.waiting)))
		q.waiting = nil
	}
}
