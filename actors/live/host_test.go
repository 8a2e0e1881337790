package live_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/actors/live"
)

// patience is how long a test waits for what must come; it is no measure of anything.
const patience = 60 * time.Second

type machine func(now actors.Time, in actors.Envelope, out *actors.Outbox)

func (f machine) Step(now actors.Time, in actors.Envelope, out *actors.Outbox) { f(now, in, out) }

func rankAt(n int32) actors.Addr { return actors.Addr{Role: actors.Rank, Rank: n} }
func device(n int32) actors.Addr { return actors.Addr{Role: actors.Device, Rank: n} }
func scheduler() actors.Addr     { return actors.Addr{Role: actors.Scheduler} }

// recorder is a machine that passes on what comes.
func recorder(got chan<- actors.Envelope) machine {
	return func(_ actors.Time, in actors.Envelope, _ *actors.Outbox) { got <- in }
}

func newHost(t testing.TB, o live.Options) *live.Host {
	t.Helper()
	h, err := live.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return h
}

func spawn(t testing.TB, h *live.Host, a actors.Addr, m actors.Machine, inc uint64, box int) {
	t.Helper()
	if err := h.Spawn(a, m, inc, box); err != nil {
		t.Fatal(err)
	}
}

func await[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
	}
	panic("unreachable")
}

// none fails if something is in a channel that should be empty.
func none(t testing.TB, c <-chan actors.Envelope) {
	t.Helper()
	select {
	case e := <-c:
		t.Fatalf("unexpected %+v", e)
	default:
	}
}

func TestOrderAndStartFirst(t *testing.T) {
	h := newHost(t, live.Options{})
	const senders, each = 4, 3000
	got := make(chan actors.Envelope, senders*each+1)
	spawn(t, h, rankAt(0), recorder(got), 1, senders*each)
	for s := range int32(senders) {
		self := rankAt(s + 1)
		talk := func(_ actors.Time, _ actors.Envelope, out *actors.Outbox) {
			for i := range int32(each) {
				out.Send(actors.Envelope{To: rankAt(0), From: self, Kind: actors.Done, Op: i})
			}
		}
		spawn(t, h, self, machine(talk), 1, 1)
	}
	if e := await(t, got, "Start"); e.Kind != actors.Start || e.To != rankAt(0) {
		t.Fatalf("first came %+v, want Start", e)
	}
	var next [senders + 1]int32
	for range senders * each {
		e := await(t, got, "a message")
		if e.Op != next[e.From.Rank] {
			t.Fatalf("from %v came %d, want %d", e.From, e.Op, next[e.From.Rank])
		}
		next[e.From.Rank]++
	}
}

func TestUrgentOvertakes(t *testing.T) {
	h := newHost(t, live.Options{})
	got, hold := make(chan actors.Envelope, 16), make(chan struct{})
	spawn(t, h, rankAt(0), machine(func(_ actors.Time, in actors.Envelope, _ *actors.Outbox) {
		got <- in
		if in.Kind == actors.Start {
			<-hold
		}
	}), 1, 3)
	await(t, got, "Start")
	kinds := []actors.Kind{actors.Done, actors.Sent, actors.Grant, actors.Ping, actors.Abort,
		actors.Down, actors.Stop}
	for _, k := range kinds {
		h.Send(actors.Envelope{To: rankAt(0), Kind: k})
	}
	close(hold)
	want := append(append([]actors.Kind{}, kinds[3:]...), kinds[:3]...)
	for i, k := range want {
		if e := await(t, got, "a message"); e.Kind != k {
			t.Fatalf("message %d has kind %d, want %d", i, e.Kind, k)
		}
	}
}

func TestAlarms(t *testing.T) {
	h := newHost(t, live.Options{})
	const delay = actors.Time(5e6)
	type ring struct{ set, at actors.Time }
	rings := make(chan ring, 4)
	var set actors.Time
	left := 3
	spawn(t, h, rankAt(0), machine(func(now actors.Time, in actors.Envelope, out *actors.Outbox) {
		if in.Kind == actors.Timer {
			if in.To != rankAt(0) {
				t.Errorf("timer is addressed to %v", in.To)
			}
			rings <- ring{set, now}
			left--
		}
		if left > 0 {
			set = now + delay
			out.SetAlarm(now + 1000*delay) // replaced before it is served
			out.SetAlarm(set)
		}
	}), 1, 4)
	for range 3 {
		if r := await(t, rings, "an alarm"); r.at < r.set {
			t.Fatalf("alarm for %d came at %d", r.set, r.at)
		}
	}
}

