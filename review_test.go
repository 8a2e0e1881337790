package kvloom

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
	"github.com/kvloom/kvloom/transport"
)

// failed runs a forward round that must fail with a kind.
func failed(t *testing.T, s *Session[float32], kind Kind) *Error {
	t.Helper()
	err := s.Run(t.Context(), Round{Pass: plan.Forward})
	var e *Error
	if !errors.As(err, &e) || e.Kind != kind {
		t.Fatalf("the run ends with %v, want %v", err, kind)
	}
	return e
}

// TestOtherProgramIsNamed: a rank that holds another program than was made for it is named before
// an op runs or a block moves, and the session works again when it holds its own.
func TestOtherProgramIsNamed(t *testing.T) {
	const culprit = 3
	contiguous := testConfig(mesh.Mesh{Head: 1, Ring: 4})
	contiguous.Layout = mesh.Contiguous
	other := open(t, contiguous)
	cfg := testConfig(mesh.Mesh{Head: 1, Ring: 4})
	full := cfg.Problems[0]
	full.Mask = attn.Full(testTokens, testTokens)
	cfg.Problems = append(cfg.Problems, full)
	var ops atomic.Int64
	cfg.Pace = &Pace{Op: func(_, _, _ int32) time.Duration { ops.Add(1); return 0 }}
	s := open(t, cfg)
	mine := s.layers[0].ready.Scripts[plan.Forward]
	own := mine[culprit]
	for what, script := range map[string]*rank.Script{
		"another mask's":   s.layers[1].ready.Scripts[plan.Forward][culprit],
		"another layout's": other.layers[0].ready.Scripts[plan.Forward][culprit],
		"another rank's":   mine[2],
		"another pass's":   s.layers[0].ready.Scripts[plan.Backward][culprit],
	} {
		before := ops.Load()
		mine[culprit] = script
		e := failed(t, s, Corrupt)
		mine[culprit] = own
		if e.Rank != culprit || !errors.Is(e, ErrCorrupt) || ops.Load() != before ||
			len(e.Notes) != 1 || !strings.Contains(e.Notes[0], "rank 3 holds plan") {
			t.Errorf("rank 3 holds %s program: %d ops ran, %v", what, ops.Load()-before, e)
		}
		if err := s.Run(t.Context(), forwardBackward...); err != nil {
			t.Errorf("after %s program: %v", what, err)
		}
		if ops.Load() == before {
			t.Error("no op is counted: the test shows nothing")
		}
	}
}

// TestBlocksThatDisagree: a block whose header differs in any field from what its receiver wants
// ends the call as corrupt, with both sides in the error, before it lies in a slot; the session
// works again. A block that is announced for another lane or tick finds no receive.
func TestBlocksThatDisagree(t *testing.T) {
	const src, dst = 1, 2
	for field, change := range map[string]func(*transport.Header){
		"run":       func(h *transport.Header) { h.Run++ },
		"pass":      func(h *transport.Header) { h.Pass ^= 1 },
		"state":     func(h *transport.Header) { h.State++ },
		"tensor":    func(h *transport.Header) { h.Tensor ^= 1 },
		"low head":  func(h *transport.Header) { h.HeadLo++ },
		"high head": func(h *transport.Header) { h.HeadHi-- },
		"tokens":    func(h *transport.Header) { h.SetHash ^= 1 },
		"plan":      func(h *transport.Header) { h.Plan ^= 1 << 63 },
		"lane":      func(h *transport.Header) { h.Lane += 7 },
		"tick":      func(h *transport.Header) { h.Tick += 7 },
	} {
		t.Run(field, func(t *testing.T) {
			s := open(t, testConfig(mesh.Mesh{Head: 1, Ring: 4}))
			var right, wrong atomic.Pointer[transport.Header]
			s.host.Handle(actors.Link, func(e actors.Envelope) {
				if e.Kind == actors.Put && e.From.Rank == src && right.Load() == nil {
					h := transport.HeaderOf(&e)
					changed := h
					change(&changed)
					changed.Stamp(&e)
					wrong.Store(&changed)
					right.Store(&h)
				}
				s.net.Handle(e)
			})
			e := failed(t, s, Corrupt)
			notes := strings.Join(e.Notes, "\n")
			want := []string{"wanted " + right.Load().String(), "came   " + wrong.Load().String()}
			if field == "lane" || field == "tick" {
				want = []string{"no receive is open", wrong.Load().String()}
			}
			for _, part := range append(want, fmt.Sprintf("link %d->%d", src, dst)) {
				if !strings.Contains(notes, part) || !strings.Contains(e.Error(), part) {
					t.Errorf("the error does not tell %q: %v", part, e)
				}
			}
			if e.Rank != src && e.Rank != dst {
				t.Errorf("the error names rank %d, not an end of the link: %v", e.Rank, e)
			}
			if right.Load().Run != s.id {
				t.Errorf("the block says run %08x, the session is %08x", right.Load().Run, s.id)
			}
			if err := s.Run(t.Context(), forwardBackward...); err != nil {
				t.Errorf("the next epoch: %v", err)
			}
		})
	}
}

