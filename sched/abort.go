package sched

import (
	"fmt"
	"strconv"

	"github.com/kvloom/kvloom/actors"
)

// down hears from the world that an actor is gone. Its rank is a member no more.
func (s *Scheduler) down(now actors.Time, in actors.Envelope, out *actors.Outbox) {
	if in.From.Rank < 0 || int(in.From.Rank) >= len(s.members) {
		return
	}
	m := s.member(in)
	if in.A < m.incarnation || (!m.here && in.A == m.incarnation) {
		return // an old one, or known
	}
	m.incarnation, m.downed, m.here, m.fault = in.A, in.A, false, in.Fault
	switch s.phase {
	case Forming, Ready:
		s.phase, m.untold = Forming, true
		s.toOwner(out, actors.Envelope{Kind: actors.Lost, Peer: in.From.Rank})
		if s.asked && s.refuse(out) {
			out.ClearAlarm()
		}
	case Proposing, Running:
		m.lost = true
		s.abort(now, s.lostRank(in.From.Rank), out)
	case Aborting:
		m.lost, m.fresh = true, false
		s.maybeAborted(now, out)
	case Closing:
		s.maybeClosed(out)
	}
}

// lostRank is the verdict on a rank that is gone.
func (s *Scheduler) lostRank(rank int32) verdict {
	fault := s.members[rank].fault
	if fault == actors.NoFault {
		fault = actors.PeerLost
	}
	return verdict{fault: fault, rank: rank, reporter: -1, op: -1, peer: -1, lane: -1,
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
			s.giveBack(v, out)
			out.ClearAlarm()
		}
	}
}

// giveBack fails rounds that no rank has begun. The epoch ends with them: the owner may flush what
// a lost rank left behind.
func (s *Scheduler) giveBack(v verdict, out *actors.Outbox) {
	s.asked = false
	v.round = s.from
	s.failed(v, out)
	s.epoch++
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
	s.deadAt = now + s.cfg.Deadline
	s.pingUnanswered(out)
	out.SetAlarm(now + s.cfg.AbortWait)
	s.maybeAborted(now, out)
}

// pingUnanswered asks those for a sign of life who have not flushed yet: a long op may still run.
func (s *Scheduler) pingUnanswered(out *actors.Outbox) {
	for i := range s.members {
		if m := &s.members[i]; m.here && !m.answered && !m.fresh {
			m.ponged = false
			s.toRank(out, int32(i), actors.Envelope{Kind: actors.Ping})
		}
	}
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
	for i := range s.members {
		if m := &s.members[i]; !m.here {
			s.toOwner(out, actors.Envelope{Kind: actors.Lost, Peer: int32(i)})
		}
	}
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

// judge names the culprit: the rank whose loss began the abort; else whoever did not answer it;
// else, for a late op, the end of the chain of waits that starts at the rank that reported.
func (s *Scheduler) judge() verdict {
	v := s.verdict
	if v.rank >= 0 && s.members[v.rank].lost {
		return s.witness(v)
	}
	for i := range s.members {
		if m := &s.members[i]; m.lost || !m.here {
			v.fault, v.rank = s.lostRank(int32(i)).fault, int32(i)
			return s.witness(v)
		}
	}
	if v.fault == actors.LinkFault {
		return v // both ends live: no rank is to blame, the link is
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
			if v.rank = at; at == v.reporter {
				return v
			}
			return s.witness(v)
		}
		at = next
	}
	v.rank = -1 // a ring of waits: no rank is to blame, a link is
	return v
}

// witness lets a living rank that waited on the culprit say at what: the verdict's round, op, link
// and reporter are its own. What the first reporter said may be about a neighbour of a neighbour,
// or about another round.
func (s *Scheduler) witness(v verdict) verdict {
	for i := range s.members {
		m := &s.members[i]
		if m.here && !m.lost && m.answered && m.waitsOn == v.rank {
			v.reporter, v.round, v.op = int32(i), m.round, m.op
			v.lane, v.peer = m.lane, v.rank
			return v
		}
	}
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
	case Aborting:
		s.declareDead(now, out)
	case Closing:
		for i := range s.members {
			if m := &s.members[i]; !m.answered {
				m.here = false
			}
		}
		s.maybeClosed(out)
	}
}

