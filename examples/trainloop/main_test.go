package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"testing"

	"github.com/kvloom/kvloom/mesh"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func Example() {
	if _, err := train(os.Stdout, mesh.Mesh{Head: 2, Ring: 2}, 7); err != nil {
		fmt.Println(err)
	}
	// Output:
	// step  0  loss 0.937397
	// step  1  loss 0.929727
	// step  2  loss 0.922319
	// step  3  loss 0.915129
	// step  4  loss 0.908117
	// step  5  loss 0.901250
	// step  6  loss 0.894499
	// step  7  rank 1 was lost: opening again
	// step  7  loss 0.887836
	// step  8  loss 0.881239
	// step  9  loss 0.874685
	// step 10  loss 0.868154
	// step 11  loss 0.861630
	// step 12  loss 0.855096
	// step 13  loss 0.848537
	// step 14  loss 0.841942
	// step 15  loss 0.835298
	// step 16  loss 0.828597
	// step 17  loss 0.821831
	// step 18  loss 0.814994
	// step 19  loss 0.808083
}

// TestSameLossesOnEveryMesh: the 20 losses are the same within 1e-12 on every mesh, with a rank
// lost at step 7 or not.
func TestSameLossesOnEveryMesh(t *testing.T) {
	want, err := train(io.Discard, mesh.Mesh{Head: 1, Ring: 1}, -1)
	if err != nil {
		t.Fatal(err)
	}
	if len(want) != steps || want[steps-1] >= 0.9*want[0] {
		t.Fatalf("the losses do not fall: %v", want)
	}
	for _, m := range []mesh.Mesh{{Head: 1, Ring: 1}, {Head: 2, Ring: 2}, {Head: 1, Ring: 4}} {
		for _, crash := range []int{-1, 7} {
			got, err := train(io.Discard, m, crash)
			if err != nil {
				t.Fatal(err)
			}
			for i := range want {
				if d := math.Abs(got[i] - want[i]); !(d <= 1e-12*want[i]) {
					t.Errorf("%dx%d, rank lost at %d: step %d has loss %v, 1x1 %v", m.Head, m.Ring,
						crash, i, got[i], want[i])
				}
			}
		}
	}
}
