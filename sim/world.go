package sim

import (
	"errors"
	"fmt"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/cudakern"
	"github.com/kvloom/kvloom/rank"
	"github.com/kvloom/kvloom/sched"
	"github.com/kvloom/kvloom/transport"
)

// Config is a world.
type Config struct {
	Ranks int
	Seed  uint64
	Book  *rank.Rounds
	// Costs is what ops and transfers take.
	Costs Costs
	// Noise is what a seed adds to that.
	Noise Noise
	// Exec does the arithmetic and Mover moves the blocks; nil computes and moves nothing.
	Exec  cudakern.Executor
	Mover transport.Mover
	// Deadline and Window are the gang's, see rank.Config and sched.Config. Zero: a second, 4.
	Deadline actors.Time
	Window   int32
	// Depth of launches per stream; 0 is rank.Depth.
	Depth int
	// Mailbox is the most envelopes that may wait for one rank; 0 is no limit.
	Mailbox int
	// Pauses stop a rank from handling envelopes for a while, or for ever.
	Pauses []Pause
	// Trace, if set, is called with every event in order.
	Trace func(Event)
	// Spans, if set, is told of every op and block when it begins; see Span.
	Spans func(Span)
	// Progress, if set, is told of every round that a rank has done.
	Progress func(rank, round int32)
	// Stop, if set, is asked now and then whether to give up; its error ends the run.
	Stop func() error
	// MaxEvents ends a run that does not end; 0 is 1e9.
	MaxEvents int64
}

// Costs is what the world takes. Times are nanoseconds; all must be pure functions.
type Costs interface {
	// Op is the own-stream time of a device op.
	Op(rank, round, op int32) actors.Time
	// Transfer says which physical link the send of src goes over, how long it occupies it, and the
	// latency after that, which occupies nothing. A link carries one block at a time, in order.
	Transfer(src, dst, round, op int32) (link int, occupy, latency actors.Time)
	// Mail is the delay of an envelope between two addresses.
	Mail(from, to actors.Addr) actors.Time
}

// Noise is random delay, drawn from the world's seed; order between two addresses and inside a
// lane stays.
type Noise struct {
	Mail, Transfer, Op actors.Time // each draws uniformly from [0, that)
}

// Pause makes a rank deaf from a time, for a while; For = actors.Never is for ever.
type Pause struct {
	Rank    int32
	At, For actors.Time
}

// Event is one thing that happened, for traces.
type Event struct {
	At   actors.Time
	What string
	Env  actors.Envelope
}

// Result is what a run was. Times are of virtual nanoseconds.
type Result struct {
	Start, End actors.Time
	Events     int64
	TraceHash  uint64
	Violations []string
	MostMail   int // the fullest mailbox of a rank
}

// Nanos is the virtual length of the run.
func (r Result) Nanos() actors.Time { return r.End - r.Start }

// Failure is the scheduler's verdict on a run that was aborted.
type Failure struct {
	Fault    actors.Fault
	Rank     int32 // culprit; -1 unknown
	Op       int32 // that the reporter waited at; -1 none
	Peer     int32 // that op's peer; -1 none
	Reporter int32
	Round    int32
	Notes    []string
}

// Error names rank, link and op.
func (f *Failure) Error() string {
	s := fmt.Sprintf("round %d was aborted: %v, rank %d", f.Round, f.Fault, f.Rank)
	if f.Reporter >= 0 {
		s += fmt.Sprintf("; rank %d waited at op %d", f.Reporter, f.Op)
		if f.Peer >= 0 {
			s += fmt.Sprintf(" on rank %d", f.Peer)
		}
	}
	for _, n := range f.Notes {
		s += "\n  " + n
	}
	return s
}

// ErrStuck says that nothing is left to happen and the rounds are not over: a deadlock that no
// deadline found, which is a defect of kvloom.
var ErrStuck = errors.New("sim: nothing is left to happen and the rounds are not over")

