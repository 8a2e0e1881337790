package kvloom

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
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

// TestSilentRankIsNamed: a rank that stops answering ends the call naming it, within its deadline
// and a quarter; the session works again at the next epoch, with the same bits.
func TestSilentRankIsNamed(t *testing.T) {
	cfg := testConfig(mesh.Mesh{Head: 2, Ring: 4})
	s := open(t, cfg)
	if err := s.Run(t.Context(), forwardBackward...); err != nil {
		t.Fatal(err)
	}
	want := digest(t, s)
	for _, culprit := range []int{3, 0} {
		s.host.Hang(actors.Addr{Role: actors.Rank, Rank: int32(culprit)})
		err := s.Run(t.Context(), forwardBackward...)
		var e *Error
		if !errors.As(err, &e) || e.Kind != PeerLost || e.Rank != culprit {
			t.Fatalf("a silent rank %d gives %v", culprit, err)
		}
		if err := s.Run(t.Context(), forwardBackward...); err != nil {
			t.Fatalf("the next epoch: %v", err)
		}
		if digest(t, s) != want {
			t.Error("the next epoch gives other bits")
		}
	}
}

// TestSilentDeviceIsNamed: a device that swallows its launches is its own rank's fault.
func TestSilentDeviceIsNamed(t *testing.T) {
	s := open(t, testConfig(mesh.Mesh{Head: 1, Ring: 4}))
	s.host.Hang(actors.Addr{Role: actors.Device, Rank: 2})
	err := s.Run(t.Context(), forwardBackward...)
	var e *Error
	if !errors.As(err, &e) || e.Rank != 2 {
		t.Fatalf("a silent device 2 gives %v", err)
	}
	if err := s.Run(t.Context(), forwardBackward...); err != nil {
		t.Fatalf("the next epoch: %v", err)
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
	stop := make(chan struct{})
	defer close(stop)
	for range runtime.GOMAXPROCS(0) {
		go func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
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
