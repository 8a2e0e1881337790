package rank

import (
	"fmt"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/transport"
)

// Depth is how many launches a rank keeps queued on a stream: one runs, one waits, so that the
// device never idles for a round trip of messages.
const Depth = 2

// Config is a rank's identity and limits.
type Config struct {
	Rank        int32
	Run         uint32 // names the session in block headers
	Incarnation uint64
	Book        Book
	// Deadline is how long a rank waits without any progress before it reports.
	Deadline actors.Time
	// Depth of launches per stream; 0 is Depth.
	Depth int
}

// Stats is what a rank's rounds took. Times are nanoseconds.
type Stats struct {
	Rounds       int64
	BusyNanos    int64 // own-stream time of its ops
	ExposedNanos int64 // a round was running and the device had nothing to run
	Flops        uint64
	Dropped      int64 // envelopes of older epochs
}

// Worker is one participant: it runs the program of one round after another, queuing each op when
// its inputs, slots and credits allow. It knows no attention, ring or exchange.
type Worker struct {
	cfg   Config
	self  actors.Addr
	epoch actors.Epoch
	state state
	round int32 // first round not done
	grant int32 // rounds below are granted

	script    *Script
	header    transport.Header // what all blocks of the round say
	waits     []int32          // left to wait for, by op
	flags     []uint8
	left      int // ops not over
	streams   [3]streamQueue
	releases  []int32
	laneNext  []int32 // by lane: index of the first transfer not started
	lanesDue  []int32 // lanes whose next transfer may have become startable
	early     []actors.Envelope
	flushWait int

	progressAt  actors.Time
	alarmSet    bool
	reported    bool
	asked       bool   // the device, for a sign of life
	beat        uint64 // what it answered last
	outstanding int    // device ops launched and not done
	idleSince   actors.Time
	stats       Stats
	exposed     int64 // of the round
	busy        int64 // of the round
}

type state uint8

const (
	idle state = iota
	running
	flushing // aborted: waiting for device and link
	stopping
	stopped
)

const (
	flagReady    uint8 = 1 << iota // nothing left to wait for
	flagLaunched                   // launched, posted or put
	flagOver
	flagCredit
)

// maxEarly bounds credits of rounds to come: a peer can be ahead by the rounds of one grant.
const maxEarly = 1 << 20

// New makes a worker; the world sends it Start.
func New(cfg Config) *Worker {
	if cfg.Depth == 0 {
		cfg.Depth = Depth
	}
	return &Worker{cfg: cfg, self: actors.Addr{Role: actors.Rank, Rank: cfg.Rank}}
}

// Stats is what the rank's rounds took so far.
func (w *Worker) Stats() Stats { return w.stats }

// Step takes one envelope.
func (w *Worker) Step(now actors.Time, in actors.Envelope, out *actors.Outbox) {
	if w.state == stopped {
		return
	}
	switch in.Kind {
	case actors.Start:
		w.sched(out, actors.Envelope{Kind: actors.Hello, A: w.cfg.Incarnation})
	case actors.Propose:
		hash := w.cfg.Book.Holds(w.cfg.Rank, in.Round, in.Op)
		w.sched(out, actors.Envelope{
			Kind: actors.Confirm, Epoch: in.Epoch, Round: in.Round, Op: in.Op, A: hash})
	case actors.Ping:
		w.sched(out, actors.Envelope{Kind: actors.Pong, Epoch: in.Epoch, Round: w.round})
	case actors.Grant:
		w.granted(now, in, out)
	case actors.Abort, actors.Stop:
		w.flush(in, out)
	case actors.Flushed:
		w.flushed(in, out)
	case actors.Pong:
		w.pong(now, in)
	case actors.Timer:
		w.alarm(now, out)
	default:
		w.work(now, in, out)
	}
}

// work handles what belongs to the present epoch's rounds: older is dropped and counted, credits of
// rounds and epochs to come are kept.
func (w *Worker) work(now actors.Time, in actors.Envelope, out *actors.Outbox) {
	if in.Epoch < w.epoch || (in.Epoch == w.epoch && w.state >= flushing) {
		w.stats.Dropped++
		return
	}
	if in.Kind == actors.Credit && (in.Epoch > w.epoch || w.script == nil || in.Round > w.round) {
		w.keepEarly(in, out)
		return
	}
	if w.script == nil || in.Round != w.round || in.Epoch != w.epoch {
		w.stats.Dropped++
		return
	}
	switch in.Kind {
	case actors.Done:
		w.stats.BusyNanos += int64(in.A)
		w.busy += int64(in.A)
		w.stats.Flops += in.B
		w.deviceDone(now, in.Op)
	case actors.Sent:
		w.over(in.Op)
	case actors.Arrived:
		if !w.headerAgrees(in, out) {
			return
		}
		w.over(in.Op)
	case actors.Credit:
		if !w.credit(in, out) {
			return
		}
	case actors.Broken:
		w.report(in.Op, in.Fault, out)
		return
	}
	w.progressAt = now
	w.reported = false
	w.pump(now, out)
}

