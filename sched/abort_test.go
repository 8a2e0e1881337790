package sched_test

import (
	"fmt"
	"testing"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/sched"
)

// TestVerdict: when an op is late the culprit is the end of the chain of waits that begins at the
// rank that reported, and round, op and link are those of a rank that waited on it; a ring of waits
// has no culprit.
func TestVerdict(t *testing.T) {
	for _, tc := range []struct {
		name     string
		waitsOn  [5]int // by rank; -1: at an op of its own, or at none
		reporter int
		want     string
	}{
		{"4 on 3 on 2, which waits on nobody", [5]int{1, 0, -1, 2, 3}, 4,
			"23: timed out, rank 2; rank 3 waited at op 13 on 2/2"},
		{"the reporter itself waits on nobody", [5]int{1, 2, -1, 2, 3}, 2,
			"4: timed out, rank 2; rank 2 waited at op 6 on 2/1"},
		{"one step", [5]int{-1, 2, 3, 4, 0}, 4,
			"24: timed out, rank 0; rank 4 waited at op 14 on 0/2"},
		{"the longest chain", [5]int{1, 2, 3, 4, -1}, 0,
			"23: timed out, rank 4; rank 3 waited at op 13 on 4/2"},
		{"a ring of all", [5]int{1, 2, 3, 4, 0}, 0,
			"4: timed out, rank -1; rank 0 waited at op 6 on 2/1"},
		{"a ring that the reporter is not in", [5]int{1, 2, 1, 2, 0}, 4,
			"4: timed out, rank -1; rank 4 waited at op 6 on 2/1"},
		{"two that wait for each other", [5]int{1, 0, -1, -1, -1}, 0,
			"4: timed out, rank -1; rank 0 waited at op 6 on 2/1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := running(t, 5, 4, 3, 9)
			g.now = 77
			g.says(g.late(tc.reporter, actors.TimedOut, 6, 2, 1, 4), "0 1 2 3 4: abort")
			g.alarm(77 + abortWait)
			// Reports of others while the abort is under way change nothing.
			g.says(g.late((tc.reporter+1)%5, actors.TimedOut, 9, 0, 0, 5))
			for r := range 4 {
				g.says(g.aborted(r, tc.waitsOn[r]))
			}
			g.says(g.aborted(4, tc.waitsOn[4]), "owner: failed round "+tc.want)
			g.noAlarm()
			g.in(sched.Ready)
		})
	}
}

// TestFaultSeen: what a rank saw with its own eyes is not blamed on the end of a chain.
func TestFaultSeen(t *testing.T) {
	for _, f := range []actors.Fault{actors.Corrupt, actors.DeviceFault, actors.LinkFault,
		actors.Overflow, actors.PlanMismatch} {
		g := running(t, 3, 4, 0, 2)
		g.says(g.late(1, f, 6, 0, 1, 0), "0 1 2: abort")
		g.says(g.aborted(0, 1))
		g.says(g.aborted(1, 2))
		culprit := ", rank 1"
		if f == actors.LinkFault {
			culprit = ", rank -1" // both ends live: no rank is to blame
		}
		g.says(g.aborted(2, -1), "owner: failed round 0: "+f.String()+
			culprit+"; rank 1 waited at op 6 on 0/1")
	}
}

// TestLinkFaultOfTheDead: a link that failed because one of its ends is gone, or does not answer
// the abort, is that rank's fault.
func TestLinkFaultOfTheDead(t *testing.T) {
	g := running(t, 3, 4, 0, 2)
	g.says(g.late(1, actors.LinkFault, 6, 0, 1, 0), "0 1 2: abort")
	g.says(g.aborted(1, 0))
	g.says(down(0, 1))
	g.says(g.aborted(2, -1), "owner: lost 0",
		"owner: failed round 21: peer lost, rank 0; rank 1 waited at op 11 on 0/2")
}

