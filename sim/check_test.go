package sim_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/internal/tensors"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
	"github.com/kvloom/kvloom/sim"
)

// marred is a plan of which one program is another than the builder's.
type marred struct {
	plan.Source
	pass plan.Pass
	rank int
	prog *plan.Program
}

func (m marred) Program(pass plan.Pass, r int) (*plan.Program, error) {
	if pass == m.pass && r == m.rank {
		return m.prog, nil
	}
	return m.Source.Program(pass, r)
}

// without is a program in which op does not wait for op dep.
func without(p *plan.Program, op int, dep int32) *plan.Program {
	out := &plan.Program{Rank: p.Rank, Pass: p.Pass, Slots: p.Slots}
	for i := range p.Ops {
		deps := slices.Clone(p.Deps(i))
		if i == op {
			deps = slices.DeleteFunc(deps, func(d int32) bool { return d == dep })
		}
		out.Append(p.Ops[i], p.Args(i), deps)
	}
	return out
}

// dropped is a program without an op, times = 0, or with it twice, times = 2. Who waited for it
// waits for what it waited for, or for the second.
func dropped(p *plan.Program, op, times int) *plan.Program {
	out := &plan.Program{Rank: p.Rank, Pass: p.Pass, Slots: p.Slots}
	number := make([]int32, len(p.Ops))
	for i := range p.Ops {
		var deps []int32
		for _, d := range p.Deps(i) {
			switch {
			case int(d) != op || times == 2:
				deps = append(deps, number[d])
			default:
				for _, before := range p.Deps(op) {
					deps = append(deps, number[before])
				}
			}
		}
		if i == op && times == 0 {
			continue
		}
		number[i] = int32(out.Append(p.Ops[i], p.Args(i), deps))
		if i == op {
			number[i] = int32(out.Append(p.Ops[i], p.Args(i), append(deps, number[i])))
		}
	}
	return out
}

// marredRun runs one pass of a plan of which one rank's program is another, in a world where some
// of that rank's ops are slow, and gives what the checkers say.
func marredRun(t *testing.T, src *plan.Plan, p *plan.Program, seed uint64,
	slow ...int32) []string {
	t.Helper()
	m := marred{Source: src, pass: p.Pass, rank: p.Rank, prog: p}
	b := bookOf(t, m, plan.Hash{1}, p.Pass)
	cfg := weather(src.Spec(), b, seed, 2)
	cfg.Mailbox, cfg.Costs = 0, dawdle{cfg.Costs.(costs), int32(p.Rank), slow}
	res, _ := sim.New(cfg).Run(1) // it may also fail
	return res.Violations
}

// dawdle is a world in which some ops of a rank take 40 steps, and so do the blocks of its
// transfers among them.
type dawdle struct {
	costs
	rank int32
	ops  []int32
}

func (c dawdle) Op(r, round, op int32) actors.Time {
	if r == c.rank && slices.Contains(c.ops, op) {
		return 40 * step
	}
	return c.costs.Op(r, round, op)
}

func (c dawdle) Transfer(src, dst, round, op int32) (int, actors.Time, actors.Time) {
	link, occupy, latency := c.costs.Transfer(src, dst, round, op)
	if op < 0 {
		return link, occupy, latency
	}
	sent := c.book.Script(src, round).Program.Ops[op]
	for _, slow := range c.ops {
		o := c.book.Script(c.rank, round).Program.Ops[slow]
		if (src == c.rank && op == slow) || (dst == c.rank && o.Kind == plan.Recv &&
			o.Peer == src && o.Lane == sent.Lane && o.Tick == sent.Tick) {
			return link, occupy, 40 * step
		}
	}
	return link, occupy, latency
}

// implied tells whether op comes after other, though it does not wait for dep: by way of others, or
// since both are on one stream, which keeps the order of ticks. A release stands for the ops that
// it waits for.
func implied(p *plan.Program, op int, dep, other int32) bool {
	after := make([]bool, op+1)
	for i := range after {
		for _, before := range p.Deps(i) {
			if i < op || before != dep {
				after[i] = after[i] || before == other || after[before]
			}
		}
	}
	k, o := p.Ops[op].Kind, p.Ops[other].Kind
	switch {
	case after[op], k.Device() && o.Device() && rank.StreamOf(k) == rank.StreamOf(o):
		return true
	case o != plan.Release:
		return false
	}
	return !slices.ContainsFunc(p.Deps(int(other)), func(before int32) bool {
		return !implied(p, op, dep, before)
	})
}

