package sched

import (
	"fmt"

	"github.com/kvloom/kvloom/actors"
)

// Config is the scheduler's gang and limits.
type Config struct {
	Ranks int
	// Window is how many rounds ranks may run ahead of the slowest; at least 1.
	Window int32
	// Deadline is how long a rank may take to answer when asked something that needs no work, and
	// how long a running gang may show no progress before ranks are asked for a sign of life.
	Deadline actors.Time
	// AbortWait is how long a rank may be silent after an abort; one that answers pings has
	// Deadline to flush. 0 is a quarter of Deadline.
	AbortWait actors.Time
	// Plan names what a rank must hold for the rounds from <= r < to; every rank must confirm it.
	Plan func(rank, from, to int32) uint64
}

// Phase is what the scheduler is about.
type Phase uint8

// The phases.
//
//	forming -> ready -> proposing -> running -> ready
//	              \________\___________\_____> aborting -> forming (next epoch)
//	any -> closing -> closed
const (
	Forming   Phase = iota // waiting for the Hello of every rank
	Ready                  // all here, nothing to do
	Proposing              // waiting for every rank to confirm the plan hash
	Running                // rounds are granted
	Aborting               // waiting for every rank to flush
	Closing                // waiting for every rank to stop
	Closed
)

// member is what the scheduler knows of a rank.
type member struct {
	incarnation uint64
	downed      uint64       // the highest incarnation that is gone; this may overtake its Hello
	fault       actors.Fault // how it went
	here        bool         // said Hello and not gone since
	lost        bool         // gone in the abort at hand, even if a new incarnation has come
	untold      bool         // gone between runs, and the owner has no verdict that says so
	fresh       bool         // came during the abort at hand: it has nothing to flush
	answered    bool         // in the phase at hand
	ponged      bool         // since the last Ping of an abort
	heard       actors.Time  // when something of this epoch came last
	done        int32        // first round not done
	waitsOn     int32        // after an abort: the peer it waited on, -1 none
	op          int32
	lane        int32
	round       int32
}

// Scheduler orchestrates the rounds of a gang of ranks. It is a pure machine.
type Scheduler struct {
	cfg     Config
	phase   Phase
	epoch   actors.Epoch
	members []member
	from    int32 // the submitted rounds
	to      int32
	asked   bool            // rounds are submitted and not yet finished
	next    actors.Envelope // a Submit that waits for the rounds at hand; Kind 0: none
	low     int32
	atLow   int         // ranks whose first round not done is low
	granted int32       // exclusive
	deadAt  actors.Time // when an abort waits no longer, even for the living
	verdict verdict
}

// verdict is why the gang is aborted and who is to blame.
type verdict struct {
	fault    actors.Fault
	rank     int32 // culprit, -1 unknown
	reporter int32
	op, peer int32
	lane     int32
	round    int32
}

// New makes a scheduler; the world sends it Start.
func New(cfg Config) *Scheduler {
	if cfg.AbortWait == 0 {
		cfg.AbortWait = cfg.Deadline / 4
	}
	cfg.Window = max(cfg.Window, 1)
	return &Scheduler{cfg: cfg, epoch: 1, members: make([]member, cfg.Ranks)}
}

// Phase is what the scheduler is about.
func (s *Scheduler) Phase() Phase { return s.phase }

// Epoch is the present epoch.
func (s *Scheduler) Epoch() actors.Epoch { return s.epoch }

// Step takes one envelope.
func (s *Scheduler) Step(now actors.Time, in actors.Envelope, out *actors.Outbox) {
	if s.phase == Closed {
		return
	}
	if in.From.Role == actors.Rank && (in.From.Rank < 0 || int(in.From.Rank) >= len(s.members)) {
		out.Note(fmt.Sprintf("%v is not of this gang of %d ranks", in.From, len(s.members)))
		return
	}
	switch in.Kind {
	case actors.Hello:
		s.hello(now, in, out)
	case actors.Down:
		s.down(now, in, out)
	case actors.Submit:
		s.submit(now, in, out)
	case actors.Ping:
		s.toOwner(out, actors.Envelope{Kind: actors.Pong})
	case actors.Cancel:
		s.cancel(now, out)
	case actors.Close:
		s.close(now, out)
	case actors.Timer:
		s.alarm(now, out)
	case actors.Pong, actors.Confirm, actors.RoundDone, actors.Late, actors.Aborted, actors.Stopped:
		s.answer(now, in, out)
	}
}

