package kvloom

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/actors/live"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/collect"
	"github.com/kvloom/kvloom/cudakern"
	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
	"github.com/kvloom/kvloom/sched"
	"github.com/kvloom/kvloom/transport"
	"github.com/kvloom/kvloom/transport/inproc"
)

// ErrClosed is returned by calls on a closed Session.
var ErrClosed = errors.New("kvloom: the session is closed")

// Round is one pass of a problem on one state: a layer's micro-batch, numbered by the caller.
type Round struct {
	Problem int
	Pass    plan.Pass
	State   int
}

// Session is a gang of ranks in this process.
type Session[T attn.Float] struct {
	cfg     Config
	id      uint32 // names this session in block headers
	cache   *planCache
	table   sync.RWMutex     // of layers
	layers  []*layer         // by problem; nil where an Attention was closed
	extra   []*rank.Compiled // collectives
	sums    map[collect.Spec]*collective
	book    *book
	host    *live.Host
	net     *inproc.Net
	pool    *cpu.Pool
	store   *cpu.Store[T]
	kernels cpu.Kernels
	meter   *transport.Meter
	owner   *owner
	tracer  *tracer // nil when nobody asks
	incarn  []uint64
	devices []*cpu.Device[T] // by rank, of the present incarnation

	mu     sync.Mutex // one Run, Load or Close at a time
	closed bool
	broken error // the scheduler is gone
	states states
}

