package cpu_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern"
	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// arrival is a task that has begun and waits to be let go.
type arrival struct {
	rank, task int
	end        int // on the clock of the yard
	goOn       chan struct{}
}

// before orders tasks by their ends, and those that end together in any fixed way.
func (a *arrival) before(b *arrival) bool {
	return slices.Compare([]int{a.end, a.rank, a.task}, []int{b.end, b.rank, b.task}) < 0
}

// yard runs jobs of several ranks on a pool by a clock of its own: a task ends when no other that
// runs would end before it. A job is ops, one after the other, each a batch.
type yard struct {
	pool           *cpu.Pool
	ops            int
	tasks, turn    int // of an op
	length         func(rank, task int) int
	arrivals       chan arrival
	running        []arrival
	clock          int
	begun, ended   []int // tasks of each rank's job
	waiting        []int // tasks of its batch at hand that have not begun
	ends           []int // when its job was over
	begunAtTheEnd  []int // of each rank, when the first job was over
	gates          [2]chan struct{}
	batches        []cpu.Batch
	gateBatch      cpu.Batch
	over, gateOver chan error
}

// newYard fills both workers, so that the ranks' first batches are all there when the first task of
// any begins.
func newYard(t *testing.T, ranks, ops, tasks, turn int, length func(rank, task int) int) *yard {
	y := &yard{
		pool: cpu.NewPool(2), ops: ops, tasks: tasks, turn: turn, length: length,
		arrivals: make(chan arrival), begun: make([]int, ranks), ended: make([]int, ranks),
		waiting: make([]int, ranks), ends: make([]int, ranks), batches: make([]cpu.Batch, ranks),
		over: make(chan error, ranks), gateOver: make(chan error, 1),
	}
	inside := make(chan struct{})
	for i := range y.gates {
		y.gates[i] = make(chan struct{})
	}
	y.gateBatch = cpu.Batch{Tasks: 2, Over: func(err error) { y.gateOver <- err },
		Work: workFunc(func(task int) {
			inside <- struct{}{}
			<-y.gates[task]
		})}
	submit(t, y.pool, &y.gateBatch)
	<-inside
	<-inside
	for rank := range y.batches {
		b, left := &y.batches[rank], ops
		y.waiting[rank] = tasks
		*b = cpu.Batch{Tasks: tasks, Turn: turn, Work: workFunc(func(task int) {
			a := arrival{rank: rank, task: task, goOn: make(chan struct{})}
			y.arrivals <- a
			<-a.goOn
		})}
		b.Over = func(err error) {
			if left--; left > 0 && err == nil {
				err = y.pool.Submit(b)
			}
			if left == 0 || err != nil {
				y.over <- err
			}
		}
		submit(t, y.pool, b)
	}
	return y
}

// arrive waits for a task to begin.
func (y *yard) arrive() {
	a := <-y.arrivals
	a.end = y.clock + y.length(a.rank, y.begun[a.rank])
	y.begun[a.rank]++
	y.waiting[a.rank]--
	y.running = append(y.running, a)
}

// leave ends the task that ends first, and puts down what has begun when the first job is over.
func (y *yard) leave() {
	first := 0
	for i := range y.running {
		if y.running[i].before(&y.running[first]) {
			first = i
		}
	}
	a := y.running[first]
	y.running = slices.Delete(y.running, first, first+1)
	y.clock = a.end
	y.ended[a.rank]++
	switch done := y.ended[a.rank]; {
	case done == y.ops*y.tasks:
		y.ends[a.rank] = y.clock
		if y.begunAtTheEnd == nil {
			y.begunAtTheEnd = slices.Clone(y.begun)
		}
	case done%y.tasks == 0:
		y.waiting[a.rank] = y.tasks // the worker submits the next op before it looks for a task
	}
	close(a.goOn)
}

// run runs all jobs.
func (y *yard) run(t *testing.T) {
	for _, gate := range y.gates {
		close(gate)
		y.arrive()
	}
	for len(y.running) > 0 {
		y.leave()
		for len(y.running) < len(y.gates) && slices.Max(y.waiting) > 0 {
			y.arrive()
		}
	}
	for range y.batches {
		if err := <-y.over; err != nil {
			t.Error(err)
		}
	}
	if err := <-y.gateOver; err != nil {
		t.Error(err)
	}
	y.pool.Close()
}

