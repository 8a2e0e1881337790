package sim

import (
	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/cudakern"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
)

// MailNanos is what an envelope takes inside a node: half of the ping-pong that was measured
// between two actors of a live gang. Between nodes the latency of their links comes on top.
const MailNanos actors.Time = 700

// jitterParts is how the weather of a seed is drawn: an op or a transfer takes up to one part in
// jitterParts longer than the model says.
const jitterParts = 20

// Modelled prices ops, transfers and mail on a modelled cluster, as plan.Cost does: it is Costs.
// The scheduler is on the node of rank 0.
//
// A seed other than 0 is weather: every op and transfer takes longer by its own share, drawn
// uniformly from [0, 5%) by (seed, rank, round, op) alone, so that one op's share does not
// depend on what came before. Seed 0 is calm.
//
// It remembers prices, so a Modelled belongs to one goroutine, and its book's programs must not
// change.
type Modelled struct {
	topology *plan.Topology
	book     *rank.Rounds
	seed     uint64
	known    [][]prices // by rank: one for each program it has had
}

// prices are the own-stream times of a program's ops on its rank, in calm weather.
type prices struct {
	program *plan.Program
	nanos   []int64
}

var _ Costs = (*Modelled)(nil)

// NewModelled makes the costs of a topology, which must have room for the ranks of the book.
func NewModelled(t *plan.Topology, book *rank.Rounds, ranks int, seed uint64) *Modelled {
	return &Modelled{topology: t, book: book, seed: seed, known: make([][]prices, ranks)}
}

// Noise is the part of the seed's weather that the world draws: mail takes up to twice its time.
func (m *Modelled) Noise() Noise {
	if m.seed == 0 {
		return Noise{}
	}
	return Noise{Mail: MailNanos}
}

// Op is the own-stream time of a device op.
func (m *Modelled) Op(r, round, op int32) actors.Time {
	s := m.book.Script(r, round)
	return actors.Time(m.windy(m.prices(s, r)[op], 'o', r, round, op))
}

// Transfer says what the send of src goes over and how long; see plan.Topology.
func (m *Modelled) Transfer(src, dst, round, op int32) (int, actors.Time, actors.Time) {
	if op < 0 {
		link, _, latency := m.topology.Transfer(nil, nil, -1, int(src), int(dst))
		return link, 0, actors.Time(latency)
	}
	s := m.book.Script(src, round)
	link, occupy, latency := m.topology.Transfer(s.Header, s.Program, int(op), int(src), int(dst))
	return link, actors.Time(m.windy(occupy, 't', src, round, op)), actors.Time(latency)
}

// Mail is the delay of an envelope between two addresses.
func (m *Modelled) Mail(from, to actors.Addr) actors.Time {
	if from.Role == actors.Owner || to.Role == actors.Owner {
		return MailNanos // the session runs beside the scheduler
	}
	// An address without a rank, such as the scheduler's, has rank 0. What a link sends to another
	// rank crosses the link, whose latency the world adds itself.
	if from.Role == actors.Link || m.topology.Link(int(from.Rank), int(to.Rank)) == plan.LocalLink {
		return MailNanos
	}
	return MailNanos + actors.Time(m.topology.Remote.LatencyNanos)
}

// prices looks up, or works out, what a rank's program takes.
func (m *Modelled) prices(s *rank.Script, r int32) []int64 {
	for i := range m.known[r] {
		if p := &m.known[r][i]; p.program == s.Program {
			return p.nanos
		}
	}
	nanos := make([]int64, len(s.Program.Ops))
	for op := range nanos {
		if s.Program.Ops[op].Kind.Device() {
			nanos[op] = m.topology.OpNanos(s.Header, s.Program, op, int(r))
		}
	}
	m.known[r] = append(m.known[r], prices{s.Program, nanos})
	return nanos
}

// windy adds the seed's share to a time.
func (m *Modelled) windy(nanos int64, what uint64, r, round, op int32) int64 {
	if m.seed == 0 || nanos == 0 {
		return nanos
	}
	draw := random{state: m.seed ^ what<<56 ^ uint64(uint32(r))<<40 ^ uint64(uint32(round))<<20}
	draw.state = draw.next() ^ uint64(uint32(op))
	share := draw.next() >> 44 // 20 bits
	most := nanos / jitterParts
	return nanos + most>>20*int64(share) + (most&(1<<20-1))*int64(share)>>20
}

// Work is what the model gives a rank to do in a round, in calm weather.
type Work struct {
	Compute actors.Time // own time of the compute stream: the arithmetic
	Device  actors.Time // own time of all streams
	Links   actors.Time // that its sends occupy links, and their latencies
}

// Work adds up a rank's round. Nothing overlaps and nothing waits in these sums.
func (m *Modelled) Work(r, round int32) Work {
	s := m.book.Script(r, round)
	nanos := m.prices(s, r)
	var w Work
	for op := range s.Program.Ops {
		switch k := s.Program.Ops[op].Kind; {
		case k == plan.Send:
			peer := int(s.Program.Ops[op].Peer)
			_, occupy, latency := m.topology.Transfer(s.Header, s.Program, op, int(r), peer)
			w.Links += actors.Time(occupy + latency)
		case k.Device():
			w.Device += actors.Time(nanos[op])
			if rank.StreamOf(k) == cudakern.Compute {
				w.Compute += actors.Time(nanos[op])
			}
		}
	}
	return w
}
