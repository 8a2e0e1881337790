package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestExpSingle(t *testing.T) {
	var table powers
	table.fill()
	rng := rand.New(rand.NewPCG(1, 1))
	worst := 0.0
	try := func(x float32) {
		got, want := float64(expOf(&table, x, 0)), math.Exp(float64(x))
		if want < 0x1p-126 {
			if got != 0 && got != want {
				t.Fatalf("e^%v = %v: neither 0 nor right", x, got)
			}
			return
		}
		worst = max(worst, math.Abs(got/want-1))
	}
	for range 300000 {
		try(float32(-87.3 * rng.Float64()))
		try(float32(88.7 * rng.Float64()))
		try(float32(-rng.ExpFloat64() * 0.01))
	}
	for k := -64 * 126; k < 64*127; k++ { // the borders between powers
		x := float32((float64(k) + 0.5) * powerStep)
		for range 3 {
			try(x)
			x = math.Nextafter32(x, 100)
		}
	}
	if worst > 6.8e-8 {
		t.Errorf("relative error %.3g, allowed 6.8e-8", worst)
	}
}

func TestExpEdges(t *testing.T) {
	var table powers
	table.fill()
	inf := float32(math.Inf(1))
	for _, c := range []struct{ x, base, want float32 }{
		{0, 0, 1}, {5, 5, 1}, {-inf, 0, 0}, {-inf, 3, 0}, {-87.4, 0, 0}, {-1e30, 0, 0},
		{-3e38, 3e38, 0}, {1, inf, 0}, {inf, 0, inf}, {89, 0, inf}, {3e38, -3e38, inf},
	} {
		if got := expOf(&table, c.x, c.base); got != c.want {
			t.Errorf("e^(%v - %v) = %v, want %v", c.x, c.base, got, c.want)
		}
	}
	nan := float32(math.NaN())
	for _, c := range [][2]float32{{nan, 0}, {0, nan}, {inf, inf}} {
		if got := expOf(&table, c[0], c[1]); got == got {
			t.Errorf("e^(%v - %v) = %v, want NaN", c[0], c[1], got)
		}
	}
	row := []float64{1, 2, math.Inf(-1)}
	if sum := expRow(&table, row, 2); row[0] != math.Exp(-1) || row[1] != 1 || row[2] != 0 ||
		sum != math.Exp(-1)+1 {
		t.Errorf("f64 row %v sum %v", row, sum)
	}
}