func (s *Scheduler) member(in actors.Envelope) *member { return &s.members[in.From.Rank] }

// answer handles what a rank says in the present epoch; the words of older ones are dropped.
func (s *Scheduler) answer(now actors.Time, in actors.Envelope, out *actors.Outbox) {
	m := s.member(in)
	if in.Epoch != s.epoch {
		return
	}
	m.ponged, m.heard = true, now
	switch {
	case in.Kind == actors.Confirm && s.phase == Proposing:
		s.confirm(now, in, out)
	case in.Kind == actors.RoundDone && s.phase == Running:
		s.roundDone(now, in, out)
	case in.Kind == actors.Late && (s.phase == Running || s.phase == Proposing):
		s.abort(now, verdict{
			fault: in.Fault, rank: -1, reporter: in.From.Rank, op: in.Op, peer: in.Peer,
			lane: in.Lane, round: in.Round}, out)
	case in.Kind == actors.Aborted && s.phase == Aborting:
		m.answered, m.waitsOn, m.op, m.lane = true, in.Peer, in.Op, in.Lane
		m.round = in.Round
		if in.Op < 0 {
			m.waitsOn = -1
		}
		s.maybeAborted(now, out)
	case in.Kind == actors.Stopped && s.phase == Closing:
		m.answered = true
		s.maybeClosed(out)
	}
}

// hello makes a rank a member; when all are here the gang is formed. A new incarnation in mid-round
// means that the former one is gone, even when word of that comes later or never.
func (s *Scheduler) hello(now actors.Time, in actors.Envelope, out *actors.Outbox) {
	m := s.member(in)
	if in.A < m.incarnation || in.A <= m.downed || (m.here && in.A == m.incarnation) {
		return
	}
	was := m.here
	m.incarnation, m.here, m.fault = in.A, true, actors.NoFault
	switch s.phase {
	case Forming:
		s.formed(now, out)
	case Proposing, Running:
		m.lost, m.fresh = true, true
		s.abort(now, s.lostRank(in.From.Rank), out)
	case Aborting:
		m.lost, m.fresh = m.lost || was, true
		s.maybeAborted(now, out)
	case Closing:
		m.answered = false
		s.toRank(out, in.From.Rank, actors.Envelope{Kind: actors.Stop})
	}
}

// formed leaves Forming when all ranks are here, and begins what was submitted meanwhile.
func (s *Scheduler) formed(now actors.Time, out *actors.Outbox) {
	if s.phase == Forming && s.all(func(m *member) bool { return m.here }) {
		s.phase = Ready
		out.ClearAlarm()
		s.propose(now, out)
	}
}

func (s *Scheduler) all(ok func(*member) bool) bool {
	for i := range s.members {
		if !ok(&s.members[i]) {
			return false
		}
	}
	return true
}

func (s *Scheduler) submit(now actors.Time, in actors.Envelope, out *actors.Outbox) {
	if s.phase == Proposing || s.phase == Running {
		s.next = in
		return
	}
	s.from, s.to, s.asked = in.Round, in.Op, true
	switch s.phase {
	case Forming:
		if !s.refuse(out) {
			out.SetAlarm(now + s.cfg.Deadline)
		}
	case Ready:
		s.propose(now, out)
	}
}

// propose asks every rank to confirm the plan hash of the submitted rounds.
func (s *Scheduler) propose(now actors.Time, out *actors.Outbox) {
	if !s.asked {
		return
	}
	if s.from == s.to {
		s.asked = false
		s.toOwner(out, actors.Envelope{Kind: actors.Complete, Round: s.to})
		return
	}
	s.phase = Proposing
	for i := range s.members {
		s.members[i].answered = false
		s.toRank(out, int32(i), actors.Envelope{Kind: actors.Propose, Round: s.from, Op: s.to,
			A: s.cfg.Plan(int32(i), s.from, s.to)})
	}
	out.SetAlarm(now + s.cfg.Deadline)
}