func TestClearedAlarmIsSilent(t *testing.T) {
	h := newHost(t, live.Options{})
	const soon = actors.Time(1e6)
	rings := make(chan actors.Envelope, 1)
	done := make(chan struct{})
	cleared := 0
	spawn(t, h, rankAt(0), machine(func(now actors.Time, in actors.Envelope, out *actors.Outbox) {
		switch {
		case in.Kind == actors.Timer:
			rings <- in
		case in.Kind == actors.Pong:
			out.ClearAlarm()
			if cleared++; cleared == 2000 {
				close(done)
				return
			}
			out.Send(actors.Envelope{To: rankAt(0), Kind: actors.Hello})
		default:
			// The alarm fires at once or soon; what was sent before it is served before it, and
			// clears it.
			out.SetAlarm(now + soon*actors.Time(cleared%2)/100)
			out.Send(actors.Envelope{To: rankAt(0), Kind: actors.Pong})
		}
	}), 1, 2)
	await(t, done, "the last round")
	none(t, rings)
}

func TestOverflowStopsWhoeverIsFull(t *testing.T) {
	notes := make(chan string, 4)
	h := newHost(t, live.Options{OnNote: func(_ actors.Addr, note string) { notes <- note }})
	downs, hold := make(chan actors.Envelope, 16), make(chan struct{})
	spawn(t, h, scheduler(), recorder(downs), 1, 16)
	await(t, downs, "Start")
	started := make(chan struct{})
	spawn(t, h, rankAt(2), machine(func(actors.Time, actors.Envelope, *actors.Outbox) {
		close(started) // a second step would panic
		<-hold
	}), 9, 3)
	await(t, started, "Start")
	for range 3 + 2 { // the limit, the one too many, and one more
		h.Send(actors.Envelope{To: rankAt(2), Kind: actors.Done})
	}
	if n := h.Dropped(); n != 5 {
		t.Errorf("dropped %d, want 5: two refused, three in the box", n)
	}
	none(t, downs) // Down is the last of an incarnation: its step is not over
	close(hold)
	want := actors.Envelope{To: scheduler(), From: rankAt(2), Kind: actors.Down,
		Fault: actors.Overflow, A: 9}
	if e := await(t, downs, "Down"); e != want {
		t.Fatalf("got %+v, want %+v", e, want)
	}
	if n := await(t, notes, "a note"); !strings.Contains(n, "rank 2") ||
		!strings.Contains(n, "limit of 3") {
		t.Errorf("note %q does not name the rank and the limit", n)
	}
}

// TestFullNeighboursDoNotWaitForEachOther: two actors, each in a step, send three to the other's
// mailbox of one. Neither waits: what finds no room is the end of the actor that it was for.
func TestFullNeighboursDoNotWaitForEachOther(t *testing.T) {
	h := newHost(t, live.Options{})
	downs := make(chan actors.Envelope, 16)
	spawn(t, h, scheduler(), recorder(downs), 1, 16)
	await(t, downs, "Start")
	// From the first barrier to the second both are in their step, so that nobody takes mail.
	var begun, sent sync.WaitGroup
	begun.Add(2)
	sent.Add(2)
	flood := func(other actors.Addr) machine {
		return func(_ actors.Time, in actors.Envelope, _ *actors.Outbox) {
			if in.Kind != actors.Hello {
				return
			}
			begun.Done()
			begun.Wait()
			for range 3 {
				h.Send(actors.Envelope{To: other, Kind: actors.Credit})
			}
			sent.Done()
			sent.Wait()
		}
	}
	spawn(t, h, rankAt(0), flood(rankAt(1)), 1, 1)
	spawn(t, h, rankAt(1), flood(rankAt(0)), 1, 1)
	h.Send(actors.Envelope{To: rankAt(0), Kind: actors.Hello})
	h.Send(actors.Envelope{To: rankAt(1), Kind: actors.Hello})
	seen := map[int32]bool{}
	for range 2 {
		e := await(t, downs, "Down of both")
		if e.Kind != actors.Down || e.Fault != actors.Overflow {
			t.Fatalf("got %+v, want Down by overflow", e)
		}
		seen[e.From.Rank] = true
	}
	if len(seen) != 2 {
		t.Fatalf("down came for %v, want both", seen)
	}
}

