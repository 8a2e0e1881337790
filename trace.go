package kvloom

import (
	"sync"
	"time"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/cudakern"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
	"github.com/kvloom/kvloom/transport"
)

// TraceEvent is what one op of a rank's device, or one block on a link, took: a piece of a
// timeline. Pieces of one stream of a rank, and of one directed pair of ranks, do not overlap.
// Times are since the session was opened.
//
//	asked     free              the block is at its receiver
//	Asked ~~~ Begin ======= End ... Over      an op: Asked = Begin, Over = End
//	          wait          latency
type TraceEvent struct {
	Round  int
	Pass   plan.Pass
	Rank   int    // whose op; of a block, who sends it
	Stream string // compute, in or out; empty for a block
	Peer   int    // who receives the block; -1 for an op
	Name   string // short, and alike for what handles the same tokens: attend c3, kv c3
	Op     string // plan text; of a block, its send's
	Bytes  int64  // of the block
	Asked  time.Duration
	Begin  time.Duration
	End    time.Duration
	Over   time.Duration
}

// Describe fills in what op of a script is: Pass, Rank, Stream, Peer, Name, Op and Bytes.
func (e *TraceEvent) Describe(s *rank.Script, op int32) {
	o, args := &s.Program.Ops[op], s.Program.Args(int(op))
	e.Pass, e.Rank, e.Op = s.Program.Pass, s.Program.Rank, s.Describe(op)
	if o.Kind.Link() {
		e.Stream, e.Peer = "", int(o.Peer)
		e.Bytes = s.Header.OperandBytes(&args[0])
		e.Name = args[0].Tensor.String() + " " + s.Header.Names[args[0].Set]
		return
	}
	e.Peer, e.Bytes = -1, 0
	e.Stream = [cudakern.NumStreams]string{"compute", "in", "out"}[rank.StreamOf(o.Kind)]
	about := &args[0]
	if o.Kind == plan.Attend || o.Kind == plan.AttendBackward {
		about = &args[1] // the block that travels
	}
	e.Name = o.Kind.String() + " " + s.Header.Names[about.Set]
}

// tracer listens where devices and links are composed, and tells of ops and blocks one at a time.
// A nil tracer changes nothing.
type tracer struct {
	tell  func(TraceEvent)
	book  *book
	start time.Time

	mu    sync.Mutex
	asked map[asking]time.Duration
	free  map[way]time.Duration // when the last block of a way was over
}

type asking struct{ src, op int32 }

type way struct{ src, dst int32 }

func newTracer(tell func(TraceEvent), b *book) *tracer {
	if tell == nil {
		return nil
	}
	return &tracer{
		tell: tell, book: b, start: time.Now(), asked: map[asking]time.Duration{},
		free: map[way]time.Duration{},
	}
}

func (t *tracer) now() time.Duration { return time.Since(t.start) }

// report tells of an op or a block. A round that is over for the session is left out: its book's
// page is gone.
func (t *tracer) report(r, round, op int32, e TraceEvent) {
	s := t.book.Script(r, round)
	if s == nil {
		return
	}
	e.Describe(s, op)
	e.Round = int(round)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tell(e)
}

// device listens to a device: pace is asked when an op begins, and the device sends itself its end.
func (t *tracer) device(pace func(rank, round, op int32) time.Duration,
	send func(actors.Envelope)) (func(rank, round, op int32) time.Duration, func(actors.Envelope)) {
	if t == nil {
		return pace, send
	}
	var began [cudakern.NumStreams]time.Duration // one op a stream at a time
	begin := func(r, round, op int32) time.Duration {
		if s := t.book.Script(r, round); s != nil {
			began[rank.StreamOf(s.Program.Ops[op].Kind)] = t.now()
		}
		if pace == nil {
			return 0
		}
		return pace(r, round, op)
	}
	end := func(e actors.Envelope) {
		if e.Kind == actors.Done && e.To == e.From {
			at, now := began[e.Stream], t.now()
			t.report(e.To.Rank, e.Round, e.Op, TraceEvent{Asked: at, Begin: at, End: now,
				Over: now})
		}
		send(e)
	}
	return begin, end
}

// link listens to what ranks ask of their links.
func (t *tracer) link(handle func(actors.Envelope)) func(actors.Envelope) {
	if t == nil {
		return handle
	}
	return func(e actors.Envelope) {
		if e.Kind == actors.Put {
			t.mu.Lock()
			t.asked[asking{e.From.Rank, e.Op}] = t.now()
			t.mu.Unlock()
		}
		handle(e)
	}
}

// mover listens to blocks that move. A block holds its way from when it was put there, or from the
// end of the one before.
func (t *tracer) mover(m transport.Mover) transport.Mover {
	if t == nil {
		return m
	}
	return tracedMover{m, t}
}

type tracedMover struct {
	transport.Mover
	tracer *tracer
}

// Hop moves a block and tells of it.
func (m tracedMover) Hop(src, dst, round, sendOp, recvOp int32) (int64, error) {
	n, err := m.Mover.Hop(src, dst, round, sendOp, recvOp)
	if err != nil {
		return n, err
	}
	t := m.tracer
	now := t.now()
	t.mu.Lock()
	asked, begin := t.asked[asking{src, sendOp}], t.free[way{src, dst}]
	begin = max(begin, asked)
	t.free[way{src, dst}] = now
	t.mu.Unlock()
	t.report(src, round, sendOp, TraceEvent{Asked: asked, Begin: begin, End: now, Over: now})
	return n, nil
}
