package main

import (
	"fmt"
	"os"
)

func Example() {
	if err := follow(os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// block of rank 0: tokens [0 1 10 11] of 12, on a ring of 3
	// forward
	//   0.6  the block has hopped from rank 0 to rank 1
	//   1.0  rank 0 has attended it
	//   1.2  the block has hopped from rank 1 to rank 2
	//   2.0  rank 1 has attended it
	//   3.0  rank 2 has attended it
	// backward
	//   0.6  the block has hopped from rank 0 to rank 1
	//   1.0  rank 0 has attended it, and has its own part of the gradient
	//   1.2  the block has hopped from rank 1 to rank 2
	//   1.6  its gradient has hopped from rank 0 to rank 1
	//   2.0  rank 1 has attended it, and has its own part of the gradient
	//   2.1  rank 1 has added its part to the gradient that came
	//   2.7  its gradient has hopped from rank 1 to rank 2
	//   3.0  rank 2 has attended it, and has its own part of the gradient
	//   3.1  rank 2 has added its part to the gradient that came
	//   3.7  its gradient, complete, has hopped from rank 2 to rank 0
}
