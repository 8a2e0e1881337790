package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kvloom/kvloom/mesh"
)

// longRing is a forward ring of n ranks over tokens in zigzag, with two ring slots.
func longRing(n, tokens int) *hand {
	h := handHeader(tokens, 4, 2)
	h.Names, h.Ranks = nil, n
	p := &hand{h: h, passes: []Pass{Forward}}
	for c := range n {
		h.Sets = append(h.Sets, mesh.Zigzag.Shard(tokens, n, c))
		h.HomeQ = append(h.HomeQ, SetID(c+1))
	}
	for id := range h.Sets {
		h.Names = append(h.Names, fmt.Sprintf("c%d", id-1))
	}
	h.HomeK = h.HomeQ
	for r := range n {
		p.progs[Forward] = append(p.progs[Forward], longRingRank(h, n, r))
	}
	return p
}

func longRingRank(h *Header, n, r int) *Program {
	own := SetID(r + 1)
	p := &Program{Rank: r, Pass: Forward}
	q, st, out := block{0, Q, own, 0, 4}, block{2, State, own, 0, 4}, block{2, Out, own, 0, 4}
	kv := block{1, KV, own, 0, 2}
	p.slot(h, HomeQ, true, q)
	p.slot(h, HomeKV, true, kv)
	p.slot(h, HomeOut, false, st)
	p.Slots[2].Tensor = Out
	for i := range 2 {
		p.slot(h, Scratch, false, block{int32(3 + i), KV, own, 0, 2})
		for c := range n {
			p.Slots[3+i].Bytes = max(p.Slots[3+i].Bytes, h.Bytes(KV, h.Sets[c+1].Len(), 2))
		}
	}
	last := p.op(Zero, nil, wr(st))
	came, freed := int32(-1), [2]int32{-1, -1}
	for t := range n {
		var next, sent int32 = -1, -1
		var later block
		if t+1 < n {
			later = block{int32(3 + t%2), KV, SetID((r-t-1+n)%n + 1), 0, 2}
			next = p.link(Recv, known(freed[t%2]), (r+n-1)%n, LaneKV, int32(t+1), wr(later))
			sent = p.link(Send, known(came), (r+1)%n, LaneKV, int32(t+1), rd(kv))
		}
		last = p.op(Attend, known(last, came), rd(q), rd(kv), ad(st))
		if t > 0 {
			freed[(t-1)%2] = p.op(Release, known(last, sent), rd(kv))
		}
		came, kv = next, later
	}
	p.op(Finalize, after(last), co(st), wr(out))
	return p
}

// known are the ops among deps that there are.
func known(deps ...int32) []int32 {
	var out []int32
	for _, d := range deps {
		if d >= 0 {
			out = append(out, d)
		}
	}
	return out
}

func TestVerifyAcceptsLongRings(t *testing.T) {
	for _, n := range []int{2, 3, 7, 32} {
		p := longRing(n, 5*n+1)
		r, err := Verify(p)
		if err != nil || r.Err() != nil {
			t.Errorf("ring of %d: %v, %v", n, err, r.Err())
		}
		for i, q := range p.progs[Forward] {
			p.progs[Forward][i] = reversed(q)
		}
		if r, err = Verify(p); err != nil || r.Err() != nil {
			t.Errorf("ring of %d, ops reversed: %v, %v", n, err, r.Err())
		}
	}
}

// A second look must find the pair also when it may not keep all tiles at once.
func TestNamingWithLittleRoom(t *testing.T) {
	p := longRing(16, 2048)
	v, _ := newVerifier(p.h)
	for op := range p.progs[fw][3].Ops {
		if q := p.progs[fw][3]; q.Ops[op].Kind == Attend && q.Args(op)[1].Set == 1 {
			at(fw, 3, op, func(e *edit) { e.args[1].Set = 2 })(p)
			break
		}
	}
	for _, room := range []int{1, 10, maxPatches} {
		v.most = room
		found, err := v.name(p, fw, pairsOnce)
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		want := "query 192 (home rank 3) x key 0 (home rank 0), head 0 is never computed"
		if !strings.Contains(found[0].Text, want) {
			t.Errorf("room %d: %s, want %s", room, found[0].Text, want)
		}
	}
	for r := range 16 {
		drop(fw, r, 1)(p)
	}
	for _, room := range []int{1, 100, maxPatches} {
		v.most = room
		found, err := v.name(p, fw, sendsPair)
		if err != nil || len(found) == 0 || len(found) > maxNamed+1 {
			t.Fatal(found, err)
		}
		if !strings.Contains(found[0].Text, "has no receive for it") {
			t.Errorf("room %d: %v", room, found)
		}
	}
}

// BenchmarkVerify checks a ring of 128 ranks; 1,024 ranks of 8x128 are some 8 times as many ops.
func BenchmarkVerify(b *testing.B) {
	p := longRing(128, 1<<20)
	ops := 0
	for b.Loop() {
		r, err := Verify(p)
		if err != nil || r.Err() != nil {
			b.Fatal(err, r.Err())
		}
		ops = r.Ops
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(ops), "ns/op-of-plan")
}