// TestWitness: the round, the op, the link and the reporter of a verdict on a rank that is gone or
// silent are those of a living rank that waited on it: the first to report may wait on a neighbour
// of a neighbour. When nobody waited on it, what was reported stays.
func TestWitness(t *testing.T) {
	for _, tc := range []struct {
		name    string
		waitsOn [5]int
		dead    int
		want    string
	}{
		{"the reporter waits far from it", [5]int{1, 2, 3, -1, 0}, 3,
			"22: peer lost, rank 3; rank 2 waited at op 12 on 3/2"},
		{"two waited: the lower one tells", [5]int{3, 3, 0, -1, 0}, 3,
			"20: peer lost, rank 3; rank 0 waited at op 10 on 3/2"},
		{"the reporter waits on it", [5]int{1, 2, -1, 4, 2}, 2,
			"21: peer lost, rank 2; rank 1 waited at op 11 on 2/2"},
		{"nobody waited on it", [5]int{1, 0, -1, 4, 0}, 2,
			"4: peer lost, rank 2; rank 4 waited at op 6 on 0/1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := running(t, 5, 4, 3, 9)
			g.says(g.late(4, actors.TimedOut, 6, 0, 1, 4), "0 1 2 3 4: abort")
			for r := range 5 {
				if r != tc.dead {
					g.says(g.aborted(r, tc.waitsOn[r]))
				}
			}
			g.rings(g.now+abortWait, fmt.Sprintf("owner: lost %d", tc.dead),
				"owner: failed round "+tc.want)
		})
	}
}

// TestWitnessLives: a rank that is itself gone, or that only came during the abort, tells nothing.
func TestWitnessLives(t *testing.T) {
	g := running(t, 4, 4, 0, 4)
	g.says(down(3, 1), "0 1 2: abort")
	g.says(g.aborted(0, 3)) // it says so, and goes
	g.says(down(0, 1))
	g.says(hello(0, 2))
	g.says(g.aborted(1, 0))
	g.says(g.aborted(2, 3), "owner: lost 3",
		"owner: failed round 22: peer lost, rank 3; rank 2 waited at op 12 on 3/2")
}

// TestLateWhileProposing: a rank may report while others still confirm.
func TestLateWhileProposing(t *testing.T) {
	g := formed(t, 2, 4)
	g.step(submit(0, 2))
	g.says(g.late(0, actors.Overflow, -1, -1, -1, 0), "0 1: abort")
}

// TestSilentInAbort: who does not answer the abort is the culprit, whatever the chain says, and is
// no member until it comes again.
func TestSilentInAbort(t *testing.T) {
	g := running(t, 4, 4, 0, 9)
	g.now = 100
	g.says(g.late(1, actors.TimedOut, 6, 0, 1, 2), "0 1 2 3: abort")
	for _, r := range []int{0, 1, 3} {
		g.says(g.aborted(r, 3))
	}
	g.rings(100+abortWait, "owner: lost 2",
		"owner: failed round 2: peer lost, rank 2; rank 1 waited at op 6 on 0/1")
	g.noted("rank 2 did not answer")
	g.in(sched.Forming)
	g.says(from(2, actors.Envelope{Kind: actors.Aborted, Epoch: 1})) // far too late
	g.says(submit(9, 10))
	g.says(hello(2, 2), "0 1 2 3: propose 9:10 90000000a epoch 2")
}

// TestLongOp: a rank whose running op is longer than AbortWait is not dead as long as it answers
// pings; after a whole deadline it is lost, not as silent but as late.
func TestLongOp(t *testing.T) {
	for _, flushes := range []bool{true, false} {
		g := running(t, 2, 4, 0, 9)
		g.now = 100
		g.says(g.late(0, actors.TimedOut, 6, 1, 1, 2), "0 1: abort")
		g.says(g.aborted(0, 1))
		for g.now = 100; flushes && g.now+abortWait < 100+deadline; {
			g.says(g.of(1, actors.Envelope{Kind: actors.Pong}))
			g.rings(g.now + abortWait)
		}
		if flushes {
			g.says(g.aborted(1, -1),
				"owner: failed round 20: timed out, rank 1; rank 0 waited at op 10 on 1/2")
			g.in(sched.Ready)
			continue
		}
		for g.due < 100+deadline {
			g.says(g.of(1, actors.Envelope{Kind: actors.Pong}))
			g.rings(g.due)
		}
		if g.due != 100+deadline {
			t.Fatalf("the last alarm is at %d, want it a deadline after the abort", g.due)
		}
		g.says(g.of(1, actors.Envelope{Kind: actors.Pong}))
		g.rings(g.due, "owner: lost 1",
			"owner: failed round 20: timed out, rank 1; rank 0 waited at op 10 on 1/2")
		g.noted("rank 1 did not answer")
	}
}

