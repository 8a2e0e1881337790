package cpu_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern"
	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// host steps one device; what the device says to its rank comes out of out.
type host struct {
	device *cpu.Device[float64]
	mail   chan actors.Envelope
	out    []actors.Envelope
	notes  []string
}

func newHost(rank int32, s *cpu.Store[float64], p *cpu.Pool, opt cpu.DeviceOptions) *host {
	h := &host{mail: make(chan actors.Envelope, 64)}
	h.device = cpu.NewDevice(rank, s, p, func(e actors.Envelope) { h.mail <- e }, opt)
	return h
}

// step gives the device an envelope.
func (h *host) step(e actors.Envelope) {
	var out actors.Outbox
	out.Reset()
	h.device.Step(0, e, &out)
	h.out = append(h.out, out.Mail...)
	h.notes = append(h.notes, out.Notes...)
}

// await steps what the device posts to itself until it says something to its rank.
func (h *host) await(t *testing.T) actors.Envelope {
	t.Helper()
	for len(h.out) == 0 {
		select {
		case e := <-h.mail:
			h.step(e)
		case <-time.After(10 * time.Second):
			t.Fatal("the device says nothing for 10 s")
		}
	}
	e := h.out[0]
	h.out = h.out[1:]
	return e
}

func launch(op, round int32, epoch actors.Epoch, stream uint8, after ...int32) actors.Envelope {
	e := actors.Envelope{
		To:   actors.Addr{Role: actors.Device},
		From: actors.Addr{Role: actors.Rank},
		Kind: actors.Launch, Op: op, Round: round, Epoch: epoch, Stream: stream,
		N: uint8(len(after)),
	}
	copy(e.After[:], after)
	return e
}

func flush(epoch actors.Epoch) actors.Envelope {
	return actors.Envelope{Kind: actors.Flush, Epoch: epoch}
}

// TestDeviceRunsPrograms runs all ranks' programs by launches, as deep as streams allow, and gets
// the bits of the store alone; also with elements of BF16, in blocks of which an op has many tasks.
func TestDeviceRunsPrograms(t *testing.T) {
	small := newProblem(67, 6, 3, 8, 8, attn.Causal(67, 67))
	t.Run("f64", func(t *testing.T) {
		testDevice[float64](t, small, mesh.Mesh{Head: 2, Ring: 2}, 8, 1e-12)
	})
	large := newProblem(600, 3, 3, 5, 64, attn.Causal(600, 40))
	large.Sink = []float64{0.5, 1, -1}
	t.Run("bf16", func(t *testing.T) {
		testDevice[float32](t, rounded(large), mesh.Mesh{Head: 1, Ring: 1}, 2, gateBF16)
	})
}

func testDevice[T attn.Float](t *testing.T, p *problem, m mesh.Mesh, bytes int, gate float64) {
	b := newBook(t, p, m, mesh.Zigzag, bytes)
	want := run[T](t, b, p, cpu.Options{Copy: true}, 4)
	pool := cpu.NewPool(3)
	defer pool.Close()
	s := cpu.New[T](b, m.Ranks(), cpu.Options{Poison: true})
	defer s.Close()
	setInputs(t, s, b, p, 0)
	for round := range b.programs {
		g := newGang(s, pool, b.programs[round], int32(round))
		g.run(t)
		flops := uint64(0)
		for r, prog := range b.programs[round] {
			for i := range prog.Ops {
				flops += s.Flops(int32(r), int32(round), int32(i))
			}
		}
		if g.flops != flops || g.nanos == 0 {
			t.Errorf("round %d: %d operations in %d ns, want %d", round, g.flops, g.nanos, flops)
		}
	}
	got := outputs(t, s, b, p, 0)
	if !same(got, want) {
		t.Error("devices give other bits than the store alone")
	}
	if err := compare(got, dense(p), gate); err != nil {
		t.Error(err)
	}
}

// gang is a bare host of all ranks' devices and links, in one goroutine.
type gang[T attn.Float] struct {
	store    *cpu.Store[T]
	programs []*plan.Program
	round    int32
	mail     chan actors.Envelope
	devices  []*cpu.Device[T]
	started  [][]bool
	over     [][]bool
	queued   [][cudakern.NumStreams]int
	left     int
	flops    uint64
	nanos    uint64
}

