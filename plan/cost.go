package plan

import (
	"cmp"
	"fmt"
	"slices"
)

// CostOptions are what Cost is asked for besides a plan and a cluster.
type CostOptions struct {
	Passes []Pass // one round each, in this order; nil: all that the source has
}

// Estimate is what a plan takes on a topology.
type Estimate struct {
	Nanos   int64 // from the start until the last rank is done
	Ranks   []RankCost
	Slowest int        // the rank that is done last, the lowest of these
	Steps   []StepCost // of the slowest rank, in order
	Ops     int
}

// RankCost is one rank's part of an estimate, over all passes.
type RankCost struct {
	Nanos        int64 // when its last op is over
	ComputeNanos int64 // own time of its ops on the compute stream
	ExposedNanos int64 // its device had nothing to run
	Flops        int64
	Bytes        [NumLinkKinds][NumClasses]int64 // sent
	PeakBytes    int64
}

// BytesBy sums the bytes sent over links of a kind.
func (r *RankCost) BytesBy(k LinkKind) int64 {
	n := int64(0)
	for _, b := range r.Bytes[k] {
		n += b
	}
	return n
}

// BytesOf sums the bytes sent of a class.
func (r *RankCost) BytesOf(c Class) int64 {
	n := int64(0)
	for k := range r.Bytes {
		n += r.Bytes[k][c]
	}
	return n
}

// MaxCostOps is the most ops of a pass, over all ranks, that Cost evaluates.
const MaxCostOps = 1 << 27

// maxCostNanos is the longest that Cost can tell, about two years.
const maxCostNanos = int64(1) << 56

// Cost prices a sound plan on a topology by following its ops of all ranks at once, without
// computing anything:
//
//   - a device has three streams (compute: arithmetic; in: unpack, accumulate; out: pack), each of
//     which runs one op at a time; ready ops are queued lowest tick first, two at most, and an op
//     starts when all ops that it waits for are over;
//   - a receive starts when what it waits for is over and gives its credit to the sender, a latency
//     away; the send starts with the credit when what it waits for is over; in a lane both start in
//     tick order;
//   - a link carries one block at a time, in the order of the sends' starts; the block is there a
//     latency after the link is free again, and the sender knows it another latency later;
//   - a rank begins a pass when it is done with the one before.
//
// Messages between a rank, its device and its link take no time, and nothing is random: in both it
// differs from the simulator. A pass is in memory as some 60 bytes an op.
//
// The plan must be one that Verify accepts; the error names what cannot be evaluated.
func Cost(src Source, t *Topology, opt CostOptions) (*Estimate, error) {
	h := src.Header()
	if err := t.Validate(); err != nil {
		return nil, fmt.Errorf("plan: topology: %w", err)
	}
	if err := t.Fits(h.Ranks); err != nil {
		return nil, fmt.Errorf("plan: topology: %w", err)
	}
	passes := opt.Passes
	if passes == nil {
		passes = src.Passes()
	}
	c := &costing{src: src, t: t, h: h, est: &Estimate{Ranks: make([]RankCost, h.Ranks)}}
	c.pairs = newPairCounter(h)
	c.slots = make([][]Slot, h.Ranks)
	c.done = make([]int64, h.Ranks)
	for _, pass := range passes {
		if err := c.pass(pass); err != nil {
			return nil, err
		}
	}
	for r := range c.done {
		c.est.Ranks[r].Nanos = c.done[r]
		if c.done[r] > c.est.Nanos {
			c.est.Nanos, c.est.Slowest = c.done[r], r
		}
	}
	return c.est, c.steps()
}

// costing is one evaluation.
type costing struct {
	src   Source
	t     *Topology
	h     *Header
	pairs *pairCounter
	est   *Estimate
	slots [][]Slot // of the first pass's programs, for peaks
	done  []int64  // by rank: when it was done with the passes before
	took  []passTimes
}

// passTimes is when ops of a pass were over, by op of all ranks.
type passTimes struct {
	pass  Pass
	base  []int32
	begin []int64 // by rank
	end   []int64
}

// pass evaluates one pass after those before.
func (c *costing) pass(pass Pass) error {
	f := &flow{pass: pass, h: c.h, t: c.t, pairs: c.pairs, begin: slices.Clone(c.done)}
	for rank := range c.h.Ranks {
		p, err := programOf(c.src, pass, rank)
		if err != nil {
			return err
		}
		if err := f.add(p, rank); err != nil {
			return err
		}
		c.count(p, rank)
	}
	f.base = append(f.base, int32(len(f.kind)))
	if err := f.pair(); err != nil {
		return err
	}
	f.turn()
	if err := f.run(c.done, c.est.Ranks); err != nil {
		return err
	}
	c.est.Ops += len(f.kind)
	c.took = append(c.took, passTimes{pass, f.base, f.begin, f.end})
	return nil
}

