package headshuffle_test

import (
	"fmt"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/headshuffle"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/ringbus"
	"pgregory.net/rapid"
)

// groupPlan is a plan with all its programs.
type groupPlan struct {
	spec  plan.Spec
	hdr   *plan.Header
	progs [2][]*plan.Program // by pass and rank
}

func newPlan(t testing.TB, m mesh.Mesh, tokens, q, kv int) *groupPlan {
	t.Helper()
	p, err := plan.New(plan.Spec{
		Shape: plan.Shape{
			QTokens: tokens, KTokens: tokens, QHeads: q, KHeads: kv, Dim: 8, VDim: 4, ElemBytes: 2,
			AccBytes: 4, Scale: 1, Mask: attn.Causal(tokens, tokens),
		},
		Mesh: m, Ring: ringbus.Ring{}, Heads: headshuffle.AllToAll{},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &groupPlan{spec: p.Spec(), hdr: p.Header()}
	for _, pass := range p.Passes() {
		for g := range m.Ranks() {
			prog, err := p.Program(pass, g)
			if err != nil {
				t.Fatal(err)
			}
			r.progs[pass] = append(r.progs[pass], prog)
		}
	}
	return r
}

func drawPlan(t *rapid.T, tb testing.TB) *groupPlan {
	m := mesh.Mesh{
		Head:      rapid.IntRange(1, 6).Draw(t, "H"),
		Ring:      rapid.IntRange(1, 4).Draw(t, "C"),
		Placement: mesh.Placement(rapid.IntRange(0, 1).Draw(t, "placement")),
	}
	kv := rapid.IntRange(1, 5).Draw(t, "kv")
	q := kv * rapid.IntRange((m.Head+kv-1)/kv, 7).Draw(t, "group")
	return newPlan(tb, m, rapid.IntRange(1, 60).Draw(t, "S"), q, kv)
}

// home is the token set at home on head rank h of ring shard c.
func (r *groupPlan) home(h, c int) plan.SetID {
	return r.hdr.HomeQ[r.spec.Mesh.Rank(mesh.Coord{H: h, C: c})]
}

// heads is what head rank h holds of a tensor's heads.
func (r *groupPlan) heads(t plan.Tensor, h int) mesh.Heads {
	q, kv := mesh.SplitHeads(r.spec.Shape.QHeads, r.spec.Shape.KHeads, r.spec.Mesh.Head, h)
	if t == plan.KV || t == plan.DKV {
		return kv
	}
	return q
}

func (r *groupPlan) rows(s plan.SetID) int { return r.hdr.Sets[s].Len() }

// exchanged lists the tensors that a pass exchanges, each with its lane and direction.
type exchanged struct {
	tensor  plan.Tensor
	lane    int32
	toShard bool
}

func exchanges(pass int) []exchanged {
	if pass == 0 {
		return []exchanged{{plan.KV, plan.LanePieces, true}, {plan.Q, plan.LanePiecesQ, true},
			{plan.Out, plan.LanePiecesQ, false}}
	}
	return []exchanged{{plan.DO, plan.LanePiecesQ, true}, {plan.DKV, plan.LanePieces, false},
		{plan.DQ, plan.LanePiecesQ, false}}
}

// pieces lists the sends or receives of an exchange on one rank: op numbers by peer's head rank,
// -1 where there is none.
func (r *groupPlan) pieces(t *rapid.T, p *plan.Program, x exchanged, k plan.Kind) []int {
	out := make([]int, r.spec.Mesh.Head)
	for h := range out {
		out[h] = -1
	}
	at := r.spec.Mesh.Coord(p.Rank)
	for i := range p.Ops {
		if op := &p.Ops[i]; op.Kind == k && op.Lane == x.lane && p.Args(i)[0].Tensor == x.tensor {
			peer := r.spec.Mesh.Coord(int(op.Peer))
			if peer.C != at.C || peer.H == at.H || out[peer.H] >= 0 {
				t.Fatalf("rank %d at %+v: %s: a piece for the wrong rank, or twice", p.Rank, at,
					p.AppendOp(nil, r.hdr, i))
			}
			out[peer.H] = i
		}
	}
	return out
}

// TestPieces: in each exchange a rank gives every peer of its head group one piece and gets one:
// towards the shard its own tokens and the peer's heads, on the way home the peer's tokens and
// its own heads. Where that has no tokens, nothing is sent. There are no other pieces.
func TestPieces(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := drawPlan(rt, t)
		for pass := range r.progs {
			for g, p := range r.progs[pass] {
				at := r.spec.Mesh.Coord(g)
				left := 0
				for i := range p.Ops {
					if lane := p.Ops[i].Lane; p.Ops[i].Kind.Link() &&
						(lane == plan.LanePieces || lane == plan.LanePiecesQ) {
						left++
					}
				}
				for _, x := range exchanges(pass) {
					left -= r.checkPieces(rt, p, x, at)
				}
				if left != 0 {
					rt.Fatalf("%v rank %d moves %d pieces too many", p.Pass, g, left)
				}
			}
		}
	})
}

