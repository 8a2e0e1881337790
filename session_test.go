package kvloom

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testTokens, testHeads, testKVHeads, testDim = 64, 8, 2, 8

func testConfig(m mesh.Mesh) Config {
	return Config{
		Mesh: m, Deadline: 2 * time.Second,
		Problems: []Problem{{
			Tokens: testTokens, Heads: testHeads, KVHeads: testKVHeads, Dim: testDim,
			Scale: 1 / math.Sqrt(testDim), Mask: attn.Causal(testTokens, testTokens), ElemBytes: 4,
			AccBytes: 4,
		}},
	}
}

func testInputs() Inputs[float32] {
	nq, nk := testTokens*testHeads*testDim, testTokens*testKVHeads*testDim
	return Inputs[float32]{
		Q: tensors.Draw[float32](1, "q", nq), K: tensors.Draw[float32](1, "k", nk),
		V: tensors.Draw[float32](1, "v", nk), DO: tensors.Draw[float32](1, "do", nq),
	}
}

func open(t testing.TB, cfg Config) *Session[float32] {
	t.Helper()
	s, err := Open[float32](context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := s.Load(0, 0, testInputs()); err != nil {
		t.Fatal(err)
	}
	return s
}

var forwardBackward = []Round{{Pass: plan.Forward}, {Pass: plan.Backward}}

func digest(t testing.TB, s *Session[float32]) string {
	t.Helper()
	o, err := s.Results(0, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	return tensors.Digest(o.Out) + tensors.Digest(o.LSE) + tensors.Digest(o.DQ) +
		tensors.Digest(o.DK) + tensors.Digest(o.DV)
}

// slack is what a busy machine may add to a time in deadlines.
const slack = 0.5

// failsWithin runs a forward and a backward round that must fail, and gives the error; from the
// time that since gives it takes at most so many deadlines, and slack.
func failsWithin(t *testing.T, s *Session[float32], since func() time.Time,
	deadlines float64) *Error {
	t.Helper()
	err := s.Run(t.Context(), forwardBackward...)
	took := time.Since(since())
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("the run ends with %v, want an *Error", err)
	}
	if limit := time.Duration((deadlines + slack) * float64(s.cfg.Deadline)); took > limit {
		t.Errorf("the run ends after %v, with a deadline of %v: want at most %v\n%v", took,
			s.cfg.Deadline, limit, err)
	}
	return e
}

// namesTransfer fails unless the error's link and op are a transfer of another rank with the
// culprit.
func namesTransfer(t *testing.T, e *Error, culprit int) {
	t.Helper()
	var src, dst, reporter, op int
	var kind string
	if _, err := fmt.Sscanf(e.Link, "%d->%d", &src, &dst); err != nil || src == dst ||
		(src != culprit && dst != culprit) {
		t.Errorf("link %q is not one of rank %d: %v", e.Link, culprit, e)
	}
	_, who, _ := strings.Cut(e.Op, " of rank ")
	_, err := fmt.Sscan(who, &reporter)
	_, err2 := fmt.Sscanf(e.Op, "op %d %s", &op, &kind)
	if err != nil || err2 != nil || reporter == culprit || (reporter != src && reporter != dst) ||
		(kind == "send") != (reporter == src) || (kind != "send" && kind != "recv") {
		t.Errorf("op %q is not an end of %s at another rank than %d: %v", e.Op, e.Link, culprit, e)
	}
}

// saboteur does something once, when a rank begins an op while it is armed, on the goroutine of the
// rank's device.
type saboteur struct {
	rank  int32
	armed atomic.Bool
	do    func()
	mu    sync.Mutex
	at    time.Time
}

func (x *saboteur) pace() *Pace {
	return &Pace{Op: func(r, _, op int32) time.Duration {
		if r == x.rank && op > 0 && x.armed.CompareAndSwap(true, false) {
			x.mu.Lock()
			x.at = time.Now()
			x.mu.Unlock()
			x.do()
		}
		return 0
	}}
}

func (x *saboteur) done() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.at
}

