package inproc

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/transport"
)

// Options are what a net is made of.
type Options struct {
	// Ranks is the number of link ends.
	Ranks int
	// Mover readies slots and moves blocks.
	Mover transport.Mover
	// Send delivers an envelope to a rank.
	Send func(actors.Envelope)
	// Pace is how long the block of send op of a round holds its way; nil: no time at all.
	Pace func(src, dst, lane int32, round, op int32) time.Duration
	// LinkOf groups transfers into ways that carry one block at a time; nil: one for each directed
	// pair of ranks. Without Pace it is not used.
	LinkOf func(src, dst, lane int32) int
	// OnNote hears why a transfer failed; nil: nobody does. It must not block.
	OnNote func(from actors.Addr, note string)
}

// Net is the links of all ranks.
type Net struct {
	o       Options
	ends    []end
	ways    ways
	dropped atomic.Int64
}

// end is a rank's end of all its lanes.
type end struct {
	mu    sync.Mutex
	still sync.Cond // claims is 0
	posts transport.Posts
	// epoch is the highest that the rank has worked in or flushed. In a flushed one nothing happens
	// any more.
	epoch   actors.Epoch
	flushed bool
	claims  int            // transfers in hand that touch, or may come to touch, the rank's slots
	asked   []actors.Epoch // flushes that wait for claims to be 0
	hopping sync.Mutex     // held while a block of this source moves
}

// transfer is a send that has found its receive.
type transfer struct {
	put  actors.Envelope
	recv int32 // op of the receive
}

func (t *transfer) src() int32 { return t.put.From.Rank }
func (t *transfer) dst() int32 { return t.put.Peer }

// New makes a net; register its Handle for the role Link.
func New(o Options) *Net {
	n := &Net{o: o, ends: make([]end, o.Ranks)}
	for i := range n.ends {
		n.ends[i].still.L = &n.ends[i].mu
	}
	n.ways.net = n
	n.ways.began = time.Now()
	n.ways.index = map[way]*queue{}
	return n
}

// Dropped is the number of envelopes of which nothing came: posts and puts of epochs that are over,
// and puts without a receive.
func (n *Net) Dropped() int64 { return n.dropped.Load() }

// Close drops what waits on its way and waits until no block moves. Envelopes that come later are
// dropped.
func (n *Net) Close() {
	n.ways.close()
	for i := range n.ends {
		e := &n.ends[i]
		e.mu.Lock()
		e.epoch, e.flushed = ^actors.Epoch(0), true
		e.posts.Flush()
		e.quiet()
		e.mu.Unlock()
	}
}

// Handle takes an envelope from a rank to its link: Post, Put or Flush.
func (n *Net) Handle(e actors.Envelope) {
	r := e.To.Rank
	if r < 0 || int(r) >= len(n.ends) || e.From.Role != actors.Rank || e.From.Rank != r {
		n.dropped.Add(1)
		n.note(r, fmt.Sprintf("an envelope of kind %d from %v came to the link of rank %d: a link "+
			"serves its own rank, 0 to %d", e.Kind, e.From, r, len(n.ends)-1))
		return
	}
	switch e.Kind {
	case actors.Flush:
		n.flush(r, e.Epoch)
		return
	case actors.Post, actors.Put:
	default:
		n.dropped.Add(1)
		return
	}
	if e.Peer < 0 || int(e.Peer) >= len(n.ends) {
		n.broken(r, e.Op, &e, actors.LinkFault, fmt.Errorf("peer %d is none of the %d ranks",
			e.Peer, len(n.ends)))
		return
	}
	if e.Kind == actors.Post {
		n.post(e)
	} else {
		n.put(e)
	}
}

// post opens a receive and sends the credit for it.
func (n *Net) post(e actors.Envelope) {
	r := e.From.Rank
	if !n.enter(r, e.Epoch) {
		return
	}
	defer n.release(r)
	if err := n.o.Mover.Post(r, e.Round, e.Op); err != nil {
		n.broken(r, e.Op, &e, actors.LinkFault, err)
		return
	}
	at := &n.ends[r]
	at.mu.Lock()
	over, err := at.over(e.Epoch), error(nil)
	if !over {
		err = at.posts.Add(e)
	}
	at.mu.Unlock()
	switch {
	case over:
		n.dropped.Add(1)
		return
	case err != nil:
		n.broken(r, e.Op, &e, actors.LinkFault, err)
		return
	}
	n.tell(e.Peer, actors.Envelope{
		Kind: actors.Credit, Peer: r, Lane: e.Lane, Tick: e.Tick, Round: e.Round, Epoch: e.Epoch})
}

// put finds the receive of a send and moves the block, now or when its way is free.
func (n *Net) put(e actors.Envelope) {
	if !n.enter(e.From.Rank, e.Epoch) {
		return
	}
	t := transfer{put: e}
	dst := &n.ends[t.dst()]
	dst.mu.Lock()
	posted, ok := dst.posts.Take(t.src(), &e)
	if ok {
		dst.claims++
	}
	late := dst.epoch > e.Epoch || (dst.epoch == e.Epoch && dst.flushed)
	dst.mu.Unlock()
	if !ok {
		n.unwanted(&e, late)
		n.release(t.src())
		return
	}
	t.recv = posted.Op
	err := transport.HeaderOf(&posted).Check(transport.HeaderOf(&e))
	switch {
	case err != nil:
		n.fail(&t, actors.Corrupt, err)
	case n.o.Pace == nil:
		n.move(&t)
	default:
		n.ways.add(t)
	}
	n.release(t.src())
	n.release(t.dst())
}