func (r *groupPlan) checkPieces(t *rapid.T, p *plan.Program, x exchanged, at mesh.Coord) (n int) {
	sent, came := r.pieces(t, p, x, plan.Send), r.pieces(t, p, x, plan.Recv)
	for peer := range r.spec.Mesh.Head {
		if peer == at.H {
			continue
		}
		mine, theirs := [2]int{at.H, peer}, [2]int{peer, at.H} // whose tokens, whose heads
		if !x.toShard {
			mine, theirs = theirs, mine
		}
		n += r.checkPiece(t, p, x, sent[peer], mine, at.C)
		n += r.checkPiece(t, p, x, came[peer], theirs, at.C)
	}
	return n
}

func (r *groupPlan) checkPiece(t *rapid.T, p *plan.Program, x exchanged, op int, of [2]int,
	c int) int {
	set, heads := r.home(of[0], c), r.heads(x.tensor, of[1])
	if r.rows(set) == 0 {
		if op >= 0 {
			t.Fatalf("%v rank %d: %s has no tokens", p.Pass, p.Rank, p.AppendOp(nil, r.hdr, op))
		}
		return 0
	}
	if op < 0 {
		t.Fatalf("%v rank %d: the piece of %v, tokens of head rank %d, heads of %d, is missing",
			p.Pass, p.Rank, x.tensor, of[0], of[1])
	}
	a := p.Args(op)[0]
	if a.Set != set || a.Heads != heads {
		t.Fatalf("%v rank %d: %s: want tokens %s, heads %v", p.Pass, p.Rank,
			p.AppendOp(nil, r.hdr, op), r.hdr.Names[set], heads)
	}
	return 1
}

// TestPieceCounts: H-1 pieces each way per block when every home has tokens, none when H = 1.
func TestPieceCounts(t *testing.T) {
	for head := 1; head <= 6; head++ {
		for _, c := range []int{1, 3} {
			r := newPlan(t, mesh.Mesh{Head: head, Ring: c}, 97, 6, 3)
			for pass := range r.progs {
				for g, p := range r.progs[pass] {
					got := map[plan.Tensor][2]int{} // sends, receives
					for i := range p.Ops {
						if op := &p.Ops[i]; op.Kind.Link() && op.Lane >= plan.LanePieces {
							x := p.Args(i)[0].Tensor
							n := got[x]
							n[int(op.Kind-plan.Send)]++
							got[x] = n
						}
					}
					want := [2]int{head - 1, head - 1}
					for _, x := range exchanges(pass) {
						if got[x.tensor] != want {
							t.Errorf("%dx%d %v rank %d: %v of %v went and came, want %v", head, c,
								p.Pass, g, got[x.tensor], x.tensor, want)
						}
						delete(got, x.tensor)
					}
					if len(got) > 0 {
						t.Errorf("%dx%d %v rank %d: other pieces %v", head, c, p.Pass, g, got)
					}
				}
			}
		}
	}
}

// TestUnpackInHeadRankOrder: one unpack a block, its sources in the order of head ranks, the own
// region in its place. On the way home dKV comes in overlapping heads, and the order is that of
// the sum of replicas.
func TestUnpackInHeadRankOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := drawPlan(rt, t)
		if r.spec.Mesh.Head == 1 {
			return
		}
		for pass := range r.progs {
			for _, p := range r.progs[pass] {
				for _, x := range exchanges(pass) {
					r.checkUnpack(rt, p, x, r.spec.Mesh.Coord(p.Rank))
				}
			}
		}
	})
}

