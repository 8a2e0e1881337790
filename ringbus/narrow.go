package ringbus

import "github.com/kvloom/kvloom/plan"

// dKV may travel as bf16 (Options.NarrowDKV): every hop then carries half the bytes or less, and
// costs a rounding. It is still added up in accumulators: what comes is added to the own part,
// which is rounded again for the next hop.
//
//	recv dkvw ─> + own part (dkv) ─> pack ─> send dkvw

// narrow reports whether sums travel rounded.
func (g *gradient) narrow() bool { return g.Opt.NarrowDKV && g.sum == plan.DKV }

// joinNarrow is join for rounded sums: without an own part the sum goes on as it came.
func (g *gradient) joinNarrow(own, at plan.Block, pool plan.Pool, from, lane int,
	tick int32) plan.Block {
	sum := g.Take(pool+plan.Pool(lane), g.Opt.DKVSlots, plan.DKVWire, at.Set, at.Heads)
	g.Recv(sum, from, number(g.way, lane), tick)
	switch {
	case own.Empty:
		return sum
	case own.Tensor == plan.DKVWire: // the sum of a window, as it came
		return g.addWires(own, sum, tick)
	}
	g.HandOn(sum).Add(own).Emit(plan.Accumulate, tick)
	g.Release(sum)
	return own
}

// addWires adds two rounded sums in an accumulator.
func (g *gradient) addWires(own, sum plan.Block, tick int32) plan.Block {
	acc := g.Take(plan.PoolState, 0, plan.DKV, own.Set, own.Heads)
	g.Write(acc).Emit(plan.Zero, tick)
	for _, x := range [...]plan.Block{sum, own} {
		g.HandOn(x).Add(acc).Emit(plan.Accumulate, tick)
		g.Release(x)
	}
	return acc
}

// round makes a sum ready for the way. Sums that wait for a slow hop between windows have slots of
// their own, so that they hold up no other.
func (g *gradient) round(sum plan.Block, pool plan.Pool, lane int, tick int32) plan.Block {
	if sum.Tensor == plan.DKVWire {
		return sum
	}
	wire := g.Take(pool+plan.Pool(lane), g.Opt.DKVSlots, plan.DKVWire, sum.Set, sum.Heads)
	g.HandOn(sum).Write(wire).Emit(plan.Pack, tick)
	g.Release(sum)
	return wire
}

// landNarrow receives a rounded sum at home.
func (g *gradient) landNarrow(into plan.Block, from, lane int, tick int32) {
	sum := g.Take(plan.PoolLand+plan.Pool(lane), 0, plan.DKVWire, into.Set, into.Heads)
	g.Recv(sum, from, number(g.way, lane), tick)
	g.Write(into).Emit(plan.Zero, g.tick)
	g.HandOn(sum).Add(into).Emit(plan.Accumulate, tick)
	g.Release(sum)
}
