package inproc

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/transport"
)

// patience is how long a test waits for what must come; it is no measure of anything.
const patience = 60 * time.Second

// hop is one call of Hop.
type hop struct{ src, dst, round, sendOp, recvOp int32 }

// mover records hops. If gate is there, a hop says so on entered and waits for the gate.
type mover struct {
	mu            sync.Mutex
	hops          []hop
	posts         []hop
	fail          error
	entered, gate chan struct{}
	moving        atomic.Int32
	overlap       atomic.Int32 // posts while a block moved
}

func (m *mover) Post(rank, round, op int32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.overlap.Add(m.moving.Load())
	m.posts = append(m.posts, hop{dst: rank, round: round, recvOp: op})
	return m.fail
}

func (m *mover) Hop(src, dst, round, sendOp, recvOp int32) (int64, error) {
	m.moving.Add(1)
	defer m.moving.Add(-1)
	if m.gate != nil {
		m.entered <- struct{}{}
		<-m.gate
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hops = append(m.hops, hop{src, dst, round, sendOp, recvOp})
	return 8, m.fail
}

// rig is a net whose ranks are channels.
type rig struct {
	*Net
	t     testing.TB
	in    []chan actors.Envelope
	notes chan string
}

func newRig(t testing.TB, o Options) *rig {
	r := &rig{t: t, notes: make(chan string, 64)}
	for range o.Ranks {
		r.in = append(r.in, make(chan actors.Envelope, 1<<12))
	}
	o.Send = func(e actors.Envelope) {
		if e.From != (actors.Addr{Role: actors.Link, Rank: e.To.Rank}) || e.To.Role != actors.Rank {
			t.Errorf("an envelope came to %v from %v, want it from the rank's own link", e.To,
				e.From)
		}
		r.in[e.To.Rank] <- e
	}
	o.OnNote = func(_ actors.Addr, note string) { r.notes <- note }
	r.Net = New(o)
	return r
}

// from sends an envelope from a rank to its link.
func (r *rig) from(rank int32, e actors.Envelope) {
	e.From = actors.Addr{Role: actors.Rank, Rank: rank}
	e.To = actors.Addr{Role: actors.Link, Rank: rank}
	r.Handle(e)
}

func (r *rig) await(rank int32, kind actors.Kind) actors.Envelope {
	r.t.Helper()
	select {
	case e := <-r.in[rank]:
		if e.Kind != kind {
			r.t.Fatalf("rank %d got kind %d, want %d: %+v", rank, e.Kind, kind, e)
		}
		return e
	case <-time.After(patience):
		r.t.Fatalf("rank %d waited in vain for kind %d", rank, kind)
	}
	panic("unreachable")
}

func (r *rig) none(ranks ...int32) {
	r.t.Helper()
	for _, rank := range ranks {
		if n := len(r.in[rank]); n > 0 {
			r.t.Fatalf("rank %d got %d envelopes too many, first %+v", rank, n, <-r.in[rank])
		}
	}
}

func post(peer, tick, round, op int32, epoch actors.Epoch) actors.Envelope {
	return actors.Envelope{
		Kind: actors.Post, Peer: peer, Tick: tick, Round: round, Op: op, Epoch: epoch}
}

func put(peer, tick, round, op int32, epoch actors.Epoch) actors.Envelope {
	e := post(peer, tick, round, op, epoch)
	e.Kind = actors.Put
	return e
}

func flush(epoch actors.Epoch) actors.Envelope {
	return actors.Envelope{Kind: actors.Flush, Epoch: epoch}
}

// TestJourney draws a transfer and looks at every envelope of it.
func TestJourney(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &mover{}
		r := newRig(t, Options{Ranks: 5, Mover: m})
		small, word := rapid.Int32Range(0, 1<<20), rapid.Uint64()
		src, dst := rapid.Int32Range(0, 4).Draw(rt, "src"), rapid.Int32Range(0, 4).Draw(rt, "dst")
		h := transport.Header{
			Epoch: actors.Epoch(rapid.Uint32Range(1, 1<<30).Draw(rt, "epoch")),
			Round: small.Draw(rt, "round"), Lane: small.Draw(rt, "lane"),
			Tick: small.Draw(rt, "tick"), Tensor: rapid.Uint8().Draw(rt, "tensor"),
			HeadLo: small.Draw(rt, "lo"), HeadHi: small.Draw(rt, "hi"),
			SetHash: word.Draw(rt, "set"), Plan: word.Draw(rt, "plan"),
			Run: rapid.Uint32().Draw(rt, "run"), Pass: rapid.Uint8().Draw(rt, "pass"),
			State: small.Draw(rt, "state"),
		}
		recvOp, sendOp := small.Draw(rt, "recv"), small.Draw(rt, "send")
		e := actors.Envelope{Kind: actors.Post, Peer: src, Op: recvOp}
		h.Stamp(&e)
		r.from(dst, e)
		credit := r.await(src, actors.Credit)
		want := actors.Envelope{
			To:   actors.Addr{Role: actors.Rank, Rank: src},
			From: actors.Addr{Role: actors.Link, Rank: src}, Kind: actors.Credit, Peer: dst,
			Lane: h.Lane, Tick: h.Tick, Round: h.Round, Epoch: h.Epoch,
		}
		if credit != want {
			rt.Fatalf("credit %+v, want %+v", credit, want)
		}
		e = actors.Envelope{Kind: actors.Put, Peer: dst, Op: sendOp}
		h.Stamp(&e)
		r.from(src, e)
		sent := r.await(src, actors.Sent)
		if sent.Op != sendOp || sent.Round != h.Round || sent.Epoch != h.Epoch || sent.Peer != dst {
			rt.Fatalf("sent %+v, want op %d to %d and the header's %v", sent, sendOp, dst, h)
		}
		came := r.await(dst, actors.Arrived)
		if came.Op != recvOp || came.Peer != src || transport.HeaderOf(&came) != h {
			rt.Fatalf("arrived %+v, want op %d from %d and %v", came, recvOp, src, h)
		}
		if want := (hop{src, dst, h.Round, sendOp, recvOp}); len(m.hops) != 1 || m.hops[0] != want {
			rt.Fatalf("hops %v, want %v", m.hops, want)
		}
		if want := (hop{dst: dst, round: h.Round, recvOp: recvOp}); m.posts[0] != want {
			rt.Fatalf("posts %v, want %v", m.posts, want)
		}
		r.from(src, e) // the receive is used up
		if r.Dropped() != 1 || len(m.hops) != 1 {
			rt.Fatalf("a second put: %d dropped, %d hops", r.Dropped(), len(m.hops))
		}
	})
}

