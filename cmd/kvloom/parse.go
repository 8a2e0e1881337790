package main

import (
	"errors"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/kvloom/kvloom/mesh"
)

// parseSize reads a whole number, with K, M or G for powers of 1024.
func parseSize(s string) (uint64, error) {
	digits := strings.TrimRight(s, "KMG")
	shift, ok := 0, true
	switch s[len(digits):] {
	case "":
	case "K":
		shift = 10
	case "M":
		shift = 20
	case "G":
		shift = 30
	default:
		ok = false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || !ok || bits.Len64(n)+shift > 63 {
		return 0, errors.New("is not a whole number from 0 on, such as 96, 4K (4096), 1M or 1G")
	}
	return n << shift, nil
}

// parseCount reads the value of a flag that counts something: a size from 1 to most.
func parseCount(flag, value string, most int) (int, error) {
	n, err := parseSize(value)
	if err != nil {
		return 0, badValue(flag, value, "%v", err)
	}
	if n < 1 || n > uint64(most) {
		return 0, badValue(flag, value, "use 1 to %d", most)
	}
	return int(n), nil
}

// parseMesh reads HxC.
func parseMesh(value string) (mesh.Mesh, error) {
	h, c, _ := strings.Cut(value, "x")
	head, ok := parseDegree(h)
	ring, ok2 := parseDegree(c)
	if !ok || !ok2 {
		return mesh.Mesh{}, badValue("mesh", value,
			"is not a head degree x ring degree such as 2x4")
	}
	m := mesh.Mesh{Head: head, Ring: ring}
	if err := m.Validate(); err != nil {
		return mesh.Mesh{}, badLaw("mesh", value, err)
	}
	return m, nil
}

// parseDegree reads a whole number in its one way of writing: no sign, no leading zeros.
func parseDegree(digits string) (int, bool) {
	n, err := strconv.Atoi(digits)
	return n, err == nil && strconv.Itoa(n) == digits && n >= 0
}

// badLaw is badValue for an error of a pure package, which names the value itself.
func badLaw(flag, value string, err error) error {
	return badValue(flag, value, "%s", strings.TrimPrefix(err.Error(), flag+" "+value+" "))
}

// parseScale reads a finite decimal number that the elements' type can hold.
func parseScale(value string, f32 bool, dim int) (float64, error) {
	if strings.ContainsAny(value, "xX_") {
		return 0, badValue("scale", value, "is not a decimal number: use one such as %.4g, which "+
			"is 1/sqrt(%d)", defaultScale(dim), dim)
	}
	x, err := strconv.ParseFloat(value, 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		return 0, badValue("scale", value, "is not a finite number: use a number such as %.4g, "+
			"which is 1/sqrt(%d)", defaultScale(dim), dim)
	}
	if f32 && math.Abs(x) > math.MaxFloat32 {
		return 0, badValue("scale", value, "is beyond f32: use at most %.3g, or --dtype f64",
			math.MaxFloat32)
	}
	return x, nil
}

// defaultScale is attention's usual one.
func defaultScale(dim int) float64 { return 1 / math.Sqrt(float64(dim)) }

func parseSeed(flag, value string) (uint64, error) {
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return 0, badValue(flag, value, "is not a whole number from 0 to %d",
			uint64(math.MaxUint64))
	}
	return n, nil
}

func parseDeadline(value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil {
		return 0, badValue("deadline", value, "is not a duration: use one such as 30s or 500ms")
	}
	if d < time.Millisecond {
		return 0, badValue("deadline", value, "is below the limit of 1ms: use one such as 30s")
	}
	return d, nil
}

// divisors lists those of n in words, at most the eight largest.
func divisors(n int) string {
	var all []string
	for d := n; d >= 1; d-- {
		if n%d == 0 {
			all = append(all, strconv.Itoa(d))
		}
	}
	if len(all) > 8 {
		return strings.Join(all[:8], ", ") + " or another divisor"
	}
	return listed(all, "or")
}