// World is the gang in virtual time: one thread, one heap of events, one seed.
type World struct {
	cfg     Config
	now     actors.Time
	queue   queue
	random  random
	sched   *sched.Scheduler
	ranks   []*rank.Worker
	devices []device
	links   []linkEnd
	fabric  fabric
	clocks  []clock // of the ranks, then of the scheduler
	paused  []actors.Time
	held    [][]actors.Envelope    // what a paused rank has not got yet
	waiting []int                  // envelopes on their way to a rank
	order   map[uint64]actors.Time // by pair of addresses: when the last envelope arrives
	compute []actors.Time          // by rank: own time of its compute stream
	check   checker
	event   event // at hand
	out     actors.Outbox
	notes   []string
	events  int64
	hash    uint64
	most    int
	verdict *Failure
	upTo    int32
	want    int32
	round   int32
	incarn  []uint64
	tooFull string
}

// New makes a world and starts its actors.
func New(cfg Config) *World {
	if cfg.Exec == nil {
		cfg.Exec = cudakern.NoArithmetic{}
	}
	if cfg.Mover == nil {
		cfg.Mover = transport.NoBlocks{}
	}
	if cfg.Deadline == 0 {
		cfg.Deadline = 1e9
	}
	if cfg.Window == 0 {
		cfg.Window = 4
	}
	if cfg.MaxEvents == 0 {
		cfg.MaxEvents = 1e9
	}
	w := &World{
		cfg: cfg, random: random{state: cfg.Seed}, hash: fnvOffset, round: cfg.Book.First,
		ranks: make([]*rank.Worker, cfg.Ranks), devices: make([]device, cfg.Ranks),
		links: make([]linkEnd, cfg.Ranks), clocks: make([]clock, cfg.Ranks+1),
		paused: make([]actors.Time, cfg.Ranks), waiting: make([]int, cfg.Ranks),
		incarn: make([]uint64, cfg.Ranks), held: make([][]actors.Envelope, cfg.Ranks),
		order: map[uint64]actors.Time{}, compute: make([]actors.Time, cfg.Ranks),
	}
	w.fabric.free = map[int]actors.Time{}
	w.fabric.lanes = map[lane]actors.Time{}
	w.check.start(cfg.Ranks, cfg.Book)
	w.sched = sched.New(sched.Config{
		Ranks: cfg.Ranks, Window: cfg.Window, Deadline: cfg.Deadline,
		Plan: cfg.Book.Wants,
	})
	for r := range cfg.Ranks {
		w.spawn(int32(r))
	}
	for _, p := range cfg.Pauses {
		w.queue.push(p.At, pauseBegins, &actors.Envelope{
			To: actors.Addr{Rank: p.Rank}, A: uint64(later(p.At, p.For))})
	}
	return w
}

func later(at, by actors.Time) actors.Time {
	if by > actors.Never-at {
		return actors.Never
	}
	return at + by
}

// spawn gives a rank a new worker; device and link ends stay, and know the epoch themselves.
func (w *World) spawn(r int32) {
	w.incarn[r]++
	w.ranks[r] = rank.New(rank.Config{
		Rank: r, Incarnation: w.incarn[r], Book: w.cfg.Book, Deadline: w.cfg.Deadline,
		Depth: w.cfg.Depth,
	})
	for i := range w.held[r] {
		w.received(&w.held[r][i])
	}
	w.paused[r], w.held[r] = 0, nil
	w.clocks[r].generation++
	w.post(&actors.Envelope{
		To: actors.Addr{Role: actors.Rank, Rank: r}, Kind: actors.Start}, w.now)
}

// Respawn replaces a rank that a verdict named by a new incarnation.
func (w *World) Respawn(r int) { w.spawn(int32(r)) }

// Rank is the worker of a rank, to read its Stats.
func (w *World) Rank(r int) *rank.Worker { return w.ranks[r] }

// ComputeNanos is the own time of a rank's compute stream so far, waiting excluded.
func (w *World) ComputeNanos(r int) actors.Time { return w.compute[r] }

