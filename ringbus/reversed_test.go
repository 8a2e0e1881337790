package ringbus_test

import (
	"os"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/headshuffle"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// begin scheme

// Reversed is the plain ring the other way: at step t rank c holds block c+t, hops go to c-1.
type Reversed struct{}

func (Reversed) String() string           { return "reversed" }
func (Reversed) LaneCount() int           { return 1 }
func (Reversed) Validate(mesh.Mesh) error { return nil }

// step is where a block comes from and goes to, and what it is.
func (Reversed) step(b *plan.Builder, t int) (set plan.SetID, from, to int) {
	n, c := b.Mesh.Ring, b.At.C
	return b.ShardSet(plan.KV, (c+t)%n), b.Peer(b.At.H, (c+1)%n), b.Peer(b.At.H, (c+n-1)%n)
}

// arrive gives the block of step t and sends it on. Ticks rise with steps, and both ends use one.
func (r Reversed) arrive(b *plan.Builder, kv plan.Block, t int, tick int32) plan.Block {
	set, from, to := r.step(b, t)
	if t > 0 {
		kv = b.Take(plan.PoolKV, b.Opt.KVSlots, plan.KV, set, kv.Heads)
		if !kv.Empty {
			b.Recv(kv, from, plan.LaneKV, tick)
		}
	}
	if !kv.Empty && t < b.Mesh.Ring-1 {
		b.Send(kv, to, plan.LaneKV, tick+2)
	}
	return kv
}

func (r Reversed) Forward(b *plan.Builder, q, kv plan.Block) plan.Block {
	tick, role := b.Tick(2*b.Mesh.Ring+2), plan.HeadOut
	if b.Mesh.Head == 1 {
		role = plan.HomeOut
	}
	out := b.LiveOut(role, plan.Out, q.Set, q.Heads, plan.State)
	if q.Empty {
		for t := range b.Mesh.Ring {
			if blk := r.arrive(b, kv, t, tick+2*int32(t)); t > 0 {
				b.Release(blk)
			}
		}
		return out
	}
	state := out
	state.Tensor = plan.State
	b.Write(state).Emit(plan.Zero, tick)
	for t := range b.Mesh.Ring {
		at := tick + 2*int32(t)
		blk := r.arrive(b, kv, t, at)
		if !blk.Empty && b.Allowed(q.Set, blk.Set) {
			b.Read(q).Read(blk).Add(state).Emit(plan.Attend, at)
		}
		if t > 0 {
			b.Release(blk)
		}
	}
	b.HandOn(state).Write(out).Emit(plan.Finalize, tick+2*int32(b.Mesh.Ring))
	return out
}

func (r Reversed) Backward(b *plan.Builder, q, kv, out, do, delta plan.Block) (dq, dkv plan.Block) {
	n, tick, roles := b.Mesh.Ring, b.Tick(2*b.Mesh.Ring+4), [2]plan.Role{}
	if b.Mesh.Head == 1 {
		roles = [2]plan.Role{plan.HomeDQ, plan.HomeDKV}
	}
	dq = b.LiveOut(roles[0], plan.DQ, q.Set, q.Heads, plan.DQ)
	if !q.Empty {
		b.Write(dq).Emit(plan.Zero, tick)
	}
	dkv = b.LiveOut(roles[1], plan.DKV, kv.Set, kv.Heads, plan.DKV)
	for t := range n {
		at := tick + 2*int32(t)
		_, from, to := r.step(b, t)
		blk := r.arrive(b, kv, t, at)
		if blk.Empty {
			continue
		}
		own := dkv // alone on the ring the part is the whole
		if n > 1 {
			own = b.Take(plan.PoolPartial, b.Opt.Partials, plan.DKV, blk.Set, blk.Heads)
		}
		if !q.Empty && b.Allowed(q.Set, blk.Set) {
			b.Read(q).Read(blk).Read(do).Read(out).Read(delta).Add(dq).Write(own).
				Emit(plan.AttendBackward, at)
		} else {
			b.Write(own).Emit(plan.Zero, at)
		}
		sum := own
		if t > 0 {
			b.Release(blk)
			sum = b.Take(plan.PoolTravel, b.Opt.DKVSlots, plan.DKV, blk.Set, blk.Heads)
			b.Recv(sum, from, plan.LaneDKV, at+1)
			b.HandOn(own).Add(sum).Emit(plan.Accumulate, at+1)
			b.Release(own)
		}
		if n > 1 {
			b.Send(sum, to, plan.LaneDKV, at+3)
			b.Release(sum)
		}
	}
	if n > 1 && !dkv.Empty {
		_, from, _ := r.step(b, 0)
		b.Recv(dkv, from, plan.LaneDKV, tick+2*int32(n)+1)
	}
	return dq, dkv
}

// end scheme

// TestAddingAScheme: the scheme that docs/adding-a-scheme.md shows is this one, letter for letter,
// and Verify proves it on every mesh, mask and length here.
func TestAddingAScheme(t *testing.T) {
	source, err := os.ReadFile("reversed_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(source), "// begin scheme\n")
	code, _, _ = strings.Cut(code, "// end scheme\n")
	page, err := os.ReadFile("../docs/adding-a-scheme.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), strings.TrimSpace(code)) {
		t.Error("docs/adding-a-scheme.md shows another scheme than this file")
	}
	for c := 1; c <= 8; c++ {
		for h := 1; h <= 2; h++ {
			for _, tokens := range []int{1, 5, 4 * c} {
				for _, mask := range []attn.Mask{
					attn.Causal(tokens, tokens), attn.Full(tokens, tokens)} {
					p, err := plan.New(plan.Spec{
						Shape: plan.Shape{QTokens: tokens, KTokens: tokens, QHeads: 4, KHeads: 2,
							Dim: 8, VDim: 8, ElemBytes: 4, AccBytes: 4, Scale: 1, Mask: mask},
						Mesh: mesh.Mesh{Head: h, Ring: c}, Ring: Reversed{},
						Heads: headshuffle.AllToAll{},
					})
					if err != nil {
						t.Fatal(err)
					}
					report, err := plan.Verify(p)
					if err == nil {
						err = report.Err()
					}
					if err != nil {
						t.Errorf("%dx%d S=%d: %v", h, c, tokens, err)
					}
				}
			}
		}
	}
}
