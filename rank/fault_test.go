package rank_test

import (
	"strings"
	"testing"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
)

// ring is one ring step of a rank: a block from 0, attended, sent on to 2.
func ring(t *testing.T) *rank.Script {
	return script(t, recv(0, 0, 1), dev(plan.Attend, 2, 0), send(2, 0, 3, 0), rel(4, 1, 2))
}

// TestAbort: device and link are flushed, and the scheduler gets its answer after both, whichever
// comes first, with the op that the rank waited at.
func TestAbort(t *testing.T) {
	for _, first := range []actors.Role{actors.Device, actors.Link} {
		second := actors.Device + actors.Link - first
		d := newDesk(t, ring(t))
		d.says(grant(0, 9), "post 0 <-0/0 t1")
		d.says(kind(actors.Abort), "flush device", "flush link")
		d.says(flushedBy(first))
		d.says(arrived(d.b[0], 0)) // too late: dropped
		d.says(flushedBy(second), "aborted at op 0, peer 0 lane 0, not done 0")
		d.says(flushedBy(second))
		d.says(kind(actors.Timer))
		d.says(grant(0, 9)) // of the aborted epoch
		d.says(in(2, 0, actors.Envelope{Kind: actors.Grant, Op: 9}), "post 0 <-0/0 t1 epoch 2")
		d.says(in(1, 0, flushedBy(first)))
		if n := d.w.Stats().Dropped; n != 1 {
			t.Errorf("%d envelopes dropped, want 1", n)
		}
	}
}

// TestAbortNames: the answer tells what the rank was waiting for, lowest tick first, leaving out
// what waits for other ops of the same rank.
func TestAbortNames(t *testing.T) {
	for _, tc := range []struct {
		name  string
		lines []line
		heard []actors.Envelope
		want  string
	}{
		{"a receive", []line{recv(0, 0, 5), dev(plan.Attend, 1, 0)}, nil,
			"aborted at op 0, peer 0 lane 0, not done 0"},
		{"a send without credit before a later receive",
			[]line{recv(0, 0, 5), send(2, 1, 3)}, nil,
			"aborted at op 1, peer 2 lane 1, not done 0"},
		{"a device op that runs", []line{dev(plan.Attend, 4), recv(0, 0, 6)}, nil,
			"aborted at op 0, peer -1 lane -1, not done 0"},
		{"what is over is not named", []line{dev(plan.Attend, 4), recv(0, 0, 6)},
			[]actors.Envelope{done(0)}, "aborted at op 1, peer 0 lane 0, not done 0"},
		{"the lower number of two at one tick", []line{recv(0, 0, 6), recv(2, 0, 6)}, nil,
			"aborted at op 0, peer 0 lane 0, not done 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDesk(t, script(t, tc.lines...))
			d.step(grant(0, 1))
			for _, e := range tc.heard {
				d.step(e)
			}
			d.step(kind(actors.Abort))
			d.says(flushedBy(actors.Device))
			d.says(flushedBy(actors.Link), tc.want)
		})
	}
}

// TestAbortOfIdle: a rank without a round, even without a grant, flushes and answers too, and
// forgets nothing of where it is.
func TestAbortOfIdle(t *testing.T) {
	d := newDesk(t, script(t, dev(plan.Attend, 0)))
	d.says(kind(actors.Abort), "flush device", "flush link")
	d.says(flushedBy(actors.Link))
	d.says(flushedBy(actors.Device), "aborted at op -1, peer -1 lane -1, not done 0")
	d.says(in(2, 0, actors.Envelope{Kind: actors.Grant, Op: 1}), "launch 0 on 0 epoch 2")
	d.says(in(2, 0, done(0)), "round done, exposed 0 busy 0 epoch 2")
	d.says(in(2, 0, kind(actors.Abort)), "flush device epoch 2", "flush link epoch 2")
	d.says(in(2, 0, flushedBy(actors.Link)))
	d.says(in(2, 0, flushedBy(actors.Device)),
		"aborted at op -1, peer -1 lane -1, not done 1 epoch 2 round 1")
	d.says(in(1, 0, kind(actors.Abort))) // of an epoch gone by
	if n := d.w.Stats().Dropped; n != 1 {
		t.Errorf("%d envelopes dropped, want 1", n)
	}
}

