package plan

import (
	"fmt"
	"math"

	"github.com/kvloom/kvloom/mesh"
)

// Topology is a modelled cluster: nodes of equal size, devices of equal speed but for the ranks
// named, and two kinds of links. Rank r is on node r / RanksPerNode.
//
//	node 0 [r0 r1 r2 r3]   node 1 [r4 r5 r6 r7]     r0 -> r3 local, r0 -> r4 remote
//
// Each ordered pair of ranks has a link of its own, which carries one message at a time, in order.
// A message occupies it for bytes / BytesPerS; the latency is added after that and occupies
// nothing. Cost and the simulator price with the same methods.
type Topology struct {
	Nodes        int
	RanksPerNode int
	Flops        float64 // of a device, FLOP/s
	Memory       float64 // of a device, bytes/s; 0: moving memory takes no time
	Local        LinkModel
	Remote       LinkModel
	Ranks        map[int]RankModel // devices that differ, by rank
}

// LinkModel is one kind of link.
type LinkModel struct {
	BytesPerS    float64
	LatencyNanos int64
}

// RankModel is how one rank's device differs: it takes 1/Speed of the usual time for any op.
type RankModel struct{ Speed float64 }

// LinkKind says whether a link stays inside a node.
type LinkKind uint8

// The kinds of links.
const (
	LocalLink LinkKind = iota
	RemoteLink
	NumLinkKinds
)

// String is the kind's name in JSON and in topology files.
func (k LinkKind) String() string {
	if k == RemoteLink {
		return "remote"
	}
	return "local"
}

// Limits of a topology. An op or a transfer is said to take at most MaxOpNanos.
const (
	MaxLatencyNanos = int64(60e9)
	MaxOpNanos      = int64(1) << 53
	maxRate         = 1e24 // FLOP/s or bytes/s
)

// Validate refuses what cannot be a cluster; the error names the field as topology files spell it,
// its value and what would work.
func (t *Topology) Validate() error {
	switch {
	case t.Nodes < 1 || t.Nodes > mesh.MaxRanks:
		return fmt.Errorf("nodes %d: use 1 to %d", t.Nodes, mesh.MaxRanks)
	case t.RanksPerNode < 1 || t.RanksPerNode > mesh.MaxRanks/t.Nodes:
		return fmt.Errorf("ranks_per_node %d: use 1 to %d, at most %d ranks on %d nodes",
			t.RanksPerNode, mesh.MaxRanks/t.Nodes, mesh.MaxRanks, t.Nodes)
	case !isRate(t.Flops):
		return fmt.Errorf("flops %v: use a device's FLOP/s from 1 to %g, such as 1e15", t.Flops,
			maxRate)
	case t.Memory != 0 && !isRate(t.Memory):
		return fmt.Errorf("memory %v: use a device's bytes/s from 1 to %g, such as 3e12, or leave "+
			"it out", t.Memory, maxRate)
	}
	for _, x := range []struct {
		kind LinkKind
		link LinkModel
		like string
	}{{LocalLink, t.Local, "4e11"}, {RemoteLink, t.Remote, "5e10"}} {
		switch {
		case !isRate(x.link.BytesPerS):
			return fmt.Errorf("%v.bytes_per_s %v: use 1 to %g, such as %s", x.kind,
				x.link.BytesPerS, maxRate, x.like)
		case x.link.LatencyNanos < 0 || x.link.LatencyNanos > MaxLatencyNanos:
			return fmt.Errorf("%v.latency of %d ns: use 0 to %d, such as 2000", x.kind,
				x.link.LatencyNanos, MaxLatencyNanos)
		}
	}
	return t.validateRanks()
}

func isRate(x float64) bool { return x >= 1 && x <= maxRate }