// toAll sends to every rank that is here and forgets what they answered before. A rank that came
// in the abort at hand knows nothing of it.
func (s *Scheduler) toAll(out *actors.Outbox, e actors.Envelope) {
	for i := range s.members {
		s.members[i].answered = false
		if s.members[i].here && !s.members[i].fresh {
			s.toRank(out, int32(i), e)
		}
	}
}

func (s *Scheduler) toRank(out *actors.Outbox, rank int32, e actors.Envelope) {
	e.To = actors.Addr{Role: actors.Rank, Rank: rank}
	e.From, e.Epoch = actors.Addr{Role: actors.Scheduler}, s.epoch
	out.Send(e)
}

func (s *Scheduler) toOwner(out *actors.Outbox, e actors.Envelope) {
	e.To, e.From = actors.Addr{Role: actors.Owner}, actors.Addr{Role: actors.Scheduler}
	e.Epoch = s.epoch
	out.Send(e)
}

func (s *Scheduler) confirm(now actors.Time, in actors.Envelope, out *actors.Outbox) {
	if want := s.cfg.Plan(in.From.Rank, s.from, s.to); in.A != want {
		out.Note(fmt.Sprintf("rank %d holds plan %016x for rounds %d to %d, the scheduler %016x: "+
			"all ranks must build from the same problem, mesh and options",
			in.From.Rank, in.A, s.from, s.to-1, want))
		s.abort(now, verdict{fault: actors.PlanMismatch, rank: in.From.Rank,
			reporter: in.From.Rank, op: -1, peer: -1, lane: -1, round: s.from}, out)
		return
	}
	s.member(in).answered = true
	if !s.all(func(m *member) bool { return m.answered }) {
		return
	}
	s.phase, s.low, s.atLow, s.granted = Running, s.from, len(s.members), s.from
	for i := range s.members {
		s.members[i].done, s.members[i].heard = s.from, now
	}
	out.SetAlarm(now + s.cfg.Deadline/4)
	s.grant(out)
}

// grant gives leave to run up to Window rounds beyond the slowest rank.
func (s *Scheduler) grant(out *actors.Outbox) {
	upTo := min(s.low+s.cfg.Window, s.to)
	if upTo == s.granted {
		return
	}
	s.granted = upTo
	for i := range s.members {
		s.toRank(out, int32(i), actors.Envelope{Kind: actors.Grant, Round: s.from, Op: upTo})
	}
}

func (s *Scheduler) roundDone(now actors.Time, in actors.Envelope, out *actors.Outbox) {
	m := s.member(in)
	if in.Round != m.done {
		return
	}
	m.done++
	s.toOwner(out, actors.Envelope{
		Kind: actors.RoundDone, Round: in.Round, Peer: in.From.Rank, A: in.A, B: in.B})
	if in.Round != s.low {
		return
	}
	s.atLow--
	for s.atLow == 0 && s.low < s.to {
		s.low++
		for i := range s.members {
			if s.members[i].done == s.low {
				s.atLow++
			}
		}
		s.toOwner(out, actors.Envelope{Kind: actors.Complete, Round: s.low})
	}
	if s.low == s.to {
		s.phase, s.asked = Ready, false
		out.ClearAlarm()
		if next := s.next; next.Kind != 0 {
			s.next = actors.Envelope{}
			s.submit(now, next, out)
		}
		return
	}
	s.grant(out)
}

func (s *Scheduler) close(now actors.Time, out *actors.Outbox) {
	if s.phase == Closing {
		return
	}
	s.phase = Closing
	for i := range s.members {
		s.members[i].fresh = false
	}
	s.toAll(out, actors.Envelope{Kind: actors.Stop})
	out.SetAlarm(now + s.cfg.AbortWait)
	s.maybeClosed(out)
}

func (s *Scheduler) maybeClosed(out *actors.Outbox) {
	if !s.all(func(m *member) bool { return m.answered || !m.here }) {
		return
	}
	s.phase = Closed
	out.ClearAlarm()
	s.toOwner(out, actors.Envelope{Kind: actors.Closed})
}
