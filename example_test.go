package kvloom_test

import (
	"context"
	"fmt"

	"github.com/kvloom/kvloom"
	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/mesh"
)

// A gang of four ranks attends eight tokens, each rank with its own part of q, k and v.
func ExampleOpen() {
	ctx := context.Background()
	s, err := kvloom.Open[float64](ctx, kvloom.Config{Mesh: mesh.Mesh{Head: 2, Ring: 2}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close(ctx)
	layer, err := s.Attention(kvloom.Problem{
		Tokens: 8, Heads: 2, KVHeads: 1, Dim: 2, Scale: 0.5, Mask: attn.Causal(8, 8)})
	if err != nil {
		fmt.Println(err)
		return
	}
	in := make([]kvloom.QKV[float64], s.Ranks())
	for r := range in {
		n := layer.Shard(r).Len()
		in[r] = kvloom.QKV[float64]{
			Q: make([]float64, n*2*2), K: make([]float64, n*2), V: make([]float64, n*2)}
		for i, position := range layer.Shard(r).Positions() {
			in[r].V[2*i], in[r].V[2*i+1] = float64(position), 1
		}
	}
	state := layer.Begin()
	defer state.Release()
	out, err := state.Forward(ctx, in)
	if err != nil {
		fmt.Println(err)
		return
	}
	for r := range out { // q is 0: every row is the mean of the values up to its own
		fmt.Println("rank", r, "tokens", layer.Shard(r).Positions(), "out", out[r].Out[:4])
	}
	// Output:
	// rank 0 tokens [0 1] out [0 1 0 1]
	// rank 1 tokens [6 7] out [3 1 3 1]
	// rank 2 tokens [2 3] out [1 1 1 1]
	// rank 3 tokens [4 5] out [2 1 2 1]
}

// Vectors of all ranks are summed in rank order, so that every rank has the same bits.
func ExampleSession_AllReduce() {
	ctx := context.Background()
	s, err := kvloom.Open[float32](ctx, kvloom.Config{Mesh: mesh.Mesh{Head: 1, Ring: 3}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close(ctx)
	vectors := [][]float32{{1, 10}, {2, 20}, {3, 30}}
	if err := s.AllReduce(ctx, kvloom.WorldAxis, vectors); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(vectors)
	// Output: [[6 60] [6 60] [6 60]]
}
