package sim_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/cudakern"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
	"github.com/kvloom/kvloom/sim"
)

// eight are problems on 8 ranks in which every rank has tokens.
func eight() []plan.Spec {
	ring, both := mesh.Mesh{Head: 1, Ring: 8}, mesh.Mesh{Head: 2, Ring: 4}
	return []plan.Spec{
		problem(ring, mesh.Zigzag, 97, 8, 8, false), problem(both, mesh.Zigzag, 97, 6, 3, false),
		problem(ring, mesh.Contiguous, 64, 8, 2, true),
		problem(both, mesh.Contiguous, 97, 5, 5, false),
	}
}

// fails runs rounds that must fail, and gives the verdict.
func fails(t *testing.T, w *sim.World, rounds int) (*sim.Failure, sim.Result) {
	t.Helper()
	res, err := w.Run(rounds)
	var f *sim.Failure
	if !errors.As(err, &f) {
		t.Fatalf("the run ends with %v, want a failure", err)
	}
	return f, res
}

// runs runs rounds that must be complete and clean.
func runs(t *testing.T, w *sim.World, rounds int) sim.Result {
	t.Helper()
	res, err := w.Run(rounds)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range res.Violations {
		t.Error(v)
	}
	return res
}

// within fails unless a run that a rank's silence at a time ended did so by 1.25 deadlines later.
// What was under way may go on for slack: the deadline counts from the last progress.
func within(t *testing.T, cfg sim.Config, at, end, slack actors.Time) {
	t.Helper()
	if took, limit := end-at, cfg.Deadline/4*5+slack; took > limit {
		t.Errorf("the run ends %.1f steps after the rank fell silent, the limit is %.1f",
			float64(took)/float64(step), float64(limit)/float64(step))
	}
}

// TestSilentRank: a rank stops answering in mid-round. The run ends within 1.25 deadlines and names
// that rank, not a neighbour that waits for it; with a new incarnation the next run is clean.
func TestSilentRank(t *testing.T) {
	for _, s := range eight() {
		for _, pass := range []plan.Pass{plan.Forward, plan.Backward} {
			t.Run(fmt.Sprint(name(s), " ", pass), func(t *testing.T) {
				b := book(t, s, pass, pass, pass, pass, pass)
				for seed := range 100 {
					cfg := weather(s, b, uint64(seed), 0.5)
					took := run(t, cfg, 3).Nanos()
					silent := int32(seed % 8)
					at := took / 3 * actors.Time(10+seed*80/100) / 100 // in the first round
					cfg.Pauses = []sim.Pause{{Rank: silent, At: at, For: actors.Never}}
					w := sim.New(cfg)
					f, res := fails(t, w, 3)
					if f.Rank != silent || f.Fault != actors.PeerLost {
						t.Fatalf("seed %d: rank %d fell silent: %v", seed, silent, f)
					}
					within(t, cfg, at, res.End, took/3)
					named(t, b, f)
					w.Respawn(int(silent))
					runs(t, w, 1)
				}
			})
		}
	}
}

// named fails unless a verdict's op is a transfer of a living rank with the culprit.
func named(t *testing.T, b *rank.Rounds, f *sim.Failure) {
	t.Helper()
	if f.Reporter < 0 || f.Op < 0 {
		t.Fatalf("nobody tells what it waited for: %v", f)
	}
	o := b.Script(f.Reporter, f.Round).Program.Ops[f.Op]
	if f.Reporter == f.Rank || f.Peer != f.Rank || !o.Kind.Link() || o.Peer != f.Rank {
		t.Fatalf("%v: the op is %v with rank %d", f, o.Kind, o.Peer)
	}
}

// TestSilentWithoutWork: nobody waits for a rank that has done its part of the last round, or that
// has none; it is found all the same, and as soon.
func TestSilentWithoutWork(t *testing.T) {
	tiny := problem(mesh.Mesh{Head: 1, Ring: 8}, mesh.Contiguous, 3, 8, 8, false)
	for _, s := range append(eight(), tiny) {
		b := book(t, s, turns(4)...)
		for seed := range 40 {
			cfg := weather(s, b, uint64(seed), 0.1)
			took := run(t, cfg, 2).Nanos()
			at := took * actors.Time(80+seed/2) / 100
			silent := int32(7 - seed%3)
			cfg.Pauses = []sim.Pause{{Rank: silent, At: at, For: actors.Never}}
			w := sim.New(cfg)
			res, err := w.Run(2)
			if err == nil {
				continue // it had said all it had to say
			}
			var f *sim.Failure
			if !errors.As(err, &f) || f.Rank != silent {
				t.Fatalf("%s seed %d: rank %d fell silent: %v", name(s), seed, silent, err)
			}
			within(t, cfg, at, res.End, took/2)
			w.Respawn(int(silent))
			runs(t, w, 1)
		}
	}
}

