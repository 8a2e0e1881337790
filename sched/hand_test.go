package sched_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/sched"
)

const (
	deadline  = actors.Time(1000)
	abortWait = actors.Time(250)
)

// hash is the plan that everybody holds in these tests, by rounds.
func hash(_, from, to int32) uint64 { return uint64(from)<<32 | uint64(to) }

// gang is a scheduler stepped by hand.
type gang struct {
	t   testing.TB
	s   *sched.Scheduler
	out actors.Outbox
	now actors.Time
	due actors.Time // when the alarm rings
}

func newGang(t testing.TB, ranks int, window int32) *gang {
	return &gang{t: t, due: actors.Never, s: sched.New(sched.Config{
		Ranks: ranks, Window: window, Deadline: deadline, Plan: hash})}
}

// formed is a gang whose ranks have all come, each in incarnation 1.
func formed(t testing.TB, ranks int, window int32) *gang {
	g := newGang(t, ranks, window)
	for r := range ranks {
		g.says(hello(r, 1))
	}
	g.in(sched.Ready)
	return g
}

// running is a gang that runs rounds from <= r < to.
func running(t testing.TB, ranks int, window, from, to int32) *gang {
	g := formed(t, ranks, window)
	g.step(submit(from, to))
	for r := range ranks {
		g.step(g.confirm(r, from, to))
	}
	g.in(sched.Running)
	return g
}

