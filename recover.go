package kvloom

import (
	"fmt"
	"time"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/rank"
)

// recover turns a verdict into an error and makes the gang whole again: a rank that is gone or
// silent is stopped for good and gets a new incarnation with a new device and new slots.
func (s *Session[T]) recover(e *actors.Envelope) error {
	failure := s.explain(e)
	lost := s.owner.takeLost()
	for r := range s.incarn {
		if !lost[r] {
			continue
		}
		if err := s.replace(r, e.Epoch); err != nil {
			s.broken = fmt.Errorf("kvloom: rank %d could not be replaced, open a new session: %w",
				r, err)
			failure.Notes = append(failure.Notes, s.broken.Error())
			break
		}
	}
	return failure
}

// replace gives a rank a new incarnation. Its old device may still finish an op, and that is waited
// for. A block that is still moving holds up the new epoch's first post at the link.
func (s *Session[T]) replace(r int, epoch actors.Epoch) error {
	for _, role := range []actors.Role{actors.Rank, actors.Device} {
		// An error says that the actor is gone already.
		_ = s.host.Kill(actors.Addr{Role: role, Rank: int32(r)}, "replaced after a failed round")
	}
	s.net.Handle(actors.Envelope{
		To:   actors.Addr{Role: actors.Link, Rank: int32(r)},
		From: actors.Addr{Role: actors.Rank, Rank: int32(r)}, Kind: actors.Flush, Epoch: epoch})
	old := s.devices[r]
	if err := s.spawnDevice(r); err != nil { // waits until the old one has left
		return err
	}
	if err := old.Wait(max(s.cfg.Deadline, opLimit)); err != nil {
		return err
	}
	return s.spawnRank(r)
}

// opLimit is how long the device of a lost rank may take to end the op that it is in.
const opLimit = 10 * time.Second

// explain finds the words for a verdict: the op and the link that the reporter waited on.
func (s *Session[T]) explain(e *actors.Envelope) *Error {
	f := &Error{
		Kind: KindOf(e.Fault), Rank: int(e.Peer), Round: int(e.Round), Notes: s.owner.takeNotes(),
	}
	reporter, peer := e.HeadLo, e.HeadHi
	entry, ok := s.book.entry(e.Round)
	if !ok || reporter < 0 || e.Op < 0 {
		return f
	}
	script := entry.Plan.Scripts[entry.Pass][reporter]
	f.Op = fmt.Sprintf("op %s of rank %d", script.Describe(e.Op), reporter)
	if peer >= 0 {
		f.Link = link(script, reporter, peer, e.Op)
	}
	return f
}

// link is the direction in which the block was to go.
func link(s *rank.Script, reporter, peer, op int32) string {
	if s.Sends(op) {
		return fmt.Sprintf("%d->%d", reporter, peer)
	}
	return fmt.Sprintf("%d->%d", peer, reporter)
}