// TestOldEpoch: the words of an aborted epoch change nothing in the next.
func TestOldEpoch(t *testing.T) {
	g := running(t, 2, 4, 0, 4)
	old := []actors.Envelope{
		g.did(0, 0), g.late(0, actors.TimedOut, 1, 1, 1, 0), g.confirm(0, 0, 4), g.aborted(0, 1),
		g.stopped(0),
	}
	g.step(owner(actors.Envelope{Kind: actors.Cancel}))
	g.allAborted(2)
	g.in(sched.Ready)
	g.says(submit(0, 4), "0 1: propose 0:4 4 epoch 2")
	for _, e := range old {
		g.says(e)
	}
	g.says(g.confirm(1, 0, 4))
	for _, e := range old {
		g.says(e)
	}
	g.says(g.confirm(0, 0, 4), "0 1: grant 0:4 epoch 2")
	for _, e := range old {
		g.says(e)
	}
	g.in(sched.Running)
	g.says(g.did(0, 0), "owner: rank 0 did 0, exposed 3 busy 4 epoch 2")
}

// TestDown: a rank that is gone is no member; what was running is aborted and names it. The gang
// forms again when the rank comes in a new incarnation; word of the old one's end that comes late
// changes nothing.
func TestDown(t *testing.T) {
	gone, lost := "owner: lost 1", "owner: failed round 0: peer lost, rank 1"
	by0 := "owner: failed round 20: peer lost, rank 1; rank 0 waited at op 10 on 1/2"
	back := func(g *gang, epoch string) {
		g.t.Helper()
		g.in(sched.Forming)
		g.says(hello(1, 2))
		g.in(sched.Ready)
		g.says(down(1, 1)) // of the incarnation before
		g.in(sched.Ready)
		g.says(submit(4, 5), "0 1 2: propose 4:5 400000005"+epoch)
	}
	t.Run("forming", func(t *testing.T) {
		g := newGang(t, 2, 4)
		g.says(hello(1, 1))
		g.says(down(1, 1), gone)
		g.says(hello(0, 1))
		g.says(down(1, 2), gone) // the next one went too, and word of that comes before its Hello
		g.says(hello(1, 2))
		g.in(sched.Forming)
		g.says(hello(1, 3))
		g.in(sched.Ready)
	})
	t.Run("forming, submitted", func(t *testing.T) {
		g := newGang(t, 2, 4)
		g.says(hello(1, 1))
		g.says(submit(0, 1))
		g.says(down(1, 1), gone, lost) // to wait would be to wait for a restart nobody ordered
		g.noAlarm()
		g.says(hello(0, 1))
		g.says(hello(1, 2))
		g.in(sched.Ready)
	})
	t.Run("ready", func(t *testing.T) {
		g := formed(t, 3, 4)
		g.says(down(1, 1), gone)
		back(g, "")
	})
	t.Run("ready, submitted before it is back", func(t *testing.T) {
		g := formed(t, 3, 4)
		g.says(down(1, 1), gone)
		g.says(submit(0, 1), lost)
		g.says(submit(0, 1)) // told once; now it is waited for
		g.says(hello(1, 2), "0 1 2: propose 0:1 1 epoch 2")
	})
	t.Run("proposing", func(t *testing.T) {
		g := formed(t, 3, 4)
		g.step(submit(0, 1))
		g.says(g.confirm(1, 0, 1))
		g.says(down(1, 1), "0 2: abort")
		g.says(g.aborted(0, -1))
		g.says(g.aborted(2, -1), gone, lost)
		back(g, " epoch 2")
	})
	t.Run("running", func(t *testing.T) {
		g := running(t, 3, 4, 0, 4)
		g.says(down(1, 1), "0 2: abort")
		g.says(down(1, 1))
		g.says(g.aborted(2, 1))
		g.says(g.aborted(0, 1), gone, by0)
		back(g, " epoch 2")
	})
	t.Run("running, the last one alive", func(t *testing.T) {
		g := running(t, 1, 4, 0, 4)
		g.says(down(0, 1), "owner: lost 0", "owner: failed round 0: peer lost, rank 0")
		g.noAlarm()
		g.in(sched.Forming)
	})
	t.Run("aborting, its answer was missing", func(t *testing.T) {
		g := running(t, 3, 4, 0, 4)
		g.says(g.late(0, actors.TimedOut, 6, 2, 1, 0), "0 1 2: abort")
		g.says(g.aborted(0, 2))
		g.says(g.aborted(2, -1))
		g.says(down(1, 1), gone, lost+"; rank 0 waited at op 6 on 2/1")
		back(g, " epoch 2")
	})
	t.Run("aborting, after its answer", func(t *testing.T) {
		g := running(t, 3, 4, 0, 4)
		g.says(g.late(0, actors.TimedOut, 6, 2, 1, 0), "0 1 2: abort")
		g.says(g.aborted(1, 2))
		g.says(down(1, 1))
		g.says(g.aborted(2, -1))
		g.says(g.aborted(0, -1), gone, lost+"; rank 0 waited at op 6 on 2/1")
		back(g, " epoch 2")
	})
	t.Run("closing", func(t *testing.T) {
		g := formed(t, 3, 4)
		g.says(owner(actors.Envelope{Kind: actors.Close}), "0 1 2: stop")
		g.says(g.stopped(0))
		g.says(down(1, 1))
		g.says(g.stopped(2), "owner: closed")
		g.says(down(0, 1))
	})
	t.Run("a rank that is not of the gang", func(t *testing.T) {
		g := formed(t, 3, 4)
		g.says(down(3, 1))
		g.in(sched.Ready)
	})
	t.Run("two at once", func(t *testing.T) {
		g := running(t, 4, 4, 0, 4)
		g.says(down(3, 1), "0 1 2: abort")
		g.says(down(2, 1))
		g.says(g.aborted(0, 3))
		g.says(g.aborted(1, 0), "owner: lost 2", "owner: lost 3",
			"owner: failed round 20: peer lost, rank 3; rank 0 waited at op 10 on 3/2")
		g.says(hello(3, 2))
		g.in(sched.Forming)
		g.says(hello(2, 2))
		g.in(sched.Ready)
	})
}

