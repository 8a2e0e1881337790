package live_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/actors/live"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/cudakern"
	"github.com/kvloom/kvloom/headshuffle"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
	"github.com/kvloom/kvloom/ringbus"
	"github.com/kvloom/kvloom/sched"
	"github.com/kvloom/kvloom/transport"
	"github.com/kvloom/kvloom/transport/inproc"
)

// instant is a device whose ops take no time: it answers in the order that streams allow.
type instant struct {
	rank    int32
	streams cudakern.Streams
	fence   actors.Epoch // flushed
	done    uint64       // ops, the sign of life
}

func (d *instant) Step(_ actors.Time, in actors.Envelope, out *actors.Outbox) {
	answer := actors.Envelope{To: rankAt(d.rank), From: device(d.rank), Epoch: in.Epoch}
	switch in.Kind {
	case actors.Ping:
		answer.Kind, answer.A = actors.Pong, d.done
		out.Send(answer)
	case actors.Flush:
		d.fence = max(d.fence, in.Epoch)
		d.streams.Flush()
		answer.Kind = actors.Flushed
		out.Send(answer)
	case actors.Launch:
		if in.Epoch <= d.fence {
			return
		}
		if err := d.streams.Push(in); err != nil {
			panic(err)
		}
		for e, ok := d.streams.Next(); ok; e, ok = d.streams.Next() {
			d.streams.Finish(e.Stream)
			d.done++
			answer.Kind, answer.Round, answer.Op = actors.Done, e.Round, e.Op
			out.Send(answer)
		}
	}
}

// alternate is a book without end: even rounds are forward, odd ones backward.
type alternate struct{ *rank.Compiled }

func (b alternate) Script(rank, round int32) *rank.Script { return b.Scripts[round%2][rank] }

func (b alternate) State(int32) int32 { return 0 }

func (b alternate) Holds(_, from, to int32) uint64 {
	return b.Hash.Short() + uint64(from)<<32 + uint64(to)
}

// gang is ranks, devices, links and a scheduler; the test is its owner.
type gang struct {
	t        testing.TB
	host     *live.Host
	net      *inproc.Net
	book     alternate
	ranks    int32
	deadline actors.Time
	lives    uint64
	heard    chan actors.Envelope // what the scheduler tells the owner, but for RoundDone
	mu       sync.Mutex
	notes    []string
	next     int32 // first round not yet submitted: numbers are not used again
}

const window = 4

