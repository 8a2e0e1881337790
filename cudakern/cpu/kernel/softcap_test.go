package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestCapSingle(t *testing.T) {
	var table powers
	table.fill()
	rng := rand.New(rand.NewPCG(1, 1))
	worst, worstSlope := 0.0, 0.0
	for n := range 400000 {
		limit := []float64{0.01, 1, 30, 50, 1e4}[n%5]
		size := []float64{1e-4, 0.05, 0.25, 1, 4, 30}[n%6]
		x := float32(limit * size * rng.NormFloat64())
		row, slope := [1]float32{x}, [1]float32{}
		capRow(&table, row[:], slope[:], limit)
		tanh, cosh := math.Tanh(float64(x)/limit), math.Cosh(float64(x)/limit)
		worst = max(worst, math.Abs(float64(row[0])/(limit*tanh)-1))
		worstSlope = max(worstSlope, math.Abs(float64(slope[0])-1/(cosh*cosh)))
		if want := 1 / (cosh * cosh); want > 1e-30 && math.Abs(float64(slope[0])/want-1) > 1.3e-7 {
			t.Fatalf("slope at %v of cap %v is %v, want %v", x, limit, slope[0], want)
		}
	}
	for x := float32(0.1249); x < 0.1251; x = math.Nextafter32(x, 1) { // where the two ways meet
		row := [1]float32{x}
		capRow(&table, row[:], nil, 1)
		worst = max(worst, math.Abs(float64(row[0])/math.Tanh(float64(x))-1))
	}
	if worst > 1e-7 || worstSlope > 7e-8 {
		t.Errorf("relative error %.3g, allowed 1e-7; slopes %.3g, allowed 7e-8", worst, worstSlope)
	}
}

func TestCapEdges(t *testing.T) {
	var table powers
	table.fill()
	inf := float32(math.Inf(1))
	row := []float32{0, inf, -inf, 3e38, -3e38, 0x1p-149, float32(math.NaN())}
	slope := make([]float32, len(row))
	capRow(&table, row, slope, 20)
	for i, want := range []float32{0, 20, -20, 20, -20, 0x1p-149} {
		if row[i] != want {
			t.Errorf("score %d is %v, want %v", i, row[i], want)
		}
	}
	for i, want := range []float32{1, 0, 0, 0, 0, 1} {
		if slope[i] != want {
			t.Errorf("slope %d is %v, want %v", i, slope[i], want)
		}
	}
	if row[6] == row[6] || slope[6] == slope[6] {
		t.Errorf("NaN became %v, slope %v", row[6], slope[6])
	}
	double := []float64{30, -2}
	capRow(&table, double, nil, 20)
	if double[0] != 20*math.Tanh(1.5) || double[1] != 20*math.Tanh(-0.1) {
		t.Errorf("f64: %v", double)
	}
}
