package cpu

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern"
)

// DeviceOptions are the choices of a device.
type DeviceOptions struct {
	// Pace makes an op take at least so long on the wall clock, as a modelled device would. With
	// nil it takes as long as it takes.
	Pace func(rank, round, op int32) time.Duration
}

// Device is one rank's device, as a machine: three FIFO streams whose ops run at once on the
// shared pool. Step is called by one goroutine at a time, as an actor's is.
//
//	Launch ->  compute  [12]-[15]      Next -> Begin -> pool: tasks ... -+
//	           in       [14]                                             |
//	           out      [9]            Finish, End, Done -> rank  <- Done to itself
type Device[T attn.Float] struct {
	self, rank actors.Addr
	store      *Store[T]
	pool       *Pool
	opt        DeviceOptions
	streams    cudakern.Streams
	runs       [cudakern.NumStreams]run[T]
	fence      int64 // launches of this epoch and older ones are dropped
	owes       bool  // a Flushed, when nothing runs any more
	broken     bool  // an op failed: nothing starts until a flush
	dropped    int64
	working    sync.WaitGroup // arithmetic on the pool
}

var _ actors.Machine = (*Device[float32])(nil)

// run is what runs on one stream.
type run[T attn.Float] struct {
	device *Device[T]
	post   func(actors.Envelope)
	launch actors.Envelope
	busy   bool // launch is what runs
	job    Job[T]
	batch  Batch
	needs  func(task int) (a, b int) // of the job, for when it has any
	timer  *time.Timer
	least  time.Duration
	began  time.Time
	nanos  int64
	err    error
}

// NewDevice makes the device of a rank. post puts an envelope into the device's own mailbox, from
// any goroutine, and must not block. With a nil store the device does no arithmetic and needs no
// pool: ops take the time that Pace says, and nothing else.
func NewDevice[T attn.Float](rank int32, store *Store[T], pool *Pool,
	post func(actors.Envelope), opt DeviceOptions) *Device[T] {
	d := &Device[T]{
		self:  actors.Addr{Role: actors.Device, Rank: rank},
		rank:  actors.Addr{Role: actors.Rank, Rank: rank},
		store: store, pool: pool, opt: opt, fence: -1,
	}
	for i := range d.runs {
		r := &d.runs[i]
		r.device, r.post = d, post
		r.batch.Over, r.batch.Work = r.over, &r.job
		r.needs = r.job.needs
		if store != nil && pool != nil {
			r.job.workers = (pool.Workers() + len(store.ranks) - 1) / len(store.ranks)
		}
	}
	return d
}

// Dropped is how many launches of flushed epochs came.
func (d *Device[T]) Dropped() int64 { return d.dropped }

// Step takes one envelope: Launch and Flush from its rank, Done from itself.
func (d *Device[T]) Step(_ actors.Time, in actors.Envelope, out *actors.Outbox) {
	switch in.Kind {
	case actors.Launch:
		if int64(in.Epoch) <= d.fence {
			d.dropped++
			return
		}
		if err := d.streams.Push(in); err != nil {
			d.fail(in, fmt.Errorf("rank %d: %w", d.self.Rank, err), out)
			return
		}
	case actors.Done:
		d.done(in, out)
	case actors.Flush:
		d.fence = max(d.fence, int64(in.Epoch))
		d.streams.Flush()
		d.owes, d.broken = true, false
		d.giveUp()
	case actors.Ping:
		d.pong(in, out)
		return
	default:
		return
	}
	d.pump(out)
}

// giveUp drops what the ops that run have not begun: an abort need not wait for a long op's end.
func (d *Device[T]) giveUp() {
	if d.store == nil || d.pool == nil {
		return
	}
	for i := range d.runs {
		d.pool.Drop(&d.runs[i].batch)
	}
}

// pong gives its rank a sign of life that changes as long as the pool gets work done.
func (d *Device[T]) pong(in actors.Envelope, out *actors.Outbox) {
	beat := uint64(0)
	if d.pool != nil {
		beat = d.pool.Ended()
	}
	out.Send(actors.Envelope{To: d.rank, From: d.self, Kind: actors.Pong, Epoch: in.Epoch, A: beat})
}

// Wait waits until no arithmetic of the device is on the pool: after that it writes no slot any
// more. The device must have left its actor. An op that does not end within limit is an error.
func (d *Device[T]) Wait(limit time.Duration) error {
	idle := make(chan struct{})
	go func() {
		d.working.Wait()
		close(idle)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-idle:
		return nil
	case <-timer.C:
		return fmt.Errorf("device %d: an op has not ended within %v", d.self.Rank, limit)
	}
}