func newGang[T attn.Float](s *cpu.Store[T], pool *cpu.Pool, programs []*plan.Program,
	round int32) *gang[T] {
	g := &gang[T]{store: s, programs: programs, round: round, mail: make(chan actors.Envelope, 256)}
	post := func(e actors.Envelope) { g.mail <- e }
	for r, p := range programs {
		g.devices = append(g.devices, cpu.NewDevice(int32(r), s, pool, post, cpu.DeviceOptions{}))
		g.started = append(g.started, make([]bool, len(p.Ops)))
		g.over = append(g.over, make([]bool, len(p.Ops)))
		g.left += len(p.Ops)
	}
	g.queued = make([][cudakern.NumStreams]int, len(programs))
	return g
}

func streamOf(k plan.Kind) uint8 {
	switch k {
	case plan.Pack:
		return cudakern.Out
	case plan.Unpack, plan.Accumulate:
		return cudakern.In
	}
	return cudakern.Compute
}

func (g *gang[T]) run(t *testing.T) {
	for g.left > 0 {
		for moved := true; moved; {
			moved = false
			for r := range g.programs {
				for i := range g.programs[r].Ops {
					moved = g.try(t, r, i) || moved
				}
			}
		}
		if g.left == 0 {
			return
		}
		select {
		case e := <-g.mail:
			g.step(t, e)
		case <-time.After(10 * time.Second):
			t.Fatalf("%d ops are left and nothing happens", g.left)
		}
	}
}

// step gives a device an envelope and notes what it says.
func (g *gang[T]) step(t *testing.T, e actors.Envelope) {
	var out actors.Outbox
	out.Reset()
	g.devices[e.To.Rank].Step(0, e, &out)
	for _, m := range out.Mail {
		if m.Kind != actors.Done || m.To.Role != actors.Rank || m.Round != g.round {
			t.Fatalf("the device says %+v: %v", m, out.Notes)
		}
		g.flops += m.B
		g.nanos += m.A
		g.queued[m.To.Rank][streamOf(g.programs[m.To.Rank].Ops[m.Op].Kind)]--
		g.end(int(m.To.Rank), int(m.Op))
	}
}

func (g *gang[T]) end(r, i int) {
	g.over[r][i] = true
	g.left--
}

// try starts an op if it may start.
func (g *gang[T]) try(t *testing.T, r, i int) bool {
	p := g.programs[r]
	op := p.Ops[i]
	if g.started[r][i] {
		return false
	}
	s := streamOf(op.Kind)
	e := launch(int32(i), g.round, 1, s)
	e.To.Rank = int32(r)
	for _, d := range p.Deps(i) {
		k := p.Ops[d].Kind
		switch {
		case g.over[r][d]:
		case !op.Kind.Device() || !k.Device() || !g.started[r][d] || e.N == 3:
			return false
		case streamOf(k) != s:
			e.After[e.N] = d
			e.N++
		}
	}
	switch {
	case op.Kind == plan.Release:
		g.end(r, i)
	case op.Kind.Device():
		if g.queued[r][s] == 4 {
			return false
		}
		g.queued[r][s]++
		g.started[r][i] = true
		g.step(t, e)
	case op.Kind == plan.Recv:
		if err := g.store.Post(int32(r), g.round, int32(i)); err != nil {
			t.Fatal(err)
		}
	case !g.hop(t, r, i):
		return false
	}
	g.started[r][i] = true
	return true
}

// hop makes a transfer if its receive is posted.
func (g *gang[T]) hop(t *testing.T, r, i int) bool {
	op := g.programs[r].Ops[i]
	for k, o := range g.programs[op.Peer].Ops {
		if o.Kind != plan.Recv || o.Peer != int32(r) || o.Lane != op.Lane || o.Tick != op.Tick ||
			!g.started[op.Peer][k] {
			continue
		}
		if _, err := g.store.Hop(int32(r), op.Peer, g.round, int32(i), int32(k)); err != nil {
			t.Fatal(err)
		}
		g.end(r, i)
		g.end(int(op.Peer), k)
		return true
	}
	return false
}

