package live

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"

	"github.com/kvloom/kvloom/actors"
)

// MaxRank is the highest rank that an address may have.
const MaxRank = 1<<16 - 1

// numRoles bounds the tables that are indexed by role.
const numRoles = int(actors.Owner) + 1

// Options are what a host is told by its composition root.
type Options struct {
	// Logger gets the host's and protoactor's events; nil: none.
	Logger *zap.Logger
	// OnNote hears each note of a machine, and why an actor is gone. It must not block.
	OnNote func(from actors.Addr, note string)
}

// Host runs machines as actors of one protoactor system.
type Host struct {
	log      *zap.Logger
	onNote   func(from actors.Addr, note string)
	system   *actor.ActorSystem
	began    time.Time
	dropped  atomic.Int64
	handlers [numRoles]atomic.Pointer[func(actors.Envelope)]
	seats    [numRoles]atomic.Pointer[[]*seat] // by rank; replaced, never changed, but for seats

	mu      sync.Mutex // of Spawn and Close
	spawned uint64
	leaving []*cell // replaced, perhaps still on their last lines
	closing bool
	closed  atomic.Bool
}

// seat is an address; its cell is the latest incarnation.
type seat struct{ cell atomic.Pointer[cell] }

// New starts a host without actors. Its clock begins at 0.
func New(o Options) (*Host, error) {
	h := &Host{log: o.Logger, onNote: o.OnNote, began: time.Now()}
	if h.log == nil {
		h.log = zap.NewNop()
	}
	config := actor.NewConfig()
	config.LoggerFactory = func(s *actor.ActorSystem) *slog.Logger {
		return slog.New(zapslog.NewHandler(h.log.Core())).With("lib", "protoactor", "system", s.ID)
	}
	h.system = actor.NewActorSystemWithConfig(config)
	return h, nil
}

// Now is the time since New, in nanoseconds of the monotonic clock.
func (h *Host) Now() actors.Time { return actors.Time(time.Since(h.began)) }

// Dropped is the number of envelopes that nobody received: for an address that nobody has or had
// any more, in the mailbox of an actor that is gone, or one too many for a mailbox.
func (h *Host) Dropped() int64 { return h.dropped.Load() }

// Handle makes the addresses of a role a function, for all ranks. It is called on the goroutine of
// whoever sends, and must not block. Set it before anybody sends.
func (h *Host) Handle(role actors.Role, f func(actors.Envelope)) {
	if int(role) < numRoles {
		h.handlers[role].Store(&f)
	}
}

// Send delivers an envelope to the address that it names. It never blocks: a mailbox that is full
// is the end of its actor.
func (h *Host) Send(e actors.Envelope) {
	if int(e.To.Role) >= numRoles || h.closed.Load() {
		h.dropped.Add(1)
		return
	}
	if f := h.handlers[e.To.Role].Load(); f != nil {
		(*f)(e)
		return
	}
	c := h.find(e.To)
	if c == nil {
		h.dropped.Add(1)
		return
	}
	switch c.box.post(&e) {
	case full:
		h.dropped.Add(1)
		limit := c.box.limit
		if urgent(e.Kind) {
			limit = UrgentLimit
		}
		c.stop(actors.Overflow, fmt.Sprintf("its mailbox holds its limit of %d envelopes and "+
			"another came (kind %d from %v)", limit, e.Kind, e.From))
	case shut:
		h.dropped.Add(1)
	}
}

// find gives the latest cell of an address, nil if there never was one.
func (h *Host) find(a actors.Addr) *cell {
	if int(a.Role) >= numRoles {
		return nil
	}
	seats := h.seats[a.Role].Load()
	if seats == nil || a.Rank < 0 || int(a.Rank) >= len(*seats) {
		return nil
	}
	return (*seats)[a.Rank].cell.Load()
}

// Spawn starts an actor that steps machine m at an address, in an incarnation that Down will name.
// At most mailbox envelopes may wait for it. At the address of an actor that is gone it starts the
// next one; it waits until the step of one that is leaving is over. At the address of a living
// actor, or of a role that Handle has, it is an error.
func (h *Host) Spawn(addr actors.Addr, m actors.Machine, incarnation uint64, mailbox int) error {
	switch {
	case addr.Role == actors.Nobody || int(addr.Role) >= numRoles:
		return fmt.Errorf("spawn at role %d: actors have a role of 1 to %d", addr.Role, numRoles-1)
	case addr.Rank < 0 || addr.Rank > MaxRank:
		return fmt.Errorf("spawn %v: ranks are 0 to %d", addr, MaxRank)
	case h.handlers[addr.Role].Load() != nil:
		return fmt.Errorf("spawn %v: addresses of that role are a function", addr)
	case m == nil || mailbox < 1:
		return fmt.Errorf("spawn %v with a mailbox of %d: a machine and a limit of at least 1 are "+
			"needed", addr, mailbox)
	}
	h.mu.Lock()
	for {
		old := h.find(addr)
		if old == nil {
			break
		}
		if old.ending.Load() == nil {
			h.mu.Unlock()
			return fmt.Errorf("spawn %v: incarnation %d lives at that address: kill it first", addr,
				old.incarnation)
		}
		if left(old.gone) {
			break
		}
		h.mu.Unlock()
		<-old.gone
		h.mu.Lock()
	}
	defer h.mu.Unlock()
	if h.closing {
		return fmt.Errorf("spawn %v: the host is closed", addr)
	}
	return h.seatCell(newCell(h, addr, m, incarnation, mailbox))
}

