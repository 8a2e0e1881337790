package attn

import (
	"fmt"
	"math"
)

// Cap is a soft cap of logits, 0 for none: s becomes c tanh(s/c), which lies in (-c, c) and has the
// slope 1 at 0 (Gemma Team, Gemma 2, 2024, section 2). An infinite logit becomes the cap.
type Cap float64

// Of is the capped logit.
func (c Cap) Of(s float64) float64 {
	if c == 0 {
		return s
	}
	return float64(c) * math.Tanh(s/float64(c))
}

// Slope is the derivative of Of at the logit s: 1 - tanh^2(s/c). It is computed as 4e/(1+e)^2 with
// e = exp(-2|s|/c), which keeps its digits near the cap, where the difference loses them.
func (c Cap) Slope(s float64) float64 {
	if c == 0 {
		return 1
	}
	e := math.Exp(-2 * math.Abs(s) / float64(c))
	return 4 * e / ((1 + e) * (1 + e))
}

// validate refuses what is no cap.
func (c Cap) validate() error {
	if x := float64(c); !(x >= 0) || math.IsInf(x, 0) {
		return fmt.Errorf("attn: soft cap is %v: it must be finite and above 0, or 0 for none", x)
	}
	return nil
}