// Open checks the plans of all problems, starts the actors and returns when they run.
func Open[T attn.Float](ctx context.Context, cfg Config) (*Session[T], error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.Problems = slices.Clone(cfg.Problems)
	kernels, err := cpu.ParseKernels[T](cfg.Kernels)
	if err != nil {
		return nil, fmt.Errorf("kvloom: %w", err)
	}
	s := &Session[T]{cfg: cfg, id: rand.Uint32(), book: &book{}, kernels: kernels,
		owner: newOwner(cfg.Mesh.Ranks(), cfg.Progress), cache: newPlanCache(cfg.Plans)}
	for i := range cfg.Problems {
		l, err := s.compile(ctx, i)
		if err != nil {
			return nil, errors.Join(err, s.Close(ctx))
		}
		s.layers = append(s.layers, l)
	}
	if err := s.start(); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

// compile gives the plan of a problem, built, verified and ready.
func (s *Session[T]) compile(ctx context.Context, i int) (*layer, error) {
	s.cfg.Problems[i].widths(int(unsafe.Sizeof(T(0))))
	spec, err := s.cfg.checked(i)
	if err != nil {
		return nil, err
	}
	if err := s.canHold(&spec.Shape); err != nil {
		return nil, fmt.Errorf("kvloom: problem %d: %w", i, err)
	}
	l, err := s.cache.get(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("kvloom: problem %d: %w", i, err)
	}
	return l, nil
}

// widths fills in those left out: the session's type's.
func (p *Problem) widths(bytes int) {
	if p.ElemBytes == 0 {
		p.ElemBytes = bytes
	}
	if p.AccBytes == 0 {
		p.AccBytes = max(p.ElemBytes, bytes)
	}
}

// canHold refuses widths that the session's type cannot sum.
func (s *Session[T]) canHold(shape *plan.Shape) error {
	const narrow = 2
	bytes := int(unsafe.Sizeof(T(0)))
	switch {
	case shape.AccBytes != bytes:
		return fmt.Errorf("sums of %d bytes in a session of %d-byte floats: use AccBytes %d, or "+
			"open a session of the other type", shape.AccBytes, bytes, bytes)
	case shape.ElemBytes != bytes && (shape.ElemBytes != narrow || bytes != 4):
		return fmt.Errorf("elements of %d bytes in a session of %d-byte floats: use ElemBytes %d, "+
			"or 2 (bf16) in a session of float32", shape.ElemBytes, bytes, bytes)
	}
	return nil
}

// prove builds a plan's programs once, verifies them, and makes them ready to run.
func prove(ctx context.Context, p plan.Source, seal func([]plan.Hash) plan.Hash) (
	*rank.Compiled, error) {
	proof, err := plan.NewProof(p)
	if err != nil {
		return nil, err
	}
	c, err := rank.CompilePlan(p, func(r int, programs []*plan.Program) error {
		proof.Rank(r, programs)
		return ctx.Err()
	}, seal)
	if err != nil {
		return nil, err
	}
	report, err := proof.Finish()
	if err != nil {
		return nil, err
	}
	if err := report.Err(); err != nil {
		return nil, fmt.Errorf("the plan is not sound: %w", err)
	}
	return c, nil
}

// start makes the worlds and their actors: pool, memory, links, devices, ranks, scheduler.
func (s *Session[T]) start() error {
	n := s.cfg.Mesh.Ranks()
	host, err := live.New(live.Options{Logger: s.cfg.Logger, OnNote: s.owner.note})
	if err != nil {
		return err
	}
	s.host = host
	s.pool = cpu.NewPool(s.cfg.Workers)
	s.store = cpu.New[T](s.book, n,
		cpu.Options{Arena: cpu.NewArena(0, s.cfg.MemoryLimit), Kernels: s.kernels})
	s.meter = transport.NewMeter(s.store, n, int(plan.NumClasses), s.book.class)
	s.tracer = newTracer(s.cfg.Trace, s.book)
	net := inproc.Options{
		Ranks: n, Mover: s.tracer.mover(s.meter), Send: host.Send, OnNote: s.owner.note}
	if s.cfg.Pace != nil {
		net.Pace = s.cfg.Pace.Link
	}
	s.net = inproc.New(net)
	host.Handle(actors.Link, s.tracer.link(s.net.Handle))
	host.Handle(actors.Owner, s.owner.handle)
	scheduler := sched.New(sched.Config{
		Ranks: n, Window: int32(s.cfg.Window), Deadline: actors.Time(s.cfg.Deadline),
		Plan: s.book.wants,
	})
	err = host.Spawn(actors.Addr{Role: actors.Scheduler}, scheduler, 1, 16*n+64)
	s.incarn, s.devices = make([]uint64, n), make([]*cpu.Device[T], n)
	for r := 0; r < n && err == nil; r++ {
		if err = s.spawnDevice(r); err == nil {
			err = s.spawnRank(r)
		}
	}
	return err
}

// spawnDevice starts the device of a rank's next incarnation.
func (s *Session[T]) spawnDevice(r int) error {
	s.incarn[r]++
	opt := cpu.DeviceOptions{}
	if s.cfg.Pace != nil {
		opt.Pace = s.cfg.Pace.Op
	}
	pace, send := s.tracer.device(opt.Pace, s.host.Send)
	opt.Pace = pace
	s.devices[r] = cpu.NewDevice(int32(r), s.store, s.pool, send, opt)
	at := actors.Addr{Role: actors.Device, Rank: int32(r)}
	return s.host.Spawn(at, s.devices[r], s.incarn[r], deviceMail)
}

// spawnRank starts the rank that goes with the device.
func (s *Session[T]) spawnRank(r int) error {
	w := rank.New(rank.Config{
		Rank: int32(r), Run: s.id, Incarnation: s.incarn[r], Book: s.book,
		Deadline: actors.Time(s.cfg.Deadline),
	})
	at := actors.Addr{Role: actors.Rank, Rank: int32(r)}
	return s.host.Spawn(at, w, s.incarn[r], s.rankMail(r))
}

// deviceMail is enough for the launches of all streams, a flush, and what ends.
const deviceMail = int(cudakern.NumStreams)*cudakern.MaxQueue*2 + 8

// rankMail follows from the plans: the credits and arrivals of every round of a window, and what a
// device can answer.
func (s *Session[T]) rankMail(r int) int {
	links := 0
	for _, l := range s.layers {
		if l != nil {
			links = max(links, l.links[r])
		}
	}
	for _, c := range s.extra {
		links = max(links, linksOf(c, s.cfg.Mesh.Ranks())[r])
	}
	return 2*links*(s.cfg.Window+1) + deviceMail
}

// Run runs rounds in order on all ranks and returns when they are complete, or with an *Error when
// the gang was aborted. The next Run is the next epoch: dead ranks are replaced first.
func (s *Session[T]) Run(ctx context.Context, rounds ...Round) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries := make([]rank.Entry, len(rounds))
	for i, r := range rounds {
		l, err := s.layer(r.Problem)
		if err != nil || r.Pass > plan.Backward {
			return fmt.Errorf("kvloom: round %d names problem %d, pass %d: the session has %d "+
				"problems, of which some may be closed; passes are 0 and 1", i, r.Problem, r.Pass,
				len(s.layers))
		}
		entries[i] = rank.Entry{Plan: l.ready, Pass: r.Pass, State: int32(r.State)}
	}
	return s.run(ctx, entries)
}

