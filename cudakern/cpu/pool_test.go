package cpu_test

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvloom/kvloom/cudakern/cpu"
)

// workFunc is a Work of one function.
type workFunc func(task int)

func (f workFunc) Run(task int, _ *cpu.Scratch) { f(task) }

// batchOf is a batch that says on over when it is done.
func batchOf(tasks int, f workFunc) (b *cpu.Batch, over chan error) {
	over = make(chan error, 1)
	return &cpu.Batch{Work: f, Tasks: tasks, Over: func(err error) { over <- err }}, over
}

func submit(t *testing.T, p *cpu.Pool, b *cpu.Batch) {
	t.Helper()
	if err := p.Submit(b); err != nil {
		t.Fatal(err)
	}
}

func TestPoolRunsEachTaskOnce(t *testing.T) {
	p := cpu.NewPool(3)
	defer p.Close()
	var overs []chan error
	var counts [20][50]atomic.Int32
	for i := range counts {
		b, over := batchOf(1+i*2, func(task int) { counts[i][task].Add(1) })
		submit(t, p, b)
		overs = append(overs, over)
	}
	for i, over := range overs {
		if err := <-over; err != nil {
			t.Error(err)
		}
		for task := range counts[i] {
			want := int32(0)
			if task < 1+i*2 {
				want = 1
			}
			if n := counts[i][task].Load(); n != want {
				t.Errorf("batch %d: task %d ran %d times", i, task, n)
			}
		}
	}
}

// TestPoolIsFair holds the only worker until three batches are there, then looks at the order.
func TestPoolIsFair(t *testing.T) {
	p := cpu.NewPool(1)
	defer p.Close()
	hold := make(chan struct{})
	gate, gateOver := batchOf(1, func(int) { <-hold })
	submit(t, p, gate)
	var order []int
	var overs []chan error
	for id, tasks := range []int{4, 2, 3} {
		b, over := batchOf(tasks, func(int) { order = append(order, id) })
		submit(t, p, b)
		overs = append(overs, over)
	}
	close(hold)
	<-gateOver
	for _, over := range overs {
		<-over
	}
	if want := []int{0, 1, 2, 0, 1, 2, 0, 2, 0}; !slices.Equal(order, want) {
		t.Errorf("batches ran in order %v, want %v", order, want)
	}
}

// TestPoolTurns: a batch keeps its turn for as many tasks as it asks for; one that ends, or that is
// given up in its turn, leaves a whole turn to the next.
func TestPoolTurns(t *testing.T) {
	p := cpu.NewPool(1)
	defer p.Close()
	hold := make(chan struct{})
	gate, gateOver := batchOf(1, func(int) { <-hold })
	submit(t, p, gate)
	var order []int
	var overs []chan error
	for id, c := range []struct{ tasks, turn int }{{5, 2}, {2, 3}, {7, 3}, {4, 1}} {
		b, over := batchOf(c.tasks, func(task int) {
			order = append(order, id)
			if id == 2 && task == 4 {
				panic("gives up the rest")
			}
		})
		b.Turn = c.turn
		submit(t, p, b)
		overs = append(overs, over)
	}
	close(hold)
	<-gateOver
	for _, over := range overs {
		<-over
	}
	if want := []int{0, 0, 1, 1, 2, 2, 2, 3, 0, 0, 2, 2, 3, 0, 3, 3}; !slices.Equal(order, want) {
		t.Errorf("batches ran in order %v, want %v", order, want)
	}
}

func TestPoolUsesAllWorkers(t *testing.T) {
	p := cpu.NewPool(3)
	defer p.Close()
	var all sync.WaitGroup
	all.Add(3)
	b, over := batchOf(3, func(int) {
		all.Done()
		all.Wait() // ends only if three tasks run at once
	})
	submit(t, p, b)
	if err := <-over; err != nil {
		t.Error(err)
	}
}

func TestPanicIsTheBatchsError(t *testing.T) {
	p := cpu.NewPool(1)
	defer p.Close()
	var ran int
	bad, over := batchOf(5, func(task int) {
		ran++
		if task == 1 {
			_ = make([]int, 1)[task]
		}
	})
	submit(t, p, bad)
	err := <-over
	if err == nil || !strings.Contains(err.Error(), "task 1 panicked at ") ||
		!strings.Contains(err.Error(), "TestPanicIsTheBatchsError.func1, line ") ||
		!strings.Contains(err.Error(), "index out of range") {
		t.Errorf("the error is %v", err)
	}
	if ran != 2 {
		t.Errorf("%d tasks ran, the second panicked", ran)
	}
	good, over := batchOf(2, func(int) {})
	submit(t, p, good)
	if err := <-over; err != nil {
		t.Errorf("a batch after a panic: %v", err)
	}
}