func TestFailuresAreTold(t *testing.T) {
	m := &mover{}
	r := newRig(t, Options{Ranks: 2, Mover: m})
	r.from(1, post(0, 4, 7, 30, 1))
	r.await(0, actors.Credit)
	m.fail = errors.New("checksum differs")
	r.from(0, put(1, 4, 7, 20, 1))
	for rank, op := range []int32{20, 30} {
		e := r.await(int32(rank), actors.Broken)
		if e.Fault != actors.LinkFault || e.Op != op || e.Round != 7 || e.Epoch != 1 ||
			e.Peer != int32(1-rank) {
			t.Errorf("rank %d heard %+v, want a link fault at op %d", rank, e, op)
		}
	}
	for _, word := range []string{"0->1", "round 7", "checksum differs"} {
		if len(r.notes) == 0 {
			t.Fatal("no note")
		}
		n := <-r.notes
		if !strings.Contains(n, word) {
			t.Errorf("note %q does not say %q", n, word)
		}
		r.notes <- n
	}
	r.from(1, post(0, 5, 7, 31, 1))
	if e := r.await(1, actors.Broken); e.Op != 31 {
		t.Errorf("a post that fails: %+v, want op 31 broken", e)
	}
	r.from(0, put(9, 4, 7, 20, 1))
	if e := r.await(0, actors.Broken); e.Op != 20 {
		t.Errorf("a put to nobody: %+v, want op 20 broken", e)
	}
	r.none(0, 1)
	r.from(0, actors.Envelope{Kind: actors.Grant})
	r.Handle(actors.Envelope{Kind: actors.Put, To: actors.Addr{Role: actors.Link, Rank: 7}})
	if r.Dropped() != 2 {
		t.Errorf("dropped %d, want 2: what no link understands", r.Dropped())
	}
}

