package sched_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/sched"
	"pgregory.net/rapid"
)

// life is what a model rank is about.
type life uint8

const (
	idle life = iota // nothing granted yet in its epoch
	working
	flushing
	flushed
	stopping
	gone   // dead, or frozen: it hears nothing any more
	halted // stopped in good order
)

// model is a rank as the scheduler must see it: it obeys, or it is gone.
type model struct {
	inc          uint64
	state        life
	epoch        actors.Epoch
	round, grant int32
	dirty        bool              // its device or link may still touch a slot for its epoch
	inbox, said  []actors.Envelope // from and to the scheduler, each in order
}

// fleet is a scheduler among model ranks and an owner. Mail is delivered in any order that keeps
// the order of each pair; the alarm rings only when nothing else can happen, since deadlines are
// longer than any delay.
type fleet struct {
	t      *rapid.T
	s      *sched.Scheduler
	twin   *sched.Scheduler // hears the same
	out    actors.Outbox
	window int32
	now    actors.Time
	alarm  actors.Time
	ranks  []*model
	known  []uint64          // by rank: the incarnation that the scheduler has heard of
	host   []actors.Envelope // Down, in order
	owner  []actors.Envelope // to the scheduler
	asked  bool
	from   int32
	to     int32
	upTo   int32 // complete, as the owner knows
	epoch  actors.Epoch
	done   []int32 // by rank: first round not done in the present epoch, in truth
}

func newFleet(t *rapid.T, ranks int, window int32) *fleet {
	cfg := sched.Config{Ranks: ranks, Window: window, Deadline: deadline, Plan: hash}
	f := &fleet{
		t: t, window: window, alarm: actors.Never, done: make([]int32, ranks),
		known: make([]uint64, ranks), s: sched.New(cfg), twin: sched.New(cfg),
	}
	for r := range ranks {
		f.ranks = append(f.ranks, &model{state: gone})
		f.spawn(r)
	}
	f.step(actors.Envelope{Kind: actors.Start})
	return f
}

// spawn begins a new incarnation of a rank. What was said before is still on its way.
func (f *fleet) spawn(r int) {
	old := f.ranks[r]
	f.t.Logf("spawn %d", r)
	f.ranks[r] = &model{inc: old.inc + 1, said: append(old.said, hello(r, old.inc+1))}
}

func (f *fleet) step(e actors.Envelope) {
	f.t.Logf("scheduler hears %s", brief(e))
	if e.Kind == actors.Hello {
		f.known[e.From.Rank] = max(f.known[e.From.Rank], e.A)
	}
	f.out.Reset()
	before := f.s.Epoch()
	f.s.Step(f.now, e, &f.out)
	if f.s.Epoch() < before {
		f.t.Fatalf("epoch %d after %d", f.s.Epoch(), before)
	}
	if f.out.Clear || f.out.Alarm != actors.Never {
		f.alarm = f.out.Alarm
	}
	f.same(e)
	for _, m := range f.out.Mail {
		f.t.Logf("  says %s", brief(m))
		if m.To.Role == actors.Owner {
			f.hears(m)
			continue
		}
		if m.Kind == actors.Grant {
			f.mayGrant(m)
		}
		r := f.ranks[m.To.Rank]
		if r.state != gone && r.state != halted && r.inc == f.known[m.To.Rank] {
			r.inbox = append(r.inbox, m)
		}
	}
}

// same lets the twin hear the same: it must say the same, to the last byte.
func (f *fleet) same(e actors.Envelope) {
	var out actors.Outbox
	out.Reset()
	f.twin.Step(f.now, e, &out)
	if !slices.Equal(out.Mail, f.out.Mail) || !slices.Equal(out.Notes, f.out.Notes) ||
		out.Alarm != f.out.Alarm || out.Clear != f.out.Clear {
		f.t.Fatalf("two schedulers hear the same and differ:\n%+v\n%+v", f.out, out)
	}
}

// brief is an envelope in a failing test's story.
func brief(e actors.Envelope) string {
	return fmt.Sprintf("kind %d from %v to %v: epoch %d rounds %d to %d, a %d", e.Kind, e.From,
		e.To, e.Epoch, e.Round, e.Op, e.A)
}