// TestTwiceAborted: an abort that comes again is answered again, when both are still.
func TestTwiceAborted(t *testing.T) {
	d := newDesk(t, ring(t))
	d.says(grant(0, 1), "post 0 <-0/0 t1")
	d.says(kind(actors.Abort), "flush device", "flush link")
	d.says(flushedBy(actors.Device))
	d.says(kind(actors.Abort), "flush device", "flush link")
	d.says(flushedBy(actors.Link))
	d.says(flushedBy(actors.Device), "aborted at op 0, peer 0 lane 0, not done 0")
}

// TestFlushedTwiceByOne: after a second abort or a stop, two answers of the link are not one of
// each: the first was on its way already.
func TestFlushedTwiceByOne(t *testing.T) {
	for _, again := range []actors.Kind{actors.Abort, actors.Stop} {
		for _, fast := range []actors.Role{actors.Device, actors.Link} {
			slow := actors.Device + actors.Link - fast
			d := newDesk(t, ring(t))
			d.says(grant(0, 1), "post 0 <-0/0 t1")
			d.says(kind(actors.Abort), "flush device", "flush link")
			d.says(kind(again), "flush device", "flush link")
			d.says(flushedBy(fast))
			d.says(flushedBy(fast)) // the slow one may still write a slot
			want := "aborted at op 0, peer 0 lane 0, not done 0"
			if again == actors.Stop {
				want = "stopped"
			}
			d.says(flushedBy(slow), want)
		}
	}
}

// TestStop: a stopped rank has flushed, and says nothing ever after.
func TestStop(t *testing.T) {
	for _, before := range []string{"idle", "running", "aborting", "aborted"} {
		t.Run(before, func(t *testing.T) {
			d := newDesk(t, ring(t))
			if before != "idle" {
				d.says(grant(0, 1), "post 0 <-0/0 t1")
			}
			if strings.HasPrefix(before, "abort") {
				d.says(kind(actors.Abort), "flush device", "flush link")
			}
			if before == "aborted" {
				d.says(flushedBy(actors.Device))
				d.says(flushedBy(actors.Link), "aborted at op 0, peer 0 lane 0, not done 0")
			}
			d.says(kind(actors.Stop), "flush device", "flush link")
			d.says(in(2, 0, actors.Envelope{Kind: actors.Grant, Op: 1}))
			d.says(kind(actors.Abort), "flush device", "flush link")
			d.says(flushedBy(actors.Device))
			d.says(flushedBy(actors.Link), "stopped")
			for _, e := range []actors.Envelope{
				kind(actors.Ping), kind(actors.Abort), kind(actors.Stop), kind(actors.Timer),
				kind(actors.Start), in(3, 0, actors.Envelope{Kind: actors.Grant, Op: 1}),
			} {
				d.says(e)
			}
		})
	}
}

// alarm steps the worker at a time and gives the alarm that it set, and whether it dropped it.
func (d *desk) alarm(now actors.Time, e actors.Envelope, want ...string) (actors.Time, bool) {
	d.t.Helper()
	d.now = now
	d.says(e, want...)
	return d.out.Alarm, d.out.Clear
}

// timeline is a desk whose steps come with their time and the alarm that they set.
type timeline struct{ *desk }

func (d timeline) want(now actors.Time, e actors.Envelope, at actors.Time, says ...string) {
	d.t.Helper()
	if got, clear := d.alarm(now, e, says...); got != at || clear {
		d.t.Fatalf("at %d, %s: alarm %d (dropped: %v), want %d", now, say(&e), got, clear, at)
	}
}