// TestSilentFromTheStart: a rank that never comes is named when the deadline for forming is over.
func TestSilentFromTheStart(t *testing.T) {
	s := eight()[0]
	cfg := weather(s, book(t, s, turns(2)...), 1, 0.5)
	cfg.Pauses = []sim.Pause{{Rank: 2, At: 0, For: 90 * step}} // it is only slow
	slow := late{cfg.Costs, 5, 10_000 * step}
	cfg.Costs, cfg.Noise.Mail = &slow, 0
	w := sim.New(cfg)
	f, res := fails(t, w, 1)
	if f.Rank != 5 || f.Fault != actors.PeerLost ||
		!slices.Contains(f.Notes, "rank 5 has not come") {
		t.Errorf("rank 5 never came, the verdict is: %v", f)
	}
	within(t, cfg, 0, res.End, 0)
	slow.by = 0
	w.Respawn(5)
	runs(t, w, 1)
}

// late are costs with slow mail to the scheduler from one rank.
type late struct {
	sim.Costs
	rank int32
	by   actors.Time
}

func (l *late) Mail(from, to actors.Addr) actors.Time {
	if from == (actors.Addr{Role: actors.Rank, Rank: l.rank}) && to.Role == actors.Scheduler {
		return l.by
	}
	return l.Costs.Mail(from, to)
}

// TestTwoSilent: both are named, the verdict has one of them; both come back.
func TestTwoSilent(t *testing.T) {
	for _, s := range eight() {
		b := book(t, s, turns(4)...)
		for seed := range 20 {
			cfg := weather(s, b, uint64(seed), 0.5)
			pair := []int32{int32(seed % 8), int32((seed%8 + 1 + seed%7) % 8)}
			cfg.Pauses = []sim.Pause{
				{Rank: pair[0], At: 3 * step, For: actors.Never},
				{Rank: pair[1], At: 4 * step, For: actors.Never},
			}
			w := sim.New(cfg)
			f, res := fails(t, w, 3)
			if !slices.Contains(pair, f.Rank) {
				t.Fatalf("ranks %v fell silent, the verdict is: %v", pair, f)
			}
			within(t, cfg, 4*step, res.End, 20*step)
			w.Respawn(int(pair[0]))
			w.Respawn(int(pair[1]))
			runs(t, w, 1)
		}
	}
}

// TestRestarts: rank after rank falls silent, 64 times in a row, often while the gang has just
// started again. Credits of the new epoch come before one's own grant, and are not lost.
func TestRestarts(t *testing.T) {
	for _, s := range eight() {
		t.Run(name(s), func(t *testing.T) {
			b := book(t, s, turns(2000)...)
			cfg := weather(s, b, 7, 2)
			cfg.Deadline = 60 * step
			const times = 64
			for k := range actors.Time(times) {
				cfg.Pauses = append(cfg.Pauses, sim.Pause{
					Rank: int32(k * 3 % 8), At: k*130*step + k%17*2*step, For: actors.Never})
			}
			early := earlyCredits{of: make([]actors.Epoch, 8)}
			cfg.Trace = early.see
			w := sim.New(cfg)
			restarts, most := 0, 0
			for n := 0; restarts < times && n < 1900; n++ {
				res, err := w.Run(1)
				most = max(most, res.MostMail)
				var f *sim.Failure
				switch {
				case errors.As(err, &f):
					if want := cfg.Pauses[restarts].Rank; f.Rank != want {
						t.Fatalf("restart %d: rank %d fell silent: %v", restarts, want, f)
					}
					restarts++
					w.Respawn(int(f.Rank))
				case err != nil:
					t.Fatal(err)
				}
				for _, v := range res.Violations {
					t.Fatal(v)
				}
			}
			if restarts != times {
				t.Fatalf("%d restarts, want %d", restarts, times)
			}
			if early.n < 8 {
				t.Errorf("%d credits came before their epoch's grant, want 8 at least", early.n)
			}
			runs(t, w, 4)
			t.Logf("fullest mailbox %d of %d, %d early credits", most, cfg.Mailbox, early.n)
		})
	}
}

// earlyCredits counts the credits that reach a rank before the grant of their epoch.
type earlyCredits struct {
	of []actors.Epoch // by rank: the last grant
	n  int
}

func (c *earlyCredits) see(e sim.Event) {
	switch r := e.Env.To.Rank; {
	case e.Env.Kind == actors.Grant:
		c.of[r] = e.Env.Epoch
	case e.Env.Kind == actors.Credit && e.Env.Epoch > c.of[r]:
		c.n++
	}
}

