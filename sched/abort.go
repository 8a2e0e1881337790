package sched

import (
	"fmt"

	"github.com/kvloom/kvloom/actors"
)

// down hears from the world that an actor is gone. Its rank is a member no more.
func (s *Scheduler) down(now actors.Time, in actors.Envelope, out *actors.Outbox) {
	if in.From.Rank < 0 || int(in.From.Rank) >= len(s.members) {
		return
	}
	m := s.member(in)
	if !m.here || in.A < m.incarnation {
		return
	}
	m.here = false
	switch s.phase {
	case Aborting:
		m.lost, m.fresh = true, false
		s.maybeAborted(now, out)
	case Closing:
		s.maybeClosed(out)
	case Ready:
		s.phase = Forming
		s.epoch++
	case Proposing, Running:
		m.lost = true
		s.abort(now, s.lostRank(in.From.Rank), out)
	}
}

// lostRank is the verdict on a rank that is gone.
func (s *Scheduler) lostRank(rank int32) verdict {
	return verdict{fault: actors.PeerLost, rank: rank, reporter: -1, op: -1, peer: -1, lane: -1,
		round: max(s.low, s.from)}
}

// cancel gives up the submitted rounds for the owner.
func (s *Scheduler) cancel(now actors.Time, out *actors.Outbox) {
	v := verdict{fault: actors.Cancelled, rank: -1, reporter: -1, op: -1, peer: -1, lane: -1,
		round: s.from}
	switch s.phase {
	case Proposing, Running:
		v.round = max(s.low, s.from)
		s.abort(now, v, out)
	case Aborting:
		s.asked = false
	case Forming:
		if s.asked {
			s.asked = false
			s.failed(v, out)
			out.ClearAlarm()
		}
	}
}

// failed tells the owner a verdict.
func (s *Scheduler) failed(v verdict, out *actors.Outbox) {
	s.toOwner(out, actors.Envelope{
		Kind: actors.Failed, Fault: v.fault, Peer: v.rank, Op: v.op, Lane: v.lane, Round: v.round,
		HeadLo: v.reporter, HeadHi: v.peer})
}

// abort ends the epoch's work on every rank. The verdict is final when all have answered or are
// declared dead.
func (s *Scheduler) abort(now actors.Time, v verdict, out *actors.Outbox) {
	s.phase, s.verdict, s.asked, s.next = Aborting, v, false, actors.Envelope{}
	s.toAll(out, actors.Envelope{Kind: actors.Abort})
	out.SetAlarm(now + s.cfg.AbortWait)
	s.maybeAborted(now, out)
}

func (s *Scheduler) maybeAborted(now actors.Time, out *actors.Outbox) {
	if s.all(func(m *member) bool { return m.answered || !m.here || m.fresh }) {
		s.aborted(now, out)
	}
}

// aborted tells the owner the verdict and makes ready for the next epoch.
func (s *Scheduler) aborted(now actors.Time, out *actors.Outbox) {
	v := s.judge()
	out.ClearAlarm()
	s.failed(v, out)
	s.epoch++
	s.phase = Forming
	for i := range s.members {
		s.members[i].lost, s.members[i].fresh = false, false
	}
	if s.all(func(m *member) bool { return m.here }) {
		s.phase = Ready
	}
	if s.asked { // submitted again while the abort was under way
		s.submit(now, actors.Envelope{Round: s.from, Op: s.to}, out)
	}
}

// judge names the culprit: whoever did not answer the abort; else, for a late op, the end of the
// chain of waits that starts at the rank that reported.
func (s *Scheduler) judge() verdict {
	v := s.verdict
	for i := range s.members {
		if m := &s.members[i]; m.lost || !m.here {
			v.fault, v.rank = actors.PeerLost, int32(i)
			return v
		}
	}
	if v.fault != actors.TimedOut || v.reporter < 0 {
		if v.rank < 0 {
			v.rank = v.reporter
		}
		return v
	}
	at := v.reporter
	for range s.members {
		next := s.members[at].waitsOn
		if next < 0 || int(next) >= len(s.members) {
			v.rank = at
			return v
		}
		at = next
	}
	v.rank = -1 // a ring of waits: no rank is to blame, a link is
	return v
}

// alarm ends a wait that the scheduler itself has.
func (s *Scheduler) alarm(now actors.Time, out *actors.Outbox) {
	switch s.phase {
	case Forming:
		if s.asked {
			s.neverCame(out)
		}
	case Proposing:
		s.silent(now, out, "did not confirm the plan", func(m *member) bool { return m.answered })
	case Running:
		s.signOfLife(now, out)
	case Aborting, Closing:
		for i := range s.members {
			m := &s.members[i]
			if m.here && !m.answered && !m.fresh {
				m.here, m.lost = false, true
				out.Note(fmt.Sprintf("rank %d did not answer within %d ms and is declared dead", i,
					s.cfg.AbortWait/1e6))
			}
		}
		if s.phase == Aborting {
			s.aborted(now, out)
		} else {
			s.maybeClosed(out)
		}
	}
}

// neverCame tells the owner who is missing; the rounds are given back.
func (s *Scheduler) neverCame(out *actors.Outbox) {
	s.asked = false
	first := int32(-1)
	for i := range s.members {
		if !s.members[i].here {
			if first < 0 {
				first = int32(i)
			}
			out.Note(fmt.Sprintf("rank %d has not come", i))
		}
	}
	s.failed(verdict{fault: actors.PeerLost, rank: first, reporter: -1, op: -1, peer: -1, lane: -1,
		round: s.from}, out)
}

// silent aborts the gang because of the first rank of which ok does not hold.
func (s *Scheduler) silent(now actors.Time, out *actors.Outbox, what string,
	ok func(*member) bool) {
	for i := range s.members {
		if m := &s.members[i]; !ok(m) {
			out.Note(fmt.Sprintf("rank %d %s within %d ms", i, what, s.cfg.Deadline/1e6))
			s.abort(now, s.lostRank(int32(i)), out)
			return
		}
	}
}

// signOfLife watches a running gang: after a deadline without a finished round every rank must
// answer a ping by the next one.
func (s *Scheduler) signOfLife(now actors.Time, out *actors.Outbox) {
	if s.pinged && !s.moved {
		s.silent(now, out, "gave no sign of life", func(m *member) bool { return m.ponged })
		if s.phase != Running {
			return
		}
	}
	s.pinged = !s.moved
	s.moved = false
	if s.pinged {
		for i := range s.members {
			s.members[i].ponged = false
			s.toRank(out, int32(i), actors.Envelope{Kind: actors.Ping})
		}
	}
	out.SetAlarm(now + s.cfg.Deadline)
}
