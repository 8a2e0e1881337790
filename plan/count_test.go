package plan

import "testing"

func TestCountsByHand(t *testing.T) {
	p := ringByHand()
	for r := range 2 {
		f, b := Count(p.h, p.progs[fw][r]), Count(p.h, p.progs[bw][r])
		want := Counts{Pairs: 36, Flops: 2 * 10 * 36, Ops: 7}
		want.Sends[KVForward], want.Bytes[KVForward], want.BytesIn[KVForward] = 1, 160, 160
		// q 4*2*4, kv 4*(4+6), the state (6+2) wide, the ring slot as kv; 4 bytes each.
		want.PeakBytes = 4 * (32 + 40 + 64 + 40)
		if f != want {
			t.Errorf("forward rank %d: %+v, want %+v", r, f, want)
		}
		want = Counts{Pairs: 36, Flops: 5 * 10 * 36, Ops: 16}
		want.Sends[KVBackward], want.Bytes[KVBackward], want.BytesIn[KVBackward] = 1, 160, 160
		want.Sends[DKVHops], want.Bytes[DKVHops], want.BytesIn[DKVHops] = 2, 320, 320
		want.PeakBytes = 4 * (32 + 40 + 48 + (48 + 8) + 32 + 40 + 40 + 8 + 3*40)
		if b != want {
			t.Errorf("backward rank %d: %+v, want %+v", r, b, want)
		}
	}
	s := shuffleByHand()
	c := Count(s.h, s.progs[fw][0])
	// Out: q of 3 rows, kv of 3, out of 2 (each with lse); in: q of 2, kv of 2, out of 3.
	if c.Pieces != 3 || c.Sends[A2AForward] != 3 || c.Bytes[A2AForward] != 4*(12+30+14) ||
		c.BytesIn[A2AForward] != 4*(8+20+21) || c.Pairs != 15 {
		t.Errorf("exchange: %+v", c)
	}
}

func TestStepFlopsAddUp(t *testing.T) {
	p := longRing(5, 43)
	pairs := int64(0)
	for r, q := range p.progs[fw] {
		c := Count(p.h, q)
		sum := int64(0)
		steps := StepFlops(p.h, q)
		for _, n := range steps {
			sum += n
		}
		if len(steps) != 5 || sum != c.Flops {
			t.Errorf("rank %d: %d steps of %d FLOPs in all, counted %d", r, len(steps), sum,
				c.Flops)
		}
		pairs += c.Pairs
	}
	if want := int64(43*44/2) * 4; pairs != want {
		t.Errorf("%d pairs over all ranks, want %d", pairs, want)
	}
}
