package rank_test

import (
	"slices"
	"testing"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
)

// TestGrants: rounds run up to the grant and no further; a grant that is renewed goes on from where
// the rank is; a newer epoch begins at its own round.
func TestGrants(t *testing.T) {
	d := newDesk(t, script(t, dev(plan.Attend, 0)))
	d.says(kind(actors.Start), "hello 7")
	d.says(in(1, 4, actors.Envelope{Kind: actors.Propose, Op: 9, A: 1}),
		"confirm 400000009 round 4")
	d.says(in(1, 4, actors.Envelope{Kind: actors.Grant, Op: 6}), "launch 0 on 0 round 4")
	d.says(in(1, 4, done(0)), "round done, exposed 0 busy 0 round 4", "launch 0 on 0 round 5")
	d.says(in(1, 5, done(0)), "round done, exposed 0 busy 0 round 5")
	d.says(in(1, 6, done(0)))
	d.says(kind(actors.Ping), "pong round 6")
	d.says(in(1, 4, actors.Envelope{Kind: actors.Grant, Op: 7}), "launch 0 on 0 round 6")
	d.says(in(1, 4, actors.Envelope{Kind: actors.Grant, Op: 8})) // while it runs
	d.says(in(1, 6, done(0)), "round done, exposed 0 busy 0 round 6", "launch 0 on 0 round 7")
	d.says(in(1, 7, done(0)), "round done, exposed 0 busy 0 round 7")
	d.says(in(3, 2, actors.Envelope{Kind: actors.Grant, Op: 3}), "launch 0 on 0 epoch 3 round 2")
	d.says(in(2, 9, actors.Envelope{Kind: actors.Grant, Op: 10}))
	if s := d.w.Stats(); s.Rounds != 4 || s.Dropped != 2 {
		t.Errorf("%d rounds and %d dropped, want 4 and 2", s.Rounds, s.Dropped)
	}
}

// TestUnknownRound: a grant of a round that the book does not have is another plan.
func TestUnknownRound(t *testing.T) {
	d := newDesk(t, script(t, dev(plan.Attend, 0)))
	d.says(in(1, bookEnd, actors.Envelope{Kind: actors.Grant, Op: bookEnd + 1}),
		"late op -1: plan mismatch, peer -1 lane -1 round 1048576")
	d.noted("rank 1", "round 1048576")
}

// TestEmptyProgram: a rank with nothing to do takes part in every round that is granted.
func TestEmptyProgram(t *testing.T) {
	d := newDesk(t, script(t), script(t, dev(plan.Attend, 0)))
	d.says(grant(0, 4), "round done, exposed 0 busy 0", "launch 0 on 0 round 1")
	d.says(in(1, 1, done(0)), "round done, exposed 0 busy 0 round 1",
		"round done, exposed 0 busy 0 round 2", "launch 0 on 0 round 3")
	only := newDesk(t, script(t))
	at, dropped := only.alarm(5, grant(0, 3), "round done, exposed 0 busy 0",
		"round done, exposed 0 busy 0 round 1", "round done, exposed 0 busy 0 round 2")
	if at != actors.Never {
		t.Errorf("an alarm at %d (dropped: %v) for rounds without a wait", at, dropped)
	}
	many := newDesk(t, script(t))
	if got := many.step(grant(0, 50_000)); len(got) != 50_000 {
		t.Errorf("%d rounds done, want 50000", len(got))
	}
}

// TestRoundDoneFigures: exposed is the time in which a round ran and the device had nothing, busy
// is what the ops took on their streams.
func TestRoundDoneFigures(t *testing.T) {
	d := newDesk(t, script(t,
		recv(0, 0, 1), dev(plan.Attend, 1, 0), dev(plan.Pack, 1, 0), send(2, 0, 2, 1),
	))
	block := arrived(d.b[0], 0)
	at := func(now actors.Time, e actors.Envelope, want ...string) {
		t.Helper()
		d.now = now
		d.says(e, want...)
	}
	at(10, grant(0, 2), "post 0 <-0/0 t1")
	at(30, block, "launch 1 on 0", "launch 2 on 2") // 20 exposed
	at(40, took(2, 9, 0))
	at(70, took(1, 35, 4000))
	at(75, credit(2, 0, 2), "put 3 ->2/0 t2")
	at(81, sent(3), "round done, exposed 31 busy 44", "post 0 <-0/0 t1 round 1") // 11 more
	block = arrivedIn(1, 1, d.b[0], 0)
	at(90, block, "launch 1 on 0 round 1", "launch 2 on 2 round 1")
	at(91, in(1, 1, credit(2, 0, 2)))
	at(95, in(1, 1, took(1, 5, 1)), "put 3 ->2/0 t2 round 1")
	at(99, in(1, 1, sent(3)))
	at(100, in(1, 1, took(2, 10, 0)), "round done, exposed 9 busy 15 round 1")
	want := rank.Stats{Rounds: 2, BusyNanos: 59, ExposedNanos: 40, Flops: 4001}
	if got := d.w.Stats(); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
}