func TestNeighboursWithOneSeatEach(t *testing.T) {
	h := newHost(t, live.Options{})
	const turns = 20000
	done := make(chan struct{})
	player := func(self, other actors.Addr) machine {
		return func(_ actors.Time, in actors.Envelope, out *actors.Outbox) {
			switch {
			case in.Kind == actors.Start:
			case in.Op == turns:
				close(done)
			default:
				out.Send(actors.Envelope{To: other, From: self, Kind: actors.Done, Op: in.Op + 1})
			}
		}
	}
	spawn(t, h, rankAt(0), player(rankAt(0), rankAt(1)), 1, 1)
	spawn(t, h, rankAt(1), player(rankAt(1), rankAt(0)), 1, 1)
	h.Send(actors.Envelope{To: rankAt(0), Kind: actors.Done})
	await(t, done, "the last turn")
	if n := h.Dropped(); n != 0 {
		t.Fatalf("dropped %d", n)
	}
}

func TestPanicIsDownOnceAndNoRestart(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	var notes atomic.Int32
	h := newHost(t, live.Options{Logger: zap.New(core), OnNote: func(from actors.Addr, n string) {
		if strings.Contains(n, "panicked: slot 7 is taken") && strings.Contains(n, from.String()) {
			notes.Add(1)
		}
	}})
	downs := make(chan actors.Envelope, 16)
	spawn(t, h, scheduler(), recorder(downs), 1, 16)
	await(t, downs, "Start")
	for _, c := range []struct {
		addr  actors.Addr
		fault actors.Fault
	}{{rankAt(1), actors.PeerLost}, {device(1), actors.DeviceFault}} {
		var starts atomic.Int32
		bad := machine(func(_ actors.Time, in actors.Envelope, out *actors.Outbox) {
			out.Send(actors.Envelope{To: scheduler(), Kind: actors.Late})
			if in.Kind == actors.Start {
				starts.Add(1)
				return
			}
			panic("slot 7 is taken")
		})
		spawn(t, h, c.addr, bad, 5, 4)
		await(t, downs, "what was sent in Start")
		h.Send(actors.Envelope{To: c.addr, Kind: actors.Done})
		e := await(t, downs, "Down")
		want := actors.Envelope{
			To: scheduler(), From: c.addr, Kind: actors.Down, Fault: c.fault, A: 5}
		if e != want {
			t.Fatalf("got %+v, want %+v", e, want)
		}
		before := h.Dropped()
		h.Send(actors.Envelope{To: c.addr, Kind: actors.Done})
		if h.Dropped() != before+1 || starts.Load() != 1 {
			t.Fatalf("%v: dropped %d more, %d starts: it is not gone", c.addr, h.Dropped()-before,
				starts.Load())
		}
		none(t, downs)
	}
	if logs.FilterMessage("machine panicked").Len() != 2 || notes.Load() != 2 {
		t.Errorf("the panics are not in the log, or not noted (%d)", notes.Load())
	}
	if logs.FilterField(zap.String("lib", "protoactor")).Len() == 0 {
		t.Error("protoactor's own lines are not in the log")
	}
}

func TestSchedulerDownGoesToTheOwner(t *testing.T) {
	h := newHost(t, live.Options{})
	got, restarted := make(chan actors.Envelope, 4), make(chan error, 1)
	h.Handle(actors.Owner, func(e actors.Envelope) {
		got <- e
		restarted <- h.Spawn(scheduler(), recorder(got), 3, 4)
	})
	spawn(t, h, scheduler(), machine(func(actors.Time, actors.Envelope, *actors.Outbox) {}), 2, 4)
	if err := h.Kill(scheduler(), "test"); err != nil {
		t.Fatal(err)
	}
	e := await(t, got, "Down")
	if e.To.Role != actors.Owner || e.From != scheduler() || e.Kind != actors.Down || e.A != 2 {
		t.Fatalf("got %+v, want Down of the scheduler's incarnation 2", e)
	}
	if err := await(t, restarted, "the next scheduler"); err != nil {
		t.Fatal(err)
	}
	if e := await(t, got, "its Start"); e.Kind != actors.Start {
		t.Fatalf("got %+v, want Start", e)
	}
}