// TestCheckerSeesDependencies: when an op no longer waits for the release of the slot that it
// writes, or for the op that fills the slot that it reads, some order of events shows it: every
// dependency of a rank that nothing else implies is dropped, one at a time.
func TestCheckerSeesDependencies(t *testing.T) {
	src := mustPlan(t, problem(mesh.Mesh{Head: 2, Ring: 4}, mesh.Zigzag, 97, 8, 2, true))
	for _, pass := range src.Passes() {
		p, err := src.Program(pass, 1)
		if err != nil {
			t.Fatal(err)
		}
		reuse, fill := 0, 0
		if vs := marredRun(t, src, p, 1); len(vs) != 0 {
			t.Fatalf("%v: the builder's own program: %v", pass, vs)
		}
		for i := range p.Ops {
			for _, d := range p.Deps(i) {
				if p.Ops[i].Kind == plan.Release || implied(p, i, d, d) {
					continue // a release touches nothing itself
				}
				if p.Ops[d].Kind == plan.Release {
					reuse++
				} else {
					fill++
				}
				if seed := firstViolation(t, src, p, i, d); seed < 0 {
					t.Errorf("%v: op %s does not wait for op %s: no violation under any seed", pass,
						p.AppendOp(nil, src.Header(), i), p.AppendOp(nil, src.Header(), int(d)))
				}
			}
		}
		t.Logf("%v: %d dependencies on a release, %d on others", pass, reuse, fill)
		if reuse < 2 || fill < 10 {
			t.Errorf("%v: %d and %d dependencies: the test shows little", pass, reuse, fill)
		}
	}
}

// firstViolation is the first seed under which the checker sees that op does not wait for dep.
func firstViolation(t *testing.T, src *plan.Plan, p *plan.Program, op int, dep int32) int {
	t.Helper()
	text := string(p.AppendOp(nil, src.Header(), op))
	text, _, _ = strings.Cut(text, " after") // the marred one waits for less
	want := fmt.Sprintf("rank 1 round 0: op %s", text)
	slow := []int32{dep}
	if p.Ops[dep].Kind == plan.Release {
		slow = p.Deps(int(dep))
	}
	mar := without(p, op, dep)
	for seed := range 40 {
		for _, v := range marredRun(t, src, mar, uint64(seed), slow...) {
			if strings.HasPrefix(v, want) && strings.Contains(v, "starts while op") {
				return seed
			}
		}
	}
	return -1
}

// TestCheckerCountsPairs: a round in which one attend of one rank is left out, or done twice, is
// complete, and a violation with both numbers.
func TestCheckerCountsPairs(t *testing.T) {
	for _, s := range eight() {
		src := mustPlan(t, s)
		for _, pass := range src.Passes() {
			p, err := src.Program(pass, 1)
			if err != nil {
				t.Fatal(err)
			}
			h := src.Header()
			all := h.Mask.TotalPairs() * int64(h.QHeads)
			for i := range p.Ops {
				if k := p.Ops[i].Kind; k != plan.Attend && k != plan.AttendBackward {
					continue
				}
				n := h.OpPairs(p, i)
				for times, got := range map[int]int64{0: all - n, 2: all + n} {
					want := fmt.Sprintf("round 0 attended %d pairs, the mask allows %d", got, all)
					vs := marredRun(t, src, dropped(p, i, times), 1)
					if !slices.Contains(vs, want) {
						t.Errorf("%s, %v: attend %d is done %d times: violations %q, want %q",
							name(s), pass, i, times, vs, want)
					}
				}
			}
		}
	}
}

// lateReader is a store in which one attend reads its kv too late: its blocks are found when it is
// due, and read when the slot of its kv is readied for the next block.
type lateReader struct {
	*cpu.Store[float64]
	rank, op int32
	slot     int32
	p        *plan.Program
	job      cpu.Job[float64]
	tasks    int // to be done
	late     bool
}

func (l *lateReader) Do(r, round, op int32) error {
	if r != l.rank || op != l.op {
		return l.Store.Do(r, round, op)
	}
	var err error
	l.tasks, err = l.Begin(r, round, op, &l.job)
	return err
}