// TestSilentRankIsNamed: a rank that stops answering, before the rounds or in the middle of one,
// ends the call naming it, within its deadline and a quarter; in a round also what another rank
// waits for with it. The session works again at the next epoch, with the same bits.
func TestSilentRankIsNamed(t *testing.T) {
	for _, culprit := range []int32{3, 0} {
		x := &saboteur{rank: culprit}
		cfg := testConfig(mesh.Mesh{Head: 2, Ring: 4})
		cfg.Pace = x.pace()
		s := open(t, cfg)
		if err := s.Run(t.Context(), forwardBackward...); err != nil {
			t.Fatal(err)
		}
		want := digest(t, s)
		hang := func() { s.host.Hang(actors.Addr{Role: actors.Rank, Rank: culprit}) }
		for _, inRound := range []bool{false, true} {
			since := x.done
			if x.do = hang; inRound {
				x.armed.Store(true)
			} else {
				hang()
				began := time.Now()
				since = func() time.Time { return began }
			}
			e := failsWithin(t, s, since, 1.25)
			if e.Kind != PeerLost || e.Rank != int(culprit) || !errors.Is(e, ErrPeerLost) {
				t.Fatalf("a silent rank %d gives %v", culprit, e)
			}
			if inRound {
				namesTransfer(t, e, int(culprit))
			}
			if err := s.Run(t.Context(), forwardBackward...); err != nil {
				t.Fatalf("the next epoch: %v", err)
			}
			if digest(t, s) != want {
				t.Error("the next epoch gives other bits")
			}
		}
	}
}

// TestSilentDeviceIsNamed: a device that swallows its launches is its own rank's fault. The rank
// lives, so the call takes a deadline more: its own, a quarter for the device to answer, one for
// the flush.
func TestSilentDeviceIsNamed(t *testing.T) {
	x := &saboteur{rank: 2}
	cfg := testConfig(mesh.Mesh{Head: 1, Ring: 4})
	cfg.Pace = x.pace()
	s := open(t, cfg)
	x.do = func() { s.host.Hang(actors.Addr{Role: actors.Device, Rank: 2}) }
	x.armed.Store(true)
	e := failsWithin(t, s, x.done, 2.25)
	if e.Rank != 2 || e.Kind != Timeout {
		t.Fatalf("a silent device 2 gives %v", e)
	}
	namesTransfer(t, e, 2)
	if err := s.Run(t.Context(), forwardBackward...); err != nil {
		t.Fatalf("the next epoch: %v", err)
	}
}

// TestSlowOpsAreLate: when every actor is alive and an op is slower than the deadline, the call
// ends as late, not as lost: whether the op ends while the round is aborted, or later, or all ops
// are so.
func TestSlowOpsAreLate(t *testing.T) {
	const deadline = time.Second
	for _, tc := range []struct {
		name  string
		every bool // op of every rank; else one op of rank 2
		takes time.Duration
		limit float64 // deadlines
	}{
		{"one op, a deadline and a half", false, deadline * 3 / 2, 2.25},
		{"one op, five deadlines", false, 5 * deadline, 2.25},
		// A device that got anything done since it was asked last has one more deadline.
		{"every op, five deadlines", true, 5 * deadline, 3.25},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var slow, told atomic.Bool
			slow.Store(true)
			cfg := testConfig(mesh.Mesh{Head: 1, Ring: 4})
			cfg.Deadline = deadline
			cfg.Pace = &Pace{Op: func(r, _, op int32) time.Duration {
				if slow.Load() && (tc.every || r == 2 && op > 0 && told.CompareAndSwap(false,
					true)) {
					return tc.takes
				}
				return 0
			}}
			s := open(t, cfg)
			began := time.Now()
			e := failsWithin(t, s, func() time.Time { return began }, tc.limit)
			if e.Kind != Timeout || !errors.Is(e, ErrTimeout) || e.Op == "" {
				t.Fatalf("slow ops give %v", e)
			}
			if !tc.every {
				if e.Rank != 2 {
					t.Errorf("a slow op of rank 2 gives %v", e)
				}
				namesTransfer(t, e, 2)
			}
			slow.Store(false)
			if err := s.Run(t.Context(), forwardBackward...); err != nil {
				t.Fatalf("the next epoch: %v", err)
			}
		})
	}
}

