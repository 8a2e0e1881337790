package inproc

import (
	"testing"
	"time"

	"github.com/kvloom/kvloom/actors"
)

// TestPlanOfAWay: each block holds the way from the end of the one before, or from when it came.
func TestPlanOfAWay(t *testing.T) {
	block := func(came, holds time.Duration) paced { return paced{came: came, holds: holds} }
	q := &queue{waiting: []paced{block(0, 8), block(3, 6), block(15, 3), block(15, 2)}}
	q.plan(0)
	for i, want := range []time.Duration{8, 14, 18, 20} {
		if q.waiting[i].due != want {
			t.Errorf("block %d is due at %d, want %d", i, q.waiting[i].due, want)
		}
	}
	q.waiting = append(q.waiting[:1], q.waiting[2:]...) // the second is flushed
	q.plan(1)
	for i, want := range []time.Duration{8, 18, 20} {
		if q.waiting[i].due != want {
			t.Errorf("after a flush block %d is due at %d, want %d", i, q.waiting[i].due, want)
		}
	}
}

// byRound paces a block by its round, in milliseconds.
func byRound(_, _, _, round, _ int32) time.Duration {
	return time.Duration(round) * time.Millisecond
}

func TestPacedOrderAndTimes(t *testing.T) {
	m := &mover{}
	const each = 6 * time.Millisecond
	r := newRig(t, Options{Ranks: 2, Mover: m, Pace: byRound})
	began := time.Now()
	for i := range int32(5) {
		r.from(1, post(0, i, 6, 30+i, 1))
		r.await(0, actors.Credit)
		r.from(0, put(1, i, 6, 20+i, 1))
	}
	for i := range 5 {
		e := r.await(1, actors.Arrived)
		if e.Op != int32(30+i) {
			t.Fatalf("arrival %d is op %d, want %d", i, e.Op, 30+i)
		}
		if took := time.Since(began); took < time.Duration(i+1)*each {
			t.Errorf("arrival %d came after %v: %d blocks of %v hold the way longer", i, took, i+1,
				each)
		}
		if e := r.await(0, actors.Sent); e.Op != int32(20+i) {
			t.Fatalf("sent %d is op %d, want %d", i, e.Op, 20+i)
		}
	}
	r.Close()
}

// TestWaysAreApart: a block that holds its way for an hour stops only its own way.
func TestWaysAreApart(t *testing.T) {
	const hour = 3600 * 1000 // rounds are milliseconds
	for _, c := range []struct {
		name   string
		linkOf func(src, dst, lane int32) int
		passes bool
	}{
		{"pairs", nil, true},
		{"lanes", func(_, _, lane int32) int { return int(lane) }, true},
		{"one port a source", func(src, _, _ int32) int { return int(src) }, false},
	} {
		m := &mover{}
		r := newRig(t, Options{Ranks: 3, Mover: m, Pace: byRound, LinkOf: c.linkOf})
		slow, quick := put(1, 0, hour, 20, 1), put(2, 1, 1, 21, 1)
		slow.Lane, quick.Lane = 4, 5
		for _, p := range []actors.Envelope{slow, quick} {
			e := p
			e.Kind, e.Peer = actors.Post, 0
			r.from(p.Peer, e)
			r.await(0, actors.Credit)
			r.from(0, p)
		}
		if !c.passes { // then only a flush of the slow block's receiver lets the other go
			r.none(0, 1, 2)
			r.from(1, flush(1))
			r.await(1, actors.Flushed)
		}
		if e := r.await(0, actors.Sent); e.Op != 21 {
			t.Errorf("%s: sent %+v, want op 21", c.name, e)
		}
		r.await(2, actors.Arrived)
		r.Close()
		r.none(0, 1, 2)
		if r.Dropped() != 1 {
			t.Errorf("%s: dropped %d, want the slow block", c.name, r.Dropped())
		}
	}
}

// TestFlushDropsWhatWaits flushes either end of waiting blocks.
func TestFlushDropsWhatWaits(t *testing.T) {
	for flusher := range int32(2) {
		m := &mover{}
		hold := time.Hour
		r := newRig(t, Options{Ranks: 2, Mover: m,
			Pace: func(_, _, _, _, _ int32) time.Duration { return hold }})
		for i := range int32(3) {
			r.from(1, post(0, i, 6, 30+i, 1))
			r.await(0, actors.Credit)
			r.from(0, put(1, i, 6, 20+i, 1))
		}
		r.from(flusher, flush(1))
		r.await(flusher, actors.Flushed)
		if r.Dropped() != 3 {
			t.Errorf("flush of rank %d dropped %d, want 3", flusher, r.Dropped())
		}
		hold = 0
		r.from(1, post(0, 0, 6, 30, 2))
		r.await(0, actors.Credit)
		r.from(0, put(1, 0, 6, 20, 2))
		r.await(0, actors.Sent)
		r.await(1, actors.Arrived)
		r.Close()
		if len(m.hops) != 1 {
			t.Errorf("%d hops, want the one of the new epoch", len(m.hops))
		}
	}
}

func TestCloseDropsAndRefuses(t *testing.T) {
	m := &mover{}
	r := newRig(t, Options{Ranks: 2, Mover: m,
		Pace: func(_, _, _, _, _ int32) time.Duration { return time.Hour }})
	r.from(1, post(0, 0, 0, 30, 1))
	r.await(0, actors.Credit)
	r.from(0, put(1, 0, 0, 20, 1))
	r.Close()
	r.from(1, post(0, 1, 0, 31, 2))
	r.none(0, 1)
	if r.Dropped() != 2 || len(m.hops) != 0 {
		t.Errorf("dropped %d, %d hops; want 2, 0", r.Dropped(), len(m.hops))
	}
}

// TestOneServerAWay: a timer that fires while a block of its way moves leaves the next one alone.
func TestOneServerAWay(t *testing.T) {
	m := &mover{}
	r := newRig(t, Options{Ranks: 2, Mover: m,
		Pace: func(_, _, _, _, _ int32) time.Duration { return time.Hour }})
	r.from(1, post(0, 0, 0, 30, 1))
	r.await(0, actors.Credit)
	r.from(0, put(1, 0, 0, 20, 1))
	q := r.ways.list[0]
	q.waiting[0].due, q.busy = 0, true
	r.ways.serve(q)
	r.none(0, 1)
	q.busy = false
	r.ways.serve(q)
	r.await(0, actors.Sent)
	r.await(1, actors.Arrived)
	r.Close()
}
