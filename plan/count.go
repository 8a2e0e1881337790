package plan

// Counts are figures of one rank in one pass. Bytes are payload, without block headers.
type Counts struct {
	Sends     [NumClasses]int   // transfers out
	Bytes     [NumClasses]int64 // out
	BytesIn   [NumClasses]int64
	Pieces    int   // sends on the lanes of the exchanges
	Pairs     int64 // allowed (query, key) pairs times query heads
	Flops     int64 // of attention: 2 (D+DV) a pair forward, 2.5 times that backward
	PeakBytes int64 // sum of the slots
	Ops       int
}

// Count gives the figures of a program. The program must be one that Verify accepts.
func Count(h *Header, p *Program) Counts {
	c := Counts{PeakBytes: p.PeakBytes(), Ops: len(p.Ops)}
	pairs := newPairCounter(h)
	for i := range p.Ops {
		op := &p.Ops[i]
		switch op.Kind {
		case Send:
			class := ClassOf(p.Pass, op.Lane)
			c.Sends[class]++
			c.Bytes[class] += h.OperandBytes(&p.Args(i)[0])
			if op.Lane == LanePieces || op.Lane == LanePiecesQ {
				c.Pieces++
			}
		case Recv:
			c.BytesIn[ClassOf(p.Pass, op.Lane)] += h.OperandBytes(&p.Args(i)[0])
		case Attend, AttendBackward:
			c.Pairs += pairs.of(p, i)
		}
	}
	c.Flops = h.pairFlops(p.Pass, c.Pairs)
	return c
}

// OpPairs is how many allowed pairs, times query heads, op i computes; 0 if it is no attend. It is
// for one op: of many, Count, StepFlops and Cost know what they have in common.
func (h *Header) OpPairs(p *Program, i int) int64 {
	if k := p.Ops[i].Kind; k != Attend && k != AttendBackward {
		return 0
	}
	q, kv := &p.Args(i)[0], &p.Args(i)[1]
	return h.Mask.Pairs(h.Sets[q.Set], h.Sets[kv.Set]) * int64(q.Heads.Len())
}

// StepFlops are the FLOPs of the program's attends in the order of the list: its ring steps.
func StepFlops(h *Header, p *Program) []int64 {
	var out []int64
	pairs := newPairCounter(h)
	for i := range p.Ops {
		if k := p.Ops[i].Kind; k == Attend || k == AttendBackward {
			out = append(out, h.pairFlops(p.Pass, pairs.of(p, i)))
		}
	}
	return out
}

// pairFlops: q.k and p*v are 2 D and 2 DV; backward does both kinds of product two to three times
// (Dao 2023), counted as 2.5.
func (h *Header) pairFlops(pass Pass, pairs int64) int64 {
	flops := 2 * int64(h.Dim+h.VDim) * pairs
	if pass == Backward {
		return flops * 5 / 2
	}
	return flops
}