func TestKillAndReplace(t *testing.T) {
	h := newHost(t, live.Options{})
	downs := make(chan actors.Envelope, 1024)
	spawn(t, h, scheduler(), recorder(downs), 1, 1024)
	await(t, downs, "Start")
	const lives = 50
	for inc := range uint64(lives) {
		spawn(t, h, rankAt(4), machine(func(_ actors.Time, in actors.Envelope, out *actors.Outbox) {
			out.Send(actors.Envelope{To: scheduler(), Kind: actors.Hello, A: inc})
		}), inc, 64)
		if e := await(t, downs, "Hello"); e.Kind != actors.Hello || e.A != inc {
			t.Fatalf("life %d: got %+v, want its Hello", inc, e)
		}
		if err := h.Spawn(rankAt(4), recorder(downs), inc+1, 1); err == nil ||
			!strings.Contains(err.Error(), "rank 4") {
			t.Fatalf("spawn at a living address: %v", err)
		}
		var wg sync.WaitGroup
		var killed atomic.Int32
		for range 4 {
			wg.Go(func() {
				h.Send(actors.Envelope{To: rankAt(4), Kind: actors.Done})
				if h.Kill(rankAt(4), "test") == nil {
					killed.Add(1)
				}
				h.Send(actors.Envelope{To: rankAt(4), Kind: actors.Done})
			})
		}
		wg.Wait()
		if killed.Load() != 1 {
			t.Fatalf("%d of 4 kills were the one", killed.Load())
		}
		e := await(t, downs, "Down")
		for e.Kind == actors.Hello && e.A == inc {
			e = await(t, downs, "Down") // of steps before the kill
		}
		if e.Kind != actors.Down || e.A != inc || e.Fault != actors.PeerLost {
			t.Fatalf("life %d: got %+v, want its Down", inc, e)
		}
	}
	none(t, downs)
}

func TestSpawnRefuses(t *testing.T) {
	h := newHost(t, live.Options{})
	h.Handle(actors.Link, func(actors.Envelope) {})
	ok := machine(func(actors.Time, actors.Envelope, *actors.Outbox) {})
	for _, c := range []struct {
		name string
		addr actors.Addr
		m    actors.Machine
		box  int
	}{
		{"nobody", actors.Addr{}, ok, 1},
		{"no such role", actors.Addr{Role: 77}, ok, 1},
		{"handled role", actors.Addr{Role: actors.Link}, ok, 1},
		{"negative rank", rankAt(-1), ok, 1},
		{"rank too high", rankAt(live.MaxRank + 1), ok, 1},
		{"no machine", rankAt(0), nil, 1},
		{"no mailbox", rankAt(0), ok, 0},
	} {
		if err := h.Spawn(c.addr, c.m, 1, c.box); err == nil {
			t.Errorf("%s: no error", c.name)
		}
	}
	for _, a := range []actors.Addr{rankAt(5), {Role: 77}, {}, rankAt(-1)} {
		before := h.Dropped()
		h.Send(actors.Envelope{To: a})
		if h.Dropped() != before+1 {
			t.Errorf("a message to %v, whom nobody knows, is not counted", a)
		}
		if h.Kill(a, "") == nil || h.Hang(a) == nil {
			t.Errorf("kill and hang of %v, whom nobody knows: no error", a)
		}
	}
}

func TestHangSwallows(t *testing.T) {
	h := newHost(t, live.Options{})
	got, answers := make(chan actors.Envelope, 4), make(chan actors.Envelope, 4)
	spawn(t, h, rankAt(0), machine(func(now actors.Time, in actors.Envelope, out *actors.Outbox) {
		out.SetAlarm(now + 1)
		if in.Kind != actors.Timer {
			got <- in
		}
	}), 1, 4)
	spawn(t, h, rankAt(1), recorder(answers), 1, 4)
	await(t, got, "Start")
	await(t, answers, "Start")
	if err := h.Hang(rankAt(0)); err != nil {
		t.Fatal(err)
	}
	for range 100 { // far beyond the limit: it swallows, it does not fill up
		h.Send(actors.Envelope{To: rankAt(0), Kind: actors.Ping})
	}
	if err := h.Kill(rankAt(0), "hung"); err != nil {
		t.Fatal(err)
	}
	none(t, got)
}

func TestHandlersRunOnTheSender(t *testing.T) {
	h := newHost(t, live.Options{})
	got := make(chan actors.Envelope, 1)
	h.Handle(actors.Link, func(e actors.Envelope) { got <- e })
	h.Send(actors.Envelope{To: actors.Addr{Role: actors.Link, Rank: 6}, Op: 11})
	select {
	case e := <-got:
		if e.Op != 11 || e.To.Rank != 6 {
			t.Fatalf("got %+v", e)
		}
	default:
		t.Fatal("the handler had not run when Send came back")
	}
}

