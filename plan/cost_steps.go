package plan

import (
	"cmp"
	"slices"
)

// StepCost is one step of a rank: what happens from the end of the attends before until the end of
// its own. What follows the last attend of a pass (hops home, the exchange back) is a step of its
// own without FLOPs; what comes before the first one belongs to the first.
type StepCost struct {
	Pass         Pass
	Tick         int32 // of its attends; of a step without any, the lowest of its transfers
	Flops        int64
	Bytes        int64 // sent with ticks from this step's on, below the next one's
	Nanos        int64
	ExposedNanos int64 // of these, the device had nothing to run
}

// steps tells the slowest rank's time by steps.
func (c *costing) steps() error {
	for i := range c.took {
		took := &c.took[i]
		p, err := programOf(c.src, took.pass, c.est.Slowest)
		if err != nil {
			return err
		}
		w := &stepWalk{c: c, p: p, end: took.end[took.base[c.est.Slowest]:], steps: c.est.Steps}
		w.first = len(w.steps)
		w.attends()
		w.sends()
		w.times(took.begin[c.est.Slowest])
		c.est.Steps = w.steps
	}
	return nil
}

// stepWalk adds the steps of one pass.
type stepWalk struct {
	c     *costing
	p     *Program
	end   []int64 // by op
	steps []StepCost
	first int     // of this pass
	until []int64 // by step of this pass: when it is over
}

// attends makes a step for each tick that has attends.
func (w *stepWalk) attends() {
	h, p := w.c.h, w.p
	var ops []int32
	for i := range p.Ops {
		if k := p.Ops[i].Kind; k == Attend || k == AttendBackward {
			ops = append(ops, int32(i))
		}
	}
	slices.SortStableFunc(ops, func(a, b int32) int {
		return cmp.Compare(p.Ops[a].Tick, p.Ops[b].Tick)
	})
	for _, op := range ops {
		tick := p.Ops[op].Tick
		n := len(w.steps)
		if n == w.first || w.steps[n-1].Tick != tick {
			w.steps = append(w.steps, StepCost{Pass: p.Pass, Tick: tick})
			w.until = append(w.until, 0)
			n++
		}
		w.steps[n-1].Flops += h.pairFlops(p.Pass, w.c.pairs.of(p, int(op)))
		last := &w.until[n-1-w.first]
		*last = max(*last, w.end[op])
	}
	for i := 1; i < len(w.until); i++ {
		w.until[i] = max(w.until[i], w.until[i-1])
	}
}

// sends gives each step the bytes that leave with its ticks; those beyond the last attends' own
// step, and the time until the last op, make the closing step.
func (w *stepWalk) sends() {
	h, p := w.c.h, w.p
	over, lowest, bytes := int64(0), int32(-1), int64(0)
	closing := w.closingTick()
	for i := range p.Ops {
		op := &p.Ops[i]
		over = max(over, w.end[i])
		if !op.Kind.Link() {
			continue
		}
		k := w.stepAt(op.Tick)
		if op.Tick >= closing || k < 0 {
			if lowest < 0 || op.Tick < lowest {
				lowest = op.Tick
			}
			k = -1
		}
		if op.Kind != Send {
			continue
		}
		if b := h.OperandBytes(&p.Args(i)[0]); k < 0 {
			bytes += b
		} else {
			w.steps[w.first+k].Bytes += b
		}
	}
	if n := len(w.until); bytes == 0 && n > 0 && w.until[n-1] == over || len(p.Ops) == 0 {
		return
	}
	w.steps = append(w.steps, StepCost{Pass: p.Pass, Tick: max(lowest, 0), Bytes: bytes})
	w.until = append(w.until, over)
}

// closingTick is above the ticks of the last step's transfers: those of the ring follow one another
// by as much as its steps do.
func (w *stepWalk) closingTick() int32 {
	n := len(w.until)
	switch n {
	case 0:
		return 0
	case 1:
		return w.steps[w.first].Tick + 1
	}
	last := w.steps[w.first+n-1].Tick
	return last + last - w.steps[w.first+n-2].Tick
}

// stepAt is the step that a tick belongs to, the first for all before it, -1 if there is none.
func (w *stepWalk) stepAt(tick int32) int {
	k := -1
	for i := range w.until {
		if w.steps[w.first+i].Tick <= tick || i == 0 {
			k = i
		}
	}
	return k
}

// times cuts the pass into the steps' shares, and its idle time with it.
func (w *stepWalk) times(begin int64) {
	type stretch struct{ from, to int64 }
	var busy []stretch
	for i := range w.p.Ops {
		if w.p.Ops[i].Kind.Device() {
			n := w.c.t.OpNanos(w.c.h, w.p, i, w.p.Rank)
			busy = append(busy, stretch{w.end[i] - n, w.end[i]})
		}
	}
	slices.SortFunc(busy, func(a, b stretch) int { return cmp.Compare(a.from, b.from) })
	at, k := begin, 0
	for i, until := range w.until {
		s := &w.steps[w.first+i]
		s.Nanos, s.ExposedNanos = until-begin, until-begin
		for ; k < len(busy) && busy[k].from < until; k++ {
			from, to := max(busy[k].from, at, begin), min(busy[k].to, until)
			s.ExposedNanos -= max(to-from, 0)
			at = max(at, to)
			if busy[k].to > until {
				break // it goes on in the next step
			}
		}
		at, begin = until, until
	}
}