// TestTimer: one alarm a rank, moved on by progress; without any for a deadline the rank reports
// the op it waits for, once, and again only after it moved.
func TestTimer(t *testing.T) {
	d := timeline{newDesk(t, ring(t))}
	timer := kind(actors.Timer)
	d.want(100, grant(0, 2), 1100, "post 0 <-0/0 t1")
	d.want(1100, timer, 2100, "late op 0: timed out, peer 0 lane 0")
	d.noted("rank 1", "round 0", "0 recv", "<-0/0")
	d.want(2100, timer, 3100)
	d.want(2400, arrived(d.b[0], 0), actors.Never, "launch 1 on 0")
	d.want(2500, done(1), actors.Never)
	d.want(3100, timer, 3500)
	d.want(3500, timer, 4500, "late op 2: timed out, peer 2 lane 0")
	d.noted("2 send", "->2/0")
	d.want(3600, credit(2, 0, 3), actors.Never, "put 2 ->2/0 t3")
	d.want(3700, sent(2), actors.Never, "round done, exposed 3500 busy 0",
		"post 0 <-0/0 t1 round 1")
	d.want(4500, timer, 4700)
	d.want(4700, timer, 5700, "late op 0: timed out, peer 0 lane 0 round 1")
}

// TestLongOp: when nothing came for a deadline and the device has work, it is asked; a long op that
// gets on is no silence. A device that says nothing, or the same again, is late.
func TestLongOp(t *testing.T) {
	s := script(t, dev(plan.Attend, 2))
	timer := kind(actors.Timer)
	pong := func(beat uint64) actors.Envelope {
		return in(1, 0, actors.Envelope{Kind: actors.Pong, A: beat})
	}
	late := "late op 0: timed out, peer -1 lane -1"

	d := timeline{newDesk(t, s)}
	d.want(0, grant(0, 1), 1000, "launch 0 on 0")
	d.want(1000, timer, 1250, "ping device")
	d.want(1250, timer, 2250, late) // not a word
	d.noted("rank 1", "0 attend")
	d.want(2250, timer, 3250)

	d = timeline{newDesk(t, s)}
	d.want(0, grant(0, 1), 1000, "launch 0 on 0")
	d.want(1000, timer, 1250, "ping device")
	d.want(1010, pong(7), actors.Never)
	d.want(1250, timer, 2010)
	d.want(2010, timer, 2260, "ping device")
	d.want(2011, pong(8), actors.Never) // it gets on
	d.want(2260, timer, 3011)
	d.want(3011, timer, 3261, "ping device")
	d.want(3012, pong(8), actors.Never) // it does not
	d.want(3013, in(2, 0, pong(9)), actors.Never)
	d.want(3261, timer, 4261, late)
	d.want(3300, pong(9), actors.Never)
	d.says(done(0), "round done, exposed 0 busy 0")
}

// TestNoAlarmWhileIdle: a rank that has nothing granted waits for nobody.
func TestNoAlarmWhileIdle(t *testing.T) {
	d := newDesk(t, script(t, dev(plan.Attend, 0)))
	if at, _ := d.alarm(1, kind(actors.Start), "hello 7"); at != actors.Never {
		t.Errorf("an alarm at %d before the first grant", at)
	}
	if at, _ := d.alarm(2, grant(0, 1), "launch 0 on 0"); at != 1002 {
		t.Errorf("alarm at %d, want 1002", at)
	}
	if _, dropped := d.alarm(3, done(0), "round done, exposed 0 busy 0"); !dropped {
		t.Error("the alarm stays when the grant is used up")
	}
	d.alarm(5000, kind(actors.Timer)) // one that was on its way
	d.alarm(5001, grant(0, 2), "launch 0 on 0 round 1")
	if _, dropped := d.alarm(5002, kind(actors.Abort), "flush device", "flush link"); !dropped {
		t.Error("the alarm stays when the round is aborted")
	}
	d.alarm(9000, kind(actors.Timer))
}
