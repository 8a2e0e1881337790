package sim_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
	"github.com/kvloom/kvloom/sim"
)

var soakRounds = flag.Int("soak", 1000, "rounds of TestOrder; 100000 takes five minutes")

// problem is a spec in words: layout, tokens, heads, and whether every query sees every key.
func problem(m mesh.Mesh, l mesh.Layout, tokens, heads, kvHeads int, full bool) plan.Spec {
	s := spec(m, tokens)
	s.Layout, s.Shape.QHeads, s.Shape.KHeads = l, heads, kvHeads
	if full {
		s.Shape.Mask = attn.Full(tokens, tokens)
	}
	return s
}

func name(s plan.Spec) string {
	mask := "causal"
	if s.Shape.Mask[0].Hi != 0 {
		mask = "full"
	}
	return fmt.Sprintf("%dx%d %v %v S %d heads %d-%d", s.Mesh.Head, s.Mesh.Ring, s.Layout, mask,
		s.Shape.QTokens, s.Shape.QHeads, s.Shape.KHeads)
}

// sixteen are problems on 16 ranks: every shape of mesh, both layouts and masks, uneven heads,
// replicated KV heads, and fewer tokens than ranks.
func sixteen() []plan.Spec {
	at := func(h int) mesh.Mesh { return mesh.Mesh{Head: h, Ring: 16 / h} }
	first := at(4)
	first.Placement = mesh.ContextFirst
	return []plan.Spec{
		problem(at(1), mesh.Zigzag, 97, 8, 8, false),
		problem(at(1), mesh.Contiguous, 97, 8, 2, false),
		problem(at(2), mesh.Contiguous, 97, 5, 5, true),
		problem(at(4), mesh.Zigzag, 256, 6, 3, false),
		problem(first, mesh.Contiguous, 31, 8, 1, false),
		problem(at(8), mesh.Zigzag, 97, 9, 3, true),
		problem(at(16), mesh.Contiguous, 97, 16, 2, false),
		problem(at(2), mesh.Zigzag, 5, 8, 8, false),
		problem(at(1), mesh.Contiguous, 1, 8, 8, true),
	}
}

// turns is n passes, forward and backward in turn.
func turns(n int) []plan.Pass {
	out := make([]plan.Pass, n)
	for i := range out {
		out[i] = plan.Pass(i % 2)
	}
	return out
}

// weather is a world with delays everywhere: what takes up to x steps longer by chance.
func weather(s plan.Spec, b *rank.Rounds, seed uint64, x float64) sim.Config {
	n := s.Mesh.Ranks()
	return sim.Config{
		Ranks: n, Book: b, Seed: seed, Deadline: 100 * step, Mailbox: mailbox(b, n),
		Costs: costs{
			book: b, ranks: n, kv: 0.7, dkv: 0.9, piece: 0.1, attend: 1, acc: 0.1, mail: 0.02,
			latency: 0.05,
		},
		Noise: sim.Noise{Mail: units(x), Transfer: units(x), Op: units(x)},
	}
}

// mailbox is the capacity that follows from the plan: the ends of launches on three streams; for
// each slot that a receive writes, the block that came into it, and at the sender a credit and the
// Sent of the block before; and a few words of the scheduler.
func mailbox(b *rank.Rounds, ranks int) int {
	slots := 0
	for round := range min(len(b.Entries), 2) {
		for r := range ranks {
			p := b.Script(int32(r), int32(round)).Program
			seen := map[int32]bool{}
			for i := range p.Ops {
				if p.Ops[i].Kind == plan.Recv {
					seen[p.Args(i)[0].Slot] = true
				}
			}
			slots = max(slots, len(seen))
		}
	}
	return 3*rank.Depth + 3*slots + 12
}