// cable is a mover that may be cut between two ranks.
type cable struct {
	transport.Mover
	src, dst int32
	cut      atomic.Bool
}

func (c *cable) Hop(src, dst, round, sendOp, recvOp int32) (int64, error) {
	if src == c.src && dst == c.dst && c.cut.Load() {
		return 0, errors.New("the cable is cut")
	}
	return c.Mover.Hop(src, dst, round, sendOp, recvOp)
}

// TestCutCable: what a mover has to say reaches the error. Both ends live, so no rank is to blame;
// the link is named.
func TestCutCable(t *testing.T) {
	s := open(t, testConfig(mesh.Mesh{Head: 1, Ring: 4}))
	c := &cable{Mover: s.meter.Mover, src: 1, dst: 2}
	s.meter.Mover = c
	c.cut.Store(true)
	e := failed(t, s, Device)
	if e.Rank != -1 || e.Link != "1->2" || !errors.Is(e, ErrDevice) {
		t.Errorf("a cut cable from 1 to 2 gives rank %d, link %q: %v", e.Rank, e.Link, e)
	}
	if all := strings.Join(e.Notes, "\n"); !strings.Contains(all, "the cable is cut") ||
		!strings.Contains(all, "link 1->2") {
		t.Errorf("the notes do not tell of the cable: %q", e.Notes)
	}
	c.cut.Store(false)
	if err := s.Run(t.Context(), forwardBackward...); err != nil {
		t.Errorf("with the cable mended: %v", err)
	}
}

// TestHungScheduler: a scheduler that swallows everything ends the call within three deadlines,
// with an error that names it, whether the caller gives up meanwhile or not; later calls end at
// once, and the session closes.
func TestHungScheduler(t *testing.T) {
	const deadline = time.Second
	for _, when := range []string{"the caller waits", "the caller gives up", "gave up before"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			cfg := testConfig(mesh.Mesh{Head: 1, Ring: 2})
			cfg.Deadline = deadline
			s := open(t, cfg)
			if err := s.host.Hang(actors.Addr{Role: actors.Scheduler}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			switch when {
			case "the caller gives up":
				timer := time.AfterFunc(deadline/2, cancel)
				defer timer.Stop()
			case "gave up before":
				cancel()
			}
			began := time.Now()
			err := s.Run(ctx, forwardBackward...)
			took := time.Since(began)
			var e *Error
			if err == nil || errors.As(err, &e) || !strings.Contains(err.Error(), "the scheduler") {
				t.Errorf("a hung scheduler gives %v", err)
			}
			if took < deadline || took > time.Duration((2+2*slack)*float64(deadline)) {
				t.Errorf("the call ends after %v, with a deadline of %v", took, deadline)
			}
			if again := s.Run(t.Context(), forwardBackward...); !errors.Is(again, err) {
				t.Errorf("the next call gives %v, want %v", again, err)
			}
		})
	}
}

// TestQuietSchedulerIsAlive: a scheduler that has nothing to say for many patiences, since a round
// is long, answers when it is asked.
func TestQuietSchedulerIsAlive(t *testing.T) {
	cfg := testConfig(mesh.Mesh{Head: 1, Ring: 2})
	s := open(t, cfg)
	var asked atomic.Int64
	s.owner.begin(0, 1) // a round that nobody runs
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ask := func() {
		if s.ask(); asked.Add(1) == 5 {
			cancel()
		}
	}
	stop := func() { s.owner.handle(actors.Envelope{Kind: actors.Complete, Round: 1}) }
	if v, err := s.owner.wait(ctx, 200*time.Millisecond, ask, stop); v != nil || err != nil {
		t.Errorf("a scheduler that answers %d times gives %v, %v", asked.Load(), v, err)
	}
	if asked.Load() != 5 {
		t.Errorf("the scheduler was asked %d times, want 5", asked.Load())
	}
}

// blocker is work that does not end until it is let go.
type blocker struct{ begun, gate chan struct{} }

func (b blocker) Run(int, *cpu.Scratch) {
	close(b.begun)
	<-b.gate
}

