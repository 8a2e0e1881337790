package integration

import (
	"testing"

	"github.com/kvloom/kvloom/cudakern/cpu"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
	"github.com/kvloom/kvloom/ringbus"
	"github.com/kvloom/kvloom/sim"
	"github.com/kvloom/kvloom/transport"

	kvloom "github.com/kvloom/kvloom"
)

// ranksPerNode is the size of the nodes in the tests of placement.
const ranksPerNode = 8

// nodeMeter counts the bytes that stay inside a node and those that leave it, by traffic and, of KV
// hops, by whether they leave their inner window.
type nodeMeter struct {
	transport.Mover
	book   *rank.Rounds
	mesh   mesh.Mesh
	inner  int
	inside [plan.NumClasses]int64
	leave  [plan.NumClasses]int64
	// inner hops of KV and dKV that leave their node
	innerLeave int64
	innerBytes int64
}

func (m *nodeMeter) Hop(src, dst, round, sendOp, recvOp int32) (int64, error) {
	n, err := m.Mover.Hop(src, dst, round, sendOp, recvOp)
	s := m.book.Script(src, round)
	class := plan.ClassOf(s.Program.Pass, s.Program.Ops[sendOp].Lane)
	out := src/ranksPerNode != dst/ranksPerNode
	if out {
		m.leave[class] += n
	} else {
		m.inside[class] += n
	}
	a, b := m.mesh.Coord(int(src)), m.mesh.Coord(int(dst))
	ring := class == plan.KVForward || class == plan.KVBackward || class == plan.DKVHops
	if ring && a.C/m.inner == b.C/m.inner {
		m.innerBytes += n
		if out {
			m.innerLeave += n
		}
	}
	return n, err
}

// placed runs a forward and a backward round in virtual time and counts at the links.
func placed(t *testing.T, m mesh.Mesh, inner int) *nodeMeter {
	t.Helper()
	p := problem{mesh: m, tokens: 4 * m.Ranks(), heads: 8, kvHeads: 8, dim: 8,
		ring: ringbus.Ring{Inner: inner}}
	c := config[float32](p)
	pl, err := c.Plan(0)
	if err != nil {
		t.Fatal(err)
	}
	b := bookOf(t, pl, rank.Entry{Pass: plan.Forward}, rank.Entry{Pass: plan.Backward})
	store := cpu.New[float32](storeBook{b}, m.Ranks(), cpu.Options{})
	defer store.Close()
	if err := kvloom.LoadShards(store, pl, 0, inputs[float32](p)); err != nil {
		t.Fatal(err)
	}
	count := &nodeMeter{Mover: store, book: b, mesh: m, inner: inner}
	w := sim.New(sim.Config{Ranks: m.Ranks(), Book: b, Exec: store, Mover: count,
		Costs: evenCosts{ranks: m.Ranks()}})
	if _, err := w.Run(2); err != nil {
		t.Fatal(err)
	}
	return count
}

// TestPlacementKeepsTrafficInNodes: with 8 ranks a node, head-first keeps all bytes of the
// exchanges inside nodes and context-first all inner hops of the rings. Each placement does not do
// what the other does.
func TestPlacementKeepsTrafficInNodes(t *testing.T) {
	for _, h := range []int{2, 4, 8} {
		head := placed(t, mesh.Mesh{Head: h, Ring: 16}, 4)
		for _, c := range []plan.Class{plan.A2AForward, plan.A2ABackward} {
			if head.leave[c] != 0 || head.inside[c] == 0 {
				t.Errorf("head-first %dx16: %d bytes of %v leave their node, %d stay", h,
					head.leave[c],
					c, head.inside[c])
			}
		}
		context := placed(t, mesh.Mesh{Head: h, Ring: 16, Placement: mesh.ContextFirst}, 4)
		if context.innerLeave != 0 || context.innerBytes == 0 {
			t.Errorf("context-first %dx16: %d of %d bytes of inner hops leave their node", h,
				context.innerLeave, context.innerBytes)
		}
		if context.leave[plan.A2AForward] == 0 {
			t.Errorf("context-first %dx16: no exchange leaves a node: the test shows nothing", h)
		}
		if h > 2 && head.innerLeave == 0 {
			t.Errorf("head-first %dx16: no inner hop leaves a node: the test shows nothing", h)
		}
	}
}