// says steps the scheduler and compares what it says, pings left out, with want; see say.
func (g *gang) says(in actors.Envelope, want ...string) {
	g.t.Helper()
	if got := g.step(in); !slices.Equal(got, want) {
		g.t.Fatalf("in phase %d, after kind %d of %v, the scheduler says\n  %s\nwant\n  %s",
			g.s.Phase(), in.Kind, in.From, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func (g *gang) step(in actors.Envelope) []string {
	g.out.Reset()
	g.s.Step(g.now, in, &g.out)
	if g.out.Clear || g.out.Alarm != actors.Never {
		g.due = g.out.Alarm
	}
	var got []string
	for i := range g.out.Mail {
		e := &g.out.Mail[i]
		if e.Kind == actors.Ping {
			continue // see TestSignOfLife and TestLongOp
		}
		who, what := say(e)
		if e.From.Role != actors.Scheduler {
			g.t.Fatalf("%s comes from %v", what, e.From)
		}
		// The same to the next rank joins the line.
		if n := len(got) - 1; n >= 0 && e.To.Role == actors.Rank {
			if others, ok := strings.CutSuffix(got[n], ": "+what); ok {
				got[n] = others + " " + who + ": " + what
				continue
			}
		}
		got = append(got, who+": "+what)
	}
	return got
}

// rings sends the alarm at a time.
func (g *gang) rings(at actors.Time, want ...string) {
	g.t.Helper()
	g.now = at
	g.says(actors.Envelope{Kind: actors.Timer}, want...)
}

// alarm fails unless the last step set the alarm to a time; Never means that it left it alone.
func (g *gang) alarm(want actors.Time) {
	g.t.Helper()
	if g.out.Alarm != want || g.out.Clear {
		g.t.Errorf("alarm at %d (dropped: %v), want %d", g.out.Alarm, g.out.Clear, want)
	}
}

// noAlarm fails unless the last step dropped the alarm.
func (g *gang) noAlarm() {
	g.t.Helper()
	if !g.out.Clear {
		g.t.Errorf("the alarm is not dropped (set to %d)", g.out.Alarm)
	}
}

func (g *gang) in(want sched.Phase) {
	g.t.Helper()
	if got := g.s.Phase(); got != want {
		g.t.Fatalf("phase %d, want %d", got, want)
	}
}

func (g *gang) noted(parts ...string) {
	g.t.Helper()
	all := strings.Join(g.out.Notes, "\n")
	for _, p := range parts {
		if !strings.Contains(all, p) {
			g.t.Errorf("notes %q do not tell %q", all, p)
		}
	}
}

// say is who an envelope is for, and what it says. The epoch is told when it is not the first.
func say(e *actors.Envelope) (who, what string) {
	who = fmt.Sprint(e.To.Rank)
	if e.To.Role == actors.Owner {
		who = "owner"
	}
	switch e.Kind {
	case actors.Propose:
		what = fmt.Sprintf("propose %d:%d %x", e.Round, e.Op, e.A)
	case actors.Grant:
		what = fmt.Sprintf("grant %d:%d", e.Round, e.Op)
	case actors.Abort:
		what = "abort"
	case actors.Stop:
		what = "stop"
	case actors.Lost:
		what = fmt.Sprintf("lost %d", e.Peer)
	case actors.Closed:
		what = "closed"
	case actors.Pong:
		what = "pong"
	case actors.Complete:
		what = fmt.Sprintf("complete %d", e.Round)
	case actors.RoundDone:
		what = fmt.Sprintf("rank %d did %d, exposed %d busy %d", e.Peer, e.Round, e.A, e.B)
	case actors.Failed:
		what = fmt.Sprintf("failed round %d: %v, rank %d", e.Round, e.Fault, e.Peer)
		if e.HeadLo >= 0 {
			what += fmt.Sprintf("; rank %d waited at op %d on %d/%d", e.HeadLo, e.Op, e.HeadHi,
				e.Lane)
		}
	default:
		what = fmt.Sprintf("kind %d", e.Kind)
	}
	if e.Epoch != 1 {
		what += fmt.Sprintf(" epoch %d", e.Epoch)
	}
	return who, what
}

// What the scheduler hears.

func from(r int, e actors.Envelope) actors.Envelope {
	e.From = actors.Addr{Role: actors.Rank, Rank: int32(r)}
	return e
}

func hello(r int, incarnation uint64) actors.Envelope {
	return from(r, actors.Envelope{Kind: actors.Hello, A: incarnation})
}

func down(r int, incarnation uint64) actors.Envelope {
	return from(r, actors.Envelope{Kind: actors.Down, A: incarnation, Fault: actors.PeerLost})
}

func submit(from, to int32) actors.Envelope {
	return owner(actors.Envelope{Kind: actors.Submit, Round: from, Op: to})
}

func owner(e actors.Envelope) actors.Envelope {
	e.From = actors.Addr{Role: actors.Owner}
	return e
}

// of is a rank's word in the present epoch.
func (g *gang) of(r int, e actors.Envelope) actors.Envelope {
	e.Epoch = g.s.Epoch()
	return from(r, e)
}

func (g *gang) confirm(r int, from, to int32) actors.Envelope {
	return g.of(r, actors.Envelope{Kind: actors.Confirm, Round: from, Op: to, A: hash(0, from, to)})
}

func (g *gang) did(r int, round int32) actors.Envelope {
	return g.of(r, actors.Envelope{Kind: actors.RoundDone, Round: round, A: 3, B: 4})
}

func (g *gang) late(r int, f actors.Fault, op, peer, lane, round int32) actors.Envelope {
	return g.of(r, actors.Envelope{
		Kind: actors.Late, Fault: f, Op: op, Peer: peer, Lane: lane, Round: round})
}

// aborted is a rank's answer to an abort: in round 20+r it waited at op 10+r on a peer over lane 2,
// or, with peer -1, at an op of its own.
func (g *gang) aborted(r, peer int) actors.Envelope {
	e := actors.Envelope{
		Kind: actors.Aborted, Round: int32(20 + r), Op: int32(10 + r), Peer: int32(peer), Lane: 2}
	if peer < 0 {
		e.Lane = -1
	}
	return g.of(r, e)
}

func (g *gang) stopped(r int) actors.Envelope {
	return g.of(r, actors.Envelope{Kind: actors.Stopped, Op: -1})
}

// allAborted answers the abort for every rank but those left out, and gives the scheduler's last
// words.
func (g *gang) allAborted(ranks int, but ...int) []string {
	var last []string
	for r := range ranks {
		if !slices.Contains(but, r) {
			last = g.step(g.aborted(r, -1))
		}
	}
	return last
}
