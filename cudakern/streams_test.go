package cudakern_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/cudakern"
	"pgregory.net/rapid"
)

// launch is op of round 0 on a stream, after other ops.
func launch(op int32, stream uint8, after ...int32) actors.Envelope {
	e := actors.Envelope{Kind: actors.Launch, Op: op, Stream: stream, N: uint8(len(after))}
	copy(e.After[:], after)
	return e
}

func push(t *testing.T, s *cudakern.Streams, es ...actors.Envelope) {
	t.Helper()
	for _, e := range es {
		if err := s.Push(e); err != nil {
			t.Fatal(err)
		}
	}
}

// started takes all that may start now.
func started(s *cudakern.Streams) (ops []int32) {
	for e, ok := s.Next(); ok; e, ok = s.Next() {
		ops = append(ops, e.Op)
	}
	slices.Sort(ops)
	return ops
}

func wantStarted(t *testing.T, s *cudakern.Streams, want ...int32) {
	t.Helper()
	if got := started(s); !slices.Equal(got, want) {
		t.Errorf("started %v, want %v", got, want)
	}
}

func finish(t *testing.T, s *cudakern.Streams, stream uint8, want int32) {
	t.Helper()
	if e := s.Finish(stream); e.Op != want || e.Stream != stream {
		t.Errorf("stream %d ended op %d, want %d", stream, e.Op, want)
	}
}

// TestStreamsAreFIFO: one op at a time on a stream, in order of the launches; streams do not wait
// for one another.
func TestStreamsAreFIFO(t *testing.T) {
	var s cudakern.Streams
	push(t, &s, launch(5, cudakern.Compute), launch(3, cudakern.Compute), launch(9, cudakern.Out))
	if !s.Idle() {
		t.Error("queued ops count as running")
	}
	wantStarted(t, &s, 5, 9)
	if s.Idle() {
		t.Error("idle while two ops run")
	}
	wantStarted(t, &s)
	finish(t, &s, cudakern.Compute, 5)
	wantStarted(t, &s, 3)
	finish(t, &s, cudakern.Out, 9)
	finish(t, &s, cudakern.Compute, 3)
	if !s.Idle() {
		t.Error("not idle when all is over")
	}
}

// TestStreamsWaitForEvents: an op waits for each event that it names, of this very round; ops
// behind it on its stream wait with it, other streams go on.
func TestStreamsWaitForEvents(t *testing.T) {
	var s cudakern.Streams
	for round := range int32(2) {
		es := []actors.Envelope{
			launch(4, cudakern.In), launch(2, cudakern.Compute, 4, 7), launch(3, cudakern.Compute),
			launch(7, cudakern.Out), launch(8, cudakern.Out),
		}
		for i := range es {
			es[i].Round = round
		}
		push(t, &s, es...)
		wantStarted(t, &s, 4, 7)
		finish(t, &s, cudakern.In, 4)
		wantStarted(t, &s)
		finish(t, &s, cudakern.Out, 7)
		wantStarted(t, &s, 2, 8)
		finish(t, &s, cudakern.Compute, 2)
		wantStarted(t, &s, 3)
		finish(t, &s, cudakern.Compute, 3)
		finish(t, &s, cudakern.Out, 8)
	}
}

// TestStreamsLimit: a stream that holds MaxQueue launches, the running one counted, takes no more
// and says which; a stream that does not exist is an error too.
func TestStreamsLimit(t *testing.T) {
	var s cudakern.Streams
	for op := range int32(cudakern.MaxQueue) {
		push(t, &s, launch(op, cudakern.In))
	}
	wantStarted(t, &s, 0)
	err := s.Push(launch(77, cudakern.In))
	if err == nil || !strings.Contains(err.Error(), "op 77: stream 1 already holds its limit") {
		t.Errorf("a full stream: %v", err)
	}
	push(t, &s, launch(78, cudakern.Out))
	finish(t, &s, cudakern.In, 0)
	push(t, &s, launch(77, cudakern.In))
	err = s.Push(launch(79, cudakern.NumStreams))
	if err == nil || !strings.Contains(err.Error(), "op 79 on stream 3: a device has 3 streams") {
		t.Errorf("a stream that does not exist: %v", err)
	}
}