// TestTurnsAfterAPanic holds the only worker until three batches are there, of which the first
// fails.
func TestTurnsAfterAPanic(t *testing.T) {
	p := cpu.NewPool(1)
	defer p.Close()
	hold := make(chan struct{})
	gate, gateOver := batchOf(1, func(int) { <-hold })
	submit(t, p, gate)
	var order []int
	var overs []chan error
	for id := range 3 {
		b, over := batchOf(2, func(int) {
			order = append(order, id)
			if id == 0 {
				panic("the first fails")
			}
		})
		submit(t, p, b)
		overs = append(overs, over)
	}
	close(hold)
	<-gateOver
	for _, over := range overs {
		<-over
	}
	if want := []int{0, 1, 2, 1, 2}; !slices.Equal(order, want) {
		t.Errorf("batches ran in order %v, want %v", order, want)
	}
}

// TestPanicsAtOnce lets all tasks of a batch panic together.
func TestPanicsAtOnce(t *testing.T) {
	p := cpu.NewPool(2)
	defer p.Close()
	for range 50 {
		var both sync.WaitGroup
		both.Add(2)
		b, over := batchOf(7, func(task int) {
			if task < 2 {
				both.Done()
				both.Wait()
			}
			panic(task)
		})
		submit(t, p, b)
		if err := <-over; err == nil {
			t.Error("no error")
		}
	}
}

// TestCloseGivesUp: Close waits for the tasks that have begun; the batches whose others have not
// are over with an error, each once.
func TestCloseGivesUp(t *testing.T) {
	p := cpu.NewPool(2)
	begun, goOn := make(chan struct{}, 100), make(chan struct{})
	var ends []<-chan error
	for range 10 {
		b, over := batchOf(3, func(int) {
			begun <- struct{}{}
			<-goOn
		})
		submit(t, p, b)
		ends = append(ends, over)
	}
	<-begun
	<-begun
	closed := make(chan struct{})
	go func() {
		p.Close()
		close(closed)
	}()
	for _, over := range ends[2:] {
		if err := <-over; err == nil {
			t.Error("a batch that never began is over without an error")
		}
	}
	select {
	case <-closed:
		t.Error("Close did not wait for tasks that had begun")
	default:
	}
	close(goOn)
	<-closed
	for _, over := range ends[:2] {
		<-over
	}
	b, _ := batchOf(1, func(int) {})
	if err := p.Submit(b); err == nil || !strings.Contains(err.Error(), "pool is closed") {
		t.Errorf("work after Close: %v", err)
	}
	p.Close()
}

// TestDrop: a batch that is given up is over when the tasks that have begun are.
func TestDrop(t *testing.T) {
	p := cpu.NewPool(1)
	defer p.Close()
	begun, goOn := make(chan struct{}, 10), make(chan struct{})
	var ran atomic.Int32
	b, over := batchOf(1000, func(int) {
		ran.Add(1)
		begun <- struct{}{}
		<-goOn
	})
	submit(t, p, b)
	<-begun
	p.Drop(b)
	p.Drop(b)
	close(goOn)
	if err := <-over; err == nil || ran.Load() != 1 {
		t.Errorf("%d tasks ran, error %v", ran.Load(), err)
	}
	p.Drop(b)
}

func TestEmptyBatch(t *testing.T) {
	p := cpu.NewPool(1)
	defer p.Close()
	b, _ := batchOf(0, func(int) {})
	if err := p.Submit(b); err == nil {
		t.Error("a batch of no tasks was taken")
	}
}

func TestBatchesOfBatchesAllocateNothing(t *testing.T) {
	p := cpu.NewPool(2)
	defer p.Close()
	b, over := batchOf(8, func(int) {})
	once := func() {
		submit(t, p, b)
		<-over
	}
	once()
	if n := testing.AllocsPerRun(20, once); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
}

// TestNanos: a batch counts the time of all of its tasks, and submitted again that time alone: were
// that of the long first run in it, it would never be less.
func TestNanos(t *testing.T) {
	p := cpu.NewPool(1)
	defer p.Close()
	long := true
	b, over := batchOf(2, func(task int) {
		for began := time.Now(); long && task == 0 && time.Since(began) < 5*time.Millisecond; {
			runtime.Gosched()
		}
	})
	submit(t, p, b)
	<-over
	first := b.Nanos()
	if first < int64(5*time.Millisecond) {
		t.Errorf("a task of 5 ms took %d ns", first)
	}
	long = false
	for range 100 {
		submit(t, p, b)
		<-over
		if b.Nanos() < first {
			return
		}
	}
	t.Error("a batch takes longer each time that it is submitted")
}

// TestFirstErrorStays: of two tasks that panic the first is the batch's error. The second waits
// until the worker of the first has gone on to another batch.
func TestFirstErrorStays(t *testing.T) {
	p := cpu.NewPool(2)
	defer p.Close()
	both, goOn, next := make(chan struct{}), make(chan struct{}), make(chan struct{})
	bad, over := batchOf(2, func(task int) {
		both <- struct{}{}
		<-goOn
		if task == 1 {
			<-next
		}
		panic([]string{"first", "second"}[task])
	})
	submit(t, p, bad)
	<-both
	<-both
	after, afterOver := batchOf(1, func(int) { close(next) })
	submit(t, p, after)
	close(goOn)
	if err := <-over; err == nil || !strings.Contains(err.Error(), "first") {
		t.Errorf("the error is %v", err)
	}
	if err := <-afterOver; err != nil {
		t.Error(err)
	}
}
