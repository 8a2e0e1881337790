package plan

import "fmt"

// flow is one pass of all ranks on its way: an event heap over compact ops. Op numbers are those of
// all programs one after the other.
type flow struct {
	pass  Pass
	h     *Header
	t     *Topology
	pairs *pairCounter
	begin []int64 // by rank: when it may begin

	base       []int32 // by rank: its first op; then the end
	kind       []opClass
	tick       []int32
	nanos      []int64 // a device op's time, a send's time on its link
	dep0, deps []int32
	succ0      []int32
	succ       []int32
	sends      []wire
	recvs      []wire
	other      []int32 // by transfer: its other end
	next       []int32 // by transfer: the next of its lane, -1 if none
	linkOf     []int32 // by send
	far        []bool  // by transfer: the link is remote
	links      int

	flags   []uint8
	needs   []int32 // what an op waits for before it is queued or started
	open    []int32 // device ops that a device op waits for before it starts
	end     []int64 // when an op was over
	streams []costStream
	ranks   []costRank
	free    []int64 // by link: when it is free again
	gone    []int32 // releases that are due
	events  eventHeap
	now     int64
	left    int
}

// Flags of a transfer: what it has for its start.
const (
	isReady  uint8 = 1 << iota // all that it waits for is over
	turnCame                   // those before it in its lane have started
	hasCredit
	hasStarted
)

// costStream is one stream of a device: a heap of ready ops and two places.
type costStream struct {
	ready   []readyOp
	queue   [2]int32
	queued  int
	running bool
}

type costRank struct {
	left    int32 // ops not over
	running int32 // device ops
	since   int64 // idle since
}

// turn makes successors out of dependencies and counts what each op waits for.
func (f *flow) turn() {
	n := len(f.kind)
	f.needs, f.open, f.end = make([]int32, n), make([]int32, n), make([]int64, n)
	f.succ0 = make([]int32, n+2)
	for i := range n {
		for _, d := range f.deps[f.dep0[i]:f.dep0[i+1]] {
			f.succ0[d+2]++
			f.needs[i]++
			if f.kind[i].device() && f.kind[d].device() {
				f.open[i]++
			}
		}
	}
	for i := range n {
		f.succ0[i+2] += f.succ0[i+1]
	}
	f.succ = make([]int32, len(f.deps))
	for i := range n { // afterwards succ0[d+1] is where d's successors end
		for _, d := range f.deps[f.dep0[i]:f.dep0[i+1]] {
			f.succ[f.succ0[d+1]] = int32(i)
			f.succ0[d+1]++
		}
	}
	f.dep0, f.deps = nil, nil
}

// run lets every rank begin and follows the events until nothing is left.
func (f *flow) run(done []int64, cost []RankCost) error {
	ranks := len(f.begin)
	f.streams = make([]costStream, 3*ranks)
	f.ranks = make([]costRank, ranks)
	f.free = make([]int64, f.links)
	f.left = len(f.kind)
	for r := range ranks {
		f.ranks[r] = costRank{left: f.base[r+1] - f.base[r], since: f.begin[r]}
		f.push(f.begin[r], rankBegins, int32(r), int32(r))
	}
	for {
		e, ok := f.events.pop()
		if !ok {
			break
		}
		if f.now = e.at; f.now > maxCostNanos {
			return fmt.Errorf("plan: the %v pass takes more than the limit of %d seconds: give "+
				"the topology more flops or bytes_per_s", f.pass, maxCostNanos/1e9)
		}
		f.handle(e, cost)
		f.pump(int(e.rank), cost)
		if r := &f.ranks[e.rank]; r.left == 0 && r.since >= 0 {
			cost[e.rank].ExposedNanos += f.now - r.since
			done[e.rank], r.since = f.now, -1
		}
	}
	if f.left > 0 {
		return fmt.Errorf("plan: %d ops of the %v pass never start: cost a plan that Verify "+
			"accepts", f.left, f.pass)
	}
	return nil
}

