package sim

import "github.com/kvloom/kvloom/actors"

// what is the kind of an event.
type what uint8

const (
	delivery    what = iota // env reaches env.To
	opOver                  // the op of env (a Launch) on env.Stream of device env.To is done
	blockOver               // the block of env (a Put) is at the receiver
	alarm                   // env.To's alarm of generation env.A rings
	pauseBegins             // rank env.To.Rank is deaf until env.A
	pauseEnds               // rank env.To.Rank hears what it has missed
)

// String is the kind's name in traces.
func (w what) String() string {
	return [...]string{"deliver", "op", "block", "alarm", "pause", "resume"}[w]
}

// event is what happens; when is the bucket's.
type event struct {
	env  actors.Envelope
	next int32 // event of the same bucket, made later
	what what
}

// queue is the events to come, earliest first, in the order of their making when times are equal.
// Most events share their time with others, so the heap holds times, not events: each has a bucket,
// a list of events in the order of their making.
//
//	heap      (10,#4)  (12,#2)  (10,#9)       ordered by time, then by the bucket's making
//	bucket    e7 e8 e9   e3       e11
//	recent    hash(time) -> the bucket made last for such a time; it takes the time's next event
//
// When recent forgets a time, its next event opens a second bucket, whose events were all made
// later: the order stays.
type queue struct {
	heap    []key
	buckets []bucket
	events  []event
	freeB   []int32
	freeE   []int32
	made    uint64
	count   int
	recent  [recentTimes]int32 // bucket number plus one
}

// recentTimes is a power of two: how many times can be found again at once.
const recentTimes = 1 << 12

type bucket struct {
	at         actors.Time
	head, tail int32 // -1 when empty
}

// noTime marks a bucket that is not in the heap.
const noTime actors.Time = -1

type key struct {
	at     actors.Time
	made   uint64
	bucket int32
}

func (k key) before(o key) bool { return k.at < o.at || (k.at == o.at && k.made < o.made) }

func (q *queue) len() int { return q.count }

// push adds an event at a time, which is not negative.
func (q *queue) push(at actors.Time, w what, env *actors.Envelope) {
	q.count++
	n := int32(len(q.events))
	if k := len(q.freeE); k > 0 {
		n = q.freeE[k-1]
		q.freeE = q.freeE[:k-1]
	} else {
		q.events = append(q.events, event{})
	}
	e := &q.events[n]
	e.env, e.what, e.next = *env, w, -1
	slot := &q.recent[uint64(at)*0x9e3779b97f4a7c15>>52&(recentTimes-1)]
	if *slot == 0 || q.buckets[*slot-1].at != at {
		*slot = q.open(at) + 1
	}
	b := &q.buckets[*slot-1]
	if b.head < 0 {
		b.head = n
	} else {
		q.events[b.tail].next = n
	}
	b.tail = n
}

// open puts a new bucket into the heap.
func (q *queue) open(at actors.Time) int32 {
	b := int32(len(q.buckets))
	if k := len(q.freeB); k > 0 {
		b = q.freeB[k-1]
		q.freeB = q.freeB[:k-1]
	} else {
		q.buckets = append(q.buckets, bucket{})
	}
	q.buckets[b] = bucket{at: at, head: -1, tail: -1}
	q.made++
	q.heap = append(q.heap, key{at: at, made: q.made, bucket: b})
	for i := len(q.heap) - 1; i > 0; {
		up := (i - 1) / 4
		if !q.heap[i].before(q.heap[up]) {
			break
		}
		q.heap[i], q.heap[up] = q.heap[up], q.heap[i]
		i = up
	}
	return b
}

// pop takes the next event out. A bucket stays until the event after its last one is asked for:
// what happens often leads to more at the same time.
func (q *queue) pop(out *event) (at actors.Time) {
	for q.buckets[q.heap[0].bucket].head < 0 {
		q.close()
	}
	b := &q.buckets[q.heap[0].bucket]
	n := b.head
	*out = q.events[n]
	b.head = out.next
	q.freeE = append(q.freeE, n)
	q.count--
	return b.at
}

// close takes the first bucket out of the heap.
func (q *queue) close() {
	top := q.heap[0].bucket
	q.buckets[top].at = noTime
	q.freeB = append(q.freeB, top)
	n := len(q.heap) - 1
	q.heap[0] = q.heap[n]
	q.heap = q.heap[:n]
	for i := 0; ; {
		least := i
		for c := 4*i + 1; c <= 4*i+4 && c < n; c++ {
			if q.heap[c].before(q.heap[least]) {
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

// random is SplitMix64: small, seeded, the same everywhere.
type random struct{ state uint64 }

func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (r *random) below(n actors.Time) actors.Time {
	return actors.Time(r.next() % uint64(n))
}