// validateRanks names the lowest rank that is wrong, whatever the order of the map.
func (t *Topology) validateRanks() error {
	bad, found := 0, false
	for r, m := range t.Ranks {
		inside := r >= 0 && r < t.Nodes*t.RanksPerNode
		if (!inside || m.Speed < 1e-6 || m.Speed > 1e6 || math.IsNaN(m.Speed)) &&
			(!found || r < bad) {
			bad, found = r, true
		}
	}
	switch {
	case !found:
		return nil
	case bad < 0 || bad >= t.Nodes*t.RanksPerNode:
		return fmt.Errorf("ranks.%d: there are ranks 0 to %d, %d nodes of %d", bad,
			t.Nodes*t.RanksPerNode-1, t.Nodes, t.RanksPerNode)
	}
	return fmt.Errorf("ranks.%d.speed %v: use 1e-6 to 1e6, where 1 is as fast as the others", bad,
		t.Ranks[bad].Speed)
}

// Fits refuses a plan of more ranks than the cluster has.
func (t *Topology) Fits(ranks int) error {
	if have := t.Nodes * t.RanksPerNode; ranks > have {
		return fmt.Errorf("nodes %d of ranks_per_node %d are %d ranks, the mesh has %d: use at "+
			"least %d nodes, or a smaller mesh", t.Nodes, t.RanksPerNode, have, ranks,
			(ranks+t.RanksPerNode-1)/t.RanksPerNode)
	}
	return nil
}

// Link is the kind of the link from one rank to another.
func (t *Topology) Link(src, dst int) LinkKind {
	if src/t.RanksPerNode == dst/t.RanksPerNode {
		return LocalLink
	}
	return RemoteLink
}

// LinkID numbers the link from src to dst.
func (t *Topology) LinkID(src, dst int) int { return src*t.Nodes*t.RanksPerNode + dst }

// OpNanos is the own-stream time of op number op of p on rank's device, to the nearest nanosecond:
// an attend's FLOPs over the device's, for other device ops the bytes that they read and write
// over the memory's rate. Transfers and releases take none here.
func (t *Topology) OpNanos(h *Header, p *Program, op, rank int) int64 {
	return t.opNanos(h, p, op, rank, h.OpPairs(p, op))
}

// opNanos is OpNanos of an op whose pairs are known.
func (t *Topology) opNanos(h *Header, p *Program, op, rank int, pairs int64) int64 {
	k := p.Ops[op].Kind
	seconds := 0.0
	switch {
	case k == Attend || k == AttendBackward:
		seconds = float64(h.pairFlops(p.Pass, pairs)) / t.Flops
	case k.Device() && t.Memory > 0:
		seconds = float64(h.movedBytes(p, op)) / t.Memory
	}
	if m, ok := t.Ranks[rank]; ok {
		seconds /= m.Speed
	}
	return nanosOf(seconds)
}

// movedBytes is what an op reads and writes; adding to a region does both.
func (h *Header) movedBytes(p *Program, op int) int64 {
	n := int64(0)
	args := p.Args(op)
	for i := range args {
		b := h.OperandBytes(&args[i])
		if args[i].Access == Add {
			b *= 2
		}
		n += b
	}
	return n
}

// Transfer prices the send number op of p from src to dst: the link's number, how long the block
// occupies it, and the latency after that. With op -1 it is a word without payload, such as a
// credit: it occupies nothing.
func (t *Topology) Transfer(h *Header, p *Program, op, src, dst int) (
	link int, occupyNanos, latencyNanos int64,
) {
	m := &t.Local
	if t.Link(src, dst) == RemoteLink {
		m = &t.Remote
	}
	if op >= 0 {
		bytes := h.OperandBytes(&p.Args(op)[0])
		occupyNanos = nanosOf(float64(bytes) / m.BytesPerS)
	}
	return t.LinkID(src, dst), occupyNanos, m.LatencyNanos
}

func nanosOf(seconds float64) int64 {
	return int64(math.Round(min(seconds*1e9, float64(MaxOpNanos))))
}