func (f *flow) handle(e event, cost []RankCost) {
	switch e.what {
	case rankBegins:
		for i := f.base[e.op]; i < f.base[e.op+1]; i++ {
			if f.needs[i] == 0 {
				f.ready(i, e.rank)
			}
		}
	case opOver:
		s := &f.streams[3*int(e.rank)+int(f.kind[e.op])]
		s.running = false
		if f.kind[e.op] == onCompute {
			cost[e.rank].ComputeNanos += f.nanos[e.op]
		}
		r := &f.ranks[e.rank]
		if r.running--; r.running == 0 {
			r.since = f.now
		}
		f.over(e.op, e.rank)
	case creditCame:
		f.flags[e.op] |= hasCredit
		f.tryStart(e.op, e.rank)
	case blockCame, sentKnown:
		f.over(e.op, e.rank)
	}
}

// ready notes that an op has nothing left to wait for but its turn.
func (f *flow) ready(op, rank int32) {
	switch k := f.kind[op]; k {
	case aRelease:
		f.gone = append(f.gone, op)
	case aSend, aRecv:
		f.flags[op] |= isReady
		f.tryStart(op, rank)
	default:
		f.streams[3*int(rank)+int(k)].push(readyOp{f.tick[op], op})
	}
}

// over notes the end of an op and tells those who wait.
func (f *flow) over(op, rank int32) {
	f.end[op] = f.now
	f.left--
	f.ranks[rank].left--
	f.passOn(op, rank, false)
}

// passOn counts an op down at its successors: at the launch where both are device ops, since the
// device keeps their order, else when it is over.
func (f *flow) passOn(op, rank int32, launched bool) {
	device := f.kind[op].device()
	for _, s := range f.succ[f.succ0[op]:f.succ0[op+1]] {
		both := device && f.kind[s].device()
		if both && !launched {
			f.open[s]--
		}
		if both != launched {
			continue
		}
		if f.needs[s]--; f.needs[s] == 0 {
			f.ready(s, rank)
		}
	}
}

// tryStart starts a transfer, and those after it in its lane, as far as they may.
func (f *flow) tryStart(op, rank int32) {
	for op >= 0 {
		need := isReady | turnCame
		if f.kind[op] == aSend {
			need |= hasCredit
		}
		if f.flags[op]&need != need || f.flags[op]&hasStarted != 0 {
			return
		}
		f.flags[op] |= hasStarted
		f.startTransfer(op, rank)
		if op = f.next[op]; op >= 0 {
			f.flags[op] |= turnCame
		}
	}
}

func (f *flow) startTransfer(op, rank int32) {
	latency := f.t.Local.LatencyNanos
	if f.far[op] {
		latency = f.t.Remote.LatencyNanos
	}
	other := f.other[op]
	peer := f.rankOf(other)
	if f.kind[op] == aRecv {
		f.push(f.now+latency, creditCame, other, peer)
		return
	}
	free := &f.free[f.linkOf[op]]
	*free = max(f.now, *free) + f.nanos[op]
	f.push(*free+latency, blockCame, other, peer)
	f.push(*free+2*latency, sentKnown, op, rank)
}

// pump starts what may start on a rank, until nothing moves.
func (f *flow) pump(rank int, cost []RankCost) {
	for moved := true; moved; {
		moved = false
		for len(f.gone) > 0 {
			op := f.gone[len(f.gone)-1]
			f.gone = f.gone[:len(f.gone)-1]
			f.over(op, int32(rank))
			moved = true
		}
		for i := 3 * rank; i < 3*rank+3; i++ {
			moved = f.launch(i, rank, cost) || moved
		}
	}
}

// launch queues ready ops of a stream and starts the first.
func (f *flow) launch(i, rank int, cost []RankCost) (moved bool) {
	s := &f.streams[i]
	for s.queued < len(s.queue) && len(s.ready) > 0 {
		op := s.pop()
		s.queue[s.queued] = op
		s.queued++
		f.passOn(op, int32(rank), true)
		moved = true
	}
	if s.running || s.queued == 0 || f.open[s.queue[0]] > 0 {
		return moved
	}
	op := s.queue[0]
	s.queue[0] = s.queue[1]
	s.queued--
	s.running = true
	r := &f.ranks[rank]
	if r.running == 0 {
		cost[rank].ExposedNanos += f.now - r.since
	}
	r.running++
	f.push(f.now+f.nanos[op], opOver, op, int32(rank))
	return true
}
