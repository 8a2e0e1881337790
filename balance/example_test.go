package balance_test

import (
	"fmt"

	"github.com/kvloom/kvloom/attn"
	"github.com/kvloom/kvloom/balance"
)

// Two documents of 12 and 4 tokens, causal inside each, on two ranks of which one has half the
// speed of the other.
func ExampleDeal() {
	p := balance.Problem{QTokens: 16, KTokens: 16, Ring: 2, Weights: []float64{1, 0.5},
		Mask: attn.Mask{
			{Q0: 0, Q1: 12, K0: 0, K1: 12, Lo: -attn.Unbounded},
			{Q0: 12, Q1: 16, K0: 12, K1: 16, Lo: -attn.Unbounded},
		}}
	_, report, err := balance.Deal(p)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("pairs %v, largest over mean %.2f\n", report.Area, report.Imbalance)
	// Output:
	// pairs [59 29], largest over mean 1.01
}
