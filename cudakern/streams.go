package cudakern

import (
	"fmt"

	"github.com/kvloom/kvloom/actors"
)

// The three streams of a device: each a FIFO, ordered against one another by events only.
const (
	Compute uint8 = iota // attend, attend-bwd, delta, zero, finalize
	In                   // unpack, accumulate: what came from elsewhere
	Out                  // pack: what goes elsewhere
	NumStreams
)

// MaxQueue is the most launches that wait or run on one stream.
const MaxQueue = 8

// Streams is the order of a device, pure: what is queued, what may start, which events are
// recorded. A device asks Next until there is none, runs what it got, and calls Finish.
//
//	compute  [attend 12]-[attend 15]          15 waits for event 14
//	in       [accumulate 14]                  an op's event is the op's own number
//	out      [pack 9]
type Streams struct {
	queue   [NumStreams][MaxQueue]actors.Envelope
	length  [NumStreams]int
	running [NumStreams]bool
	done    []int32 // by op: the last round, plus one, in which it was done
}

// Push queues a launch. A stream that is full is an error: ranks launch to a depth of their own.
func (s *Streams) Push(e actors.Envelope) error {
	if e.Stream >= NumStreams {
		return fmt.Errorf("launch of op %d on stream %d: a device has %d streams", e.Op, e.Stream,
			NumStreams)
	}
	n := s.length[e.Stream]
	if n == MaxQueue {
		return fmt.Errorf("launch of op %d: stream %d already holds its limit of %d launches",
			e.Op, e.Stream, MaxQueue)
	}
	s.queue[e.Stream][n] = e
	s.length[e.Stream]++
	return nil
}

// Next takes a launch that may start now: first of its idle stream, its events recorded.
func (s *Streams) Next() (actors.Envelope, bool) {
	for i := range s.queue {
		if s.running[i] || s.length[i] == 0 || !s.recorded(&s.queue[i][0]) {
			continue
		}
		s.running[i] = true
		return s.queue[i][0], true
	}
	return actors.Envelope{}, false
}

func (s *Streams) recorded(e *actors.Envelope) bool {
	for _, op := range e.After[:e.N] {
		if int(op) >= len(s.done) || s.done[op] != e.Round+1 {
			return false
		}
	}
	return true
}

// Finish ends what runs on a stream and records its event.
func (s *Streams) Finish(stream uint8) actors.Envelope {
	e := s.queue[stream][0]
	s.pop(stream)
	for int(e.Op) >= len(s.done) {
		s.done = append(s.done, 0)
	}
	s.done[e.Op] = e.Round + 1
	return e
}

func (s *Streams) pop(stream uint8) {
	n := s.length[stream]
	copy(s.queue[stream][:n-1], s.queue[stream][1:n])
	s.length[stream]--
	s.running[stream] = false
}

// Flush drops what has not started. What runs goes on until its Finish.
func (s *Streams) Flush() {
	for i := range s.queue {
		s.length[i] = 0
		if s.running[i] {
			s.length[i] = 1
		}
	}
}

// Idle reports whether nothing runs.
func (s *Streams) Idle() bool {
	for _, r := range s.running {
		if r {
			return false
		}
	}
	return true
}