// Now is the virtual time.
func (w *World) Now() actors.Time { return w.now }

// Run runs the next n rounds of the book and returns when they are complete on all ranks, or with
// a *Failure when the gang was aborted; then the rounds after the failed ones can be run.
func (w *World) Run(n int) (Result, error) {
	res := Result{Start: w.now}
	first := w.events
	w.want, w.verdict, w.notes = w.round+int32(n), nil, nil
	w.post(&actors.Envelope{
		To: actors.Addr{Role: actors.Scheduler}, From: actors.Addr{Role: actors.Owner},
		Kind: actors.Submit, Round: w.round, Op: w.want}, w.now)
	w.upTo = w.round
	var err error
	for w.upTo < w.want && w.verdict == nil && err == nil {
		err = w.next(first)
	}
	res.End, res.Events, res.TraceHash = w.now, w.events-first, w.hash
	res.Violations, res.MostMail = w.check.violations, w.most
	w.round = w.want
	if w.verdict != nil {
		w.verdict.Notes = w.notes
		return res, w.verdict
	}
	return res, err
}

// next lets one event happen.
func (w *World) next(first int64) error {
	if w.queue.len() == 0 {
		return ErrStuck
	}
	if w.events-first >= w.cfg.MaxEvents {
		return fmt.Errorf("sim: the limit of %d events is reached: raise MaxEvents",
			w.cfg.MaxEvents)
	}
	if w.tooFull != "" {
		return errors.New(w.tooFull)
	}
	if w.cfg.Stop != nil && w.events%stopEvery == 0 {
		if err := w.cfg.Stop(); err != nil {
			return err
		}
	}
	e := &w.event
	w.now = w.queue.pop(e)
	w.events++
	w.note(e)
	r := e.env.To.Rank
	switch e.what {
	case delivery:
		w.deliver(&e.env)
	case opOver:
		w.devices[r].finish(w, r, &e.env)
	case blockOver:
		w.fabric.arrive(w, &e.env)
	case alarm:
		w.ring(&e.env)
	case pauseBegins:
		until := actors.Time(e.env.A)
		w.paused[r] = max(w.paused[r], until)
		if until < actors.Never {
			w.queue.push(until, pauseEnds, &actors.Envelope{To: e.env.To})
		}
	case pauseEnds:
		w.resume(r)
	}
	return nil
}

// stopEvery is how many events lie between two looks at Config.Stop.
const stopEvery = 1 << 12

// deliver gives an envelope to whom it is for. A paused rank gets it when the pause ends.
func (w *World) deliver(e *actors.Envelope) {
	switch e.To.Role {
	case actors.Rank:
		if w.paused[e.To.Rank] > w.now || len(w.held[e.To.Rank]) > 0 {
			w.held[e.To.Rank] = append(w.held[e.To.Rank], *e)
			return
		}
		w.received(e)
		w.step(w.ranks[e.To.Rank], e)
	case actors.Scheduler:
		w.step(w.sched, e)
	case actors.Device:
		w.devices[e.To.Rank].handle(w, e)
	case actors.Link:
		w.fabric.handle(w, e)
	case actors.Owner:
		w.owner(e)
	}
}

// resume gives a rank what came while it was deaf, in order.
func (w *World) resume(r int32) {
	if w.paused[r] > w.now {
		return
	}
	held := w.held[r]
	w.held[r] = nil
	for i := range held {
		w.deliver(&held[i])
	}
}

// owner is the session's part: it hears of rounds.
func (w *World) owner(e *actors.Envelope) {
	switch e.Kind {
	case actors.RoundDone:
		if w.cfg.Progress != nil {
			w.cfg.Progress(e.Peer, e.Round)
		}
	case actors.Complete:
		w.upTo = e.Round
		w.check.complete(e.Round - 1)
	case actors.Failed:
		w.verdict = &Failure{Fault: e.Fault, Rank: e.Peer, Op: e.Op, Peer: e.HeadHi,
			Reporter: e.HeadLo, Round: e.Round}
	}
}

