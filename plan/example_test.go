package plan_test

import (
	"fmt"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/headshuffle"
	"github.com/kvloom/kvloom/mesh"
	"github.com/kvloom/kvloom/plan"
	"github.com/kvloom/kvloom/ringbus"
)

// A plan is built rank by rank, proven, and read as text.
func ExampleVerify() {
	p, err := plan.New(plan.Spec{
		Shape: plan.Shape{QTokens: 4, KTokens: 4, QHeads: 1, KHeads: 1, Dim: 2, VDim: 2,
			ElemBytes: 4, AccBytes: 4, Scale: 1, Mask: attn.Causal(4, 4)},
		Mesh: mesh.Mesh{Head: 1, Ring: 2}, Ring: ringbus.Ring{}, Heads: headshuffle.AllToAll{},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := plan.Verify(p)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("violations:", report.Err())
	prog, err := p.Program(plan.Forward, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range prog.Ops {
		fmt.Println(string(prog.AppendOp(nil, p.Header(), i)))
	}
	// Output:
	// violations: <nil>
	// 0 zero wst[c1 h0:1]@s2 t0
	// 1 send rkv[c1 h0:1]@s0 ->0/0 t4
	// 2 attend rq[c1 h0:1]@s1 rkv[c1 h0:1]@s0 +st[c1 h0:1]@s2 t0 after 0
	// 3 recv wkv[c0 h0:1]@s3 <-0/0 t4
	// 4 attend rq[c1 h0:1]@s1 rkv[c0 h0:1]@s3 +st[c1 h0:1]@s2 t4 after 3 2
	// 5 release rkv[c0 h0:1]@s3 t4 after 4
	// 6 finalize cst[c1 h0:1]@s2 wo[c1 h0:1]@s2 t4 after 4
}
