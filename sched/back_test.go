package sched_test

import (
	"testing"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/sched"
)

// TestBackWhileAborting: a rank that comes back before the others have flushed has nothing to
// flush: it is a member of the next epoch, and its former incarnation is still the culprit.
func TestBackWhileAborting(t *testing.T) {
	t.Run("after its Down", func(t *testing.T) {
		g := running(t, 3, 4, 0, 4)
		g.says(down(1, 1), "0 2: abort")
		g.says(g.aborted(0, 1))
		g.says(hello(1, 2))
		g.says(g.aborted(2, 1),
			"owner: failed round 20: peer lost, rank 1; rank 0 waited at op 10 on 1/2")
		g.in(sched.Ready)
		g.says(submit(0, 1), "0 1 2: propose 0:1 1 epoch 2")
	})
	t.Run("without a Down", func(t *testing.T) {
		g := running(t, 3, 4, 0, 4)
		g.says(g.late(2, actors.TimedOut, 6, 1, 1, 0), "0 1 2: abort")
		g.says(hello(1, 2))
		g.says(down(1, 1))
		g.says(g.aborted(0, 2))
		g.says(g.aborted(2, 1),
			"owner: failed round 22: peer lost, rank 1; rank 2 waited at op 12 on 1/2")
		g.in(sched.Ready)
	})
}

// TestBackWhileBusy: a new incarnation in mid-round means that the former one is gone, even when
// word of that comes later or never.
func TestBackWhileBusy(t *testing.T) {
	for _, phase := range []sched.Phase{sched.Proposing, sched.Running} {
		g := running(t, 3, 4, 0, 4)
		if phase == sched.Proposing {
			g = formed(t, 3, 4)
			g.step(submit(0, 4))
		}
		g.says(hello(1, 1)) // only a repetition
		g.in(phase)
		g.says(hello(1, 2), "0 2: abort")
		g.says(down(1, 1))
		g.says(g.aborted(0, 1))
		g.says(g.aborted(2, 1),
			"owner: failed round 20: peer lost, rank 1; rank 0 waited at op 10 on 1/2")
		g.in(sched.Ready)
	}
}

// TestBackWhileClosing: a rank that comes while the gang ends is stopped too.
func TestBackWhileClosing(t *testing.T) {
	g := formed(t, 2, 4)
	g.says(owner(actors.Envelope{Kind: actors.Close}), "0 1: stop")
	g.says(down(1, 1))
	g.says(hello(1, 2), "1: stop")
	g.says(g.stopped(0))
	g.says(g.stopped(1), "owner: closed")
}

// TestNothingSubmitted: no rounds are complete at once.
func TestNothingSubmitted(t *testing.T) {
	g := formed(t, 2, 4)
	g.says(submit(3, 3), "owner: complete 3")
	g.in(sched.Ready)
}

// TestStrangers: words of a rank that is not of the gang are not heard.
func TestStrangers(t *testing.T) {
	g := running(t, 2, 4, 0, 4)
	for _, k := range []actors.Kind{actors.Pong, actors.Confirm, actors.RoundDone, actors.Late,
		actors.Aborted, actors.Stopped} {
		for _, r := range []int{-1, 2} {
			g.says(g.of(r, actors.Envelope{Kind: k}))
		}
	}
}

// TestOwnerAsks: the scheduler answers its owner's ping in every phase but the last, and nothing
// else comes of it.
func TestOwnerAsks(t *testing.T) {
	ping := owner(actors.Envelope{Kind: actors.Ping})
	g := newGang(t, 2, 4)
	asks := func(want sched.Phase, epoch string) {
		t.Helper()
		g.in(want)
		g.says(ping, "owner: pong"+epoch)
		if g.out.Clear || g.out.Alarm != actors.Never {
			t.Errorf("in phase %d a ping of the owner moves the alarm", want)
		}
		g.in(want)
	}
	asks(sched.Forming, "")
	g.step(hello(0, 1))
	g.step(hello(1, 1))
	asks(sched.Ready, "")
	g.step(submit(0, 2))
	asks(sched.Proposing, "")
	g.step(g.confirm(0, 0, 2))
	g.step(g.confirm(1, 0, 2))
	asks(sched.Running, "")
	g.step(owner(actors.Envelope{Kind: actors.Cancel}))
	asks(sched.Aborting, "")
	g.allAborted(2)
	asks(sched.Ready, " epoch 2")
	g.step(owner(actors.Envelope{Kind: actors.Close}))
	asks(sched.Closing, " epoch 2")
	g.step(g.stopped(0))
	g.step(g.stopped(1))
	g.says(ping)
}