// naps are pauses of every rank, at odd times, short against the deadline.
func naps(ranks int, until actors.Time) []sim.Pause {
	var out []sim.Pause
	for at, k := actors.Time(0), 0; at < until; at, k = at+7*step/2, k+1 {
		out = append(out, sim.Pause{
			Rank: int32(k * 5 % ranks), At: at, For: actors.Time(1+k%40) * step})
	}
	return out
}

// TestOrder: both neighbours send first, mailboxes are at the smallest size that the plan allows,
// delays are random and ranks fall asleep: no deadlock, no slot touched too early.
func TestOrder(t *testing.T) {
	for k, s := range sixteen() {
		t.Run(name(s), func(t *testing.T) {
			b := book(t, s, turns(*soakRounds)...)
			for n, noise := range []float64{0.3, 0, 4} {
				rounds := *soakRounds
				if k > 0 || n > 0 {
					rounds /= 10
				}
				cfg := weather(s, b, uint64(k), noise)
				cfg.Pauses = naps(16, actors.Time(rounds)*4*step)
				cfg.Window, cfg.Deadline = 1+int32(k)%5, 10_000*step
				res := run(t, cfg, rounds)
				t.Logf("noise %v: %d events, fullest mailbox %d, limit %d", noise, res.Events,
					res.MostMail, cfg.Mailbox)
			}
		})
	}
}

// TestMailboxLimit: a mailbox that is too small is an error that names the rank, not a wait.
func TestMailboxLimit(t *testing.T) {
	s := problem(mesh.Mesh{Head: 2, Ring: 8}, mesh.Zigzag, 97, 8, 8, false)
	cfg := weather(s, book(t, s, plan.Forward), 1, 0.3)
	cfg.Mailbox = 2
	_, err := sim.New(cfg).Run(1)
	if err == nil || !strings.Contains(err.Error(), "envelopes waiting, its limit is 2") {
		t.Errorf("a mailbox of 2 gives %v", err)
	}
}

// TestSameSeed: the same seed gives the same run, event by event; another seed another.
func TestSameSeed(t *testing.T) {
	s := problem(mesh.Mesh{Head: 2, Ring: 4}, mesh.Contiguous, 97, 6, 3, false)
	b := book(t, s, turns(4)...)
	seen := map[uint64]uint64{}
	for seed := range uint64(20) {
		cfg := weather(s, b, seed, 0.5)
		cfg.Pauses = naps(8, 100*step)
		one, two := run(t, cfg, 4), run(t, cfg, 4)
		if one.TraceHash != two.TraceHash || one.End != two.End || one.Events != two.Events {
			t.Errorf("seed %d: two runs, %x and %x", seed, one.TraceHash, two.TraceHash)
		}
		if other, ok := seen[one.TraceHash]; ok {
			t.Errorf("seeds %d and %d give the same run", seed, other)
		}
		seen[one.TraceHash] = seed
	}
}

// TestNothingToDo: ranks without tokens, and rounds in which hardly anybody has any, take part and
// end; the pairs that the mask allows are attended all the same (the world checks that).
func TestNothingToDo(t *testing.T) {
	for _, tokens := range []int{1, 2, 3, 5, 7} {
		for _, m := range []mesh.Mesh{
			{Head: 1, Ring: 1}, {Head: 1, Ring: 2}, {Head: 1, Ring: 16}, {Head: 2, Ring: 8},
			{Head: 4, Ring: 3}, {Head: 3, Ring: 5}, {Head: 8, Ring: 1},
		} {
			for _, l := range []mesh.Layout{mesh.Zigzag, mesh.Contiguous} {
				for _, full := range []bool{false, true} {
					s := problem(m, l, tokens, 8, 2, full)
					b := book(t, s, turns(6)...)
					cfg := weather(s, b, 3, 0.3)
					cfg.Deadline = 1000 * step
					if res := run(t, cfg, 6); res.Nanos() > 200*step {
						t.Errorf("%s: takes %d steps: somebody waited for a deadline", name(s),
							res.Nanos()/step)
					}
				}
			}
		}
	}
}
