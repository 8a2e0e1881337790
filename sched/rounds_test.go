package sched_test

import (
	"strings"
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
	g.rings(deadline, "owner: lost 1", "owner: lost 3", "owner: failed round 5: peer lost, rank 1")
	g.noted("rank 1 has not come", "rank 3 has not come")
	g.in(sched.Forming)
	g.rings(3 * deadline) // nothing is asked any more
	g.says(hello(1, 1))
	g.says(hello(3, 1)) // what was given back is not run
	g.in(sched.Ready)
	g.says(submit(7, 8), "0 1 2 3: propose 7:8 700000008 epoch 2")
}

// TestPlanMismatch: a rank that holds another plan is named, with both hashes, before anything
// runs.
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
	end, why := g.until(10+2*deadline, 1)
	if want := "owner: failed round 0: peer lost, rank 1"; why != want || end > 10+deadline/4*5 {
		t.Errorf("at %d the owner hears %q, want %q", end, why, want)
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

// TestCatchUp: while the slowest rank catches up, each of its rounds is complete as it ends,
// however far the others are.
func TestCatchUp(t *testing.T) {
	g := running(t, 1, 1, 0, 3)
	g.says(g.did(0, 0), "owner: rank 0 did 0, exposed 3 busy 4", "owner: complete 1",
		"0: grant 0:2")
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

// until lets time pass to the end of a run of the gang in which the silent rank says nothing more
// and all others answer every ping and every abort at once. It gives the time of the verdict, or
// Never if there is none before the limit.
func (g *gang) until(limit actors.Time, silent int) (end actors.Time, verdict string) {
	for g.due <= limit {
		g.now = g.due
		g.due = actors.Never
		queue := []actors.Envelope{{Kind: actors.Timer}}
		for len(queue) > 0 {
			for _, line := range g.step(queue[0]) {
				if _, ok := strings.CutPrefix(line, "owner: failed"); ok {
					return g.now, line
				}
			}
			queue = queue[1:]
			for _, m := range g.out.Mail {
				r := int(m.To.Rank)
				switch {
				case m.To.Role != actors.Rank || r == silent:
				case m.Kind == actors.Ping:
					queue = append(queue, g.of(r, actors.Envelope{Kind: actors.Pong}))
				case m.Kind == actors.Abort:
					queue = append(queue, g.aborted(r, -1))
				}
			}
		}
	}
	return actors.Never, ""
}

// TestSignOfLife: a rank from which nothing comes is named within 1.25 deadlines of its last word,
// though nobody waits for it and it waits for nobody; not before a whole one. Ranks that answer are
// never named, however long a round takes.
func TestSignOfLife(t *testing.T) {
	for _, last := range []actors.Time{0, 1, deadline / 3, deadline - 1, deadline, 2*deadline + 7} {
		g := running(t, 3, 4, 0, 9)
		for n := int32(0); g.due < last; n++ {
			if end, why := g.until(g.due, -1); end != actors.Never {
				t.Fatalf("all ranks answer, and at %d the verdict is %q", end, why)
			}
		}
		g.now = last
		g.says(g.did(2, 0), "owner: rank 2 did 0, exposed 3 busy 4")
		end, why := g.until(last+4*deadline, 2)
		if want := "owner: failed round 0: peer lost, rank 2"; why != want {
			t.Errorf("rank 2 says its last word at %d: the verdict is %q, want %q", last, why, want)
		}
		if end < last+deadline || end > last+deadline/4*5 {
			t.Errorf("rank 2 says its last word at %d and is named %d later: want 1000 to 1250",
				last, end-last)
		}
		g.in(sched.Forming)
	}
	g := running(t, 3, 4, 0, 9)
	if end, why := g.until(100*deadline, -1); end != actors.Never {
		t.Errorf("all ranks answer, and at %d the verdict is %q", end, why)
	}
}