// TestSubmitWhileRunning: rounds submitted before the last ones are over wait for them, and are
// proposed like all others.
func TestSubmitWhileRunning(t *testing.T) {
	g := running(t, 1, 4, 0, 1)
	g.says(submit(1, 2))
	g.says(g.did(0, 0), "owner: rank 0 did 0, exposed 3 busy 4", "owner: complete 1",
		"0: propose 1:2 100000002")
}

// TestCancelBeforeVerdict: rounds submitted during an abort and given up again do not run.
func TestCancelBeforeVerdict(t *testing.T) {
	g := running(t, 1, 4, 0, 4)
	g.says(g.late(0, actors.TimedOut, 6, 0, 1, 0), "0: abort")
	g.says(submit(0, 2))
	g.says(owner(actors.Envelope{Kind: actors.Cancel}))
	g.step(g.aborted(0, -1))
	g.in(sched.Ready)
}

// TestCloseTwice: closing again does not ask again: the ranks that have stopped say nothing more.
func TestCloseTwice(t *testing.T) {
	g := formed(t, 2, 4)
	g.says(owner(actors.Envelope{Kind: actors.Close}), "0 1: stop")
	g.says(g.stopped(0))
	g.says(owner(actors.Envelope{Kind: actors.Close}))
	g.says(g.stopped(1), "owner: closed")
}

// TestStalePong: a sign of life of an old epoch is none.
func TestStalePong(t *testing.T) {
	g := running(t, 2, 4, 0, 4)
	g.step(owner(actors.Envelope{Kind: actors.Cancel}))
	g.allAborted(2)
	g.step(submit(0, 4))
	g.step(g.confirm(0, 0, 4))
	g.step(g.confirm(1, 0, 4))
	for n := 0; g.s.Phase() == sched.Running; n++ {
		if n == 20 {
			t.Fatal("pongs of an old epoch keep a rank alive")
		}
		g.says(from(0, actors.Envelope{Kind: actors.Pong, Epoch: 2}))
		g.says(from(1, actors.Envelope{Kind: actors.Pong, Epoch: 1}))
		g.now = g.due
		g.step(actors.Envelope{Kind: actors.Timer})
	}
	g.noted("rank 1 gave no sign of life within 0.001 ms")
}

// TestQueuedSubmitFails: when the rounds at hand fail, those submitted behind them are given up
// with them: one verdict speaks for both.
func TestQueuedSubmitFails(t *testing.T) {
	g := running(t, 1, 4, 0, 4)
	g.says(submit(4, 6))
	g.says(owner(actors.Envelope{Kind: actors.Cancel}), "0: abort")
	g.says(g.aborted(0, -1), "owner: failed round 0: cancelled, rank -1")
	g.says(submit(6, 7), "0: propose 6:7 600000007 epoch 2")
}

// TestCloseInAbort: a rank that came back during an abort is stopped with the others.
func TestCloseInAbort(t *testing.T) {
	g := running(t, 3, 4, 0, 4)
	g.says(down(1, 1), "0 2: abort")
	g.says(hello(1, 2))
	g.says(owner(actors.Envelope{Kind: actors.Close}), "0 1 2: stop")
	for r := range 2 {
		g.says(g.stopped(r))
	}
	g.says(g.stopped(2), "owner: closed")
}