func TestCloseInOrderAndNothingLeft(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	h := newHost(t, live.Options{})
	downs := make(chan actors.Envelope, 64)
	h.Handle(actors.Owner, func(e actors.Envelope) { downs <- e })
	tick := machine(func(now actors.Time, _ actors.Envelope, out *actors.Outbox) {
		out.SetAlarm(now + 1e5)
		out.Send(actors.Envelope{To: scheduler(), Kind: actors.Pong})
	})
	for r := range int32(8) {
		spawn(t, h, rankAt(r), tick, 1, 4)
		spawn(t, h, device(r), tick, 1, 4)
	}
	spawn(t, h, scheduler(), recorder(make(chan actors.Envelope, 1<<20)), 1, 1<<10)
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	none(t, downs)
	goleak.VerifyNone(t, ignore)
	before := h.Dropped()
	h.Send(actors.Envelope{To: actors.Addr{Role: actors.Owner}})
	h.Send(actors.Envelope{To: rankAt(0)})
	if h.Dropped() != before+2 || len(downs) != 0 {
		t.Error("a closed host delivered something")
	}
	if err := h.Spawn(rankAt(9), tick, 1, 1); err == nil {
		t.Error("a closed host spawned an actor")
	}
	if err := h.Close(t.Context()); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func TestCloseNamesWhoeverDoesNotLeave(t *testing.T) {
	h, err := live.New(live.Options{})
	if err != nil {
		t.Fatal(err)
	}
	hold, in, devices := make(chan struct{}), make(chan struct{}), make(chan actors.Envelope, 1)
	spawn(t, h, rankAt(3), machine(func(actors.Time, actors.Envelope, *actors.Outbox) {
		close(in)
		<-hold
	}), 1, 1)
	spawn(t, h, device(3), recorder(devices), 1, 1)
	await(t, in, "Start")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = h.Close(ctx)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "rank 3") {
		t.Errorf("close: %v, want it to name rank 3", err)
	}
	close(hold)
}

// TestSteadyStateAllocatesNothing lets two actors play with eight balls.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	perMessage := play(t, 40000)
	if perMessage > 0.02 {
		t.Errorf("%.4f allocations per envelope, want none", perMessage)
	}
}

// play passes envelopes to and fro and gives the allocations per envelope.
func play(t testing.TB, turns int) float64 {
	h := newHost(t, live.Options{})
	done := make(chan struct{}, 8)
	player := func(self, other actors.Addr) machine {
		return func(_ actors.Time, in actors.Envelope, out *actors.Outbox) {
			switch {
			case in.Kind == actors.Start:
			case in.Op == 0:
				done <- struct{}{}
			default:
				out.Send(actors.Envelope{To: other, From: self, Kind: actors.Done, Op: in.Op - 1})
			}
		}
	}
	spawn(t, h, rankAt(0), player(rankAt(0), rankAt(1)), 1, 64)
	spawn(t, h, rankAt(1), player(rankAt(1), rankAt(0)), 1, 64)
	throw := func(turns int) {
		for range 8 {
			h.Send(actors.Envelope{To: rankAt(0), Kind: actors.Done, Op: int32(turns / 8)})
		}
		for range 8 {
			await(t, done, "the last turn")
		}
	}
	throw(4000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if b, ok := t.(*testing.B); ok {
		b.ResetTimer()
	}
	throw(turns)
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(turns)
}

// BenchmarkEnvelopes reports the time of one envelope from Send to Step, two actors, eight
// envelopes under way.
func BenchmarkEnvelopes(b *testing.B) {
	allocs := play(b, max(b.N, 8))
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "envelopes/s")
	b.ReportMetric(allocs, "allocs/envelope")
}

// BenchmarkOneWay reports the time of one envelope to an actor that is busy.
func BenchmarkOneWay(b *testing.B) {
	h := newHost(b, live.Options{})
	done := make(chan struct{})
	seen := 0
	spawn(b, h, rankAt(0), machine(func(_ actors.Time, in actors.Envelope, _ *actors.Outbox) {
		if in.Kind == actors.Done {
			if seen++; seen == b.N {
				close(done)
			}
		}
	}), 1, b.N+1)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		h.Send(actors.Envelope{To: rankAt(0), Kind: actors.Done})
	}
	<-done
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "envelopes/s")
}

// BenchmarkNew reports what a host costs.
func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for range b.N {
		h, err := live.New(live.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if err := h.Close(context.Background()); err != nil {
			b.Fatal(fmt.Errorf("close: %w", err))
		}
	}
}
