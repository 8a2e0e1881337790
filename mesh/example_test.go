package mesh_test

import (
	"fmt"

	"github.com/kvloom/kvloom/mesh"
)

// Under zigzag, shard c of a ring of C holds chunks c and 2C-1-c: all shards have the same causal
// work.
func ExampleLayout_Shard() {
	for c := range 3 {
		fmt.Println(c, mesh.Zigzag.Shard(12, 3, c).Positions())
	}
	// Output:
	// 0 [0 1 10 11]
	// 1 [2 3 8 9]
	// 2 [4 5 6 7]
}

// A KV head whose query heads straddle a cut is held on both sides.
func ExampleSplitHeads() {
	for h := range 2 {
		q, kv := mesh.SplitHeads(6, 2, 4, h)
		fmt.Println("head rank", h, "query heads", q, "kv heads", kv)
	}
	// Output:
	// head rank 0 query heads {0 2} kv heads {0 1}
	// head rank 1 query heads {2 4} kv heads {0 2}
}
