package sim_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
	"github.com/kvloom/kvloom/sim"
)

// cluster is nodes of so many ranks, with a device of 1 TFLOP/s each.
func cluster(perNode, nodes int) *plan.Topology {
	return &plan.Topology{
		Nodes: nodes, RanksPerNode: perNode, Flops: 1e12, Memory: 1e12,
		Local:  plan.LinkModel{BytesPerS: 1e11, LatencyNanos: 1000},
		Remote: plan.LinkModel{BytesPerS: 1e10, LatencyNanos: 5000},
	}
}

// modelled is a world on a cluster of two nodes.
func modelled(t testing.TB, m mesh.Mesh, tokens int, seed uint64) (*sim.Modelled, sim.Config) {
	t.Helper()
	b := book(t, spec(m, tokens), plan.Forward, plan.Backward)
	costs := sim.NewModelled(cluster((m.Ranks()+1)/2, 2), b, m.Ranks(), seed)
	return costs, sim.Config{
		Ranks: m.Ranks(), Book: b, Costs: costs, Noise: costs.Noise(), Seed: seed,
	}
}

// TestModelledPrices: what the world is told is what the topology says, in calm weather exactly, in
// another up to a twentieth more; and prices do not depend on what was asked before.
func TestModelledPrices(t *testing.T) {
	m := mesh.Mesh{Head: 2, Ring: 3}
	for _, seed := range []uint64{0, 1, 2} {
		c, cfg := modelled(t, m, 100, seed)
		fresh, _ := modelled(t, m, 100, seed)
		topo, differ := cluster(3, 2), 0
		check := func(what string, got, again actors.Time, want int64) {
			t.Helper()
			w := actors.Time(want)
			if got < w || got > w+w/20 || got != again || (seed == 0 && got != w) {
				t.Errorf("seed %d, %s: %d ns, again %d, the topology says %d", seed, what, got,
					again, want)
			}
			if int64(got) != want {
				differ++
			}
		}
		for round := range int32(2) {
			for r := int32(m.Ranks()) - 1; r >= 0; r-- {
				s := cfg.Book.Script(r, round)
				for op := range s.Program.Ops {
					k, i, peer := s.Program.Ops[op].Kind, int32(op), s.Program.Ops[op].Peer
					if k.Device() {
						check(s.Describe(i), c.Op(r, round, i), fresh.Op(r, round, i),
							topo.OpNanos(s.Header, s.Program, op, int(r)))
					}
					if k != plan.Send {
						continue
					}
					id, took, late := topo.Transfer(s.Header, s.Program, op, int(r), int(peer))
					link, occupy, latency := c.Transfer(r, peer, round, i)
					_, again, _ := fresh.Transfer(r, peer, round, i)
					check(s.Describe(i), occupy, again, took)
					if link != id || int64(latency) != late {
						t.Errorf("%s: link %d latency %d, want %d, %d", s.Describe(i), link,
							latency, id, late)
					}
				}
			}
		}
		if _, occupy, latency := c.Transfer(0, 5, 0, -1); occupy != 0 || latency != 5000 {
			t.Errorf("a credit takes %d and %d ns", occupy, latency)
		}
		if (seed == 0) != (differ == 0) {
			t.Errorf("seed %d: %d prices are not the topology's", seed, differ)
		}
	}
}

// TestModelledMail: mail takes its time in a node, and the latency between nodes on top; what
// crosses a link is given that latency by the link.
func TestModelledMail(t *testing.T) {
	c, _ := modelled(t, mesh.Mesh{Head: 1, Ring: 4}, 64, 0)
	at := func(role actors.Role, r int32) actors.Addr { return actors.Addr{Role: role, Rank: r} }
	const far = sim.MailNanos + 5000
	for _, x := range []struct {
		from, to actors.Addr
		want     actors.Time
	}{
		{at(actors.Rank, 3), at(actors.Device, 3), sim.MailNanos},
		{at(actors.Device, 3), at(actors.Rank, 3), sim.MailNanos},
		{at(actors.Rank, 3), at(actors.Link, 3), sim.MailNanos},
		{at(actors.Link, 0), at(actors.Rank, 3), sim.MailNanos},
		{at(actors.Rank, 1), at(actors.Scheduler, 0), sim.MailNanos},
		{at(actors.Rank, 3), at(actors.Scheduler, 0), far},
		{at(actors.Scheduler, 0), at(actors.Rank, 3), far},
		{at(actors.Scheduler, 0), at(actors.Owner, 0), sim.MailNanos},
	} {
		if got := c.Mail(x.from, x.to); got != x.want {
			t.Errorf("%v to %v: %d ns, want %d", x.from, x.to, got, x.want)
		}
	}
}

