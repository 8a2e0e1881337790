package ringbus

import (
	"fmt"

	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
)

// direct is what all-gather and halo share: KV goes from its owner straight to each rank that needs
// it, and its gradient straight back. At distance d rank c sends to c+d and receives from c-d.
//
//	d          1          2          3
//	rank c     kv(c-1)    kv(c-2)    kv(c-3)      forward: attend, in this order
//	           dkv ->c-1  dkv ->c-2  dkv ->c-3    backward: written here, added at home
type direct struct {
	*plan.Builder
	trim bool // only the rows that are needed
	slots,
	n, c int
	tick int32
}

func newDirect(b *plan.Builder, trim bool, slots int) *direct {
	d := &direct{Builder: b, trim: trim, slots: slots, n: b.Mesh.Ring, c: b.At.C}
	d.tick = b.Tick(ticksPerStep * (d.n + 1))
	return d
}

func (d *direct) stepTick(t int) int32 { return d.tick + int32(ticksPerStep*t) }

// want is the keys of ring shard j that go to ring shard c; the empty set when none do.
func (d *direct) want(c, j int) plan.SetID {
	set := d.ShardSet(plan.KV, j)
	switch {
	case !d.Allowed(d.ShardSet(plan.Q, c), set):
		return 0
	case d.trim:
		return d.NeedSet(c, j)
	}
	return set
}

// send gives the rank at distance t what it wants of the own block.
func (d *direct) send(kv plan.Block, t int) {
	to := (d.c + t) % d.n
	if set := d.want(to, d.c); set != 0 {
		d.Send(kv.Region(set, kv.Heads), d.Peer(d.At.H, to), plan.LaneKV, d.stepTick(t))
	}
}

// arrive receives what this rank wants of the block at distance t; at distance 0 it is at home.
func (d *direct) arrive(kv plan.Block, t int) plan.Block {
	from := (d.c - t + d.n) % d.n
	set := d.want(d.c, from)
	if set == 0 {
		return plan.Block{Empty: true}
	}
	if t == 0 {
		return kv // whole: a region of it would have to be copied
	}
	got := d.Take(plan.PoolKV, d.slots, plan.KV, set, kv.Heads)
	d.Recv(got, d.Peer(d.At.H, from), plan.LaneKV, d.stepTick(t))
	return got
}

// forward attends all blocks. Those of an all-gather stay until the end of the pass, as its name
// says; the others are given back at once.
func (d *direct) forward(q, kv plan.Block) plan.Block {
	out := d.Result(plan.Out, q)
	st := out
	st.Tensor = plan.State
	if !q.Empty {
		d.Write(st).Emit(plan.Zero, d.tick)
	}
	var held []plan.Block
	for t := range d.n {
		blk := d.arrive(kv, t)
		if t > 0 {
			d.send(kv, t)
		}
		if blk.Empty {
			continue
		}
		d.Read(q).Read(blk).Add(st).Emit(plan.Attend, d.stepTick(t))
		if t > 0 {
			held = d.keep(held, blk)
		}
	}
	d.drop(held)
	if !q.Empty {
		d.HandOn(st).Write(out).Emit(plan.Finalize, d.stepTick(d.n-1))
	}
	return out
}

// keep holds a block until the end of the pass, unless slots are few.
func (d *direct) keep(held []plan.Block, blk plan.Block) []plan.Block {
	if d.slots == 0 {
		return append(held, blk)
	}
	d.Release(blk)
	return held
}

func (d *direct) drop(held []plan.Block) {
	for _, blk := range held {
		d.Release(blk)
	}
}

// backward attends all blocks again; the part of each goes straight home and is added there, in
// the order of distances.
func (d *direct) backward(q, kv, out, do, delta plan.Block) (dq, dkv plan.Block) {
	dq, dkv = d.Result(plan.DQ, q), d.Result(plan.DKV, kv)
	if !q.Empty {
		d.Write(dq).Emit(plan.Zero, d.tick)
	}
	if !kv.Empty && d.want(d.c, d.c) == 0 {
		d.Write(dkv).Emit(plan.Zero, d.tick)
	}
	var held []plan.Block
	for t := range d.n {
		blk := d.arrive(kv, t)
		if t > 0 {
			d.send(kv, t)
		}
		if !blk.Empty {
			own := dkv
			if t > 0 {
				own = d.Take(plan.PoolPartial, d.Opt.Partials, plan.DKV, blk.Set, blk.Heads)
			}
			d.Read(q).Read(blk).Read(do).Read(out).Read(delta).Add(dq).Write(own).
				Emit(plan.AttendBackward, d.stepTick(t))
			if t > 0 {
				held = d.keep(held, blk)
				d.giveBack(own, t)
			}
		}
		if t > 0 {
			d.collect(dkv, t)
		}
	}
	d.drop(held)
	return dq, dkv
}

// giveBack sends this rank's part of the block at distance t home.
func (d *direct) giveBack(own plan.Block, t int) {
	home, tick := (d.c-t+d.n)%d.n, d.stepTick(t)+2
	if d.Opt.NarrowDKV {
		wire := d.Take(plan.PoolWire, d.Opt.DKVSlots, plan.DKVWire, own.Set, own.Heads)
		d.HandOn(own).Write(wire).Emit(plan.Pack, tick)
		d.Release(own)
		own = wire
	}
	d.Send(own, d.Peer(d.At.H, home), plan.LaneDKV, tick)
	d.Release(own)
}

// collect adds what the rank at distance t has found for this rank's own block.
func (d *direct) collect(dkv plan.Block, t int) {
	from := (d.c + t) % d.n
	set := d.want(from, d.c)
	if set == 0 {
		return
	}
	tensor := plan.DKV
	if d.Opt.NarrowDKV {
		tensor = plan.DKVWire
	}
	tick := d.stepTick(t) + 2
	part := d.Take(plan.PoolTravel, d.Opt.DKVSlots, tensor, set, dkv.Heads)
	d.Recv(part, d.Peer(d.At.H, from), plan.LaneDKV, tick)
	d.HandOn(part).Add(dkv.Region(set, dkv.Heads)).Emit(plan.Accumulate, tick)
	d.Release(part)
}

// onlyPlain refuses the ring's choices to a scheme that has no ring.
func onlyPlain(name string, r Ring, m mesh.Mesh) error {
	switch {
	case r.Inner != 0 && r.Inner != m.Ring:
		return fmt.Errorf("inner window %d with scheme %s: blocks do not go round a ring; leave "+
			"it out or use scheme ring", r.Inner, name)
	case r.Lanes > 1:
		return fmt.Errorf("lanes %d with scheme %s: blocks do not go round a ring; use 1 lane or "+
			"scheme ring", r.Lanes, name)
	case r.DKV != Fold:
		return fmt.Errorf("dkv window %v with scheme %s: it has no windows; leave it out or use "+
			"scheme ring", r.DKV, name)
	case r.Rotate != RotateKV:
		return fmt.Errorf("rotate %v with scheme %s: keys go to the queries; use rotate kv or "+
			"scheme ring", r.Rotate, name)
	}
	return nil
}