// TestStaleIncarnation: an incarnation that is older than the one that came is not heard.
func TestStaleIncarnation(t *testing.T) {
	g := newGang(t, 2, 4)
	g.says(hello(0, 1))
	g.says(hello(1, 3))
	g.in(sched.Ready)
	g.says(down(1, 2))
	g.in(sched.Ready)
	g.says(down(1, 3), "owner: lost 1")
	g.in(sched.Forming)
	g.says(hello(1, 2))
	g.in(sched.Forming)
	g.says(hello(1, 4))
	g.in(sched.Ready)
}

// TestCancel: the owner may give up at any time; the gang is aborted, nobody is to blame.
func TestCancel(t *testing.T) {
	cancel := owner(actors.Envelope{Kind: actors.Cancel})
	gone := "owner: failed round 2: cancelled, rank -1"
	t.Run("forming", func(t *testing.T) {
		g := newGang(t, 1, 4)
		g.says(cancel)
		g.says(submit(2, 3))
		g.says(cancel, gone)
		g.noAlarm()
		g.says(hello(0, 1)) // nothing is asked any more
		g.in(sched.Ready)
	})
	t.Run("ready", func(t *testing.T) {
		g := formed(t, 2, 4)
		g.says(cancel)
		g.in(sched.Ready)
	})
	t.Run("proposing", func(t *testing.T) {
		g := formed(t, 2, 4)
		g.step(submit(2, 3))
		g.says(cancel, "0 1: abort")
		g.says(g.aborted(0, -1))
		g.says(g.aborted(1, -1), gone)
		g.says(submit(2, 3), "0 1: propose 2:3 200000003 epoch 2")
	})
	t.Run("running", func(t *testing.T) {
		g := running(t, 2, 4, 0, 4)
		for round := range int32(2) {
			g.step(g.did(0, round))
			g.step(g.did(1, round))
		}
		g.says(cancel, "0 1: abort")
		g.says(cancel)
		g.says(g.aborted(0, 1))
		g.says(g.aborted(1, 0), gone)
	})
	t.Run("aborting for another reason", func(t *testing.T) {
		g := running(t, 2, 4, 2, 4)
		g.says(g.late(0, actors.TimedOut, 6, 1, 1, 2), "0 1: abort")
		g.says(cancel)
		g.says(g.aborted(0, 1))
		g.says(g.aborted(1, -1),
			"owner: failed round 20: timed out, rank 1; rank 0 waited at op 10 on 1/2")
	})
	t.Run("closing", func(t *testing.T) {
		g := formed(t, 1, 4)
		g.says(owner(actors.Envelope{Kind: actors.Close}), "0: stop")
		g.says(cancel)
		g.says(g.stopped(0), "owner: closed")
		g.says(cancel)
	})
}