// TestWork: the sums are those of the ops, and the world's own account agrees: in calm weather a
// rank's compute stream takes what the model gives it, and no run is shorter than the arithmetic.
func TestWork(t *testing.T) {
	for _, seed := range []uint64{0, 7} {
		c, cfg := modelled(t, mesh.Mesh{Head: 2, Ring: 4}, 1024, seed)
		w := sim.New(cfg)
		res, err := w.Run(2)
		if err != nil {
			t.Fatal(err)
		}
		for r := range int32(8) {
			ideal := actors.Time(0)
			for round := range int32(2) {
				work := c.Work(r, round)
				ideal += work.Compute
				if work.Device <= work.Compute || work.Links <= 0 {
					t.Errorf("rank %d round %d: %+v", r, round, work)
				}
			}
			took := w.ComputeNanos(int(r))
			if took < ideal || took > ideal+ideal/20 || (seed == 0) != (took == ideal) {
				t.Errorf("seed %d rank %d: compute %d ns, the model says %d", seed, r, took, ideal)
			}
			if res.Nanos() < took {
				t.Errorf("seed %d: the run takes %d ns, rank %d's arithmetic %d", seed, res.Nanos(),
					r, took)
			}
		}
	}
}

// TestWeather: the same seed gives the same hash, another one another; calm weather is its own.
func TestWeather(t *testing.T) {
	hashes := map[uint64]uint64{}
	for _, seed := range []uint64{0, 1, 2, 1 << 63} {
		for turn := range 2 {
			_, cfg := modelled(t, mesh.Mesh{Head: 2, Ring: 3}, 96, seed)
			res := run(t, cfg, 2)
			if other, ok := hashes[res.TraceHash]; ok && (turn == 0 || other != seed) {
				t.Errorf("seeds %d and %d have the hash %x", seed, other, res.TraceHash)
			} else if !ok && turn == 1 {
				t.Errorf("seed %d run again has another hash, %x", seed, res.TraceHash)
			}
			hashes[res.TraceHash] = seed
		}
	}
}

// TestSpans: each device op and each send is told of once, when it begins; spans of a stream and of
// a link do not overlap, and telling changes nothing.
func TestSpans(t *testing.T) {
	for _, seed := range []uint64{0, 5} {
		_, cfg := modelled(t, mesh.Mesh{Head: 2, Ring: 3}, 500, seed)
		bare := run(t, cfg, 2)
		free, seen := map[string]actors.Time{}, map[string]int{}
		waited := false
		cfg.Spans = func(x sim.Span) {
			track := fmt.Sprintf("rank %d stream %d", x.Rank, x.Stream)
			if x.Stream == sim.OnLink {
				track = fmt.Sprintf("link %d", x.Link)
				waited = waited || x.Begin > x.Asked
			}
			if x.Begin < free[track] || x.Asked > x.Begin || x.Begin > x.End || x.End > x.Over {
				t.Errorf("%s is busy until %d: %+v", track, free[track], x)
			}
			free[track] = x.End
			s := cfg.Book.Script(x.Rank, x.Round)
			k := s.Program.Ops[x.Op].Kind
			seen[fmt.Sprint(x.Round, x.Rank, " ", x.Op)]++
			switch {
			case k == plan.Send:
				if x.Stream != sim.OnLink || x.Peer != s.Program.Ops[x.Op].Peer || x.Over == x.End {
					t.Errorf("a block: %+v", x)
				}
			case x.Stream != rank.StreamOf(k) || x.Peer != -1 || x.Over != x.End:
				t.Errorf("an op: %+v", x)
			}
		}
		told := run(t, cfg, 2)
		if bare.TraceHash != told.TraceHash || !waited {
			t.Errorf("hash %x became %x when spans were told; a block waited: %v", bare.TraceHash,
				told.TraceHash, waited)
		}
		for round := range int32(2) {
			for r := range int32(6) {
				ops := cfg.Book.Script(r, round).Program.Ops
				for op := range ops {
					want := 0
					if k := ops[op].Kind; k.Device() || k == plan.Send {
						want = 1
					}
					if n := seen[fmt.Sprint(round, r, " ", op)]; n != want {
						t.Errorf("round %d rank %d op %d is told of %d times, want %d", round, r,
							op, n, want)
					}
				}
			}
		}
	}
}

// TestStopAndProgress: every rank's every round is told of; a run that is told to stop ends with
// that error.
func TestStopAndProgress(t *testing.T) {
	_, cfg := modelled(t, mesh.Mesh{Head: 2, Ring: 8}, 64, 0)
	told := 0
	cfg.Progress = func(r, round int32) {
		if r < 0 || r >= 16 || round < 0 || round >= 2 {
			t.Errorf("rank %d round %d", r, round)
		}
		told++
	}
	run(t, cfg, 2)
	if told != 32 {
		t.Errorf("%d ends of rounds, want 32", told)
	}
	enough := errors.New("enough")
	for _, after := range []int{0, 1} {
		asked := 0
		cfg.Stop = func() error {
			if asked++; asked > after {
				return enough
			}
			return nil
		}
		res, err := sim.New(cfg).Run(2)
		if !errors.Is(err, enough) || res.Events != int64(after)<<12 {
			t.Errorf("stopped after %d looks: %v, %d events", after, err, res.Events)
		}
	}
}
