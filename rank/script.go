package rank

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvloom/kvloom/cudakern"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/transport"
)

// Script is a program made ready to run: who waits for whom turned round, lanes in order, headers
// of the blocks. It is immutable and shared by all rounds of the program.
type Script struct {
	Header  *plan.Header
	Program *plan.Program
	Plan    uint64 // short plan hash
	Name    uint64 // of the program and all that it refers to

	waits   []int32 // dependencies of each op
	succ0   []int32 // successors of op i: succ[succ0[i]:succ0[i+1]]
	succ    []int32
	lanes   []lane
	laneOf  []int32 // by op: index into lanes, -1 if it is no transfer
	headers []transport.Header
	headOf  []int32 // by op: index into headers
}

// lane is the transfers of one direction with one peer on one lane, in rising tick order.
type lane struct {
	peer, number int32
	send         bool
	ops          []int32
}

// StreamOf is the stream on which a kind of device op runs: arithmetic on compute, what came from
// elsewhere on in, what goes elsewhere on out.
func StreamOf(k plan.Kind) uint8 {
	switch k {
	case plan.Pack:
		return cudakern.Out
	case plan.Unpack, plan.Accumulate:
		return cudakern.In
	}
	return cudakern.Compute
}

// Compile readies a program of a plan whose short hash is planHash.
func Compile(h *plan.Header, p *plan.Program, planHash uint64) (*Script, error) {
	s := &Script{Header: h, Program: p, Plan: planHash}
	n := len(p.Ops)
	s.waits = make([]int32, n)
	s.succ0 = make([]int32, n+1)
	s.laneOf = make([]int32, n)
	s.headOf = make([]int32, n)
	for i := range p.Ops {
		s.laneOf[i], s.headOf[i] = -1, -1
		for _, d := range p.Deps(i) {
			if d < 0 || int(d) >= n {
				return nil, fmt.Errorf("rank %d: op %d waits for op %d, which is not in the "+
					"program of %d ops", p.Rank, i, d, n)
			}
			s.succ0[d+1]++
			s.waits[i]++
		}
	}
	for i := range n {
		s.succ0[i+1] += s.succ0[i]
	}
	s.succ = make([]int32, s.succ0[n])
	at := slices.Clone(s.succ0[:n])
	for i := range p.Ops {
		for _, d := range p.Deps(i) {
			s.succ[at[d]] = int32(i)
			at[d]++
		}
	}
	s.sortLanes()
	return s, nil
}

// sortLanes groups the transfers by (sends first, peer, lane number, tick).
func (s *Script) sortLanes() {
	var links []int32
	for i := range s.Program.Ops {
		if s.Program.Ops[i].Kind.Link() {
			links = append(links, int32(i))
			s.headOf[i] = int32(len(s.headers))
			s.headers = append(s.headers, s.headerOf(i))
		}
	}
	slices.SortStableFunc(links, func(a, b int32) int {
		x, y := s.key(a), s.key(b)
		return cmp.Or(x.compare(y), cmp.Compare(s.Program.Ops[a].Tick, s.Program.Ops[b].Tick))
	})
	for _, op := range links {
		k := s.key(op)
		if n := len(s.lanes); n == 0 || s.lanes[n-1].compare(k) != 0 {
			s.lanes = append(s.lanes, k)
		}
		l := len(s.lanes) - 1
		s.lanes[l].ops = append(s.lanes[l].ops, op)
		s.laneOf[op] = int32(l)
	}
}

// key is the lane of a transfer, without its ops.
func (s *Script) key(op int32) lane {
	o := &s.Program.Ops[op]
	return lane{peer: o.Peer, number: o.Lane, send: o.Kind == plan.Send}
}

func (l lane) compare(o lane) int {
	if l.send != o.send {
		if l.send {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(l.peer, o.peer), cmp.Compare(l.number, o.number))
}

// sendLane finds the lane of sends to a peer.
func (s *Script) sendLane(peer, number int32) (int32, bool) {
	want := lane{peer: peer, number: number, send: true}
	i, ok := slices.BinarySearchFunc(s.lanes, want, lane.compare)
	return int32(i), ok
}

// headerOf is the part of op i's block header that the program knows; epoch and round come later.
func (s *Script) headerOf(i int) transport.Header {
	op, a := &s.Program.Ops[i], s.Program.Args(i)[0]
	return transport.Header{
		Lane: op.Lane, Tick: op.Tick, Tensor: uint8(a.Tensor), HeadLo: a.Heads.Lo,
		HeadHi: a.Heads.Hi, SetHash: s.Header.SetHash(a.Set), Plan: s.Plan,
	}
}

// Sends tells whether an op is a send.
func (s *Script) Sends(op int32) bool { return s.Program.Ops[op].Kind == plan.Send }

// Describe is the text of an op in an error.
func (s *Script) Describe(op int32) string {
	if op < 0 || int(op) >= len(s.Program.Ops) {
		return "no op"
	}
	return string(s.Program.AppendOp(nil, s.Header, int(op)))
}

// Book is what a rank knows of its rounds; the composition root fills it before rounds are
// submitted. It must give the same answer for a round until the round is over on all ranks.
type Book interface {
	// Script is the rank's program of a round, or nil if the round is unknown.
	Script(rank, round int32) *Script
	// State is what the round runs on: a layer's micro-batch.
	State(round int32) int32
	// Holds names all that the rank holds for the rounds from <= r < to.
	Holds(rank, from, to int32) uint64
}