// mayGrant checks a grant as it is sent: no rank that lives still works in another epoch, and the
// window holds against what ranks have really done.
func (f *fleet) mayGrant(m actors.Envelope) {
	if m.Epoch != f.epoch {
		f.epoch = m.Epoch
		for i := range f.done {
			f.done[i] = m.Round
		}
	}
	low := f.done[0]
	for i, r := range f.ranks {
		low = min(low, f.done[i])
		if r.dirty && r.state != gone && r.epoch != m.Epoch {
			f.t.Fatalf("rounds are granted in epoch %d while rank %d has not flushed epoch %d",
				m.Epoch, i, r.epoch)
		}
	}
	if m.Op > low+f.window || m.Op > f.to {
		f.t.Fatalf("granted up to %d: the slowest is at %d, the window is %d, asked up to %d", m.Op,
			low, f.window, f.to)
	}
}

// hears is the owner's part.
func (f *fleet) hears(m actors.Envelope) {
	switch m.Kind {
	case actors.RoundDone:
		if m.Epoch != f.epoch || m.Round < f.from || m.Round >= f.to {
			f.t.Fatalf("round %d of epoch %d is done, epoch %d runs %d to %d", m.Round, m.Epoch,
				f.epoch, f.from, f.to)
		}
	case actors.Complete:
		if !f.asked || m.Round != f.upTo+1 || m.Epoch != f.epoch {
			f.t.Fatalf("complete %d of epoch %d after %d of epoch %d (asked: %v)", m.Round, m.Epoch,
				f.upTo, f.epoch, f.asked)
		}
		for r, done := range f.done {
			if done < m.Round {
				f.t.Fatalf("complete %d, but rank %d has done %d", m.Round, r, done)
			}
		}
		f.upTo = m.Round
		f.asked = f.upTo < f.to
	case actors.Failed:
		if !f.asked {
			f.t.Fatalf("failed with nothing asked: %v", m.Fault)
		}
		f.asked = false
		if m.Fault == actors.PeerLost && f.ranks[m.Peer].inc == 1 && f.ranks[m.Peer].state != gone {
			f.t.Fatalf("rank %d is called lost, and it never died", m.Peer)
		}
	}
}

func (f *fleet) submit(n int32) {
	f.from = f.to
	f.to, f.upTo, f.asked = f.from+n, f.from, true
	f.owner = append(f.owner, submit(f.from, f.to))
}

// hear is a rank that takes the next envelope of its inbox.
func (f *fleet) hear(i int) {
	r := f.ranks[i]
	e := r.inbox[0]
	r.inbox = r.inbox[1:]
	f.t.Logf("rank %d hears %s", i, brief(e))
	say := func(e actors.Envelope) { r.said = append(r.said, from(i, e)) }
	switch e.Kind {
	case actors.Propose:
		say(actors.Envelope{Kind: actors.Confirm, Epoch: e.Epoch, Round: e.Round, Op: e.Op,
			A: hash(0, e.Round, e.Op)})
	case actors.Ping:
		say(actors.Envelope{Kind: actors.Pong, Epoch: e.Epoch})
	case actors.Grant:
		switch {
		case e.Epoch > r.epoch && r.state != stopping:
			r.epoch, r.round, r.state = e.Epoch, e.Round, working
			r.grant, r.dirty = e.Op, true
		case e.Epoch == r.epoch && r.state == working:
			r.grant, r.dirty = e.Op, true
		}
	case actors.Abort:
		if e.Epoch >= r.epoch && r.state != stopping {
			r.epoch, r.state = e.Epoch, flushing
		}
	}
}

// options are what can happen next besides alarms and faults.
func (f *fleet) options() []func() {
	var can []func()
	add := func(ok bool, what func()) {
		if ok {
			can = append(can, what)
		}
	}
	pop := func(q *[]actors.Envelope) func() {
		return func() {
			e := (*q)[0]
			*q = (*q)[1:]
			f.step(e)
		}
	}
	add(len(f.owner) > 0, pop(&f.owner))
	add(len(f.host) > 0, pop(&f.host))
	for i, r := range f.ranks {
		add(len(r.said) > 0, pop(&r.said))
		add(len(r.inbox) > 0 && r.state != gone, func() { f.hear(i) })
		add(r.state == working && r.round < r.grant, func() {
			r.said = append(r.said, from(i, actors.Envelope{Kind: actors.RoundDone, Epoch: r.epoch,
				Round: r.round}))
			r.round++
			r.dirty = r.round < r.grant
			if r.epoch == f.epoch {
				f.done[i] = r.round
			}
		})
		add(r.state == flushing, func() {
			r.said = append(r.said, from(i, actors.Envelope{Kind: actors.Aborted, Epoch: r.epoch,
				Op: -1, Peer: -1, Lane: -1}))
			r.state, r.dirty = flushed, false
		})
	}
	return can
}