func (l *lateReader) Post(r, round, op int32) error {
	err := l.Store.Post(r, round, op)
	if r == l.rank && l.tasks > 0 && l.p.Args(int(op))[0].Slot == l.slot {
		var scratch cpu.Scratch
		for task := range l.tasks {
			l.job.Run(task, &scratch)
		}
		l.job.End(true)
		l.tasks, l.late = 0, true
	}
	return err
}

// storeBook is the simulator's book as the store reads it.
type storeBook struct{ *rank.Rounds }

func (b storeBook) Round(r, round int32) (cpu.Round, bool) {
	e, ok := b.At(round)
	if !ok {
		return cpu.Round{}, false
	}
	s := e.Plan.Scripts[e.Pass][r]
	return cpu.Round{Header: s.Header, Program: s.Program, State: e.State}, true
}

// TestPoisonShowsLateReaders: with poison an attend that reads its keys when their slot is free for
// the next block gives NaN on its own rank and there only; without, the same mistake cannot be
// seen.
func TestPoisonShowsLateReaders(t *testing.T) {
	s := problem(mesh.Mesh{Head: 1, Ring: 4}, mesh.Zigzag, 64, 2, 2, false)
	s.Shape.ElemBytes, s.Shape.AccBytes = 8, 8
	src := mustPlan(t, s)
	p, err := src.Program(plan.Forward, 1)
	if err != nil {
		t.Fatal(err)
	}
	reused, first := map[int32]bool{}, int32(-1) // slots that receive twice; an attend of the first
	for i := len(p.Ops) - 1; i >= 0; i-- {
		switch a := p.Args(i); p.Ops[i].Kind {
		case plan.Recv:
			reused[a[0].Slot] = true
		case plan.Attend:
			if reused[a[1].Slot] {
				first = int32(i)
			}
		}
	}
	if first < 0 {
		t.Fatal("no attend of rank 1 reads a slot that is used again")
	}
	right := lateRun(t, src, p, -1, true)
	for r, rows := range right {
		if slices.ContainsFunc(rows, math.IsNaN) {
			t.Fatalf("without a mistake rank %d has NaN", r)
		}
	}
	poisoned, plain := lateRun(t, src, p, first, true), lateRun(t, src, p, first, false)
	for r := range right {
		if isNaN := slices.ContainsFunc(poisoned[r], math.IsNaN); isNaN != (r == 1) {
			t.Errorf("rank 1 reads too late, rank %d has NaN: %v", r, isNaN)
		}
		if slices.ContainsFunc(plain[r], math.IsNaN) {
			t.Errorf("without poison rank %d has NaN", r)
		}
	}
}

// lateRun runs the forward pass with real arithmetic, op of rank 1 late, and gives out by rank.
func lateRun(t *testing.T, src *plan.Plan, p *plan.Program, op int32, poison bool) [][]float64 {
	t.Helper()
	b := book(t, src.Spec(), plan.Forward)
	store := cpu.New[float64](storeBook{b}, 4, cpu.Options{Copy: true, Poison: poison})
	defer store.Close()
	h := src.Header()
	for r := range int32(4) {
		n := h.Sets[h.HomeQ[r]].Len() * h.QHeads * h.Dim
		draw := func(s string) []float64 { return tensors.Draw[float64](uint64(r), s, n) }
		for role, parts := range map[plan.Role][][]float64{
			plan.HomeQ: {draw("q")}, plan.HomeKV: {draw("k"), draw("v")},
		} {
			if err := store.SetInput(r, 0, role, parts...); err != nil {
				t.Fatal(err)
			}
		}
	}
	l := &lateReader{Store: store, rank: 1, op: op, p: p}
	if op >= 0 {
		l.slot = p.Args(int(op))[1].Slot
	}
	cfg := weather(src.Spec(), b, 1, 0.5)
	cfg.Exec, cfg.Mover = l, l
	run(t, cfg, 1)
	if l.late != (op >= 0) {
		t.Fatalf("op %d read too late: %v", op, l.late)
	}
	var out [][]float64
	for r := range int32(4) {
		parts, err := store.Output(r, 0, plan.HomeOut)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, slices.Clone(parts[0]))
	}
	return out
}