// accumulators is a program of zeros and sums of DQ: op 0 and 1 make slots 0 and 1, op 2 adds
// slot 0 to slot 1, op 3 fails (slot 0 is spent).
func accumulators() *book {
	whole := func(a plan.Access, slot int32) plan.Operand {
		return arg(a, plan.DQ, whole, 0, 4, slot)
	}
	sum := do(plan.Accumulate, whole(plan.HandOn, 0), whole(plan.Add, 1))
	return &book{handHeader(), [2][]*plan.Program{{hand(
		do(plan.Zero, whole(plan.Write, 0)), do(plan.Zero, whole(plan.Write, 1)), sum, sum)}, {hand(
		do(plan.Zero, whole(plan.Write, 0)), do(plan.Zero, whole(plan.Write, 1)), sum, sum)}}}
}

func TestDeviceOrderAndFaults(t *testing.T) {
	pool := cpu.NewPool(2)
	defer pool.Close()
	s := cpu.New[float64](accumulators(), 1, cpu.Options{})
	defer s.Close()
	begun := 0
	h := newHost(0, s, pool, cpu.DeviceOptions{Pace: func(_, _, _ int32) time.Duration {
		begun++
		return 0
	}})
	h.step(launch(2, 0, 1, cudakern.In, 0, 1))
	h.step(launch(0, 0, 1, cudakern.Compute))
	h.step(launch(1, 0, 1, cudakern.Compute))
	h.step(launch(3, 0, 1, cudakern.In))
	h.step(launch(0, 0, 1, cudakern.In))
	for _, op := range []int32{0, 1, 2} {
		if e := h.await(t); e.Kind != actors.Done || e.Op != op || e.Epoch != 1 ||
			e.To != (actors.Addr{Role: actors.Rank}) {
			t.Fatalf("the device says %+v, op %d was next", e, op)
		}
	}
	if e := h.await(t); e.Kind != actors.Broken || e.Fault != actors.DeviceFault || e.Op != 3 {
		t.Fatalf("the device says %+v, op 3 must fail", e)
	}
	const note = "device 0: rank 0, round 0, op 3 accumulate"
	if len(h.notes) != 1 || !strings.Contains(h.notes[0], note) {
		t.Errorf("notes %q", h.notes)
	}
	if begun != 4 {
		t.Errorf("%d ops began, one of them after the fault", begun)
	}
	// Nothing runs after a fault until a flush, and then only of newer epochs.
	h.step(flush(1))
	if e := h.await(t); e.Kind != actors.Flushed || e.Epoch != 1 {
		t.Fatalf("the device says %+v to a flush", e)
	}
	h.step(launch(0, 0, 1, cudakern.Compute))
	if h.device.Dropped() != 1 {
		t.Errorf("%d launches dropped, want 1", h.device.Dropped())
	}
	h.step(launch(1, 0, 2, cudakern.Compute))
	if e := h.await(t); e.Kind != actors.Done || e.Op != 1 || e.Epoch != 2 {
		t.Fatalf("the device says %+v in epoch 2", e)
	}
	h.step(launch(0, 0, 2, 9))
	if e := h.await(t); e.Kind != actors.Broken || len(h.notes) != 2 {
		t.Errorf("a launch on stream 9: %+v, %q", e, h.notes)
	}
}

// TestDeviceFlush flushes while an op runs: the answer comes when it is over, what was queued never
// runs, and no event of the old epoch stands for one of the new.
func TestDeviceFlush(t *testing.T) {
	pool := cpu.NewPool(1)
	defer pool.Close()
	s := cpu.New[float64](accumulators(), 1, cpu.Options{})
	defer s.Close()
	h := newHost(0, s, pool, cpu.DeviceOptions{})
	for op := range int32(2) {
		h.step(launch(op, 0, 5, cudakern.Compute))
		h.await(t)
	}
	hold := make(chan struct{})
	gate, over := batchOf(1, func(int) { <-hold })
	submit(t, pool, gate)
	h.step(launch(2, 0, 5, cudakern.In))
	h.step(launch(0, 0, 5, cudakern.In))
	h.step(flush(5))
	h.step(flush(6))
	if len(h.out) > 0 {
		t.Fatalf("the device says %+v while an op runs", h.out)
	}
	close(hold)
	<-over
	if e := h.await(t); e.Kind != actors.Flushed || e.Epoch != 6 {
		t.Fatalf("the device says %+v, want flushed 6", e)
	}
	// The sum waits for a zero of the new epoch, though the old one's was done in the same round.
	h.step(launch(2, 0, 7, cudakern.In, 0))
	h.step(launch(1, 0, 7, cudakern.Compute))
	if e := h.await(t); e.Kind != actors.Done || e.Op != 1 {
		t.Fatalf("the device says %+v, op 2 must wait", e)
	}
	h.step(launch(0, 0, 7, cudakern.Compute))
	for _, op := range []int32{0, 2} {
		if e := h.await(t); e.Kind != actors.Done || e.Op != op {
			t.Fatalf("the device says %+v, want done %d", e, op)
		}
	}
	if len(h.mail) > 0 || len(h.out) > 0 || len(h.notes) > 0 {
		t.Errorf("the device says more: %+v %q", h.out, h.notes)
	}
}