// TestStoppedActorIsDown: stopping any actor is reported, never silently restarted.
func TestStoppedActorIsDown(t *testing.T) {
	for role, want := range map[actors.Role]Kind{actors.Rank: PeerLost, actors.Device: Device} {
		s := open(t, testConfig(mesh.Mesh{Head: 2, Ring: 2}))
		s.host.Kill(actors.Addr{Role: role, Rank: 1}, "killed by a test")
		err := s.Run(t.Context(), forwardBackward...)
		var e *Error
		if !errors.As(err, &e) || e.Kind != want || e.Rank != 1 {
			t.Fatalf("stopping role %d of rank 1 gives %v", role, err)
		}
		if err := s.Run(t.Context(), forwardBackward...); err != nil {
			t.Fatalf("after %v 1: %v", role, err)
		}
	}
	s := open(t, testConfig(mesh.Mesh{Head: 1, Ring: 2}))
	s.host.Kill(actors.Addr{Role: actors.Scheduler}, "killed by a test")
	if err := s.Run(t.Context(), forwardBackward...); err == nil ||
		!strings.Contains(err.Error(), "scheduler is gone") {
		t.Fatalf("a stopped scheduler gives %v", err)
	}
}

// TestCancel: a call ends when its context does, and the session goes on.
func TestCancel(t *testing.T) {
	cfg := testConfig(mesh.Mesh{Head: 1, Ring: 4})
	slow := make(chan struct{})
	cfg.Pace = &Pace{Op: func(_, round, _ int32) time.Duration {
		if round == 0 {
			select {
			case slow <- struct{}{}:
			default:
			}
			return time.Second
		}
		return 0
	}}
	s := open(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-slow
		cancel()
	}()
	err := s.Run(ctx, forwardBackward...)
	var e *Error
	if !errors.As(err, &e) || e.Kind != Aborted {
		t.Fatalf("a cancelled run gives %v", err)
	}
	if err := s.Run(t.Context(), forwardBackward...); err != nil {
		t.Fatalf("after a cancelled run: %v", err)
	}
}

// TestThousandRounds: one session, 16 ranks, 1,000 rounds; heap and goroutines at the end are those
// of round 100.
func TestThousandRounds(t *testing.T) {
	if testing.Short() {
		t.Skip("1,000 rounds of 16 ranks are too many for a short run")
	}
	s := open(t, testConfig(mesh.Mesh{Head: 2, Ring: 8}))
	measure := func() (heap uint64, goroutines int) {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc, runtime.NumGoroutine()
	}
	var heap100 uint64
	var gor100 int
	for i := 1; i <= 500; i++ {
		if err := s.Run(t.Context(), forwardBackward...); err != nil {
			t.Fatalf("rounds %d: %v", 2*i, err)
		}
		if i == 50 {
			heap100, gor100 = measure()
		}
	}
	heap, gor := measure()
	t.Logf("round 100: %d bytes, %d goroutines; round 1000: %d, %d", heap100, gor100, heap, gor)
	if float64(heap) > 1.05*float64(heap100) || float64(gor) > 1.05*float64(gor100) {
		t.Errorf("heap %d -> %d, goroutines %d -> %d: something grows", heap100, heap, gor100, gor)
	}
}

// TestNoFalsePeerLost: 500 clean runs beside busy loops on every processor.
func TestNoFalsePeerLost(t *testing.T) {
	runs := 500
	if testing.Short() {
		runs = 20
	}
	var stop atomic.Bool
	defer stop.Store(true)
	for range runtime.GOMAXPROCS(0) {
		go func() {
			for !stop.Load() {
			}
		}()
	}
	s := open(t, testConfig(mesh.Mesh{Head: 2, Ring: 4}))
	for i := range runs {
		if err := s.Run(t.Context(), forwardBackward...); err != nil {
			t.Fatalf("run %d: %v", i, err)
		}
	}
}

// TestTwoSessions: sessions in one process do not disturb one another.
func TestTwoSessions(t *testing.T) {
	a := open(t, testConfig(mesh.Mesh{Head: 2, Ring: 2}))
	b := open(t, testConfig(mesh.Mesh{Head: 1, Ring: 4}))
	errs := make(chan error, 2)
	for _, s := range []*Session[float32]{a, b} {
		go func() { errs <- s.Run(context.Background(), forwardBackward...) }()
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	a.host.Kill(actors.Addr{Role: actors.Rank, Rank: 1}, "killed by a test")
	if err := b.Run(t.Context(), forwardBackward...); err != nil {
		t.Errorf("a rank lost in one session breaks the other: %v", err)
	}
}