// declareDead gives up those ranks that neither flushed nor gave a sign of life for AbortWait, and
// after a whole Deadline those that did not flush.
func (s *Scheduler) declareDead(now actors.Time, out *actors.Outbox) {
	waiting := false
	for i := range s.members {
		m := &s.members[i]
		if !m.here || m.answered || m.fresh {
			continue
		}
		if m.ponged && now < s.deadAt {
			waiting = true
			continue
		}
		m.here, m.lost = false, true
		if m.ponged {
			m.fault = actors.TimedOut // it lives, but an op of its device does not end
		}
		out.Note(fmt.Sprintf("rank %d did not answer the abort within %s and is declared dead",
			i, span(now-s.deadAt+s.cfg.Deadline)))
	}
	if !waiting {
		s.aborted(now, out)
		return
	}
	s.pingUnanswered(out)
	out.SetAlarm(min(now+s.cfg.AbortWait, s.deadAt))
}

// refuse gives rounds back at once when a rank went between runs and no verdict has said so yet: to
// wait for it would be to wait for a restart that nobody has ordered.
func (s *Scheduler) refuse(out *actors.Outbox) bool {
	for i := range s.members {
		if m := &s.members[i]; !m.here && m.untold {
			m.untold = false
			s.giveBack(s.lostRank(int32(i)), out)
			return true
		}
	}
	return false
}

// neverCame tells the owner who is missing; the rounds are given back.
func (s *Scheduler) neverCame(out *actors.Outbox) {
	first := int32(-1)
	for i := range s.members {
		if !s.members[i].here {
			if first < 0 {
				first = int32(i)
			}
			out.Note(fmt.Sprintf("rank %d has not come", i))
			s.toOwner(out, actors.Envelope{Kind: actors.Lost, Peer: int32(i)})
		}
	}
	s.giveBack(s.lostRank(first), out)
}

// silent aborts the gang because of the first rank of which ok does not hold.
func (s *Scheduler) silent(now actors.Time, out *actors.Outbox, what string,
	ok func(*member) bool) {
	for i := range s.members {
		if m := &s.members[i]; !ok(m) {
			out.Note(fmt.Sprintf("rank %d %s within %s", i, what, span(s.cfg.Deadline)))
			s.abort(now, s.lostRank(int32(i)), out)
			return
		}
	}
}

// signOfLife watches a running gang: a rank from which nothing came for a whole deadline is dead,
// even if nobody waits for it. Those not heard of lately are asked.
func (s *Scheduler) signOfLife(now actors.Time, out *actors.Outbox) {
	first := int32(-1)
	for i := range s.members {
		m := &s.members[i]
		if m.here && now-m.heard >= s.cfg.Deadline {
			m.here, m.lost = false, true
			out.Note(fmt.Sprintf("rank %d gave no sign of life within %s", i,
				span(s.cfg.Deadline)))
			if first < 0 {
				first = int32(i)
			}
		}
	}
	if first >= 0 {
		s.abort(now, s.lostRank(first), out)
		return
	}
	for i := range s.members {
		if now-s.members[i].heard >= s.cfg.Deadline/4 {
			s.toRank(out, int32(i), actors.Envelope{Kind: actors.Ping})
		}
	}
	out.SetAlarm(now + s.cfg.Deadline/4)
}

// span writes a time for people: in milliseconds, to the nanosecond below ten of them.
func span(t actors.Time) string {
	if t < 10e6 {
		return strconv.FormatFloat(float64(t)/1e6, 'f', -1, 64) + " ms"
	}
	return fmt.Sprintf("%d ms", t/1e6)
}