// pump starts what may start, or answers a flush when nothing runs.
func (d *Device[T]) pump(out *actors.Outbox) {
	for !d.owes && !d.broken {
		e, ok := d.streams.Next()
		if !ok {
			return
		}
		if err := d.runs[e.Stream].start(e); err != nil {
			d.runs[e.Stream].busy = false
			d.streams.Finish(e.Stream)
			d.fail(e, err, out)
		}
	}
	if d.owes && d.streams.Idle() {
		// Events of the old epoch must not stand for those of the same round run again.
		d.owes, d.streams = false, cudakern.Streams{}
		out.Send(actors.Envelope{
			To: d.rank, From: d.self, Kind: actors.Flushed, Epoch: actors.Epoch(d.fence)})
	}
}

// done ends an op and tells the rank, unless its epoch was flushed meanwhile.
func (d *Device[T]) done(in actors.Envelope, out *actors.Outbox) {
	if in.From != d.self || in.Stream >= cudakern.NumStreams {
		return
	}
	r := &d.runs[in.Stream]
	if l := &r.launch; !r.busy || in.Epoch != l.Epoch || in.Round != l.Round || in.Op != l.Op {
		d.dropped++ // of a former incarnation, which shares the address
		return
	}
	r.busy = false
	e, err := d.streams.Finish(in.Stream), r.err
	if d.store != nil {
		r.job.End(err == nil)
		if err != nil {
			err = r.job.Fault(err)
		}
	}
	switch {
	case err != nil:
		d.fail(e, err, out)
	case int64(e.Epoch) > d.fence:
		out.Send(actors.Envelope{
			To: d.rank, From: d.self, Kind: actors.Done, Epoch: e.Epoch, Round: e.Round, Op: e.Op,
			Stream: e.Stream, A: in.A, B: in.B})
	}
}

// fail tells the rank of a failed op; whatever waits for it must not run.
func (d *Device[T]) fail(e actors.Envelope, err error, out *actors.Outbox) {
	if int64(e.Epoch) <= d.fence {
		return // nobody waits for it any more
	}
	out.Note(fmt.Sprintf("device %d: %v", d.self.Rank, err))
	d.broken = true
	out.Send(actors.Envelope{
		To: d.rank, From: d.self, Kind: actors.Broken, Fault: actors.DeviceFault, Epoch: e.Epoch,
		Round: e.Round, Op: e.Op})
}

// start begins an op.
func (r *run[T]) start(e actors.Envelope) error {
	d := r.device
	r.launch, r.busy = e, true
	r.least, r.nanos, r.err, r.began = 0, 0, nil, time.Now()
	if d.opt.Pace != nil {
		r.least = d.opt.Pace(d.self.Rank, e.Round, e.Op)
	}
	if d.store == nil {
		r.over(nil)
		return nil
	}
	tasks, err := d.store.Begin(d.self.Rank, e.Round, e.Op, &r.job)
	if err != nil {
		return err
	}
	if d.pool == nil {
		r.job.End(false)
		return errors.New("the device has no pool to run on")
	}
	r.batch.Tasks, r.batch.Turn, r.batch.Needs = tasks, r.job.turn(), nil
	if r.job.pieces() {
		r.batch.Needs = r.needs
	}
	d.working.Add(1)
	if err := d.pool.Submit(&r.batch); err != nil {
		d.working.Done()
		r.job.End(false)
		return r.job.Fault(err)
	}
	return nil
}

// over is called when the arithmetic is done: at once, or when the op's pace is used up, the device
// hears of it.
func (r *run[T]) over(err error) {
	if r.device.store != nil {
		r.device.working.Done()
	}
	r.err, r.nanos = err, max(r.batch.Nanos(), int64(r.least))
	rest := r.least - time.Since(r.began)
	switch {
	case rest <= 0 || err != nil:
		r.tell()
	case r.timer == nil:
		r.timer = time.AfterFunc(rest, r.tell)
	default:
		r.timer.Reset(rest)
	}
}

// tell posts the op's end to the device itself.
func (r *run[T]) tell() {
	d, e := r.device, &r.launch
	out := actors.Envelope{
		To: d.self, From: d.self, Kind: actors.Done, Epoch: e.Epoch, Round: e.Round, Op: e.Op,
		Stream: e.Stream, A: uint64(r.nanos)}
	if d.store != nil {
		out.B = r.job.what.flops(e.Op)
	}
	r.post(out)
}
