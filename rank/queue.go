package rank

// streamQueue holds the ready ops of one stream, lowest tick first, then lowest number.
type streamQueue struct {
	heap   []item
	queued int // launched and not done
}

type item struct{ tick, op int32 }

func (a item) before(b item) bool {
	return a.tick < b.tick || (a.tick == b.tick && a.op < b.op)
}

func (q *streamQueue) reset() { q.heap, q.queued = q.heap[:0], 0 }

func (q *streamQueue) push(tick, op int32) {
	q.heap = append(q.heap, item{tick, op})
	for i := len(q.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !q.heap[i].before(q.heap[up]) {
			return
		}
		q.heap[i], q.heap[up] = q.heap[up], q.heap[i]
		i = up
	}
}

func (q *streamQueue) pop() {
	n := len(q.heap) - 1
	q.heap[0] = q.heap[n]
	q.heap = q.heap[:n]
	for i := 0; ; {
		least := i
		for _, c := range [2]int{2*i + 1, 2*i + 2} {
			if c < n && q.heap[c].before(q.heap[least]) {
				least = c
			}
		}
		if least == i {
			return
		}
		q.heap[i], q.heap[least] = q.heap[least], q.heap[i]
		i = least
	}
}
