package sim

import (
	"fmt"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/cudakern"
)

// device is a rank's device in virtual time: real streams and events, modelled durations. The
// arithmetic of an op is done when its time is over, the latest moment allowed, so that a slot
// that is overwritten too early shows.
type device struct {
	streams cudakern.Streams
	flushed actors.Epoch
	answer  bool // a flush waits for what runs
}

func (d *device) handle(w *World, e *actors.Envelope) {
	switch e.Kind {
	case actors.Launch:
		if e.Epoch <= d.flushed {
			return
		}
		if err := d.streams.Push(*e); err != nil {
			w.check.fail(fmt.Sprintf("device %d: %v", e.To.Rank, err))
			return
		}
		d.start(w, e.To.Rank)
	case actors.Ping: // modelled ops always get on
		w.send(&actors.Envelope{To: e.From, From: e.To, Kind: actors.Pong, Epoch: e.Epoch,
			A: uint64(w.now)})
	case actors.Flush:
		d.flushed = e.Epoch
		d.streams.Flush()
		d.answer = true
		d.maybeFlushed(w, e.To.Rank)
	}
}

// start begins every op that may start.
func (d *device) start(w *World, r int32) {
	for {
		e, ok := d.streams.Next()
		if !ok {
			return
		}
		w.check.begin(r, e.Round, e.Op)
		took := w.cfg.Costs.Op(r, e.Round, e.Op)
		if n := w.cfg.Noise.Op; n > 0 {
			took += w.random.below(n)
		}
		e.A = uint64(took)
		if w.cfg.Spans != nil {
			w.cfg.Spans(Span{
				Rank: r, Stream: e.Stream, Peer: -1, Link: -1, Round: e.Round, Op: e.Op,
				Asked: w.now, Begin: w.now, End: w.now + took, Over: w.now + took,
			})
		}
		w.queue.push(w.now+took, opOver, &e)
	}
}

func (d *device) finish(w *World, r int32, e *actors.Envelope) {
	d.streams.Finish(e.Stream)
	if e.Stream == cudakern.Compute {
		w.compute[r] += actors.Time(e.A)
	}
	done := actors.Envelope{
		To:   actors.Addr{Role: actors.Rank, Rank: r},
		From: actors.Addr{Role: actors.Device, Rank: r},
		Kind: actors.Done, Epoch: e.Epoch, Round: e.Round, Op: e.Op, Stream: e.Stream, A: e.A,
	}
	if e.Epoch > d.flushed {
		if err := w.cfg.Exec.Do(r, e.Round, e.Op); err != nil {
			w.notes = append(w.notes, err.Error())
			done.Kind, done.Fault = actors.Broken, actors.DeviceFault
		}
		done.B = w.check.end(r, e.Round, e.Op)
	}
	w.send(&done)
	d.start(w, r)
	d.maybeFlushed(w, r)
}

func (d *device) maybeFlushed(w *World, r int32) {
	if d.answer && d.streams.Idle() {
		// Events of the old epoch must not stand for those of the same round run again.
		d.answer, d.streams = false, cudakern.Streams{}
		w.send(&actors.Envelope{
			To:   actors.Addr{Role: actors.Rank, Rank: r},
			From: actors.Addr{Role: actors.Device, Rank: r},
			Kind: actors.Flushed, Epoch: d.flushed})
	}
}