// TestWait waits for an op whose device is no longer stepped.
func TestWait(t *testing.T) {
	pool := cpu.NewPool(1)
	defer pool.Close()
	s := cpu.New[float64](accumulators(), 1, cpu.Options{})
	defer s.Close()
	h := newHost(0, s, pool, cpu.DeviceOptions{})
	hold := make(chan struct{})
	gate, over := batchOf(1, func(int) { <-hold })
	submit(t, pool, gate)
	h.step(launch(0, 0, 1, cudakern.Compute))
	wantFault(t, h.device.Wait(time.Millisecond), "device 0: an op has not ended within 1ms")
	close(hold)
	<-over
	if err := h.device.Wait(time.Minute); err != nil {
		t.Error(err)
	}
}

func TestDeviceOnAClosedPool(t *testing.T) {
	pool := cpu.NewPool(1)
	s := cpu.New[float64](accumulators(), 1, cpu.Options{})
	defer s.Close()
	pool.Close()
	h := newHost(0, s, pool, cpu.DeviceOptions{})
	h.step(launch(0, 0, 1, cudakern.Compute))
	if e := h.await(t); e.Kind != actors.Broken || !strings.Contains(h.notes[0], "pool is closed") {
		t.Errorf("on a closed pool: %+v, %q", e, h.notes)
	}
}

// TestPacedDevice runs three ops that take 20 ms each by the model, two of them at once.
func TestPacedDevice(t *testing.T) {
	pool := cpu.NewPool(1)
	defer pool.Close()
	const pace = 20 * time.Millisecond
	stores := []*cpu.Store[float64]{nil, cpu.New[float64](accumulators(), 1, cpu.Options{})}
	for _, s := range stores {
		begun := 0
		h := newHost(0, s, pool, cpu.DeviceOptions{
			Pace: func(rank, round, op int32) time.Duration {
				begun++
				return pace
			},
		})
		for round := range int32(2) {
			began := time.Now()
			begun = 0
			h.step(launch(0, round, 1, cudakern.Compute))
			h.step(launch(1, round, 1, cudakern.In))
			h.step(launch(2, round, 1, cudakern.In, 0))
			if begun != 2 {
				t.Errorf("%d ops run at once on two streams", begun)
			}
			for range 3 {
				if e := h.await(t); e.Kind != actors.Done || e.A < uint64(pace) {
					t.Fatalf("the device says %+v", e)
				}
			}
			if took := time.Since(began); took < 2*pace {
				t.Errorf("two streams took %v, want %v", took, 2*pace)
			}
		}
		if s != nil {
			s.Close()
		}
	}
}

func TestDeviceAllocatesNothing(t *testing.T) {
	pool := cpu.NewPool(2)
	defer pool.Close()
	s := cpu.New[float64](accumulators(), 1, cpu.Options{})
	defer s.Close()
	mail := make(chan actors.Envelope, 8)
	d := cpu.NewDevice(0, s, pool, func(e actors.Envelope) { mail <- e }, cpu.DeviceOptions{})
	var out actors.Outbox
	round := int32(0)
	once := func() {
		out.Reset()
		d.Step(0, launch(0, round, 1, cudakern.Compute), &out)
		d.Step(0, launch(1, round, 1, cudakern.Compute), &out)
		d.Step(0, launch(2, round, 1, cudakern.In, 0, 1), &out)
		for range 3 {
			d.Step(0, <-mail, &out)
		}
		if len(out.Mail) != 3 || len(out.Notes) > 0 {
			t.Fatalf("the device says %+v %q", out.Mail, out.Notes)
		}
		round++
	}
	for range 3 {
		once()
	}
	if n := testing.AllocsPerRun(20, once); n != 0 {
		t.Errorf("%v allocations a round", n)
	}
}