// step runs a machine and sends what it says.
func (w *World) step(m actors.Machine, e *actors.Envelope) {
	w.out.Reset()
	to := e.To
	m.Step(w.now, *e, &w.out)
	for i := range w.out.Mail {
		w.send(&w.out.Mail[i])
	}
	w.notes = append(w.notes, w.out.Notes...)
	if w.out.Alarm == actors.Never && !w.out.Clear {
		return
	}
	c := w.clock(to)
	c.generation++
	if w.out.Alarm != actors.Never {
		w.queue.push(max(w.out.Alarm, w.now), alarm, &actors.Envelope{
			To: to, Kind: actors.Timer, A: c.generation})
	}
}

// clock is the alarm clock of a rank or the scheduler.
func (w *World) clock(of actors.Addr) *clock {
	if of.Role == actors.Rank {
		return &w.clocks[of.Rank]
	}
	return &w.clocks[len(w.ranks)]
}

// ring delivers an alarm unless it was set anew or dropped since.
func (w *World) ring(e *actors.Envelope) {
	if w.clock(e.To).generation == e.A {
		e.A = 0
		w.deliver(e)
	}
}

// takesPlace tells whether an envelope counts in a rank's mailbox. The scheduler's urgent words and
// the rank's own alarm have places of their own.
func takesPlace(e *actors.Envelope) bool {
	if e.To.Role != actors.Rank {
		return false
	}
	switch e.Kind {
	case actors.Abort, actors.Stop, actors.Ping, actors.Timer:
		return false
	}
	return true
}

func (w *World) received(e *actors.Envelope) {
	if takesPlace(e) {
		w.waiting[e.To.Rank]--
	}
}

type clock struct{ generation uint64 }

// pairOf names two addresses: a role has 3 bits, a rank 17.
func pairOf(from, to actors.Addr) uint64 {
	word := func(a actors.Addr) uint64 {
		return uint64(a.Role)<<17 | uint64(uint32(a.Rank))&(1<<17-1)
	}
	return word(from)<<20 | word(to)
}

// send gives an envelope to the post: the mail's delay and noise, order kept between two addresses.
func (w *World) send(e *actors.Envelope) { w.sendLater(e, 0) }

// sendLater posts an envelope that itself crosses a link.
func (w *World) sendLater(e *actors.Envelope, latency actors.Time) {
	at := w.now + latency + w.cfg.Costs.Mail(e.From, e.To)
	if n := w.cfg.Noise.Mail; n > 0 {
		at += w.random.below(n)
		p := pairOf(e.From, e.To)
		at = max(at, w.order[p])
		w.order[p] = at
	}
	w.post(e, at)
}

func (w *World) post(e *actors.Envelope, at actors.Time) {
	if takesPlace(e) {
		n := w.waiting[e.To.Rank] + 1
		w.waiting[e.To.Rank] = n
		w.most = max(w.most, n)
		if w.cfg.Mailbox > 0 && n > w.cfg.Mailbox {
			w.tooFull = fmt.Sprintf("sim: rank %d has %d envelopes waiting, its limit is %d",
				e.To.Rank, n, w.cfg.Mailbox)
		}
	}
	w.queue.push(at, delivery, e)
}

// note folds an event into the trace hash and shows it to whoever traces.
func (w *World) note(e *event) {
	h := w.hash
	for _, x := range [...]uint64{
		uint64(w.now), uint64(e.what)<<48 | uint64(e.env.Kind)<<40 | uint64(e.env.To.Role)<<32 |
			uint64(uint32(e.env.To.Rank)),
		uint64(uint32(e.env.Round))<<32 | uint64(uint32(e.env.Op)),
		uint64(uint32(e.env.Lane))<<32 | uint64(uint32(e.env.Tick)),
	} {
		h = (h ^ x) * fnvPrime
		h ^= h >> 29
	}
	w.hash = h
	if w.cfg.Trace != nil {
		w.cfg.Trace(Event{At: w.now, What: e.what.String(), Env: e.env})
	}
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)