func (r *groupPlan) checkUnpack(t *rapid.T, p *plan.Program, x exchanged, at mesh.Coord) {
	var want, got []string
	say := func(set plan.SetID, heads mesh.Heads) string {
		return fmt.Sprintf("%s %d:%d", r.hdr.Names[set], heads.Lo, heads.Hi)
	}
	for i := range r.spec.Mesh.Head {
		set, heads := r.home(i, at.C), r.heads(x.tensor, at.H)
		if !x.toShard {
			set, heads = r.home(at.H, at.C), r.heads(x.tensor, i)
		}
		if r.rows(set) > 0 {
			want = append(want, say(set, heads))
		}
	}
	for i := range p.Ops {
		a := p.Args(i)
		if p.Ops[i].Kind != plan.Unpack || a[0].Tensor != x.tensor {
			continue
		}
		for _, src := range a[:len(a)-1] {
			got = append(got, say(src.Set, src.Heads))
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%v rank %d unpacks %v from %v, want %v", p.Pass, p.Rank, x.tensor, got, want)
	}
}

// TestReplicasAreSummed: 28/7 over 2: KV head 3 is on both head ranks, so each home sums two
// parts of its gradient, that of head rank 0 first.
func TestReplicasAreSummed(t *testing.T) {
	r := newPlan(t, mesh.Mesh{Head: 2, Ring: 1}, 8, 28, 7)
	want := []string{
		"unpack cdkv[c0.0 h0:4]@s%d cdkv[c0.0 h3:7]@s%d wdkv[c0.0 h0:7]@s%d",
		"unpack cdkv[c0.1 h0:4]@s%d cdkv[c0.1 h3:7]@s%d wdkv[c0.1 h0:7]@s%d",
	}
	for g, p := range r.progs[plan.Backward] {
		var got []string
		for i := range p.Ops {
			if a := p.Args(i); p.Ops[i].Kind == plan.Unpack && a[0].Tensor == plan.DKV {
				text := string(p.AppendOp(nil, r.hdr, i))
				line := fmt.Sprintf("%d "+want[g], i, a[0].Slot, a[1].Slot, a[2].Slot)
				if len(text) < len(line) || text[:len(line)] != line {
					t.Errorf("rank %d: %s, want %s", g, text, line)
				}
				got = append(got, text)
			}
		}
		if len(got) != 1 {
			t.Errorf("rank %d unpacks dkv in %d ops", g, len(got))
		}
	}
}

// TestEndsMatch: pieces pair up one to one by (source, destination, lane, tick), with the same
// tensor, tokens and heads at both ends; ticks in a lane are distinct.
func TestEndsMatch(t *testing.T) {
	type wire struct{ src, dst, lane, tick int32 }
	rapid.Check(t, func(rt *rapid.T) {
		r := drawPlan(rt, t)
		for pass := range r.progs {
			ends := [2]map[wire]plan.Operand{{}, {}} // sends, receives
			for g, p := range r.progs[pass] {
				for i := range p.Ops {
					op := &p.Ops[i]
					if !op.Kind.Link() || op.Lane < plan.LanePieces {
						continue
					}
					w, side := wire{int32(g), op.Peer, op.Lane, op.Tick}, 0
					if op.Kind == plan.Recv {
						w.src, w.dst, side = op.Peer, int32(g), 1
					}
					if _, twice := ends[side][w]; twice {
						rt.Fatalf("%v %+v: its tick is taken in its lane", p.Pass, w)
					}
					a := p.Args(i)[0]
					a.Slot, a.Access = 0, 0 // each rank's own
					ends[side][w] = a
				}
			}
			for w, sent := range ends[0] {
				if came, ok := ends[1][w]; !ok || came != sent {
					rt.Fatalf("%v %+v: sent %+v, received %+v", plan.Pass(pass), w, sent, came)
				}
			}
			if len(ends[0]) != len(ends[1]) {
				rt.Fatalf("%v: %d sends, %d receives", plan.Pass(pass), len(ends[0]), len(ends[1]))
			}
		}
	})
}

// TestBytesIn: attention.md, "Work and traffic": forward, a rank gets from each peer p the tokens
// of p with the rank's query heads (D) and KV heads (D + DV), and gets out back for its own tokens
// with p's query heads (DV, and lse).
func TestBytesIn(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := drawPlan(rt, t)
		for g, p := range r.progs[plan.Forward] {
			at := r.spec.Mesh.Coord(g)
			q, kv := r.heads(plan.Q, at.H).Len(), r.heads(plan.KV, at.H).Len()
			want, got := 0, 0
			for peer := range r.spec.Mesh.Head {
				if peer != at.H {
					theirs, mine := r.rows(r.home(peer, at.C)), r.rows(r.home(at.H, at.C))
					want += theirs * (q*8 + kv*(8+4)) * 2
					want += mine * r.heads(plan.Q, peer).Len() * (4*2 + 4)
				}
			}
			for i := range p.Ops {
				if p.Ops[i].Kind == plan.Recv && p.Ops[i].Lane >= plan.LanePieces {
					got += int(r.hdr.OperandBytes(&p.Args(i)[0]))
				}
			}
			if got != want {
				rt.Fatalf("rank %d gets %d bytes of pieces, want %d", g, got, want)
			}
		}
	})
}

// TestPiecesAreGivenBack: every piece's slot is released, and no session slot is.
func TestPiecesAreGivenBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := drawPlan(rt, t)
		for pass := range r.progs {
			for g, p := range r.progs[pass] {
				lives := make([]int, len(p.Slots))
				for i := range p.Ops {
					for _, a := range p.Args(i) {
						switch {
						case p.Ops[i].Kind == plan.Release:
							lives[a.Slot]--
						case a.Access == plan.Write && p.Ops[i].Kind != plan.Finalize:
							lives[a.Slot]++
						}
					}
				}
				for s, n := range lives {
					slot := &p.Slots[s]
					want := 0
					if slot.Keep && !slot.In {
						want = 1
					}
					if n != want {
						rt.Fatalf("%v rank %d: %d lives of slot %d (%v) are not ended, want %d",
							p.Pass, g, n, s, slot.Role, want)
					}
				}
			}
		}
	})
}
