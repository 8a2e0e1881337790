package ringbus_test

import (
	"slices"
	"testing"

	"github.com/kvloom/kvloom/plan"
	"pgregory.net/rapid"
)

// byTick finds the ops of a kind on a lane by tick.
func byTick(p *plan.Program, k plan.Kind, lane int32) map[int32]int {
	out := map[int32]int{}
	for _, i := range ops(p, k, lane) {
		out[p.Ops[i].Tick] = i
	}
	return out
}

// TestGradientFollowsItsBlock: the dKV of a block begins as the partial of the first rank that met
// it and passes the ranks in ring order; each adds its own part, if any, before it sends on. So the
// order of the sum is the ring's. The block's home gets it from the last rank that adds to it.
func TestGradientFollowsItsBlock(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := drawPlan(rt, t)
		for _, p := range r.progs[plan.Backward] {
			r.checkGradients(rt, p)
		}
	})
}

func (r *ringPlan) checkGradients(t *rapid.T, p *plan.Program) {
	n, c := r.spec.Mesh.Ring, r.spec.Mesh.Coord(p.Rank).C
	first := firstTick(p, r.spec.Mesh.Head)
	came, sent := map[int32]int{}, byTick(p, plan.Send, plan.LaneDKV)
	home, homeTick := false, int32(0)
	for _, i := range ops(p, plan.Recv, plan.LaneDKV) {
		if slices.Equal(r.hdr.Sets[p.Args(i)[0].Set], r.shard(c)) {
			home, homeTick = true, p.Ops[i].Tick
			continue
		}
		came[p.Ops[i].Tick] = i
	}
	sums, parts := byTick(p, plan.Accumulate, 0), byTick(p, plan.AttendBackward, 0)
	for step := range n {
		j, tick := r.blockAt(c, step), first+4*int32(step)
		own := r.meets(c, j)
		last := r.lasts(j)
		on := step <= last && last > 0
		begun := r.begunBefore(j, step) && on
		in, hasIn := came[tick+2]
		sum, hasSum := sums[tick+2]
		out, hasOut := sent[tick+6]
		part, hasPart := parts[tick]
		want := [4]bool{begun, own && begun, (own || begun) && on, own}
		if n == 1 {
			want = [4]bool{false, false, false, own}
		}
		if got := [4]bool{hasIn, hasSum, hasOut, hasPart}; got != want {
			t.Fatalf("rank %d step %d, block %d: dKV came, sum, sent, part %v, want %v", p.Rank,
				step, j, got, want)
		}
		if hasSum && (!behind(p, part)[sum] || !behind(p, in)[sum] || !behind(p, sum)[out]) {
			t.Fatalf("rank %d step %d: %s out of order", p.Rank, step, r.name(p, sum))
		}
		if hasOut && !hasSum && hasPart && !behind(p, part)[out] {
			t.Fatalf("rank %d step %d: %s sends what is not there", p.Rank, step, r.name(p, out))
		}
	}
	last := r.lasts(c)
	want := last > 0 && r.begunBefore(c, n)
	if n > 1 && (home != want || home && homeTick != first+4*int32(last+1)+2) {
		t.Fatalf("rank %d: its own dKV comes home: %v, want %v", p.Rank, home, want)
	}
}

// begunBefore reports whether block j got a part in its first steps.
func (r *ringPlan) begunBefore(j, steps int) bool {
	for i := range steps {
		if r.meets((j+i)%r.spec.Mesh.Ring, j) {
			return true
		}
	}
	return false
}