func left(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// seatCell makes a cell known at its address and then starts it, so that its first step may send
// to itself.
func (h *Host) seatCell(c *cell) error {
	s := h.seat(c.addr)
	before := s.cell.Load()
	s.cell.Store(c)
	if before != nil {
		h.leaving = append(h.leaving, before)
	}
	h.leaving = slices.DeleteFunc(h.leaving, func(c *cell) bool { return left(c.box.done) })
	h.spawned++
	name := fmt.Sprintf("%v, incarnation %d, actor %d", c.addr, c.incarnation, h.spawned)
	props := actor.PropsFromProducer(func() actor.Actor { return c },
		actor.WithMailbox(func() actor.Mailbox { return c.box }),
		actor.WithGuardian(stopFailed{}))
	if _, err := h.system.Root.SpawnNamed(props, name); err != nil {
		s.cell.Store(before)
		return fmt.Errorf("spawn %v: %w", c.addr, err)
	}
	return nil
}

// seat gives the seat of an address; the caller holds mu.
func (h *Host) seat(a actors.Addr) *seat {
	var seats []*seat
	if p := h.seats[a.Role].Load(); p != nil {
		seats = *p
	}
	if int(a.Rank) < len(seats) {
		return seats[a.Rank]
	}
	grown := make([]*seat, max(int(a.Rank)+1, 2*len(seats)))
	for i := copy(grown, seats); i < len(grown); i++ {
		grown[i] = &seat{}
	}
	h.seats[a.Role].Store(&grown)
	return grown[a.Rank]
}

// Grow raises the limit of an actor's mailbox, for a plan that needs more; it never lowers it.
func (h *Host) Grow(addr actors.Addr, mailbox int) {
	if c := h.find(addr); c != nil {
		c.box.grow(mailbox)
	}
}

// Kill ends an actor after the step that it is in. Down says so to the scheduler.
func (h *Host) Kill(addr actors.Addr, why string) error {
	c := h.find(addr)
	if c == nil || !c.stop(faultOf(addr.Role), "it was killed: "+why) {
		return fmt.Errorf("kill %v: no actor lives at that address", addr)
	}
	return nil
}

// Hang makes an actor swallow all that it gets from now on, its alarms too: a fault for tests.
func (h *Host) Hang(addr actors.Addr) error {
	c := h.find(addr)
	if c == nil || c.ending.Load() != nil {
		return fmt.Errorf("hang %v: no actor lives at that address", addr)
	}
	c.hung.Store(true)
	return nil
}

// Close stops the ranks, then the devices, then the scheduler, each when the ones before have
// left, and says no Down of them. When ctx ends first the error names an actor whose step did not
// end; all others are stopped all the same. Called again it does nothing.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	if h.closing {
		h.mu.Unlock()
		return nil
	}
	h.closing = true
	h.mu.Unlock()
	var err error
	for _, role := range [...]actors.Role{
		actors.Rank, actors.Device, actors.Link, actors.Scheduler, actors.Owner,
	} {
		if e := h.stopRole(ctx, role); e != nil && err == nil {
			err = e
		}
	}
	h.closed.Store(true)
	h.system.Shutdown()
	return err
}

// stopRole stops the actors of a role and waits until they have left.
func (h *Host) stopRole(ctx context.Context, role actors.Role) error {
	var cells []*cell
	if seats := h.seats[role].Load(); seats != nil {
		for _, s := range *seats {
			if c := s.cell.Load(); c != nil {
				c.stop(actors.NoFault, "the host was closed")
				cells = append(cells, c)
			}
		}
	}
	for _, c := range h.leaving {
		if c.addr.Role == role {
			cells = append(cells, c)
		}
	}
	for _, c := range cells {
		if left(c.box.done) {
			continue
		}
		select {
		case <-c.box.done:
		case <-ctx.Done():
			return fmt.Errorf("close: %v has not left, its step does not end: %w", c.addr,
				ctx.Err())
		}
	}
	return nil
}

// note passes on what a machine, or the host about an actor, has to say to people.
func (h *Host) note(from actors.Addr, note string) {
	h.log.Info(note, zap.Stringer("actor", from))
	if h.onNote != nil {
		h.onNote(from, note)
	}
}
