package kvloom

import (
	"context"
	"slices"
	"testing"

	"github.com/kvloom/kvloom/mesh"
)

// TestCollectives: over every axis, sums are those of the group in its order, runs and whole
// vectors come as documented, and what does not fit is refused.
func TestCollectives(t *testing.T) {
	ctx := context.Background()
	m := mesh.Mesh{Head: 2, Ring: 3}
	s := open(t, testConfig(m))
	for _, axis := range []Axis{HeadAxis, RingAxis, WorldAxis} {
		for _, n := range []int{1, 4, 1000} {
			vec := make([][]float32, m.Ranks())
			for r := range vec {
				for i := range n {
					vec[r] = append(vec[r], float32(r+1)*0.1+float32(i)*0.7)
				}
			}
			want := func(r int) []float32 {
				sum := make([]float32, n)
				for k, member := range group(m, axis, r) {
					for i, x := range vec[member] {
						if k == 0 {
							sum[i] = x
						} else {
							sum[i] += x
						}
					}
				}
				return sum
			}
			runs, err := s.ReduceScatter(ctx, axis, vec)
			if err != nil {
				t.Fatal(err)
			}
			whole, err := s.AllGather(ctx, axis, runs)
			if err != nil {
				t.Fatal(err)
			}
			wants := make([][]float32, m.Ranks())
			for r := range wants {
				wants[r] = want(r)
				members := group(m, axis, r)
				lo, hi := mesh.CutEven(n, len(members), slices.Index(members, r))
				if !slices.Equal(runs[r], wants[r][lo:hi]) {
					t.Errorf("%v n=%d rank %d: run %v, want %v", axis, n, r, runs[r],
						wants[r][lo:hi])
				}
				if !slices.Equal(whole[r], wants[r]) {
					t.Errorf("%v n=%d rank %d: gathered other than the sum", axis, n, r)
				}
			}
			if err := s.AllReduce(ctx, axis, vec); err != nil {
				t.Fatal(err)
			}
			for r := range vec {
				if !slices.Equal(vec[r], wants[r]) {
					t.Errorf("%v n=%d rank %d: reduced to other than the sum", axis, n, r)
				}
			}
		}
	}
	if err := s.AllReduce(ctx, WorldAxis, make([][]float32, 5)); err == nil {
		t.Error("vectors of five ranks of six are taken")
	}
	uneven := make([][]float32, m.Ranks())
	uneven[2] = []float32{1}
	if err := s.AllReduce(ctx, WorldAxis, uneven); err == nil {
		t.Error("vectors of different lengths are taken")
	}
}
