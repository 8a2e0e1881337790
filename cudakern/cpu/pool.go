package cpu

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern/cpu/kernel"
	"github.com/kvloom/kvloom/cudakern/cpu/simd"
)

// Work is something in tasks that may run at once, each on a worker with a Scratch of its own.
type Work interface {
	Run(task int, scratch *Scratch)
}

// Scratch is a worker's memory between tasks. The zero Scratch is ready for use.
type Scratch struct {
	kernels []any
	vectors simd.Scratch
}

// scratchOf is the kernels' scratch for elements of T.
func scratchOf[T attn.Float](s *Scratch) *kernel.Scratch[T] {
	for _, k := range s.kernels {
		if found, ok := k.(*kernel.Scratch[T]); ok {
			return found
		}
	}
	made := &kernel.Scratch[T]{}
	s.kernels = append(s.kernels, made)
	return made
}

// Batch is work on a pool. The caller owns it, and may submit it again once it is over.
type Batch struct {
	Work  Work
	Tasks int
	Turn  int // tasks that begin before the next batch's turn; 0 is 1
	// Needs names up to two tasks, -1 for none, which must be over before a task begins. Both are
	// less than the task, as tasks begin in order. It is asked while the pool is locked. nil: none
	// needs any.
	Needs func(task int) (a, b int)
	// Over is called once, on a worker, when all tasks are over; err is the first task's that
	// panicked, after which no other begins. It must not block.
	Over func(err error)

	next  int      // first task not handed out
	left  int      // tasks not over
	done  []uint64 // where tasks have needs: those that are over, 64 a word
	nanos int64
	err   error
}

// ready reports whether the next task may begin.
func (b *Batch) ready() bool {
	if b.Needs == nil {
		return true
	}
	x, y := b.Needs(b.next)
	return b.ended(x) && b.ended(y)
}

// ended reports whether a task is over; -1 always is.
func (b *Batch) ended(task int) bool { return task < 0 || b.done[task/64]>>(task%64)&1 != 0 }

// reset makes it a batch of which nothing has begun.
func (b *Batch) reset() {
	b.next, b.left, b.nanos, b.err, b.done = 0, b.Tasks, 0, nil, b.done[:0]
	if b.Needs != nil {
		words := (b.Tasks + 63) / 64
		b.done = slices.Grow(b.done, words)[:words]
		clear(b.done)
	}
}

// Nanos is what the batch's tasks took, waiting for a worker excluded; as if one worker had done
// them all. It is read when the batch is over.
func (b *Batch) Nanos() int64 { return b.nanos }

// Pool is the workers that all ranks of a process share.
//
//	active   A: tasks 3 4 5     B: task 1     C: tasks 0 1 2 3
//	         ^ turn                               Turn tasks from each in turn
//
// Batches take turns of a few tasks, so that ranks that began together end together however few
// workers there are: when the first of equal batches is over, no other has more tasks to begin than
// those of a turn, whatever a task takes. The tasks of one turn may read the same memory, which the
// caches then have. A batch whose next task needs one that is not over yields the rest of its turn,
// and may end later for it. A worker without a task sleeps; one that takes a task wakes another if
// there is more to take, so that nobody sleeps while the next task of a batch may begin.
type Pool struct {
	size    int // workers
	mu      sync.Mutex
	wake    sync.Cond
	asleep  int      // workers that wait
	active  []*Batch // with tasks to hand out
	turn    int
	spell   int // tasks that have begun in this turn
	closed  bool
	workers sync.WaitGroup
	ended   atomic.Uint64
}

// Ended is how many tasks have ever ended: as long as it grows, whoever has work here may hope.
func (p *Pool) Ended() uint64 { return p.ended.Load() }

// NewPool starts workers workers; 0 is GOMAXPROCS.
func NewPool(workers int) *Pool {
	if workers < 1 {
		workers = runtime.GOMAXPROCS(0)
	}
	p := &Pool{size: workers}
	p.wake.L = &p.mu
	p.workers.Add(workers)
	for range workers {
		go p.work()
	}
	return p
}