// count adds what a program says without a clock.
func (c *costing) count(p *Program, rank int) {
	r := &c.est.Ranks[rank]
	for i := range p.Ops {
		switch op := &p.Ops[i]; op.Kind {
		case Send:
			kind, class := c.t.Link(rank, int(op.Peer)), ClassOf(p.Pass, op.Lane)
			r.Bytes[kind][class] += c.h.OperandBytes(&p.Args(i)[0])
		case Attend, AttendBackward:
			r.Flops += c.h.pairFlops(p.Pass, c.pairs.of(p, i))
		}
	}
	if c.slots[rank] == nil {
		c.slots[rank] = p.Slots
		r.PeakBytes = PeakBytes(p, nil)
		return
	}
	r.PeakBytes = max(r.PeakBytes, PeakBytes(&Program{Slots: c.slots[rank]}, p))
}

// opClass is how an op is evaluated: a stream, or one of the others.
type opClass uint8

const (
	onCompute opClass = iota
	onIn
	onOut
	aSend
	aRecv
	aRelease
)

// streamOf is the class of a kind, as ranks choose streams.
func streamOf(k Kind) opClass {
	switch k {
	case Send:
		return aSend
	case Recv:
		return aRecv
	case Release:
		return aRelease
	case Unpack, Accumulate:
		return onIn
	case Pack:
		return onOut
	}
	return onCompute
}

func (k opClass) device() bool { return k <= onOut }

// add takes over the ops of a program, numbered after those before. Dependencies are kept as they
// are until turn.
func (f *flow) add(p *Program, rank int) error {
	first := len(f.kind)
	if len(f.kind)+len(p.Ops) > MaxCostOps {
		return fmt.Errorf("plan: the %v pass has more than the limit of %d ops: cost a smaller "+
			"mesh", f.pass, MaxCostOps)
	}
	f.base = append(f.base, int32(first))
	if len(f.dep0) == 0 {
		f.dep0 = append(f.dep0, 0)
	}
	for i := range p.Ops {
		op := &p.Ops[i]
		k := streamOf(op.Kind)
		f.kind = append(f.kind, k)
		f.tick = append(f.tick, op.Tick)
		nanos := int64(0)
		switch {
		case k.device():
			nanos = f.t.opNanos(f.h, p, i, rank, f.pairs.of(p, i))
		case k == aSend:
			_, nanos, _ = f.t.Transfer(f.h, p, i, rank, int(op.Peer))
			f.sends = append(f.sends,
				wire{int32(rank), op.Peer, op.Lane, op.Tick, int32(first + i)})
		case k == aRecv:
			f.recvs = append(f.recvs,
				wire{op.Peer, int32(rank), op.Lane, op.Tick, int32(first + i)})
		}
		f.nanos = append(f.nanos, nanos)
		for _, d := range p.Deps(i) {
			if d < 0 || int(d) >= len(p.Ops) {
				return fmt.Errorf("plan: %v rank %d op %d waits for op %d of %d", f.pass, rank,
					i, d, len(p.Ops))
			}
			f.deps = append(f.deps, int32(first)+d)
		}
		f.dep0 = append(f.dep0, int32(len(f.deps)))
	}
	return nil
}

// wire is one end of a transfer.
type wire struct{ src, dst, lane, tick, op int32 }

func (w wire) compare(o wire) int {
	return cmp.Or(cmp.Compare(w.src, o.src), cmp.Compare(w.dst, o.dst), cmp.Compare(w.lane, o.lane),
		cmp.Compare(w.tick, o.tick))
}

// pair finds both ends of each transfer, who is next in each lane, and the links.
func (f *flow) pair() error {
	n := len(f.kind)
	slices.SortFunc(f.sends, wire.compare)
	slices.SortFunc(f.recvs, wire.compare)
	f.flags, f.far = make([]uint8, n), make([]bool, n)
	f.other, f.next, f.linkOf = make([]int32, n), make([]int32, n), make([]int32, n)
	for i := range f.next {
		f.next[i] = -1
	}
	last := wire{src: -1}
	for i := range max(len(f.sends), len(f.recvs)) {
		if i >= len(f.sends) || i >= len(f.recvs) || f.sends[i].compare(f.recvs[i]) != 0 {
			return fmt.Errorf("plan: in the %v pass a send or a receive has no other end: cost a "+
				"plan that Verify accepts", f.pass)
		}
		s, r := f.sends[i], f.recvs[i]
		f.other[s.op], f.other[r.op] = r.op, s.op
		far := f.t.Link(int(s.src), int(s.dst)) == RemoteLink
		f.far[s.op], f.far[r.op] = far, far
		same := last.src == s.src && last.dst == s.dst
		if same && last.lane == s.lane {
			f.next[last.op], f.next[f.other[last.op]] = s.op, r.op
		} else {
			f.flags[s.op] |= turnCame
			f.flags[r.op] |= turnCame
		}
		if !same {
			f.links++
		}
		f.linkOf[s.op] = int32(f.links - 1)
		last = s
	}
	f.sends, f.recvs = nil, nil
	return nil
}
