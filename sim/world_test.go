package sim_test

import (
	"testing"

	"github.com/kvloom/kvloom/actors"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/headshuffle"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/rank"
	"github.com/kvloom/kvloom/ringbus"
	"github.com/kvloom/kvloom/sim"
)

// step is the time of one ring step's compute: the unit of all times here.
const step = actors.Time(1_000_000)

// costs are in units of a step; a KV or dKV hop takes kv or dkv, an exchange piece piece.
type costs struct {
	book              *rank.Rounds
	ranks             int
	kv, dkv, piece    float64
	attend, acc, mail float64
	latency           float64
	port, oneLink     bool // one port a rank; kv and dkv share a link
}

func (c costs) Op(r, round, op int32) actors.Time {
	switch c.book.Script(r, round).Program.Ops[op].Kind {
	case plan.Attend, plan.AttendBackward:
		return units(c.attend)
	case plan.Accumulate:
		return units(c.acc)
	}
	return 0
}

func (c costs) Transfer(src, dst, round, op int32) (int, actors.Time, actors.Time) {
	if op < 0 {
		return 0, 0, units(c.latency)
	}
	o := c.book.Script(src, round).Program.Ops[op]
	link, took := int(src)*c.ranks+int(dst), c.piece
	if c.port {
		link = int(src)
	}
	switch o.Lane {
	case plan.LaneKV:
		took = c.kv
	case plan.LaneDKV:
		took = c.dkv
		if !c.oneLink {
			link += c.ranks * c.ranks
		}
	}
	return link, units(took), units(c.latency)
}

func (c costs) Mail(_, _ actors.Addr) actors.Time { return units(c.mail) }

func units(x float64) actors.Time { return actors.Time(x * float64(step)) }

func spec(m mesh.Mesh, tokens int) plan.Spec {
	return plan.Spec{
		Shape: plan.Shape{
			QTokens: tokens, KTokens: tokens, QHeads: 8, KHeads: 8, Dim: 8, VDim: 8, ElemBytes: 4,
			AccBytes: 4, Scale: 1, Mask: attn.Causal(tokens, tokens),
		},
		Mesh: m, Ring: ringbus.Ring{}, Heads: headshuffle.AllToAll{},
	}
}

func book(t testing.TB, s plan.Spec, passes ...plan.Pass) *rank.Rounds {
	t.Helper()
	p, err := plan.New(s)
	if err != nil {
		t.Fatal(err)
	}
	hash, err := p.Hash()
	if err != nil {
		t.Fatal(err)
	}
	return bookOf(t, p, hash, passes...)
}

func bookOf(t testing.TB, src plan.Source, hash plan.Hash, passes ...plan.Pass) *rank.Rounds {
	t.Helper()
	c, err := rank.CompilePlan(src, nil, func([]plan.Hash) plan.Hash { return hash })
	if err != nil {
		t.Fatal(err)
	}
	b := &rank.Rounds{}
	for _, pass := range passes {
		b.Entries = append(b.Entries, rank.Entry{Plan: c, Pass: pass})
	}
	return b
}

func run(t testing.TB, cfg sim.Config, rounds int) sim.Result {
	t.Helper()
	res, err := sim.New(cfg).Run(rounds)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range res.Violations {
		t.Error(v)
	}
	return res
}