func newGang(t testing.TB, m mesh.Mesh, deadline, pace time.Duration) *gang {
	p, err := plan.New(plan.Spec{
		Shape: plan.Shape{
			QTokens: 97, KTokens: 97, QHeads: 4, KHeads: 2, Dim: 8, VDim: 8, ElemBytes: 4,
			AccBytes: 4, Scale: 0.25, Mask: attn.Causal(97, 97),
		},
		Mesh: m, Ring: ringbus.Ring{}, Heads: headshuffle.AllToAll{},
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := rank.CompilePlan(p, nil, p.Seal)
	if err != nil {
		t.Fatal(err)
	}
	g := &gang{
		t: t, book: alternate{c}, ranks: int32(m.Ranks()), deadline: actors.Time(deadline),
		heard: make(chan actors.Envelope, 1<<20),
	}
	g.host = newHost(t, live.Options{OnNote: func(from actors.Addr, note string) {
		g.mu.Lock()
		g.notes = append(g.notes, fmt.Sprintf("%v: %s", from, note))
		g.mu.Unlock()
	}})
	o := inproc.Options{Ranks: m.Ranks(), Mover: transport.NoBlocks{}, Send: g.host.Send}
	if pace > 0 {
		o.Pace = func(_, _, _, _, op int32) time.Duration { return pace * time.Duration(op%3) }
	}
	g.net = inproc.New(o)
	t.Cleanup(g.net.Close)
	g.host.Handle(actors.Link, g.net.Handle)
	g.host.Handle(actors.Owner, func(e actors.Envelope) {
		if e.Kind != actors.RoundDone {
			g.heard <- e
		}
	})
	spawn(t, g.host, scheduler(), sched.New(sched.Config{
		Ranks: m.Ranks(), Window: window, Deadline: g.deadline,
		Plan: func(_, from, to int32) uint64 { return g.book.Holds(-1, from, to) },
	}), 1, 1<<12)
	for r := range g.ranks {
		g.spawn(r)
	}
	return g
}

// spawn gives a rank its next life, with a device of its own.
func (g *gang) spawn(r int32) {
	g.t.Helper()
	g.lives++
	spawn(g.t, g.host, device(r), &instant{rank: r}, g.lives, 64)
	links := 0
	for _, s := range g.book.Scripts {
		links = max(links, len(s[r].Program.Ops))
	}
	spawn(g.t, g.host, rankAt(r), rank.New(rank.Config{
		Rank: r, Incarnation: g.lives, Book: g.book, Deadline: g.deadline,
	}), g.lives, 2*links*(window+1)+64)
}

func (g *gang) submit(rounds int32) {
	g.tell(actors.Envelope{Kind: actors.Submit, Round: g.next, Op: g.next + rounds})
	g.next += rounds
}

func (g *gang) tell(e actors.Envelope) {
	e.To, e.From = scheduler(), actors.Addr{Role: actors.Owner}
	g.host.Send(e)
}

// until reads what the owner hears up to the first envelope that ok says yes to.
func (g *gang) until(what string, ok func(e actors.Envelope) bool) actors.Envelope {
	g.t.Helper()
	limit := time.After(patience)
	for {
		select {
		case e := <-g.heard:
			if ok(e) {
				return e
			}
			if e.Kind == actors.Failed || e.Kind == actors.Down {
				g.fatal("failed while waiting for "+what, e)
			}
		case <-limit:
			g.fatal("waited in vain for "+what, actors.Envelope{})
		}
	}
}

func (g *gang) fatal(text string, e actors.Envelope) {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.t.Fatalf("%s: %+v\nnotes: %v\nhost dropped %d, net dropped %d", text, e, g.notes,
		g.host.Dropped(), g.net.Dropped())
}

func (g *gang) complete(round int32) {
	g.t.Helper()
	g.until(fmt.Sprintf("round %d", round), func(e actors.Envelope) bool {
		return e.Kind == actors.Complete && e.Round >= round
	})
}

// failed waits for the verdict.
func (g *gang) failed() actors.Envelope {
	g.t.Helper()
	return g.until("a verdict", func(e actors.Envelope) bool { return e.Kind == actors.Failed })
}

// close ends the gang in good order.
func (g *gang) close() {
	g.t.Helper()
	g.tell(actors.Envelope{Kind: actors.Close})
	g.until("the end", func(e actors.Envelope) bool { return e.Kind == actors.Closed })
	if err := g.host.Close(context.Background()); err != nil {
		g.t.Error(err)
	}
}

// gangs runs a test on both meshes, with and without a pace.
func gangs(t *testing.T, deadline time.Duration, f func(t *testing.T, g *gang)) {
	for _, m := range []mesh.Mesh{{Head: 1, Ring: 4}, {Head: 2, Ring: 2}} {
		for _, pace := range []time.Duration{0, 20 * time.Microsecond} {
			t.Run(fmt.Sprintf("%dx%d pace %v", m.Head, m.Ring, pace), func(t *testing.T) {
				t.Parallel()
				f(t, newGang(t, m, deadline, pace))
			})
		}
	}
}

func TestGangRunsRounds(t *testing.T) {
	gangs(t, patience, func(t *testing.T, g *gang) {
		g.submit(120)
		g.complete(120)
		g.submit(80)
		g.complete(200)
		if h, n := g.host.Dropped(), g.net.Dropped(); h != 0 || n != 0 {
			t.Errorf("host dropped %d, net %d, want none", h, n)
		}
		g.close()
	})
}

func TestGangLosesARank(t *testing.T) {
	gangs(t, patience, func(t *testing.T, g *gang) {
		for victim := range g.ranks {
			from := g.next
			g.submit(1 << 16)
			g.complete(from + 20)
			if err := g.host.Kill(rankAt(victim), "test"); err != nil {
				t.Fatal(err)
			}
			if e := g.failed(); e.Fault != actors.PeerLost || e.Peer != victim {
				g.fatal(fmt.Sprintf("want rank %d lost", victim), e)
			}
			if err := g.host.Kill(device(victim), "its rank is gone"); err != nil {
				t.Fatal(err)
			}
			g.spawn(victim)
		}
		g.submit(50)
		g.complete(g.next)
		g.close()
	})
}

func TestGangHasARankThatHangs(t *testing.T) {
	const deadline = 2 * time.Second
	gangs(t, deadline, func(t *testing.T, g *gang) {
		const victim = 2
		g.submit(1 << 16)
		g.complete(20)
		began := time.Now()
		if err := g.host.Hang(rankAt(victim)); err != nil {
			t.Fatal(err)
		}
		if e := g.failed(); e.Fault != actors.PeerLost || e.Peer != victim {
			g.fatal(fmt.Sprintf("want rank %d lost", victim), e)
		}
		if took := time.Since(began); took < deadline/2 {
			t.Errorf("the verdict came after %v: before anybody could know", took)
		}
		for _, a := range []actors.Addr{rankAt(victim), device(victim)} {
			if err := g.host.Kill(a, "hung"); err != nil {
				t.Fatal(err)
			}
		}
		g.spawn(victim)
		g.submit(50)
		g.complete(g.next)
		g.close()
	})
}

// TestGangRestartsManyTimes cancels rounds again and again: nothing old may disturb the next epoch.
func TestGangRestartsManyTimes(t *testing.T) {
	gangs(t, patience, func(t *testing.T, g *gang) {
		for range 30 {
			from := g.next
			g.submit(1 << 12)
			g.complete(from + 3)
			g.tell(actors.Envelope{Kind: actors.Cancel})
			if e := g.failed(); e.Fault != actors.Cancelled {
				g.fatal("want the rounds cancelled", e)
			}
		}
		g.submit(50)
		g.complete(g.next)
		g.close()
	})
}

// BenchmarkGangRound reports the mail of a whole gang: one round, 2x2 ranks, devices and links that
// take no time, so all of it is machines, mailboxes and links.
func BenchmarkGangRound(b *testing.B) {
	g := newGang(b, mesh.Mesh{Head: 2, Ring: 2}, patience, 0)
	g.submit(100)
	g.complete(100)
	ops := 0
	for _, scripts := range g.book.Scripts {
		for _, s := range scripts {
			ops += len(s.Program.Ops)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	g.submit(int32(b.N))
	g.complete(g.next)
	b.ReportMetric(float64(ops)/2*float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}