func (w *Worker) keepEarly(in actors.Envelope, out *actors.Outbox) {
	if len(w.early) == maxEarly {
		out.Note(fmt.Sprintf("rank %d keeps its limit of %d early credits: rounds of one grant "+
			"are too many", w.cfg.Rank, maxEarly))
		w.report(-1, actors.Overflow, out)
		return
	}
	w.early = append(w.early, in)
}

// granted begins the rounds of a grant; a newer epoch forgets what was before.
func (w *Worker) granted(now actors.Time, in actors.Envelope, out *actors.Outbox) {
	switch {
	case in.Epoch < w.epoch || w.state >= stopping:
		w.stats.Dropped++
		return
	case in.Epoch > w.epoch:
		w.epoch, w.round, w.state, w.script = in.Epoch, in.Round, idle, nil
	case w.state == flushing:
		return
	}
	w.grant = in.Op
	if w.state == idle {
		w.round = max(w.round, in.Round) // the owner may leave numbers out
		w.begin(now, out)
	}
}

// begin starts the rounds that are granted, as long as they are over at once.
func (w *Worker) begin(now actors.Time, out *actors.Outbox) {
	for w.state == idle && w.round < w.grant {
		s := w.cfg.Book.Script(w.cfg.Rank, w.round)
		if s == nil {
			out.Note(fmt.Sprintf("rank %d was granted round %d, which its book does not have",
				w.cfg.Rank, w.round))
			w.report(-1, actors.PlanMismatch, out)
			return
		}
		w.load(s)
		w.state, w.progressAt, w.reported = running, now, false
		w.idleSince, w.exposed, w.busy = now, 0, 0
		w.takeEarly(out)
		if !w.alarmSet && w.left > 0 {
			w.alarmSet = true
			out.SetAlarm(now + w.cfg.Deadline)
		}
		w.pump(now, out)
	}
}

// load resets the round's arrays; their memory is kept from round to round.
func (w *Worker) load(s *Script) {
	n := len(s.Program.Ops)
	w.script, w.left, w.outstanding = s, n, 0
	w.header = transport.Header{
		Run: w.cfg.Run, Epoch: w.epoch, Round: w.round, Pass: uint8(s.Program.Pass),
		State: w.cfg.Book.State(w.round)}
	w.waits = append(w.waits[:0], s.waits...)
	w.flags = resize(w.flags, n)
	w.laneNext = resize(w.laneNext, len(s.lanes))
	w.releases, w.lanesDue = w.releases[:0], w.lanesDue[:0]
	for i := range w.streams {
		w.streams[i].reset()
	}
	for i := range w.waits {
		if w.waits[i] == 0 {
			w.ready(int32(i))
		}
	}
}

