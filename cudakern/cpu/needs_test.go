package cpu_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kvloom/kvloom/cudakern/cpu"
)

// afterFirst are the needs of tasks of which all others need the first.
func afterFirst(task int) (a, b int) { return min(task, 1) - 1, -1 }

// untilAsleep returns when so many workers of the pool are asleep, or panics after 10 s.
func untilAsleep(p *cpu.Pool, workers int) {
	for began := time.Now(); p.Asleep() < workers; runtime.Gosched() {
		if time.Since(began) > 10*time.Second {
			panic("the workers do not sleep")
		}
	}
}

// mustMeet fails unless so many workers are there for tasks at once.
func mustMeet(t *testing.T, p *cpu.Pool, workers int) {
	t.Helper()
	var all sync.WaitGroup
	all.Add(workers)
	b, over := batchOf(workers, func(int) {
		all.Done()
		all.Wait()
	})
	submit(t, p, b)
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// TestNeedsAreOver runs batches with any needs beside each other: each task runs once, after those
// that it needs.
func TestNeedsAreOver(t *testing.T) {
	p := cpu.NewPool(3)
	defer p.Close()
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		var overs []chan error
		var early atomic.Int32
		var runs [3][]atomic.Int32
		for i := range runs {
			runs[i] = make([]atomic.Int32, rapid.IntRange(1, 150).Draw(t, "tasks"))
			needs := make([][2]int, len(runs[i]))
			for task := range needs {
				for k := range 2 {
					needs[task][k] = max(-1, task-1-rng.IntN(9))
				}
			}
			b, over := batchOf(len(needs), func(task int) {
				for _, need := range needs[task] {
					if need >= 0 && runs[i][need].Load() != 1 {
						early.Add(1)
					}
				}
				runtime.Gosched()
				runs[i][task].Add(1)
			})
			b.Turn = 1 + rng.IntN(4)
			b.Needs = func(task int) (x, y int) { return needs[task][0], needs[task][1] }
			if err := p.Submit(b); err != nil {
				t.Fatal(err)
			}
			overs = append(overs, over)
		}
		for i, over := range overs {
			if err := <-over; err != nil {
				t.Error(err)
			}
			for task := range runs[i] {
				if n := runs[i][task].Load(); n != 1 {
					t.Errorf("batch %d: task %d ran %d times", i, task, n)
				}
			}
		}
		if n := early.Load(); n > 0 {
			t.Errorf("%d needs were not over", n)
		}
	})
}

// TestOthersAreServedMeanwhile: while a batch waits for its own first task, which ends only when
// another batch has run, the second worker runs the other one; again when the batch comes again.
func TestOthersAreServedMeanwhile(t *testing.T) {
	p := cpu.NewPool(2)
	defer p.Close()
	var begun, hold chan struct{}
	var order []int
	waits, over := batchOf(3, func(task int) {
		if task == 0 {
			close(begun)
			<-hold
		}
		order = append(order, task)
	})
	waits.Needs = func(task int) (a, b int) { return task - 1, task - 1 }
	other, otherOver := batchOf(1, func(int) { close(hold) })
	for range 2 {
		begun, hold, order = make(chan struct{}), make(chan struct{}), nil
		submit(t, p, waits)
		<-begun
		submit(t, p, other)
		for _, end := range []chan error{otherOver, over} {
			if err := <-end; err != nil {
				t.Error(err)
			}
		}
		if want := []int{0, 1, 2}; !slices.Equal(order, want) {
			t.Errorf("tasks ran in order %v, want %v", order, want)
		}
	}
}

// TestSleepersWake: the end of a task wakes as many workers as it makes tasks ready.
func TestSleepersWake(t *testing.T) {
	const workers = 4
	p := cpu.NewPool(workers)
	defer p.Close()
	var all sync.WaitGroup
	all.Add(workers)
	b, over := batchOf(1+workers, func(task int) {
		if task == 0 {
			untilAsleep(p, workers-1)
			return
		}
		all.Done()
		all.Wait() // ends only if all workers are there
	})
	b.Needs = afterFirst
	submit(t, p, b)
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// TestNeedsKeepTurns: with one worker needs are always over, and batches take turns as others do.
func TestNeedsKeepTurns(t *testing.T) {
	p := cpu.NewPool(1)
	defer p.Close()
	hold := make(chan struct{})
	gate, gateOver := batchOf(1, func(int) { <-hold })
	submit(t, p, gate)
	var order []int
	var overs []chan error
	for id, turn := range []int{2, 3, 1} {
		b, over := batchOf(5, func(int) { order = append(order, id) })
		b.Turn, b.Needs = turn, func(task int) (x, y int) { return task - 1, max(-1, task-2) }
		submit(t, p, b)
		overs = append(overs, over)
	}
	close(hold)
	<-gateOver
	for _, over := range overs {
		<-over
	}
	want := []int{0, 0, 1, 1, 1, 2, 0, 0, 1, 1, 2, 0, 2, 2, 2}
	if !slices.Equal(order, want) {
		t.Errorf("batches ran in order %v, want %v", order, want)
	}
}

// TestEndsWhileTasksWait: a batch that is given up, or whose first task panics, while a worker
// sleeps for want of what others need, is over with an error and runs no other task; all workers
// are there for the next batch, and Close ends them.
func TestEndsWhileTasksWait(t *testing.T) {
	for name, c := range map[string]struct {
		fault string
		end   func(p *cpu.Pool, b *cpu.Batch)
	}{
		"drop":  {"given up", func(p *cpu.Pool, b *cpu.Batch) { p.Drop(b) }},
		"panic": {"task 0 panicked", func(*cpu.Pool, *cpu.Batch) { panic("the first fails") }},
	} {
		t.Run(name, func(t *testing.T) {
			p := cpu.NewPool(2)
			var b *cpu.Batch
			var others atomic.Int32
			b, over := batchOf(70, func(task int) {
				if task == 0 {
					untilAsleep(p, 1)
					c.end(p, b)
					return
				}
				others.Add(1)
			})
			b.Needs = afterFirst
			submit(t, p, b)
			if err := <-over; err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("the batch ends with %v", err)
			}
			if n := others.Load(); n != 0 {
				t.Errorf("%d tasks ran whose need failed", n)
			}
			mustMeet(t, p, 2)
			p.Close()
		})
	}
}

// TestCloseWhileTasksWait: Close gives up the tasks that wait, and ends the worker that sleeps.
func TestCloseWhileTasksWait(t *testing.T) {
	p := cpu.NewPool(2)
	hold := make(chan struct{})
	b, over := batchOf(3, func(int) { <-hold })
	b.Needs = afterFirst
	submit(t, p, b)
	untilAsleep(p, 1)
	closed := make(chan struct{})
	go func() {
		p.Close()
		close(closed)
	}()
	for probe, ran := batchOf(1, func(int) {}); p.Submit(probe) == nil; {
		<-ran // not closed yet
	}
	close(hold)
	<-closed
	if err := <-over; err == nil {
		t.Error("a batch of which two tasks never began is over without an error")
	}
}

func TestNeedsAllocateNothing(t *testing.T) {
	p := cpu.NewPool(2)
	defer p.Close()
	b, over := batchOf(500, func(int) {})
	b.Needs = func(task int) (x, y int) { return task - 1, task - 1 }
	once := func() {
		submit(t, p, b)
		<-over
	}
	once()
	if n := testing.AllocsPerRun(20, once); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
}