// TestAbortInFullSwing: a device fails while all ranks compute, send and receive. The verdict names
// its rank; everything is flushed before the next epoch, what was under way is dropped, nobody has
// to be replaced, and the round after is clean; eight times over, each time another rank.
func TestAbortInFullSwing(t *testing.T) {
	for _, s := range eight() {
		t.Run(name(s), func(t *testing.T) {
			b := book(t, s, turns(32)...)
			dropped, cut := int64(0), 0
			for seed := range uint64(20) {
				cfg := weather(s, b, seed, 1.5)
				cfg.Exec, cfg.Noise.Transfer = breaks{book: b, seed: int32(seed)}, 8*step
				tidy := oldWork{t: t, granted: make([]actors.Epoch, 8)}
				cfg.Trace = tidy.see
				w := sim.New(cfg)
				for k := range int32(8) {
					f, _ := fails(t, w, 1)
					if f.Rank != k || f.Fault != actors.DeviceFault {
						t.Fatalf("seed %d: device %d breaks, the verdict is: %v", seed, k, f)
					}
					if !slices.Contains(f.Notes, fmt.Sprintf("device %d breaks", k)) {
						t.Fatalf("the device's own words are not in the verdict: %v", f)
					}
					runs(t, w, 1)
				}
				for r := range 8 {
					dropped += w.Rank(r).Stats().Dropped
				}
				cut += tidy.cut
			}
			if dropped == 0 || cut == 0 {
				t.Errorf("%d envelopes were dropped, %d ops and blocks were under way at an "+
					"abort: the test shows nothing", dropped, cut)
			}
		})
	}
}

// breaks is a world in which in round 2k the device of rank k fails at an attend of its own.
type breaks struct {
	cudakern.NoArithmetic
	book *rank.Rounds
	seed int32
}

func (x breaks) Do(r, round, op int32) error {
	if round%2 != 0 || r != round/2 {
		return nil
	}
	p := x.book.Script(r, round).Program
	n, at := int32(0), int32(-1)
	for i := range p.Ops {
		if k := p.Ops[i].Kind; k == plan.Attend || k == plan.AttendBackward {
			if n++; at < 0 || n <= 1+x.seed%4 {
				at = int32(i)
			}
		}
	}
	if op == at {
		return fmt.Errorf("device %d breaks", r)
	}
	return nil
}

// oldWork sees to it that nothing of an old epoch ends on a rank that has heard of a newer one, and
// counts what was under way when a rank heard of an abort.
type oldWork struct {
	t       *testing.T
	granted []actors.Epoch // by rank
	aborted [8]actors.Epoch
	cut     int
}

func (o *oldWork) see(e sim.Event) {
	r := e.Env.To.Rank
	switch {
	case e.Env.Kind == actors.Grant:
		o.granted[r] = e.Env.Epoch
	case e.Env.Kind == actors.Abort:
		o.aborted[r] = e.Env.Epoch
	case e.What == "op" || e.What == "block":
		if o.aborted[r] == e.Env.Epoch {
			o.cut++
		}
		late := e.Env.Epoch < o.granted[r]
		if e.What == "block" {
			late = late || e.Env.Epoch < o.granted[e.Env.Peer]
		}
		if late {
			o.t.Errorf("%s of rank %d, op %d, epoch %d, ends at %d when a newer epoch is granted",
				e.What, r, e.Env.Op, e.Env.Epoch, e.At)
		}
	}
}

// TestLongOp: an op takes longer than the deadline, and longer than a rank may take to answer. The
// rank is alive, so it is late, not lost; nobody has to be replaced, and the round after is clean;
// eight times over.
func TestLongOp(t *testing.T) {
	for _, s := range eight() {
		b := book(t, s, turns(32)...)
		for seed := range uint64(10) {
			cfg := weather(s, b, seed, 0.1)
			cfg.Deadline = 20 * step
			cfg.Costs = stumble{cfg.Costs.(costs)}
			w := sim.New(cfg)
			for k := range int32(8) {
				f, _ := fails(t, w, 1)
				if f.Rank != k || f.Fault != actors.TimedOut {
					t.Fatalf("seed %d: the device of rank %d is slow: %v", seed, k, f)
				}
				named(t, b, f)
				runs(t, w, 1)
			}
		}
	}
}

// stumble is a world in which in round 2k every attend of rank k takes 34 steps: more than the
// deadline and all that others can do meanwhile, and less than two deadlines.
type stumble struct{ costs }

func (c stumble) Op(r, round, op int32) actors.Time {
	k := c.book.Script(r, round).Program.Ops[op].Kind
	if round%2 == 0 && r == round/2 && (k == plan.Attend || k == plan.AttendBackward) {
		return 34 * step
	}
	return c.costs.Op(r, round, op)
}