func resize[T int32 | uint8](s []T, n int) []T {
	if cap(s) < n {
		s = make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// takeEarly uses the credits that came before their round and keeps those of later ones.
func (w *Worker) takeEarly(out *actors.Outbox) {
	keep := w.early[:0]
	for _, e := range w.early {
		switch {
		case e.Epoch < w.epoch || (e.Epoch == w.epoch && e.Round < w.round):
			w.stats.Dropped++
		case e.Epoch == w.epoch && e.Round == w.round:
			w.credit(e, out)
		default:
			keep = append(keep, e)
		}
	}
	w.early = keep
}

// ready notes that an op has nothing left to wait for.
func (w *Worker) ready(op int32) {
	w.flags[op] |= flagReady
	o := &w.script.Program.Ops[op]
	switch {
	case o.Kind == plan.Release:
		w.releases = append(w.releases, op)
	case o.Kind.Device():
		w.streams[StreamOf(o.Kind)].push(o.Tick, op)
	default:
		w.lanesDue = append(w.lanesDue, w.script.laneOf[op])
	}
}

// pump starts everything that may start: releases, then transfers, then launches.
func (w *Worker) pump(now actors.Time, out *actors.Outbox) {
	for moved := true; moved; {
		moved = false
		for len(w.releases) > 0 {
			op := w.releases[len(w.releases)-1]
			w.releases = w.releases[:len(w.releases)-1]
			w.over(op)
			moved = true
		}
		moved = w.startTransfers(out) || moved
		moved = w.launch(now, out) || moved
	}
	if w.left == 0 && w.state == running {
		w.finish(now, out)
	}
}

// startTransfers posts receives and puts sends, each lane in its order.
func (w *Worker) startTransfers(out *actors.Outbox) bool {
	moved := false
	for len(w.lanesDue) > 0 {
		l := w.lanesDue[0]
		w.lanesDue = w.lanesDue[:copy(w.lanesDue, w.lanesDue[1:])]
		ln := &w.script.lanes[l]
		need := flagReady
		if ln.send {
			need |= flagCredit
		}
		for int(w.laneNext[l]) < len(ln.ops) {
			op := ln.ops[w.laneNext[l]]
			if w.flags[op]&need != need {
				break
			}
			w.laneNext[l]++
			w.flags[op] |= flagLaunched
			w.transfer(op, ln, out)
			moved = true
		}
	}
	return moved
}

func (w *Worker) transfer(op int32, ln *lane, out *actors.Outbox) {
	e := actors.Envelope{
		To: actors.Addr{Role: actors.Link, Rank: w.cfg.Rank}, From: w.self, Kind: actors.Post,
		Op: op, Peer: ln.peer,
	}
	if ln.send {
		e.Kind = actors.Put
	}
	w.headerOf(op).Stamp(&e)
	out.Send(e)
}

// headerOf is the header of the block that a transfer moves.
func (w *Worker) headerOf(op int32) transport.Header {
	h, all := w.script.headers[w.script.headOf[op]], &w.header
	h.Run, h.Epoch, h.Round, h.Pass, h.State = all.Run, all.Epoch, all.Round, all.Pass, all.State
	return h
}

// launch queues device ops, lowest tick first, to the depth of each stream.
func (w *Worker) launch(now actors.Time, out *actors.Outbox) bool {
	moved := false
	for s := range w.streams {
		q := &w.streams[s]
		for q.queued < w.cfg.Depth && len(q.heap) > 0 {
			op := q.heap[0].op
			e := actors.Envelope{
				To: actors.Addr{Role: actors.Device, Rank: w.cfg.Rank}, From: w.self,
				Kind: actors.Launch, Epoch: w.epoch, Round: w.round, Op: op, Stream: uint8(s),
			}
			if !w.events(&e, op, uint8(s)) {
				break
			}
			q.pop()
			q.queued++
			if w.outstanding == 0 {
				w.exposed += int64(now - w.idleSince)
			}
			w.outstanding++
			w.flags[op] |= flagLaunched
			out.Send(e)
			w.passOn(op, true)
			moved = true
		}
	}
	return moved
}

// events lists the dependencies on other streams that are launched and not done. An envelope has
// room for three; an op with more waits until some are done.
func (w *Worker) events(e *actors.Envelope, op int32, stream uint8) bool {
	for _, d := range w.script.Program.Deps(int(op)) {
		k := w.script.Program.Ops[d].Kind
		if !k.Device() || w.flags[d]&flagOver != 0 || StreamOf(k) == stream {
			continue
		}
		if int(e.N) == len(e.After) {
			return false
		}
		e.After[e.N] = d
		e.N++
	}
	return true
}

// deviceDone notes the end of a device op.
func (w *Worker) deviceDone(now actors.Time, op int32) {
	if w.flags[op]&flagLaunched == 0 || w.flags[op]&flagOver != 0 {
		return
	}
	w.streams[StreamOf(w.script.Program.Ops[op].Kind)].queued--
	w.outstanding--
	if w.outstanding == 0 {
		w.idleSince = now
	}
	w.over(op)
}

// over notes the end of an op and passes it on to those who wait.
func (w *Worker) over(op int32) {
	if w.flags[op]&flagOver != 0 {
		return
	}
	w.flags[op] |= flagOver
	w.left--
	w.passOn(op, false)
}

// passOn counts an op down at its successors, each exactly once: at the launch where both are
// device ops (the device orders them), else when it is over.
func (w *Worker) passOn(op int32, launched bool) {
	s := w.script
	device := s.Program.Ops[op].Kind.Device()
	for _, next := range s.succ[s.succ0[op]:s.succ0[op+1]] {
		atLaunch := device && s.Program.Ops[next].Kind.Device()
		if atLaunch != launched {
			continue
		}
		w.waits[next]--
		if w.waits[next] == 0 {
			w.ready(next)
		}
	}
}

// finish ends a round and begins the next one that is granted.
func (w *Worker) finish(now actors.Time, out *actors.Outbox) {
	if w.outstanding == 0 {
		w.exposed += int64(now - w.idleSince)
	}
	w.stats.Rounds++
	w.stats.ExposedNanos += w.exposed
	w.sched(out, actors.Envelope{
		Kind: actors.RoundDone, Epoch: w.epoch, Round: w.round, A: uint64(w.exposed),
		B: uint64(w.busy)})
	w.round++
	w.state, w.script = idle, nil
	w.begin(now, out)
	if w.state == idle && w.alarmSet {
		w.alarmSet = false
		out.ClearAlarm()
	}
}

func (w *Worker) sched(out *actors.Outbox, e actors.Envelope) {
	e.To, e.From = actors.Addr{Role: actors.Scheduler}, w.self
	out.Send(e)
}
