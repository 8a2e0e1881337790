package sim

import (
	"fmt"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/transport"
)

// linkEnd is one rank's end of its links: the receives that it has open.
type linkEnd struct {
	posts    transport.Posts
	flushed  actors.Epoch
	inFlight int // blocks on their way from or to this rank
	answer   bool
}

// fabric is the physical links: each carries one block at a time, in the order of the puts.
type fabric struct {
	free  map[int]actors.Time  // by link: when it is free again
	lanes map[lane]actors.Time // last arrival, to keep a lane's order under noise
}

type lane struct{ src, dst, number int32 }

func (f *fabric) handle(w *World, e *actors.Envelope) {
	end := &w.links[e.To.Rank]
	if e.Kind == actors.Flush {
		end.flushed, end.answer = e.Epoch, true
		end.posts.Flush()
		f.maybeFlushed(w, e.To.Rank)
		return
	}
	if e.Epoch <= end.flushed {
		return
	}
	switch e.Kind {
	case actors.Post:
		f.postReceive(w, end, e)
	case actors.Put:
		f.put(w, e)
	}
}

// postReceive opens a receive and gives its credit to the sender, a latency away.
func (f *fabric) postReceive(w *World, end *linkEnd, e *actors.Envelope) {
	r := e.To.Rank
	if err := end.posts.Add(*e); err != nil {
		w.check.fail(err.Error())
		return
	}
	w.check.begin(r, e.Round, e.Op)
	if err := w.cfg.Mover.Post(r, e.Round, e.Op); err != nil {
		w.check.fail(err.Error())
	}
	_, _, latency := w.cfg.Costs.Transfer(r, e.Peer, e.Round, -1)
	credit := actors.Envelope{
		To:   actors.Addr{Role: actors.Rank, Rank: e.Peer},
		From: actors.Addr{Role: actors.Link, Rank: r},
		Kind: actors.Credit, Epoch: e.Epoch, Round: e.Round, Peer: r, Lane: e.Lane, Tick: e.Tick,
	}
	w.sendLater(&credit, latency)
}

// put sets a block on its way.
func (f *fabric) put(w *World, e *actors.Envelope) {
	src, dst := e.To.Rank, e.Peer
	w.check.begin(src, e.Round, e.Op)
	link, occupy, latency := w.cfg.Costs.Transfer(src, dst, e.Round, e.Op)
	begin := max(w.now, f.free[link])
	f.free[link] = begin + occupy
	at := begin + occupy + latency
	if n := w.cfg.Noise.Transfer; n > 0 {
		l := lane{src, dst, e.Lane}
		at = max(at+w.random.below(n), f.lanes[l])
		f.lanes[l] = at
	}
	w.links[src].inFlight++
	w.links[dst].inFlight++
	if w.cfg.Spans != nil {
		w.cfg.Spans(Span{
			Rank: src, Stream: OnLink, Peer: dst, Link: link, Round: e.Round, Op: e.Op,
			Asked: w.now, Begin: begin, End: begin + occupy, Over: at,
		})
	}
	w.queue.push(at, blockOver, e)
}

// arrive is the latest moment allowed for the copy: the receiver's slot is written now.
func (f *fabric) arrive(w *World, e *actors.Envelope) {
	src, dst := e.To.Rank, e.Peer
	w.links[src].inFlight--
	w.links[dst].inFlight--
	if e.Epoch > w.links[src].flushed && e.Epoch > w.links[dst].flushed {
		f.land(w, e)
	}
	f.maybeFlushed(w, src)
	f.maybeFlushed(w, dst)
}

func (f *fabric) land(w *World, e *actors.Envelope) {
	src, dst := e.To.Rank, e.Peer
	post, ok := w.links[dst].posts.Take(src, e)
	if !ok {
		w.check.fail(fmt.Sprintf("rank %d sent op %d of round %d to rank %d, which has no receive "+
			"open for lane %d tick %d", src, e.Op, e.Round, dst, e.Lane, e.Tick))
		return
	}
	if _, err := w.cfg.Mover.Hop(src, dst, e.Round, e.Op, post.Op); err != nil {
		w.check.fail(err.Error())
	}
	w.check.end(src, e.Round, e.Op)
	w.check.end(dst, e.Round, post.Op)
	_, _, latency := w.cfg.Costs.Transfer(dst, src, e.Round, -1)
	came := *e
	came.To = actors.Addr{Role: actors.Rank, Rank: dst}
	came.From = actors.Addr{Role: actors.Link, Rank: dst}
	came.Kind, came.Op, came.Peer = actors.Arrived, post.Op, src
	w.send(&came)
	sent := *e
	sent.To = actors.Addr{Role: actors.Rank, Rank: src}
	sent.From, sent.Kind = actors.Addr{Role: actors.Link, Rank: dst}, actors.Sent
	w.sendLater(&sent, latency)
}

func (f *fabric) maybeFlushed(w *World, r int32) {
	end := &w.links[r]
	if end.answer && end.inFlight == 0 {
		end.answer = false
		w.send(&actors.Envelope{
			To:   actors.Addr{Role: actors.Rank, Rank: r},
			From: actors.Addr{Role: actors.Link, Rank: r},
			Kind: actors.Flushed, Epoch: end.flushed})
	}
}
