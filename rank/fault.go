package rank

import (
	"fmt"
	"sort"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/transport"
)

// credit notes that a peer has posted the receive of one of this rank's sends.
func (w *Worker) credit(in actors.Envelope, out *actors.Outbox) bool {
	if l, ok := w.script.sendLane(in.Peer, in.Lane); ok {
		ln, ops := &w.script.lanes[l], w.script.Program.Ops
		i := sort.Search(len(ln.ops), func(i int) bool { return ops[ln.ops[i]].Tick >= in.Tick })
		if i < len(ln.ops) && ops[ln.ops[i]].Tick == in.Tick {
			w.flags[ln.ops[i]] |= flagCredit
			w.lanesDue = append(w.lanesDue, l)
			return true
		}
	}
	out.Note(fmt.Sprintf("rank %d got a credit from rank %d for lane %d tick %d of round %d, "+
		"where its program sends nothing", w.cfg.Rank, in.Peer, in.Lane, in.Tick, in.Round))
	w.report(-1, actors.PlanMismatch, out)
	return false
}

// headerAgrees compares a block's header with what the program wants at the receive.
func (w *Worker) headerAgrees(in actors.Envelope, out *actors.Outbox) bool {
	if in.Op < 0 || int(in.Op) >= len(w.flags) || w.script.headOf[in.Op] < 0 {
		out.Note(fmt.Sprintf("rank %d got a block for op %d, which is no receive", w.cfg.Rank,
			in.Op))
		w.report(-1, actors.Corrupt, out)
		return false
	}
	want := w.headerOf(in.Op)
	if err := want.Check(transport.HeaderOf(&in)); err != nil {
		out.Note(fmt.Sprintf("rank %d, op %s: %v", w.cfg.Rank, w.script.Describe(in.Op), err))
		w.report(in.Op, actors.Corrupt, out)
		return false
	}
	return true
}

// report tells the scheduler what this rank sees. The culprit is the scheduler's verdict.
func (w *Worker) report(op int32, f actors.Fault, out *actors.Outbox) {
	e := actors.Envelope{Kind: actors.Late, Fault: f, Epoch: w.epoch, Round: w.round, Op: op}
	w.locate(&e, op)
	w.sched(out, e)
}

// locate fills in the transfer that an op waits on.
func (w *Worker) locate(e *actors.Envelope, op int32) {
	e.Peer, e.Lane = -1, -1
	if w.script == nil || op < 0 || int(op) >= len(w.script.Program.Ops) {
		return
	}
	if o := &w.script.Program.Ops[op]; o.Kind.Link() {
		e.Peer, e.Lane, e.Tick = o.Peer, o.Lane, o.Tick
	}
}

// oldest is the unfinished op of lowest tick among those that wait for no other op of this rank:
// what the rank really waits for.
func (w *Worker) oldest() int32 {
	if w.script == nil {
		return -1
	}
	best := int32(-1)
	for i := range w.flags {
		if w.flags[i]&(flagOver|flagReady) != flagReady {
			continue
		}
		if best < 0 || w.script.Program.Ops[i].Tick < w.script.Program.Ops[best].Tick {
			best = int32(i)
		}
	}
	return best
}

// alarm fires a deadline after the last one was set. When nothing came since, a device with work in
// hand is asked for a sign of life: a long op is no silence. Then the rank reports.
func (w *Worker) alarm(now actors.Time, out *actors.Outbox) {
	w.alarmSet = false
	if w.state != running {
		return
	}
	due := w.progressAt + w.cfg.Deadline
	switch {
	case now < due:
		w.asked = false
	case w.outstanding > 0 && !w.asked:
		w.asked = true
		out.Send(actors.Envelope{
			To: actors.Addr{Role: actors.Device, Rank: w.cfg.Rank}, From: w.self,
			Kind: actors.Ping, Epoch: w.epoch})
		due = now + w.cfg.Deadline/4
	default:
		w.late(out)
		due = now + w.cfg.Deadline
	}
	w.alarmSet = true
	out.SetAlarm(due)
}

// pong is the device's sign of life: its work gets on if the answer is another than the last one.
func (w *Worker) pong(now actors.Time, in actors.Envelope) {
	if in.Epoch == w.epoch && w.state == running && w.asked && in.A != w.beat {
		w.beat, w.progressAt, w.asked = in.A, now, false
	}
}

// late reports, once, what the rank waits for.
func (w *Worker) late(out *actors.Outbox) {
	if w.reported {
		return
	}
	w.reported = true
	op := w.oldest()
	out.Note(fmt.Sprintf("rank %d saw no progress for its deadline in round %d: it waits at %s",
		w.cfg.Rank, w.round, w.script.Describe(op)))
	w.report(op, actors.TimedOut, out)
}

// What a flush waits for: each answers for itself, however often it is asked.
const (
	flushDevice = 1 << iota
	flushLink
)

// flush begins an abort or a stop: device and link must say that no old block can write a slot.
func (w *Worker) flush(in actors.Envelope, out *actors.Outbox) {
	if in.Epoch < w.epoch {
		w.stats.Dropped++
		return
	}
	if in.Kind == actors.Stop {
		w.state = stopping
	} else if w.state != stopping {
		w.state = flushing
	}
	w.epoch, w.flushWait = in.Epoch, flushDevice|flushLink
	if w.alarmSet {
		w.alarmSet = false
		out.ClearAlarm()
	}
	for _, r := range [2]actors.Role{actors.Device, actors.Link} {
		out.Send(actors.Envelope{
			To: actors.Addr{Role: r, Rank: w.cfg.Rank}, From: w.self, Kind: actors.Flush,
			Epoch: in.Epoch})
	}
}

// flushed answers the scheduler when device and link are both still.
func (w *Worker) flushed(in actors.Envelope, out *actors.Outbox) {
	if in.Epoch != w.epoch || w.state < flushing || w.flushWait == 0 {
		return
	}
	switch in.From.Role {
	case actors.Device:
		w.flushWait &^= flushDevice
	case actors.Link:
		w.flushWait &^= flushLink
	}
	if w.flushWait != 0 {
		return
	}
	op := w.oldest()
	e := actors.Envelope{Kind: actors.Aborted, Epoch: w.epoch, Round: w.round, Op: op}
	w.locate(&e, op)
	e.A = uint64(uint32(w.round))
	if w.state == stopping {
		e.Kind = actors.Stopped
		w.state = stopped
	}
	w.script = nil
	w.sched(out, e)
}
