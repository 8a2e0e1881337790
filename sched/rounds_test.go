package sched_test

import (
	"testing"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/sched"
)

// TestForming: a gang is formed when every rank has come, in any order; rounds that were submitted
// before are proposed then.
func TestForming(t *testing.T) {
	g := newGang(t, 3, 4)
	g.says(actors.Envelope{Kind: actors.Start})
	g.says(hello(2, 1))
	g.says(hello(2, 1))
	g.says(hello(0, 5))
	g.now = 40
	g.says(submit(0, 2))
	g.alarm(40 + deadline)
	g.says(hello(7, 1))
	g.noted("rank 7", "3 ranks")
	g.in(sched.Forming)
	g.now = 50
	g.says(hello(1, 1), "0 1 2: propose 0:2 2")
	g.alarm(50 + deadline)
	g.in(sched.Proposing)

	idle := newGang(t, 1, 4)
	idle.says(hello(0, 1))
	idle.noAlarm()
	idle.in(sched.Ready)
	idle.says(submit(3, 5), "0: propose 3:5 300000005")
}

// TestLateHello: who has not come within the deadline is named, all of them in the notes; the gang
// can still form, and rounds be submitted again.
func TestLateHello(t *testing.T) {
	g := newGang(t, 4, 4)
	g.says(hello(0, 1))
	g.says(hello(2, 1))
	g.says(submit(5, 7))
	g.rings(deadline, "owner: failed round 5: peer lost, rank 1")
	g.noted("rank 1 has not come", "rank 3 has not come")
	g.in(sched.Forming)
	g.rings(3 * deadline) // nothing is asked any more
	g.says(hello(1, 1))
	g.says(hello(3, 1)) // what was given back is not run
	g.in(sched.Ready)
	g.says(submit(7, 8), "0 1 2 3: propose 7:8 700000008")
}

// TestPlanMismatch: a rank that holds another plan is named, with both hashes, before anything runs.
func TestPlanMismatch(t *testing.T) {
	g := formed(t, 3, 4)
	g.step(submit(0, 2))
	g.says(g.confirm(0, 0, 2))
	bad := g.confirm(1, 0, 2)
	bad.A = 0xbad
	g.says(bad, "0 1 2: abort")
	g.noted("rank 1", "0000000000000bad", "0000000000000002", "rounds 0 to 1")
	g.says(g.confirm(2, 0, 2)) // too late
	g.says(g.aborted(2, -1))
	g.says(g.aborted(0, -1))
	g.says(g.aborted(1, -1),
		"owner: failed round 0: plan mismatch, rank 1; rank 1 waited at op -1 on -1/-1")
	g.in(sched.Ready)
	if g.s.Epoch() != 2 {
		t.Errorf("epoch %d, want 2", g.s.Epoch())
	}
	g.says(submit(0, 1), "0 1 2: propose 0:1 1 epoch 2")
}

// TestNoConfirm: a rank that does not confirm within the deadline is named.
func TestNoConfirm(t *testing.T) {
	g := formed(t, 3, 4)
	g.now = 10
	g.step(submit(0, 2))
	g.says(g.confirm(0, 0, 2))
	g.says(g.confirm(2, 0, 2))
	g.rings(10+deadline, "0 1 2: abort")
	g.noted("rank 1 did not confirm the plan")
	g.alarm(10 + deadline + abortWait)
	if got := g.allAborted(3); len(got) != 1 || got[0] != "owner: failed round 0: peer lost, rank 1" {
		t.Errorf("the owner hears %q", got)
	}
}

// TestConfirmTwice: one rank that confirms twice is not two.
func TestConfirmTwice(t *testing.T) {
	g := formed(t, 2, 1)
	g.step(submit(0, 1))
	g.says(g.confirm(0, 0, 1))
	g.says(g.confirm(0, 0, 1))
	g.says(g.confirm(1, 0, 1), "0 1: grant 0:1")
}