// TestSubmitWhileAborting: rounds that are submitted before the verdict run in the next epoch.
func TestSubmitWhileAborting(t *testing.T) {
	g := running(t, 2, 4, 0, 4)
	g.says(g.late(0, actors.TimedOut, 6, 1, 1, 0), "0 1: abort")
	g.says(submit(0, 2))
	g.says(g.aborted(0, 1))
	g.says(g.aborted(1, -1),
		"owner: failed round 20: timed out, rank 1; rank 0 waited at op 10 on 1/2",
		"0 1: propose 0:2 2 epoch 2")
	g.in(sched.Proposing)

	g = running(t, 2, 4, 0, 4)
	g.says(down(1, 1), "0: abort")
	g.says(submit(0, 2))
	g.now = 10
	g.says(g.aborted(0, 1), "owner: lost 1",
		"owner: failed round 20: peer lost, rank 1; rank 0 waited at op 10 on 1/2")
	g.alarm(10 + deadline)
	g.says(hello(1, 2), "0 1: propose 0:2 2 epoch 2")
}

// TestClose: every rank is stopped, in any phase, and the scheduler says nothing after that.
func TestClose(t *testing.T) {
	end := owner(actors.Envelope{Kind: actors.Close})
	for _, tc := range []struct {
		name string
		g    func(t *testing.T) *gang
		stop string
	}{
		{"forming", func(t *testing.T) *gang {
			g := newGang(t, 2, 4)
			g.says(hello(1, 1))
			return g
		}, "1: stop"},
		{"ready", func(t *testing.T) *gang { return formed(t, 2, 4) }, "0 1: stop"},
		{"proposing", func(t *testing.T) *gang {
			g := formed(t, 2, 4)
			g.step(submit(0, 1))
			return g
		}, "0 1: stop"},
		{"running", func(t *testing.T) *gang { return running(t, 2, 4, 0, 2) }, "0 1: stop"},
		{"aborting", func(t *testing.T) *gang {
			g := running(t, 2, 4, 0, 2)
			g.step(owner(actors.Envelope{Kind: actors.Cancel}))
			g.step(g.aborted(0, -1))
			return g
		}, "0 1: stop"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := tc.g(t)
			g.now = 20
			g.says(end, tc.stop)
			g.alarm(20 + abortWait)
			g.says(submit(0, 1))
			g.says(g.did(1, 0))
			g.says(g.aborted(1, -1))
			if tc.name != "forming" {
				g.says(g.stopped(0))
			}
			g.says(g.stopped(1), "owner: closed")
			g.noAlarm()
			g.in(sched.Closed)
			g.says(hello(0, 9))
			g.says(submit(0, 1))
			g.says(end)
			g.rings(9999)
		})
	}
	t.Run("nobody came", func(t *testing.T) {
		g := newGang(t, 2, 4)
		g.says(end, "owner: closed")
	})
	t.Run("one does not stop", func(t *testing.T) {
		g := formed(t, 3, 4)
		g.now = 20
		g.says(end, "0 1 2: stop")
		g.says(g.stopped(0))
		g.says(g.stopped(2))
		g.rings(20+abortWait, "owner: closed")
	})
}