func TestFlushForgets(t *testing.T) {
	m := &mover{}
	r := newRig(t, Options{Ranks: 2, Mover: m})
	r.from(1, post(0, 1, 0, 30, 1))
	r.await(0, actors.Credit)
	r.from(1, flush(1))
	if e := r.await(1, actors.Flushed); e.Epoch != 1 {
		t.Fatalf("flushed epoch %d, want 1", e.Epoch)
	}
	r.from(0, put(1, 1, 0, 20, 1))  // its receive is forgotten
	r.from(1, post(0, 2, 0, 31, 1)) // too late
	r.from(0, flush(1))
	r.await(0, actors.Flushed)
	r.from(0, flush(1)) // each flush has its answer
	r.await(0, actors.Flushed)
	r.from(0, put(1, 2, 0, 21, 1)) // too late
	r.none(0, 1)
	if r.Dropped() != 3 || len(m.hops) != 0 || len(m.posts) != 1 {
		t.Fatalf("dropped %d, %d hops, %d posts; want 3, 0, 1", r.Dropped(), len(m.hops),
			len(m.posts))
	}
	r.from(1, post(0, 1, 0, 30, 2))
	r.await(0, actors.Credit)
	r.from(0, put(1, 1, 0, 20, 2))
	r.await(0, actors.Sent)
	r.await(1, actors.Arrived)
}

// TestFlushWaitsForTheHop holds a hop and flushes each end: no answer until the hop is over, and
// what it told comes first.
func TestFlushWaitsForTheHop(t *testing.T) {
	for _, pace := range []bool{false, true} {
		m := &mover{entered: make(chan struct{}), gate: make(chan struct{})}
		o := Options{Ranks: 2, Mover: m}
		if pace {
			o.Pace = func(_, _, _, _, _ int32) time.Duration { return 0 }
		}
		r := newRig(t, o)
		r.from(1, post(0, 1, 0, 30, 1))
		r.await(0, actors.Credit)
		var wg sync.WaitGroup
		wg.Go(func() { r.from(0, put(1, 1, 0, 20, 1)) })
		<-m.entered
		r.from(1, flush(1))
		if pace {
			r.from(0, flush(1)) // without a pace rank 0 is in the hop itself
		}
		r.none(0, 1)
		close(m.gate)
		wg.Wait()
		r.await(0, actors.Sent)
		r.await(1, actors.Arrived)
		r.await(1, actors.Flushed)
		if pace {
			r.await(0, actors.Flushed)
		}
		r.Close()
		r.none(0, 1)
	}
}

// TestNewEpochEndsTheOld: a rank that died flushed nothing, and the one in its place begins anew.
func TestNewEpochEndsTheOld(t *testing.T) {
	m := &mover{}
	r := newRig(t, Options{Ranks: 3, Mover: m})
	r.from(1, post(0, 1, 5, 30, 1))
	r.await(0, actors.Credit)
	r.from(1, post(2, 9, 5, 31, 2)) // another incarnation
	r.await(2, actors.Credit)
	r.from(0, put(1, 1, 5, 20, 1))
	r.from(1, post(0, 1, 5, 30, 1))
	r.none(0, 1, 2)
	if r.Dropped() != 2 || len(m.hops) != 0 {
		t.Fatalf("dropped %d, %d hops; want 2, 0", r.Dropped(), len(m.hops))
	}
}

// TestNewEpochWaitsForAnOldHop: the block of a dead rank is still moving when its successor posts.
func TestNewEpochWaitsForAnOldHop(t *testing.T) {
	for range 100 {
		m := &mover{entered: make(chan struct{}), gate: make(chan struct{})}
		o := Options{Ranks: 2, Mover: m}
		o.Pace = func(_, _, _, _, _ int32) time.Duration { return 0 }
		r := newRig(t, o)
		r.from(1, post(0, 1, 5, 30, 1))
		r.from(0, put(1, 1, 5, 20, 1))
		<-m.entered
		var wg sync.WaitGroup
		wg.Go(func() { r.from(1, post(0, 2, 5, 31, 2)) })
		for !r.ends[1].isOver(1) { // until the successor's post is under way
			runtime.Gosched()
		}
		m.gate <- struct{}{}
		wg.Wait()
		r.await(0, actors.Credit)
		r.await(0, actors.Sent) // told before the new receive was opened
		r.await(0, actors.Credit)
		r.Close()
		if n := m.overlap.Load(); n != 0 {
			t.Fatalf("%d receives were opened while an old block was moving", n)
		}
	}
}

func TestPostsAreBounded(t *testing.T) {
	r := newRig(t, Options{Ranks: 2, Mover: &mover{}})
	r.in[0] = make(chan actors.Envelope, transport.MaxPosts+1)
	for i := range int32(transport.MaxPosts) {
		r.from(1, post(0, i, 0, i, 1))
	}
	r.none(1)
	r.from(1, post(0, -1, 0, 77, 1))
	if e := r.await(1, actors.Broken); e.Op != 77 {
		t.Fatalf("got %+v, want op 77 broken", e)
	}
}