// TestStreamsFlush: what has not started is dropped, what runs goes on to its end and blocks its
// stream until then.
func TestStreamsFlush(t *testing.T) {
	var s cudakern.Streams
	push(t, &s, launch(0, cudakern.Compute), launch(1, cudakern.Compute), launch(2, cudakern.In, 0),
		launch(3, cudakern.Out))
	wantStarted(t, &s, 0, 3)
	finish(t, &s, cudakern.Out, 3)
	s.Flush()
	if s.Idle() {
		t.Error("idle after a flush, while op 0 runs")
	}
	next := launch(4, cudakern.Compute)
	next.Round = 1
	push(t, &s, next)
	wantStarted(t, &s)
	finish(t, &s, cudakern.Compute, 0)
	wantStarted(t, &s, 4)
	finish(t, &s, cudakern.Compute, 4)
	wantStarted(t, &s)
	if !s.Idle() {
		t.Error("not idle at the end")
	}
}

// TestStreamsRandom: ops launched in program order, each after up to three earlier ones, with ops
// ending at random moments. Each stream keeps its order, no op starts before its events, none is
// lost, and a device with work never stands still.
func TestStreamsRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s cudakern.Streams
		n := rapid.IntRange(1, 25).Draw(t, "ops")
		for round := range int32(2) {
			d := device{t: t, s: &s, round: round, done: make([]bool, n)}
			for op := range int32(n) {
				d.launch(op)
			}
			for len(d.queue[0])+len(d.queue[1])+len(d.queue[2]) > 0 {
				d.end()
			}
			if i := slices.Index(d.done, false); i >= 0 {
				t.Fatalf("op %d of round %d was never done", i, round)
			}
		}
	})
}

// device runs Streams next to a plain model of what they must do.
type device struct {
	t       *rapid.T
	s       *cudakern.Streams
	round   int32
	queue   [cudakern.NumStreams][]actors.Envelope
	running [cudakern.NumStreams]bool
	done    []bool
}

// launch pushes an op, ending others first when its stream is full.
func (d *device) launch(op int32) {
	e := launch(op, uint8(rapid.IntRange(0, 2).Draw(d.t, "stream")))
	e.Round = d.round
	for range rapid.IntRange(0, min(int(op), 3)).Draw(d.t, "after") {
		e.After[e.N] = rapid.Int32Range(0, op-1).Draw(d.t, "event")
		e.N++
	}
	for len(d.queue[e.Stream]) == cudakern.MaxQueue {
		d.end()
	}
	if err := d.s.Push(e); err != nil {
		d.t.Fatal(err)
	}
	d.queue[e.Stream] = append(d.queue[e.Stream], e)
	if rapid.Bool().Draw(d.t, "end one") {
		d.end()
	}
}

// end starts what may start and ends one op that runs.
func (d *device) end() {
	for e, ok := d.s.Next(); ok; e, ok = d.s.Next() {
		if d.running[e.Stream] || d.queue[e.Stream][0] != e {
			d.t.Fatalf("op %d of stream %d starts out of turn", e.Op, e.Stream)
		}
		for _, op := range e.After[:e.N] {
			if !d.done[op] {
				d.t.Fatalf("op %d starts before the event of op %d", e.Op, op)
			}
		}
		d.running[e.Stream] = true
	}
	var busy []uint8
	for i, r := range d.running {
		if r {
			busy = append(busy, uint8(i))
		}
	}
	if len(busy) == 0 {
		d.t.Fatalf("nothing runs, and %v wait", d.queue)
	}
	stream := rapid.SampledFrom(busy).Draw(d.t, "ends")
	e := d.s.Finish(stream)
	if e != d.queue[stream][0] {
		d.t.Fatalf("stream %d ended op %d, op %d ran", stream, e.Op, d.queue[stream][0].Op)
	}
	d.queue[stream] = d.queue[stream][1:]
	d.running[stream], d.done[e.Op] = false, true
}