// TestSlowRank: a rank that is silent for less than a deadline is slow, no more. Nothing fails.
func TestSlowRank(t *testing.T) {
	for _, s := range eight() {
		b := book(t, s, turns(3)...)
		for seed := range 50 {
			cfg := weather(s, b, uint64(seed), 0.5)
			cfg.Pauses = []sim.Pause{{
				Rank: int32(seed % 8), At: actors.Time(seed) * step / 2,
				For: actors.Time(10+seed*85/50) * step, // of a deadline of 100
			}}
			run(t, cfg, 3)
		}
	}
}

// TestBlame: without any silence, a rank whose device hangs is alive and named as late; so is it
// when it is far down the chain of waits.
func TestBlame(t *testing.T) {
	for _, s := range eight() {
		for slow := range int32(8) {
			b := book(t, s, turns(3)...)
			cfg := weather(s, b, 1, 0.1)
			at := actors.Time(0)
			cfg.Spans = func(sp sim.Span) {
				if sp.End-sp.Begin >= 200*step && at == 0 {
					at = sp.Begin
				}
			}
			cfg.Costs = hang{cfg.Costs.(costs), slow}
			f, res := fails(t, sim.New(cfg), 2)
			if f.Rank != slow || f.Fault != actors.TimedOut {
				t.Errorf("%s: device %d hangs in round 1, the verdict is: %v", name(s), slow, f)
			}
			named(t, b, f)
			if took, limit := res.End-at, cfg.Deadline*9/4+20*step; took > limit {
				t.Errorf("%s: the run ends %d steps after the device hangs, the limit is %d",
					name(s), took/step, limit/step)
			}
			if f.Round != 1 && f.Round != 0 {
				t.Errorf("%s: the verdict is on round %d, want 0 or 1", name(s), f.Round)
			}
			if len(res.Violations) > 0 {
				t.Error(res.Violations[0])
			}
		}
	}
}

// hang is a world in which the device of one rank takes two deadlines for an attend of round 1.
type hang struct {
	costs
	rank int32
}

func (h hang) Op(r, round, op int32) actors.Time {
	k := h.book.Script(r, round).Program.Ops[op].Kind
	if r == h.rank && round == 1 && (k == plan.Attend || k == plan.AttendBackward) {
		return 200 * step
	}
	return h.costs.Op(r, round, op)
}

// holding is a copy of a plan in which one rank holds another script for the forward pass.
func holding(p *rank.Compiled, at int, s *rank.Script) *rank.Compiled {
	own := *p
	own.Scripts[plan.Forward] = slices.Clone(p.Scripts[plan.Forward])
	own.Scripts[plan.Forward][at] = s
	return &own
}

// TestOtherPlan: a rank that holds another program than was made for it is named before an op runs
// or a block moves, though the scheduler's book is the same as its own.
func TestOtherPlan(t *testing.T) {
	s := problem(mesh.Mesh{Head: 1, Ring: 8}, mesh.Zigzag, 64, 8, 2, false)
	full, contiguous := s, s
	full.Shape.Mask, contiguous.Layout = eight()[2].Shape.Mask, mesh.Contiguous
	right := book(t, s, plan.Forward).Entries[0].Plan
	for what, script := range map[string]*rank.Script{
		"another mask's":   book(t, full, plan.Forward).Script(3, 0),
		"another layout's": book(t, contiguous, plan.Forward).Script(3, 0),
		"another rank's":   right.Scripts[plan.Forward][4],
		"another pass's":   right.Scripts[plan.Backward][3],
	} {
		for _, at := range []int{0, 2} { // the first round, or the last of three
			b := &rank.Rounds{Entries: []rank.Entry{{Plan: right}, {Plan: right}, {Plan: right}}}
			b.Entries[at].Plan = holding(right, 3, script)
			b.Entries = append(b.Entries, rank.Entry{Plan: right})
			cfg := weather(s, b, 1, 0.5)
			began := 0
			cfg.Spans = func(sim.Span) { began++ }
			w := sim.New(cfg)
			f, _ := fails(t, w, 3)
			if f.Fault != actors.PlanMismatch || f.Rank != 3 || began != 0 {
				t.Errorf("rank 3 holds %s program in round %d: %d ops began, the verdict is: %v",
					what, at, began, f)
			}
			if len(f.Notes) != 1 || !strings.Contains(f.Notes[0], "rank 3 holds plan") {
				t.Errorf("rank 3 holds %s program: the notes are %q", what, f.Notes)
			}
			runs(t, w, 1)
			if began == 0 {
				t.Error("nothing begins in the next round, with one plan: the test shows nothing")
			}
		}
	}
}