// faults are what may go wrong.
func (f *fleet) faults() []func() {
	var can []func()
	for i, r := range f.ranks {
		switch {
		case r.state == gone:
			can = append(can, func() { f.spawn(i) })
		case r.inc < 5:
			can = append(can, func() { f.kill(i, true) }, func() { f.kill(i, false) })
		}
		if r.state == working && r.round < r.grant {
			can = append(can, func() {
				r.said = append(r.said, from(i, actors.Envelope{Kind: actors.Late, Epoch: r.epoch,
					Fault: actors.TimedOut, Round: r.round, Op: 1, Peer: -1, Lane: -1}))
			})
		}
	}
	if f.asked {
		can = append(can, func() {
			f.owner = append(f.owner, owner(actors.Envelope{Kind: actors.Cancel}))
		})
	}
	return can
}

// kill ends a rank; told: the world sees it and says so, else it is only silent.
func (f *fleet) kill(i int, told bool) {
	f.t.Logf("kill %d told %v", i, told)
	r := f.ranks[i]
	r.state, r.inbox = gone, nil
	if told {
		f.host = append(f.host, down(i, r.inc))
	}
}

// one lets one thing happen that need not be drawn: mail first, else the alarm.
func (f *fleet) one(pick func(n int) int) bool {
	if can := f.options(); len(can) > 0 {
		can[pick(len(can))]()
		return true
	}
	if f.alarm == actors.Never {
		return false
	}
	f.now, f.alarm = f.alarm, actors.Never
	f.step(actors.Envelope{Kind: actors.Timer})
	return true
}

// settle lets things happen, without new faults, until the owner waits for nothing.
func (f *fleet) settle(pick func(n int) int) {
	for n := 0; f.asked; n++ {
		if n > 5000 || !f.one(pick) {
			f.t.Fatalf("the owner still waits for rounds %d to %d after %d steps: phase %d, "+
				"epoch %d\n%s", f.from, f.to, n, f.s.Phase(), f.s.Epoch(), f.sight())
		}
	}
}

func (f *fleet) sight() string {
	s := ""
	for i, r := range f.ranks {
		s += fmt.Sprintf("rank %d incarnation %d state %d epoch %d round %d of %d\n", i, r.inc,
			r.state, r.epoch, r.round, r.grant)
	}
	return s
}

// story is one life of a fleet: chance, then peace.
func story(t *rapid.T) {
	pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "which") }
	ranks, window := rapid.IntRange(1, 4).Draw(t, "ranks"), rapid.Int32Range(1, 3).Draw(t, "window")
	f := newFleet(t, ranks, window)
	for range rapid.IntRange(1, 80).Draw(t, "steps") {
		if !f.asked && rapid.IntRange(0, 3).Draw(t, "submit?") == 0 {
			f.submit(rapid.Int32Range(1, 4).Draw(t, "rounds"))
		}
		if can := f.faults(); len(can) > 0 && rapid.IntRange(0, 9).Draw(t, "fault?") == 0 {
			can[pick(len(can))]()
		}
		f.one(pick)
	}
	f.settle(pick)
	for i, r := range f.ranks {
		if r.state == gone {
			f.spawn(i)
		}
	}
	for range 5 { // what went unseen until now may cost one submission each
		f.submit(3)
		f.settle(pick)
		if f.upTo == f.to {
			return
		}
	}
	t.Fatalf("five submissions with every rank alive: none is complete\n%s", f.sight())
}

// TestFleet: whatever dies, comes back, is late or is cancelled in whatever order of the mail, no
// round of two epochs is mixed, every submission ends, and when all ranks live the next one is
// complete.
func TestFleet(t *testing.T) {
	for range 30 { // rapid tells 100 stories at a time
		rapid.Check(t, story)
	}
}