// run is Run of entries; the caller holds mu.
func (s *Session[T]) run(ctx context.Context, entries []rank.Entry) error {
	switch {
	case s.closed:
		return ErrClosed
	case s.broken != nil:
		return s.broken
	case len(entries) == 0:
		return nil
	}
	from, to := s.book.add(entries)
	defer s.book.forget(to)
	s.owner.begin(from, to)
	s.host.Send(actors.Envelope{
		To: actors.Addr{Role: actors.Scheduler}, From: actors.Addr{Role: actors.Owner},
		Kind: actors.Submit, Round: from, Op: to})
	failed, err := s.owner.wait(ctx, max(s.cfg.Deadline, schedulerPatience), s.ask, s.cancel)
	if err != nil {
		s.broken = err
		return err
	}
	if failed == nil {
		return nil
	}
	err = s.recover(failed)
	if e := (*Error)(nil); errors.As(err, &e) && e.Kind == Aborted {
		e.Cause = context.Cause(ctx)
	}
	return err
}

// schedulerPatience is the least time that a scheduler may be silent for: it shares processors with
// the arithmetic, whatever deadline the ranks have.
const schedulerPatience = time.Second

// ask asks the scheduler for a sign of life.
func (s *Session[T]) ask() {
	s.host.Send(actors.Envelope{
		To: actors.Addr{Role: actors.Scheduler}, From: actors.Addr{Role: actors.Owner},
		Kind: actors.Ping})
}

// cancel asks the scheduler to give up; it answers with a verdict.
func (s *Session[T]) cancel() {
	s.host.Send(actors.Envelope{
		To: actors.Addr{Role: actors.Scheduler}, From: actors.Addr{Role: actors.Owner},
		Kind: actors.Cancel})
}

// Close stops the actors in order and frees all memory. It may be called twice.
func (s *Session[T]) Close(ctx context.Context) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.cache.close()
	var err error
	if s.host != nil {
		err = s.host.Close(ctx)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.free()
	}()
	select {
	case <-ended:
		return err
	case <-ctx.Done():
		return errors.Join(err, fmt.Errorf("kvloom: close: an op of a device has not ended: %w",
			ctx.Err()))
	}
}

// lock waits for the call in flight, as long as ctx allows.
func (s *Session[T]) lock(ctx context.Context) error {
	got := make(chan struct{})
	var gone atomic.Bool
	go func() {
		s.mu.Lock()
		if gone.Swap(true) {
			s.mu.Unlock()
			return
		}
		close(got)
	}()
	select {
	case <-got:
		return nil
	case <-ctx.Done():
		if gone.Swap(true) {
			<-got // it came at the same time
			return nil
		}
		return fmt.Errorf("kvloom: close: a call has not ended: %w", ctx.Err())
	}
}

// free gives up links, workers and memory, each when what runs on it is over.
func (s *Session[T]) free() {
	if s.net != nil {
		s.net.Close()
	}
	if s.pool != nil {
		s.pool.Close()
	}
	if s.store != nil {
		s.store.Close()
	}
}

// Kernels names the kernels that the session computes with: of its problems' the fastest.
func (s *Session[T]) Kernels() string {
	s.table.RLock()
	defer s.table.RUnlock()
	found := cpu.Portable
	for _, l := range s.layers {
		if l != nil {
			found = max(found, s.kernels.For(&l.plan.Header().Shape))
		}
	}
	return found.String()
}

// layer is the plan of a problem that is there; it may be asked for while a round runs.
func (s *Session[T]) layer(problem int) (*layer, error) {
	s.table.RLock()
	defer s.table.RUnlock()
	switch {
	case problem < 0 || problem >= len(s.layers):
		return nil, fmt.Errorf("kvloom: problem %d: the session has %d", problem, len(s.layers))
	case s.layers[problem] == nil:
		return nil, fmt.Errorf("kvloom: problem %d was closed", problem)
	}
	return s.layers[problem], nil
}

// setLayer puts a plan in its place; nil empties it.
func (s *Session[T]) setLayer(problem int, l *layer) {
	s.table.Lock()
	defer s.table.Unlock()
	s.layers[problem] = l
}

// Plan is the plan of a problem; nil if there is no such problem.
func (s *Session[T]) Plan(problem int) *plan.Plan {
	l, err := s.layer(problem)
	if err != nil {
		return nil
	}
	return l.plan
}

// PlanHash names the plan of a problem; it is 0 if there is no such problem.
func (s *Session[T]) PlanHash(problem int) plan.Hash {
	l, err := s.layer(problem)
	if err != nil {
		return plan.Hash{}
	}
	return l.ready.Hash
}