// move hands the block over and tells both ends. The caller holds a claim on both.
func (n *Net) move(t *transfer) {
	src, dst, e := t.src(), t.dst(), &t.put
	at := &n.ends[src]
	at.hopping.Lock()
	_, err := n.o.Mover.Hop(src, dst, e.Round, e.Op, t.recv)
	at.hopping.Unlock()
	if err != nil {
		n.fail(t, actors.LinkFault, err)
		return
	}
	n.tell(src, actors.Envelope{
		Kind: actors.Sent, Epoch: e.Epoch, Round: e.Round, Op: e.Op, Peer: dst, Lane: e.Lane,
		Tick: e.Tick})
	came := *e
	came.Kind, came.Op, came.Peer = actors.Arrived, t.recv, src
	n.tell(dst, came)
}

// unwanted is a put without a receive. In an epoch that is over that is what an abort leaves; else
// the sender follows another plan.
func (n *Net) unwanted(e *actors.Envelope, late bool) {
	n.dropped.Add(1)
	if !late {
		n.broken(e.From.Rank, e.Op, e, actors.Corrupt, fmt.Errorf("link %d->%d: a block came for "+
			"which no receive is open: %v", e.From.Rank, e.Peer, transport.HeaderOf(e)))
	}
}

// fail tells both ends that a transfer failed.
func (n *Net) fail(t *transfer, f actors.Fault, err error) {
	e := &t.put
	n.broken(t.src(), e.Op, e, f, fmt.Errorf("link %d->%d, lane %d tick %d of round %d: %w",
		t.src(),
		t.dst(), e.Lane, e.Tick, e.Round, err))
	came := *e
	came.Peer = t.src()
	n.broken(t.dst(), t.recv, &came, f, nil)
}

// enter begins a post or put and claims the rank's slots; false drops it. An older epoch's is
// dropped, a newer one ends what the rank left.
func (n *Net) enter(r int32, epoch actors.Epoch) bool {
	e := &n.ends[r]
	e.mu.Lock()
	defer e.mu.Unlock()
	for !e.over(epoch) {
		if epoch == e.epoch {
			e.claims++
			return true
		}
		e.epoch, e.flushed = epoch, false
		e.posts.Flush()
		e.mu.Unlock()
		n.ways.purge(r, epoch-1)
		e.mu.Lock()
		// A dead incarnation's last block may be moving: its slots have the same names.
		e.quiet()
	}
	n.dropped.Add(1)
	return false
}

// flush ends a rank's epochs up to one, and answers when nothing touches its slots.
func (n *Net) flush(r int32, epoch actors.Epoch) {
	e := &n.ends[r]
	e.mu.Lock()
	if epoch >= e.epoch {
		e.epoch, e.flushed = epoch, true
		e.posts.Flush()
	}
	e.mu.Unlock()
	n.ways.purge(r, epoch)
	e.mu.Lock()
	wait := e.claims > 0
	if wait {
		e.asked = append(e.asked, epoch)
	}
	e.mu.Unlock()
	if !wait {
		n.tell(r, actors.Envelope{Kind: actors.Flushed, Epoch: epoch})
	}
}

// over tells whether an epoch's blocks may no longer touch the rank's slots; the caller holds mu.
func (e *end) over(epoch actors.Epoch) bool {
	return epoch < e.epoch || (epoch == e.epoch && e.flushed)
}

func (e *end) isOver(epoch actors.Epoch) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.over(epoch)
}

func (e *end) claim() {
	e.mu.Lock()
	e.claims++
	e.mu.Unlock()
}

// quiet waits until nobody has a claim; the caller holds mu. It is as long as a block moves.
func (e *end) quiet() {
	for e.claims > 0 {
		e.still.Wait()
	}
}

// release gives up a claim on a rank's slots; the last one answers the flushes that wait.
func (n *Net) release(r int32) {
	e := &n.ends[r]
	var asked []actors.Epoch
	e.mu.Lock()
	e.claims--
	if e.claims == 0 {
		asked, e.asked = e.asked, nil
		e.still.Broadcast()
	}
	e.mu.Unlock()
	for _, epoch := range asked {
		n.tell(r, actors.Envelope{Kind: actors.Flushed, Epoch: epoch})
	}
}

// tell sends to a rank from its own link.
func (n *Net) tell(r int32, e actors.Envelope) {
	e.To = actors.Addr{Role: actors.Rank, Rank: r}
	e.From = actors.Addr{Role: actors.Link, Rank: r}
	n.o.Send(e)
}

// broken tells a rank that a transfer failed; err is noted.
func (n *Net) broken(r, op int32, e *actors.Envelope, f actors.Fault, err error) {
	if err != nil {
		n.note(r, err.Error())
	}
	n.tell(r, actors.Envelope{
		Kind: actors.Broken, Fault: f, Epoch: e.Epoch, Round: e.Round, Op: op,
		Peer: e.Peer, Lane: e.Lane, Tick: e.Tick})
}

func (n *Net) note(r int32, note string) {
	if n.o.OnNote != nil {
		n.o.OnNote(actors.Addr{Role: actors.Link, Rank: r}, note)
	}
}
