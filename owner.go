package kvloom

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kvloom/kvloom/actors"
)

// owner is the session's end of the mail: it hears of rounds and verdicts on the scheduler's
// goroutine and wakes the waiting Run.
type owner struct {
	progress func(rank, round int32)

	mu      sync.Mutex
	want    int32
	done    int32
	failed  *actors.Envelope
	dead    error
	lost    map[int]bool // ranks that only a new incarnation brings back
	notes   []string
	exposed []int64 // by rank, nanoseconds, since begin
	busy    []int64
	heard   bool // something came since the scheduler was last asked
	wake    chan struct{}
}

// maxNotes bounds what an error repeats.
const maxNotes = 32

func newOwner(ranks int, progress func(rank, round int32)) *owner {
	return &owner{
		progress: progress, exposed: make([]int64, ranks), busy: make([]int64, ranks),
		wake: make(chan struct{}, 1), lost: map[int]bool{},
	}
}

func (o *owner) begin(from, to int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done, o.want, o.failed, o.notes = from, to, nil, nil
}

// handle takes the scheduler's word; it never blocks.
func (o *owner) handle(e actors.Envelope) {
	o.mu.Lock()
	o.heard = true
	switch e.Kind {
	case actors.Complete:
		o.done = max(o.done, e.Round)
	case actors.Failed:
		failed := e // a copy, so that only a failure costs an allocation
		o.failed = &failed
	case actors.Lost:
		o.lost[int(e.Peer)] = true
	case actors.RoundDone:
		o.exposed[e.Peer] += int64(e.A)
		o.busy[e.Peer] += int64(e.B)
	case actors.Down:
		o.dead = fmt.Errorf("kvloom: the scheduler is gone (%v): open a new session", e.Fault)
	}
	o.mu.Unlock()
	if e.Kind == actors.RoundDone && o.progress != nil {
		o.progress(e.Peer, e.Round)
	}
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// note keeps what an actor had to say for the error of the run at hand.
func (o *owner) note(from actors.Addr, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.notes) < maxNotes {
		o.notes = append(o.notes, text)
	}
	_ = from
}

// errWaiting says that the end of the rounds has not come.
var errWaiting = errors.New("kvloom: waiting")

// wait returns when the rounds are complete, or with the verdict. When ctx ends it gives up, and
// returns when the scheduler has said so. A scheduler that says nothing for a whole patience,
// though it was asked, is gone.
func (o *owner) wait(ctx context.Context, patience time.Duration, ask, cancel func()) (
	*actors.Envelope, error) {
	done := ctx.Done()
	tick := time.NewTicker(patience)
	defer tick.Stop()
	asked := false
	for {
		failed, err := o.state()
		if !errors.Is(err, errWaiting) {
			return failed, err
		}
		select {
		case <-o.wake:
		case <-done:
			done = nil
			cancel()
		case <-tick.C:
			if !o.heardSince() && asked {
				return nil, fmt.Errorf("kvloom: the scheduler has said nothing for %v, though "+
					"it was "+
					"asked: open a new session", patience)
			}
			asked = true
			ask()
		}
	}
}

// heardSince reports whether something came since the last call.
func (o *owner) heardSince() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	heard := o.heard
	o.heard = false
	return heard
}

func (o *owner) state() (*actors.Envelope, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.failed != nil:
		return o.failed, nil
	case o.done >= o.want:
		return nil, nil
	case o.dead != nil:
		return nil, o.dead
	}
	return nil, errWaiting
}

// figures are a rank's exposed and busy nanoseconds so far.
func (o *owner) figures(rank int) (exposed, busy int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.exposed[rank], o.busy[rank]
}

// takeLost gives the ranks to be replaced, once.
func (o *owner) takeLost() map[int]bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	lost := o.lost
	o.lost = map[int]bool{}
	return lost
}

func (o *owner) takeNotes() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.notes
}