// TestCloseHonoursContext: Close gives up when its context ends, and says what it waits for;
// nothing is left when that ends.
func TestCloseHonoursContext(t *testing.T) {
	brief := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(t.Context(), 50*time.Millisecond)
	}
	s, err := Open[float32](t.Context(), testConfig(mesh.Mesh{Head: 1, Ring: 2}))
	if err != nil {
		t.Fatal(err)
	}
	work := blocker{begun: make(chan struct{}), gate: make(chan struct{})}
	over := make(chan error, 1)
	err = s.pool.Submit(&cpu.Batch{Work: work, Tasks: 1, Over: func(err error) { over <- err }})
	if err != nil {
		t.Fatal(err)
	}
	<-work.begun
	ctx, cancel := brief()
	defer cancel()
	if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "an op of a device has not ended") {
		t.Errorf("Close with an op that does not end gives %v", err)
	}
	if err := s.Run(t.Context(), forwardBackward...); !errors.Is(err, ErrClosed) {
		t.Errorf("Run after Close gives %v", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Errorf("Close again gives %v", err)
	}
	close(work.gate) // TestMain sees to it that no goroutine stays
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// TestInputsAreCopied: what a caller does with its arrays after Load, Forward or Backward, and with
// the results that it got, changes nothing.
func TestInputsAreCopied(t *testing.T) {
	ctx := t.Context()
	s := open(t, testConfig(mesh.Mesh{Head: 1, Ring: 4}))
	if err := s.Run(ctx, forwardBackward...); err != nil {
		t.Fatal(err)
	}
	want := digest(t, s)
	in := testInputs()
	if err := s.Load(0, 0, in); err != nil {
		t.Fatal(err)
	}
	spoil(in.Q, in.K, in.V, in.DO)
	if err := s.Run(ctx, forwardBackward...); err != nil {
		t.Fatal(err)
	}
	out, err := s.Results(0, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	spoil(out.Out, out.LSE, out.DQ, out.DK, out.DV)
	if digest(t, s) != want {
		t.Error("arrays that are overwritten after Load change the results")
	}
	if err := s.Run(ctx, Round{Pass: plan.Backward}); err != nil {
		t.Fatal(err)
	}
	if digest(t, s) != want {
		t.Error("results that are overwritten change the next pass")
	}
	a, err := s.Attention(testConfig(mesh.Mesh{}).Problems[0])
	if err != nil {
		t.Fatal(err)
	}
	alone := a.Begin()
	grads := runState(ctx, t, alone, testInputs())
	alone.Release()
	st := a.Begin()
	defer st.Release()
	qkv, do := sharded(a, testInputs())
	outs, err := st.Forward(ctx, qkv)
	if err != nil {
		t.Fatal(err)
	}
	for r := range qkv {
		spoil(qkv[r].Q, qkv[r].K, qkv[r].V, outs[r].Out, outs[r].LSE)
	}
	got, err := st.Backward(ctx, do)
	if err != nil {
		t.Fatal(err)
	}
	if gradDigest(got) != grads {
		t.Error("arrays that are overwritten after Forward change its Backward")
	}
}

func spoil(arrays ...[]float32) {
	for _, a := range arrays {
		for i := range a {
			a[i] = float32(math.NaN())
		}
	}
}

// TestRanksShareNoBlock: between rounds no array that a rank holds, input, kept block or result,
// overlaps with another rank's, or with another of its own.
func TestRanksShareNoBlock(t *testing.T) {
	type place struct {
		lo, hi uintptr
		what   string
	}
	for _, m := range []mesh.Mesh{{Head: 1, Ring: 4}, {Head: 4, Ring: 1}, {Head: 2, Ring: 2}} {
		s := open(t, testConfig(m))
		for _, state := range []int{0, 1} {
			if err := s.Load(0, state, testInputs()); err != nil {
				t.Fatal(err)
			}
			for _, r := range forwardBackward {
				r.State = state
				if err := s.Run(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
		}
		var places []place
		for r := range m.Ranks() {
			for role := plan.HomeQ; role < plan.NumRoles; role++ {
				for state := range int32(2) {
					parts, err := s.store.Output(int32(r), state, role)
					if err != nil {
						continue // not of this mesh
					}
					for i, p := range parts {
						lo := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
						places = append(places, place{lo, lo + 4*uintptr(len(p)),
							fmt.Sprintf("rank %d %v of state %d, part %d", r, role, state, i)})
					}
				}
			}
		}
		slices.SortFunc(places, func(a, b place) int {
			return int(int64(a.lo) - int64(b.lo))
		})
		for i := 1; i < len(places); i++ {
			if a, b := places[i-1], places[i]; a.hi > b.lo {
				t.Errorf("%dx%d: %s overlaps with %s", m.Head, m.Ring, a.what, b.what)
			}
		}
		if len(places) < m.Ranks()*2*9 {
			t.Errorf("%dx%d: only %d arrays", m.Head, m.Ring, len(places))
		}
	}
}