// TestRanksEndTogether has 8 ranks with equal jobs on 2 workers: when the first job is over, of no
// other more tasks have still to begin than those of a turn, whatever tasks take, as turns are
// counted in tasks; of jobs of several ops, than those of two turns, if no task takes as long as
// the turns of all others, for which its op would wait. Where all tasks take the same time, jobs
// end within the time of that many turns of each rank.
func TestRanksEndTogether(t *testing.T) {
	const ranks, workers = 8, 2
	lengths := map[string]func(rank, task int) int{
		"equal":            func(int, int) int { return 12 },
		"longest first":    func(_, task int) int { return max(1, 200-task) },
		"one slow rank":    func(rank, _ int) int { return 5 + rank/7*20 },
		"all sorts":        func(rank, task int) int { return 1 + (rank*7919+task*104729)%37 },
		"one task is long": func(rank, task int) int { return 3 + rank/7*(task%50/49)*400 },
	}
	for _, c := range []struct{ ops, tasks, turn int }{
		{1, 64, 1}, {1, 64, 16}, {1, 70, 16}, {1, 5, 16}, {8, 20, 1}, {8, 20, 16}, {8, 16, 16},
		{3, 1, 1},
	} {
		for name, length := range lengths {
			if name == "one task is long" && c.ops > 1 {
				continue
			}
			t.Run(fmt.Sprintf("%d ops of %d, turns of %d, %s", c.ops, c.tasks, c.turn, name),
				func(t *testing.T) {
					y := newYard(t, ranks, c.ops, c.tasks, c.turn, length)
					y.run(t)
					behind := min(c.ops, 2) * c.turn
					for rank, n := range y.begunAtTheEnd {
						if left := c.ops*c.tasks - n; left > behind {
							t.Errorf("rank %d has %d tasks to begin when the first job is over, "+
								"at most %d may be left", rank, left, behind)
						}
					}
					spread := slices.Max(y.ends) - slices.Min(y.ends)
					limit := 12 * (ranks*behind/workers + 1)
					if name == "equal" && spread > limit {
						t.Errorf("the last job is over %d after the first, at most %d may pass",
							spread, limit)
					}
				})
		}
	}
}

// TestDevicesEndTogether is the same with devices of 8 ranks, which launch the attention of long
// blocks, on 1 worker: when the first is over, each other has ended all but a turn. That is all
// heads of the same rows until 16 tasks with the vectors, and 1 with the portable kernels.
func TestDevicesEndTogether(t *testing.T) {
	const ranks, rows = 8, 384 * 24
	for heads, turn := range map[int]uint64{1: 16, 3: 18} {
		p := newProblem(rows, heads, heads, 2, 2, attn.Window(rows, rows, 3, 3))
		b := newBook(t, p, mesh.Mesh{Head: 1, Ring: 1}, mesh.Zigzag, 4)
		for _, k := range []cpu.Kernels{cpu.Portable, cpu.AVX2, cpu.AVX512} {
			t.Run(fmt.Sprintf("%v, %d heads", k, heads), func(t *testing.T) {
				if err := k.Supported(); err != nil {
					t.Skip(err)
				}
				want := turn
				if k == cpu.Portable {
					want = 1
				}
				testDevicesEndTogether(t, p, b, k, ranks, want)
			})
		}
	}
}

func testDevicesEndTogether(t *testing.T, p *problem, b *book, k cpu.Kernels, ranks, turn uint64) {
	pool := cpu.NewPool(1)
	defer pool.Close()
	hold := make(chan struct{})
	gate, gateOver := batchOf(1, func(int) { <-hold })
	submit(t, pool, gate)
	ended := make(chan uint64, ranks)
	post := func(actors.Envelope) { ended <- pool.Ended() }
	for range ranks {
		s := cpu.New[float32](b, 1, cpu.Options{Kernels: k})
		defer s.Close()
		setInputs(t, s, b, p, 0)
		op := int32(0)
		for ; b.programs[0][0].Ops[op].Kind != plan.Attend; op++ {
			if err := s.Do(0, 0, op); err != nil {
				t.Fatal(err)
			}
		}
		var out actors.Outbox
		out.Reset()
		cpu.NewDevice(0, s, pool, post, cpu.DeviceOptions{}).
			Step(0, launch(op, 0, 1, cudakern.Compute), &out)
		if len(out.Mail) > 0 {
			t.Fatalf("the device says %+v: %v", out.Mail, out.Notes)
		}
	}
	close(hold)
	if err := <-gateOver; err != nil {
		t.Fatal(err)
	}
	var at []uint64
	for range ranks {
		at = append(at, <-ended-1)
	}
	tasks := at[ranks-1] / ranks
	last := (tasks-1)%turn + 1 // tasks of the last turn
	if want := ranks*(tasks-last) + last; at[0] != want || tasks <= turn {
		t.Errorf("of %d tasks each, %d are over when the first rank's are, want %d", tasks, at[0],
			want)
	}
}