// Workers is how many workers there are.
func (p *Pool) Workers() int { return p.size }

// Submit queues a batch of one task or more. After an error Over is not called.
func (p *Pool) Submit(b *Batch) error {
	if b.Tasks < 1 {
		return fmt.Errorf("batch of %d tasks: submit at least 1", b.Tasks)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errors.New("pool is closed: no work may come after Close")
	}
	b.reset()
	p.active = append(p.active, b)
	if b.Tasks == 1 {
		p.wake.Signal()
	} else {
		p.wake.Broadcast()
	}
	return nil
}

// errDropped is what a batch ends with when it was given up.
var errDropped = errors.New("the work was given up")

// Drop gives up the tasks of a batch that have not begun. The batch is over, with an error, when
// those that have begun are; a batch that is over already stays as it is.
func (p *Pool) Drop(b *Batch) {
	p.mu.Lock()
	over := p.drop(b)
	p.mu.Unlock()
	if over {
		b.Over(errDropped)
	}
}

// drop takes a batch from the active ones, and reports whether that makes it over.
func (p *Pool) drop(b *Batch) bool {
	for i, a := range p.active {
		if a == b {
			b.left -= b.Tasks - b.next
			b.err = errDropped
			p.retire(i)
			return b.left == 0
		}
	}
	return false
}

// Close gives up what has not begun, and waits until what has is over and all workers have ended.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	var over []*Batch
	for len(p.active) > 0 {
		if b := p.active[0]; p.drop(b) {
			over = append(over, b)
		}
	}
	p.mu.Unlock()
	for _, b := range over {
		b.Over(errDropped)
	}
	p.mu.Lock()
	p.wake.Broadcast()
	p.mu.Unlock()
	p.workers.Wait()
}

// work is one worker.
func (p *Pool) work() {
	defer p.workers.Done()
	var scratch Scratch
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for !p.find() {
			if p.closed {
				return
			}
			p.asleep++
			p.wake.Wait()
			p.asleep--
		}
		b, task := p.take()
		if p.asleep > 0 && p.find() {
			p.wake.Signal()
		}
		p.mu.Unlock()
		began := time.Now()
		err := guard(b.Work, task, &scratch)
		nanos := int64(time.Since(began))
		p.ended.Add(1)
		p.mu.Lock()
		if p.finish(b, task, nanos, err) {
			over, first := b.Over, b.err
			p.mu.Unlock()
			over(first)
			p.mu.Lock()
		}
	}
}

// find passes the turn on to a batch whose next task may begin, if there is one.
func (p *Pool) find() bool {
	for range p.active {
		if p.turn >= len(p.active) {
			p.turn = 0
		}
		if p.active[p.turn].ready() {
			return true
		}
		p.turn++
		p.spell = 0
	}
	return false
}

// take hands out the next task of the batch whose turn it is, as find left it.
func (p *Pool) take() (b *Batch, task int) {
	b = p.active[p.turn]
	task = b.next
	b.next++
	p.spell++
	switch {
	case b.next == b.Tasks:
		p.retire(p.turn)
	case p.spell >= b.Turn:
		p.turn++
		p.spell = 0
	}
	return b, task
}

// retire takes a batch from the active ones; the turn passes to the one behind it.
func (p *Pool) retire(i int) {
	last := len(p.active) - 1
	copy(p.active[i:], p.active[i+1:])
	p.active[last] = nil
	p.active = p.active[:last]
	switch {
	case p.turn > i:
		p.turn--
	case p.turn == i:
		p.spell = 0
	}
}

// finish notes the end of a task and reports whether it was the batch's last.
func (p *Pool) finish(b *Batch, task int, nanos int64, err error) bool {
	if b.Needs != nil {
		b.done[task/64] |= 1 << (task % 64)
	}
	b.nanos += nanos
	b.left--
	if err == nil || b.err != nil {
		return b.left == 0
	}
	p.drop(b)
	b.err = err
	return b.left == 0
}
