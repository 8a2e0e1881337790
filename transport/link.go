package transport

import (
	"fmt"

	"github.com/kvloom/kvloom/actors"
)

// Header is what every block says of itself on its way. Both ends derive theirs from their own
// program, so a block of another plan, round or step is an error with both sides printed.
type Header struct {
	Run            uint32 // the session
	Epoch          actors.Epoch
	Round          int32 // the step, within the run
	Pass           uint8 // the direction
	State          int32 // the layer and its micro-batch
	Lane, Tick     int32
	Tensor         uint8
	HeadLo, HeadHi int32
	SetHash        uint64 // of the token set
	Plan           uint64 // short plan hash
}

// Stamp writes the header into an envelope.
func (h Header) Stamp(e *actors.Envelope) {
	e.Epoch, e.Round, e.Lane, e.Tick = h.Epoch, h.Round, h.Lane, h.Tick
	e.N, e.After[0], e.After[1] = h.Pass, h.State, int32(h.Run)
	e.Tensor, e.HeadLo, e.HeadHi = h.Tensor, h.HeadLo, h.HeadHi
	e.A, e.B = h.SetHash, h.Plan
}

// HeaderOf reads what Stamp wrote.
func HeaderOf(e *actors.Envelope) Header {
	return Header{
		Epoch: e.Epoch, Round: e.Round, Lane: e.Lane, Tick: e.Tick, Tensor: e.Tensor,
		HeadLo: e.HeadLo, HeadHi: e.HeadHi, SetHash: e.A, Plan: e.B, Pass: e.N, State: e.After[0],
		Run: uint32(e.After[1]),
	}
}

// Check compares the header that came with the one that the plan wants.
func (h Header) Check(came Header) error {
	if h == came {
		return nil
	}
	return fmt.Errorf("block header disagrees with the plan:\n  wanted %v\n  came   %v", h, came)
}

// String prints every field.
func (h Header) String() string {
	return fmt.Sprintf("run %08x epoch %d round %d pass %d state %d lane %d tick %d tensor %d "+
		"heads %d:%d tokens %016x plan %016x", h.Run, h.Epoch, h.Round, h.Pass, h.State, h.Lane,
		h.Tick, h.Tensor, h.HeadLo, h.HeadHi, h.SetHash, h.Plan)
}

// Posts is a link end's table of receives that have started: the credits it has given and not yet
// seen used. Its limit is the number of slots that receive.
type Posts struct {
	list []actors.Envelope
	// Limit is the most posts at a time; 0 is MaxPosts.
	Limit int
}

// MaxPosts is the limit of receives that one rank has open at a time.
const MaxPosts = 1 << 16

// Add notes a posted receive.
func (p *Posts) Add(e actors.Envelope) error {
	limit := p.Limit
	if limit == 0 {
		limit = MaxPosts
	}
	if len(p.list) >= limit {
		return fmt.Errorf("rank %d has its limit of %d receives open: the plan needs fewer slots",
			e.From.Rank, limit)
	}
	p.list = append(p.list, e)
	return nil
}

// Take finds and removes the receive that a block from rank src is for.
func (p *Posts) Take(src int32, put *actors.Envelope) (actors.Envelope, bool) {
	for i := range p.list {
		e := &p.list[i]
		if e.Peer == src && e.Lane == put.Lane && e.Tick == put.Tick && e.Round == put.Round &&
			e.Epoch == put.Epoch {
			found := *e
			last := len(p.list) - 1
			p.list[i] = p.list[last]
			p.list = p.list[:last]
			return found, true
		}
	}
	return actors.Envelope{}, false
}

// Flush forgets all receives: nothing can arrive any more.
func (p *Posts) Flush() { p.list = p.list[:0] }

// Len is the number of receives that are open.
func (p *Posts) Len() int { return len(p.list) }