// TestWindow: ranks run at most Window rounds ahead of the slowest; each round is complete once,
// in order, when it is done on all ranks.
func TestWindow(t *testing.T) {
	g := formed(t, 2, 2)
	g.now = 5
	g.says(submit(10, 14), "0 1: propose 10:14 a0000000e")
	g.says(g.confirm(1, 10, 14))
	g.says(g.confirm(0, 10, 14), "0 1: grant 10:12")
	g.alarm(5 + deadline)
	g.says(g.did(0, 10), "owner: rank 0 did 10, exposed 3 busy 4")
	g.says(g.did(0, 11), "owner: rank 0 did 11, exposed 3 busy 4")
	g.says(g.did(0, 11)) // said twice
	g.says(g.did(1, 11)) // never before the round that comes first
	g.says(g.did(1, 10), "owner: rank 1 did 10, exposed 3 busy 4", "owner: complete 11",
		"0 1: grant 10:13")
	g.says(g.did(1, 11), "owner: rank 1 did 11, exposed 3 busy 4", "owner: complete 12",
		"0 1: grant 10:14")
	g.says(g.did(1, 12), "owner: rank 1 did 12, exposed 3 busy 4")
	g.says(g.did(1, 13), "owner: rank 1 did 13, exposed 3 busy 4")
	g.says(g.did(0, 12), "owner: rank 0 did 12, exposed 3 busy 4", "owner: complete 13")
	g.says(g.did(0, 13), "owner: rank 0 did 13, exposed 3 busy 4", "owner: complete 14")
	g.noAlarm()
	g.in(sched.Ready)
	g.says(submit(14, 15), "0 1: propose 14:15 e0000000f")
}

// TestCatchUp: when the slowest rank was alone at its round, the next lowest may be several rounds
// on, and all rounds in between are complete at once.
func TestCatchUp(t *testing.T) {
	g := running(t, 1, 1, 0, 3)
	g.says(g.did(0, 0), "owner: rank 0 did 0, exposed 3 busy 4", "owner: complete 1", "0: grant 0:2")
	g = running(t, 3, 8, 0, 4)
	for _, r := range []int{0, 2} {
		for round := range int32(3) {
			g.step(g.did(r, round))
		}
	}
	g.says(g.did(1, 0), "owner: rank 1 did 0, exposed 3 busy 4", "owner: complete 1")
	g.says(g.did(1, 1), "owner: rank 1 did 1, exposed 3 busy 4", "owner: complete 2")
	g.says(g.did(1, 2), "owner: rank 1 did 2, exposed 3 busy 4", "owner: complete 3")
}

// TestSignOfLife: after a deadline without a finished round every rank must answer a ping by the
// next one; any word of the present epoch is an answer.
func TestSignOfLife(t *testing.T) {
	g := running(t, 3, 4, 0, 9)
	g.step(g.did(0, 0))
	g.rings(1*deadline + 1)
	g.alarm(2*deadline + 1)
	g.rings(2*deadline+1, "0 1 2: ping")
	g.says(from(0, actors.Envelope{Kind: actors.Pong, Epoch: 1}))
	g.says(g.did(1, 0), "owner: rank 1 did 0, exposed 3 busy 4")
	g.rings(3*deadline + 1) // a round was finished: no verdict, a fresh start
	g.rings(4*deadline+1, "0 1 2: ping")
	g.says(from(0, actors.Envelope{Kind: actors.Pong, Epoch: 1}))
	g.says(from(2, actors.Envelope{Kind: actors.Pong, Epoch: 1}))
	g.says(from(1, actors.Envelope{Kind: actors.Pong, Epoch: 1}))
	g.rings(5*deadline+1, "0 1 2: ping") // all alive: asked again
	g.says(from(0, actors.Envelope{Kind: actors.Pong, Epoch: 1}))
	g.says(from(1, actors.Envelope{Kind: actors.Pong, Epoch: 1}))
	g.rings(6*deadline+1, "0 1 2: abort")
	g.noted("rank 2 gave no sign of life")
	g.allAborted(3, 2)
	g.in(sched.Aborting)
	g.rings(6*deadline+1+abortWait, "owner: failed round 0: peer lost, rank 2")
	g.in(sched.Forming)
}