// busy is a program of every kind of dependency.
func busy(t testing.TB) *rank.Script {
	return script(t,
		dev(plan.Zero, 0), recv(0, 0, 1), send(2, 0, 1), dev(plan.Attend, 1, 0), rel(1, 2),
		dev(plan.Attend, 2, 1, 3), dev(plan.Accumulate, 2, 5), send(2, 0, 2, 1), rel(3, 5, 7),
		recv(0, 0, 3, 8), dev(plan.Attend, 3, 9, 5), dev(plan.Pack, 4, 10, 6), send(3, 1, 4, 11),
		dev(plan.Finalize, 5, 10, 11, 6), rel(6, 12, 13), recv(3, 1, 7, 14),
		dev(plan.Unpack, 8, 15),
	)
}

// world is the smallest device and link: all that is asked is done at once, and each peer gives
// its credits when the round begins.
type world struct {
	w      *rank.Worker
	s      *rank.Script
	out    actors.Outbox
	queue  []actors.Envelope
	now    actors.Time
	rounds int32 // done
}

func (w *world) step(e actors.Envelope) {
	w.now++
	w.out.Reset()
	w.w.Step(w.now, e, &w.out)
	for i := range w.out.Mail {
		e := w.out.Mail[i]
		switch e.Kind {
		case actors.Launch:
			e.Kind, e.A, e.B = actors.Done, 1, 1
		case actors.Post:
			e.Kind = actors.Arrived
		case actors.Put:
			e.Kind = actors.Sent
		case actors.RoundDone:
			w.rounds++
			continue
		}
		w.queue = append(w.queue, e)
	}
}

// round runs one round, from its grant to its end.
func (w *world) round() {
	r := w.rounds
	for i := range w.s.Program.Ops {
		if o := &w.s.Program.Ops[i]; o.Kind == plan.Send {
			w.queue = append(w.queue, in(1, r, credit(o.Peer, o.Lane, o.Tick)))
		}
	}
	w.step(grant(0, r+1))
	for n := 0; n < len(w.queue); n++ {
		w.step(w.queue[n])
	}
	w.queue = w.queue[:0]
}

// TestNoGarbage: in the steady state a worker allocates nothing, round after round.
func TestNoGarbage(t *testing.T) {
	s := busy(t)
	w := &world{s: s, w: rank.New(rank.Config{Rank: self, Book: book{s}, Deadline: deadline})}
	w.round()
	if w.rounds != 1 {
		t.Fatal("the round did not end")
	}
	if n := testing.AllocsPerRun(100, w.round); n != 0 {
		t.Errorf("%v allocations a round, want none", n)
	}
	if w.rounds != 102 {
		t.Errorf("%d rounds done, want 102", w.rounds)
	}
}

// TestSameInputsSameOutputs: two workers that hear the same say the same, to the last byte.
func TestSameInputsSameOutputs(t *testing.T) {
	s := busy(t)
	var said [2][]actors.Envelope
	for k := range said {
		w := &world{s: s, w: rank.New(rank.Config{Rank: self, Book: book{s}, Deadline: deadline})}
		for range 3 {
			w.round()
		}
		w.step(grant(0, 4))
		w.step(in(1, 3, kind(actors.Abort)))
		said[k] = append(w.queue, w.out.Mail...)
	}
	if !slices.Equal(said[0], said[1]) {
		t.Error("two workers with the same inputs say different things")
	}
}

func BenchmarkRound(b *testing.B) {
	s := busy(b)
	w := &world{s: s, w: rank.New(rank.Config{Rank: self, Book: book{s}, Deadline: deadline})}
	b.ReportAllocs()
	for b.Loop() {
		w.round()
	}
	ops := b.N * len(s.Program.Ops)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(ops), "ns/op-of-plan")
}
